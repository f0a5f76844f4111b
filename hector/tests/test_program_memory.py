# SPDX-License-Identifier: Apache-2.0
"""Compiled programs create nothing of the size that per-edge matrices, or edge rows, would have."""

import pytest
import torch
from relational_layers import LAYERS, inputs, maker
from torch.utils._python_dispatch import TorchDispatchMode

import hector
from hector.compiler import Candidates
from hector.emit.torch import TorchEmitter, products
from hector.forms import ALL_FORMS
from hector.ir import Space, parse

WIDTH = 24


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operator returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for item in result if isinstance(result, tuple | list) else (result,):
            if isinstance(item, torch.Tensor):
                held = sum(part.untyped_storage().nbytes() for part in parts(item))
                self.elements = max(self.elements, held // item.element_size())
        return result


def parts(tensor):
    """What holds a tensor's memory: a broadcast view owns none of its shape, a sparse one three."""
    if tensor.layout is torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return (tensor,)


def big():
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 400, (2, 6000), generator=generator)
    return hector.Graph(index, torch.randint(0, 5, (6000,), generator=generator), 400, 5)


def train(layer, g, tensors):
    out = layer(g, *tensors)
    torch.autograd.grad(out, tensors, torch.ones_like(out))


@pytest.mark.parametrize("forms", ["auto", *ALL_FORMS], ids=str)
@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_no_matrix_for_each_edge(name, forms):
    g = big()
    tensors = inputs(name, g, maker(torch.float32), WIDTH, WIDTH)
    layer = hector.compile(LAYERS[name], forms=forms)
    built = layer._specialise(layer._match((g, *tensors), {}))
    for program in (built.forward, built.backward):
        for type_ in program.tensors:
            assert type_.space is not Space.EDGE or type_.width <= WIDTH
    train(layer, g, tensors)
    with Largest() as seen:
        train(layer, g, tensors)
    assert seen.elements <= g.num_edges * WIDTH
    with Largest() as eager:
        train(LAYERS[name], g, tensors)
    assert eager.elements >= g.num_edges * WIDTH * WIDTH


@pytest.mark.parametrize("forms", ["compact", "aggregate_first"])
def test_rgcn_stores_no_rows_of_edges(forms, monkeypatch):
    monkeypatch.setattr(products, "CHUNK_BYTES", 1 << 14)
    g = big()
    tensors = inputs("rgcn", g, maker(torch.float32), WIDTH, WIDTH)
    layer = hector.compile(LAYERS["rgcn"], forms=forms)
    train(layer, g, tensors)  # builds the plan
    with Largest() as seen:
        train(layer, g, tensors)
    pairs = max(g.plan().counts.src_pair, g.plan().counts.dst_pair)
    assert pairs < g.num_edges // 2
    assert seen.elements <= max(pairs * WIDTH, g.num_edges)


def test_what_is_saved_for_backward_has_no_rows_of_edges():
    g = big()
    for name, scalars in (("rgcn", 0), ("rgat", 2)):
        tensors = inputs(name, g, maker(torch.float32), WIDTH, WIDTH)
        layer = hector.compile(LAYERS[name])
        built = layer._specialise(layer._match((g, *tensors), {}))
        params = built.lowered.backward.params
        edge = [param.type for param in params if param.type.space is Space.EDGE]
        assert all(type_.width == 1 for type_ in edge)
        assert len(edge) <= scalars


def test_emitted_source_is_readable_and_frees_early():
    text = """func f(%x: node[4] f32) {
        %0 = exp(%x) : node[4] f32
        %1 = gather(%0) {map = edge.src} : edge[4] f32
        return %1
    }"""
    source = TorchEmitter().emit(parse(text)).source
    assert "v0 = torch.exp(p_x)  # node[4] f32" in source
    assert source.index("del v0") < source.index("return")


def test_build_needs_no_graph():
    text = "func f(%x: node[4] f32) {\n%0 = exp(%x) : node[4] f32\nreturn %0\n}"
    counts = big().plan().counts
    built = Candidates(parse(text), frozenset({"x"}), frozenset(), TorchEmitter()).build(counts)
    assert [str(p.type) for p in built.lowered.backward.params] == ["node[4] f32"] * 2
