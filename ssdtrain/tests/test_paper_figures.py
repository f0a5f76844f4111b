# SPDX-License-Identifier: Apache-2.0
"""Figures carry their formulas, catalogues their sources, configurations are read or refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from datapath_core import UnsupportedError
from ssdtrain.paper import Setup, Sheet, find_drive, find_gpu, find_model, paper_plan
from ssdtrain.paper.catalogue import catalogue
from ssdtrain.paper.constants import CONSTANTS, LINKS
from ssdtrain.paper.figures import FUNCTIONS
from ssdtrain.paper.show import as_csv, as_json, explain, print_tables


@pytest.fixture
def sheet() -> Sheet:
    setup = Setup(pipeline_parallel=2, micro_batches=4)
    return paper_plan(find_model("qwen3-30b-a3b"), find_gpu("h200"), find_drive("pm1743"), setup)


def test_every_figure_is_its_formula_or_has_a_source(sheet: Sheet) -> None:
    names = set()
    for figure in sheet:
        assert figure.label
        if figure.formula:
            again = eval(figure.formula, dict(FUNCTIONS), dict(figure.inputs))
            assert again == figure.value
            # Whatever goes into a formula is explained itself.
            assert {name for name, _ in figure.inputs} - {"w"} <= names
        else:
            assert figure.source
        names.add(figure.name)


def test_formulas_use_what_is_there_and_names_are_unique() -> None:
    sheet = Sheet()
    sheet.given("a", 2, "", "two", "here")
    assert sheet.work_out("b", "", "a*max(c, 1)", "sum", c=3).value == 6
    assert "a*max(c, 1) = 6" in sheet.figure("b").explain()
    with pytest.raises(KeyError, match="missing"):
        sheet.work_out("d", "", "missing + 1", "no")
    with pytest.raises(ValueError, match="already"):
        sheet.given("a", 1, "", "again", "here")


def test_the_same_figures_in_every_form(sheet: Sheet) -> None:
    expected = {figure.name: figure.value for figure in sheet}
    read = json.loads(as_json(sheet))
    assert {name: entry["value"] for name, entry in read.items()} == expected
    rows = list(csv.DictReader(io.StringIO(as_csv(sheet))))
    assert {row["name"]: float(row["value"]) for row in rows} == expected
    text = explain(sheet)
    for figure in sheet:
        assert f"{figure.name} = " in text


def test_tables_fit_and_tell_strategies_apart(sheet: Sheet) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    print_tables(sheet, "title", console)
    text = console.export_text()
    for word in ("layer_bytes", "host, lean", "drives", "fewest stages", "lifetime_days"):
        assert word in text


@pytest.mark.parametrize("kind", ["models", "gpus", "ssds"])
def test_catalogues_have_sources_and_can_be_used(kind: str) -> None:
    find: dict[str, Any] = {"models": find_model, "gpus": find_gpu, "ssds": find_drive}
    for name, entry in catalogue(kind).items():
        assert len(entry["source"]) > 10
        assert find[kind](name.upper().replace("-", "_")) == find[kind](name)
        with pytest.raises(ValueError, match="catalogue"):
            find[kind](name + "-x")
    assert all(constant.source for constant in CONSTANTS.values())
    assert all(LINKS.values())


def test_numbers_of_ones_own_replace_the_catalogues() -> None:
    gpu = find_gpu("h200", flops=1e12, link=1e9)
    assert (gpu.flops, gpu.link, gpu.memory) == (1e12, 1e9, 141e9)
    assert gpu.link_source == "given"
    drive = find_drive("pm1743", write=1e9, rating="3DWPD")
    assert (drive.write, drive.read) == (1e9, 13.8e9)
    assert drive.endurance == pytest.approx(3 * 7.68e12 * 1825)
    own = find_drive("custom", read=2e9, write=1e9, capacity=1e12, rating="600TBW")
    assert own.endurance == 600e12
    with pytest.raises(ValueError, match="rating"):
        find_drive("custom", read=2e9, write=1e9, capacity=1e12)
    assert find_model("llama-3-8b", layers=2).layers == 2


LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 3, "intermediate_size": 1024,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000,
    "tie_word_embeddings": True,
}  # fmt: skip


def config(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return path


def test_configurations_of_transformers(tmp_path: Path) -> None:
    shape = find_model(str(config(tmp_path)))
    assert (shape.hidden, shape.layers, shape.ffn, shape.heads) == (512, 3, 1024, 8)
    assert (shape.kv_heads, shape.head_dim, shape.mlp, shape.tied) == (2, 64, "swiglu", True)
    assert find_model(str(tmp_path)) == shape
    experts = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 256}
    shape = find_model(str(config(tmp_path, model_type="qwen3_moe", head_dim=128, **experts)))
    assert (shape.experts, shape.experts_per_token, shape.ffn) == (16, 4, 256)
    assert shape.head_dim == 128
    gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    path = tmp_path / "gpt2.json"
    path.write_text(json.dumps({**gpt2, "n_inner": None}))
    shape = find_model(str(path))
    assert (shape.hidden, shape.ffn, shape.mlp) == (768, 3072, "gelu")
    shape = find_model(str(config(tmp_path, model_type="gemma3", text_config=LLAMA)))
    assert shape.hidden == 512


@pytest.mark.parametrize(
    "part", [{"kv_lora_rank": 512}, {"n_shared_experts": 1}, {"mlp_only_layers": [0]}]
)
def test_what_the_formulas_do_not_describe_is_refused(tmp_path: Path, part: Any) -> None:
    with pytest.raises(UnsupportedError):
        find_model(str(config(tmp_path, **part)))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"hidden_size": 4}'])
def test_files_that_are_no_configuration_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"config\.json"):
        find_model(str(path))


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"hidden": 512},
        {"hidden": 0, "layers": 1},
        {"hidden": 512, "layers": 0},
        {"hidden": 512, "layers": 1, "heads": 8, "kv_heads": 3},
        {"hidden": 512, "layers": 1, "experts": 4, "experts_per_token": 8},
        {"hidden": 512, "layers": 1, "experts_per_token": 2},
    ],
)
def test_sizes_that_make_no_model(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        find_model("gpt", **sizes)


def test_missing_files_are_named() -> None:
    with pytest.raises(ValueError, match=r"nowhere\.json"):
        find_model("nowhere.json")
