# SPDX-License-Identifier: Apache-2.0
"""Times from a program of hand-written kernels for the same layers, given by its path; a yardstick.

The program must have ``graph``, ``Plan``, ``data``, ``build``, ``bench`` and ``V_`` with the forms
"A", "Afull", "TF" and "KF2"; it is not part of this repository. "A" and "KF2" are forward and
backward of RGCN with plain sums and no root weight, "Afull" RGCN's forward, "TF" RGAT's.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import hector
from hector.measure.layers import Layer
from hector.measure.shapes import Shape, draw

__all__ = ["FORMS", "SUMS", "load", "time_form"]

FORMS = {
    ("RGCN", False): "Afull",
    ("RGAT", False): "TF",
    ("RGCN of sums", False): "A",
    ("RGCN of sums", True): "KF2",
}
"""The program's name for a layer's forward (False) or backward (True)."""


def _sums(g: hector.Graph, x: Tensor, w: Tensor) -> Tensor:
    return hector.aggregate(hector.linear(x[g.src], w[g.rel]), g)


SUMS = Layer(
    "RGCN of sums", _sums, draw, lambda g, d, heads: ((g.num_nodes, d), (g.num_relations, d, d))
)
"""RGCN with nothing but the sum over all in-edges."""


def load(path: Path) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("hand_written_forms", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hand_written_forms"] = module
    spec.loader.exec_module(module)
    return module


def _configurations(module: Any, form: str, dtype: torch.dtype, small: bool) -> list[Any]:
    """What its own sweep found best for graphs of a size."""
    fp32 = dtype is torch.float32
    sums, tiles = (module.SF, module.GB) if fp32 else (module.SB, {**module.GB, "bm": 64, "wt": 1})
    if form == "KF2":
        small_rows = {"bm": 32, "gw": 4, "gu": 2, "chp": 8, "d2": 1, "chunk": 256}
        large_rows = {"bm": 32, "gw": 4, "gu": 1, "chp": 32}
        return [module.V_(sums, small_rows if small else large_rows)]
    if small:
        tiles = {"bm": 64, "gw": 4, "gs": 1, "wt": 1, "tpp": 1}
        sums = {**sums, "ch": 32}
    if form == "TF":
        rows = {"bn": 8 if fp32 and not small else 4, "nw": 1 if small else 4}
        return [module.V_(sums, tiles, {**rows, "vd": 1, "unr": 2, "sort": True})]
    return [module.V_(sums, tiles)]


def time_form(module: Any, shape: Shape, layer: str, backward: bool, dtype: torch.dtype) -> float:
    """Milliseconds of the GPU for a form on a graph of a shape."""
    form = FORMS[layer, backward]
    plan = module.Plan(
        *module.graph(shape.nodes, shape.edges, shape.relations),
        shape.nodes, shape.relations,
    )  # fmt: skip
    data = module.data(plan, dtype)
    times = []
    for chosen in _configurations(module, form, dtype, shape.edges < 1 << 20):
        steps, _, _ = module.build(form, plan, data, dtype, chosen)
        times.append(float(module.bench(steps, stages=False)[0]))
    plan.memo.clear()
    torch.cuda.empty_cache()
    return min(times)
