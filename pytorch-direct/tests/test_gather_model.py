# SPDX-License-Identifier: Apache-2.0
"""The model that decides whether to order a batch by address."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from pytorch_direct import GatherModel, gather_model, set_gather_model
from pytorch_direct.ops import gather_cuda
from pytorch_direct.ops import gather_model as module

# Row bytes, GB/s in random and in ordered gathers of 2^20 ids (2^19 at 2 KiB), measured on an H200.
MEASURED = {
    8: [(64, 2.5, 17.2), (128, 4.8, 34.3), (256, 8.9, 50.8), (512, 16.5, 51.5), (1024, 31.2, 51.9),
        (2048, 50.6, 52.5)],
    48: [(64, 1.9, 3.3), (128, 3.7, 6.9), (256, 7.2, 14.3), (512, 14.1, 28.6), (1024, 27.9, 50.6),
         (2048, 50.4, 51.0)],
}  # fmt: skip


@pytest.fixture(autouse=True)
def built_in_model():
    set_gather_model(None)
    yield
    set_gather_model(None)


@pytest.mark.parametrize("gib", MEASURED)
def test_predictions_are_within_a_third_of_what_was_measured(gib):
    for row_bytes, given, ordered in MEASURED[gib]:
        count = 2**19 if row_bytes == 2048 else 2**20
        seen = gather_model().predict((gib << 30) // row_bytes, row_bytes, row_bytes, count)
        moved = count * row_bytes / 1e9
        assert seen.as_given == pytest.approx(moved / given, rel=0.34)
        assert seen.ordered == pytest.approx(moved / ordered, rel=0.34)


def test_ordering_pays_for_narrow_rows_of_large_tables_only():
    def pays(*batch: int) -> bool:
        return gather_model().predict(*batch).ordering_pays

    assert pays(2**27, 64, 64, 2**20)
    assert pays(2**23, 1024, 1024, 2**20)
    assert not pays(2**14, 64, 64, 2**20)  # within what stays translated
    assert not pays(2**27, 64, 64, 100)  # the sort costs more
    assert not pays(2**20, 8192, 8192, 2**18)  # bound by bytes
    assert not pays(2**27, 0, 64, 2**20)  # one row, expanded


def test_merging_pays_where_even_uniform_draws_repeat():
    assert module.way_of(2**15, 4096, 4096, 2**20) == "merged"
    assert module.way_of(2**30, 64, 64, 2**20) == "ordered"
    assert module.way_of(2**22, 8192, 8192, 2**10) == "as given"


def test_model_can_be_replaced_and_read_from_a_file(tmp_path, monkeypatch):
    values = dataclasses.asdict(gather_model())
    never = GatherModel(**{**values, "sort_seconds": 1e9})
    set_gather_model(never)
    assert gather_model() is never
    assert module.way_of(2**27, 64, 64, 2**20) == "as given"
    set_gather_model(None)
    assert module.way_of(2**27, 64, 64, 2**20) == "ordered"

    path = tmp_path / "model.json"
    path.write_text(json.dumps({**values, "measured_on": "elsewhere"}))
    assert GatherModel.load(path).measured_on == "elsewhere"
    monkeypatch.setenv("DATAPATH_GATHER_MODEL", str(path))
    module._from_file.cache_clear()
    try:
        assert gather_model().measured_on == "elsewhere"
    finally:
        module._from_file.cache_clear()


@pytest.mark.parametrize(
    "change",
    [{"link_bytes_per_second": 0}, {"sm_share": 1.5}, {"sort_seconds": -1}, {"region_bytes": 0},
     {"blocks_per_multiprocessor": 0}, {"host_blocks": 0}, {"regions_per_second": float("nan")},
     {"host_blocks": 8.5}, {"host_blocks": 10**12}, {"host_blocks": "8"}, {"host_blocks": True},
     {"region_bytes": None}, {"measured_on": 3}, {"link_bytes_per_second": float("inf")}],
)  # fmt: skip
def test_constants_out_of_their_domain_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        dataclasses.replace(gather_model(), **change)


def test_files_with_other_keys_are_refused(tmp_path):
    path = tmp_path / "model.json"
    path.write_text('{"region_bytes": 1}')
    with pytest.raises(ValueError, match="exactly these constants"):
        GatherModel.load(path)
    with pytest.raises(TypeError):
        set_gather_model({"region_bytes": 1})


def test_a_file_that_is_broken_is_named_and_a_saved_one_left_out(tmp_path, monkeypatch, caplog):
    saved = tmp_path / "saved.json"
    values = dataclasses.asdict(module.built_in_model())
    monkeypatch.setattr(module, "saved_path", lambda: saved)
    monkeypatch.delenv("DATAPATH_GATHER_MODEL", raising=False)
    for text in ("", "{", json.dumps({**values, "host_blocks": "8"})):
        saved.write_text(text)
        with pytest.raises(ValueError, match=re.escape(str(saved))):
            GatherModel.load(saved)
        caplog.clear()
        module._from_file.cache_clear()
        try:
            assert gather_model() == module.built_in_model()
        finally:
            module._from_file.cache_clear()
        assert "left out" in caplog.text


@pytest.mark.parametrize(
    ("on_host", "share", "expected"),
    [
        (True, None, (8, 24, 132)),
        (True, 0.1, (8, 24, 13)),
        (True, 0.001, (8, 24, 1)),
        (False, None, (528, 528, 528)),
        (False, 0.5, (264, 264, 264)),
    ],
)
def test_blocks_stay_within_the_share(monkeypatch, on_host, share, expected):
    monkeypatch.setattr(gather_cuda, "_multiprocessors", lambda device: 132)
    set_gather_model(module.built_in_model())
    assert gather_cuda.launch_blocks(0, on_host, share) == expected
