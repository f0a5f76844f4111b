# SPDX-License-Identifier: Apache-2.0
"""The constants of the gather model: fitted to what was measured, saved, found again."""

from __future__ import annotations

import pytest
import torch

from datapath_core import UnsupportedError
from pytorch_direct import calibrate, gather_model, set_gather_model
from pytorch_direct.calibration import Measured, fit
from pytorch_direct.ops import gather_model as module

# What a GPU with a link of 50 GB/s, 20 M regions a second and a reach of 1 GiB would show.
MEASURED = Measured(
    gpu="a GPU",
    wide_rates={2: 20e9, 4: 49.9e9, 8: 49.5e9, 16: 50e9, 32: 49.9e9},
    row_rates={2: 20e9, 4: 40e9, 8: 48.5e9, 16: 49e9, 32: 49.9e9},
    narrow_seconds={
        **{mib << 20: 1.4e-3 for mib in (64, 128, 256, 512, 1024)},
        2048 << 20: 2**20 * 0.5 / 20e6,
        4096 << 20: 2**20 * 0.75 / 20e6,
    },
    narrow_ids=2**20,
    sorts={2**16: 1e-5 + 2e-10 * 2**16, 2**20: 1e-5 + 2e-10 * 2**20},
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DATAPATH_GATHER_MODEL", raising=False)
    module._from_file.cache_clear()
    set_gather_model(None)
    yield
    set_gather_model(None)
    module._from_file.cache_clear()


def test_fitted_to_what_was_measured():
    found = fit(MEASURED, module.built_in_model())
    assert found.measured_on == "a GPU"
    assert found.link_bytes_per_second == 50e9
    assert found.host_blocks == 8  # the fewest that keep the link full
    assert found.reach_regions == 2**14
    assert found.regions_per_second == pytest.approx(20e6)
    assert found.sort_seconds == pytest.approx(1e-5)
    assert found.sort_seconds_per_id == pytest.approx(2e-10)
    whole = found.predict(2**26, 64, 64, 2**20).as_given
    assert whole == pytest.approx(MEASURED.narrow_seconds[4096 << 20], rel=0.05)


def test_saved_and_found_again_on_this_machine(monkeypatch):
    found = fit(MEASURED, module.built_in_model())
    path = module.save_model(found)
    assert gather_model() == found
    monkeypatch.setattr("platform.node", lambda: "another machine")
    module._from_file.cache_clear()
    assert gather_model() == module.built_in_model()
    monkeypatch.undo()
    assert path.exists()


def test_a_broken_file_is_left_out_and_said_so(caplog):
    path = module.saved_path()
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert gather_model() == module.built_in_model()
    assert "calibrate() again" in caplog.text


def test_needs_a_gpu():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UnsupportedError, match="sees none"):
        calibrate()


@pytest.mark.gpu
def test_measures_this_machine(cuda):
    found = calibrate(table_gib=2)
    assert found.measured_on == torch.cuda.get_device_name()
    assert gather_model() == found
    assert 1e9 < found.link_bytes_per_second < 1e12
    assert module.saved_path().exists()
