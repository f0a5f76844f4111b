# SPDX-License-Identifier: Apache-2.0
"""The layers that are timed compute what PyG's do, on graphs of the sizes that they are said to."""

import sys
from pathlib import Path

import pytest
import torch

import hector
from hector.measure.layers import LAYERS
from hector.measure.shapes import SHAPES, draw, draw_typed
from hector.measure.timing import runner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from hand_composition import HAND, Sorted
from pyg_layers import PYG, make_pyg

SMALL = SHAPES["aifb"].scaled(0.02)


@pytest.mark.parametrize("name", list(LAYERS))
@pytest.mark.parametrize("heads", [1, 4])
def test_compiled_layers_equal_their_text(name, heads):
    layer = LAYERS[name]
    g = layer.draw(SMALL, "cpu")
    inputs = layer.inputs(g, 16, heads)
    compiled = hector.compile(layer.function)
    torch.testing.assert_close(compiled(g, *inputs), layer.function(g, *inputs), rtol=1e-4,
                               atol=1e-4)  # fmt: skip


@pytest.mark.parametrize("name", list(LAYERS))
def test_the_hand_composition_computes_the_same(name):
    if not hasattr(torch.nn.functional, "grouped_mm"):
        pytest.skip("this PyTorch has no grouped_mm")
    layer = LAYERS[name]
    g = layer.draw(SMALL, "cpu")
    inputs = layer.inputs(g)
    made = HAND[name](Sorted.of(g, torch.float32), *inputs)
    torch.testing.assert_close(made, layer.function(g, *inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["RGCNConv", "RGATConv", "HGTConv"])
def test_pyg_computes_the_same(kind):
    pytest.importorskip("torch_geometric")
    name = next(name for name, kinds in PYG.items() if kind in kinds)
    g = LAYERS[name].draw(SMALL, "cpu")
    function, arguments, wrt = make_pyg(kind, g, 16)
    theirs = function(*arguments)
    if name == "HGT":
        rows = wrt[: g.num_node_types]
        layer = hector.nn.HGTConv.from_pyg(function.layer)
        found = layer(g, dict(zip(g.node_type_names, rows, strict=True)))
        theirs = torch.cat(theirs)
        ours = torch.cat(list(found.values()))
    else:
        scores = () if name == "RGCN" else (function.q, function.k)
        rest = (function.root,) if name == "RGCN" else scores
        ours = LAYERS[name].function(g, arguments[0], function.weight, *rest, function.bias)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    grads = runner(function, arguments, wrt, True)()
    assert any(grad is not None for grad in grads)


@pytest.mark.parametrize("make", [draw, draw_typed])
def test_drawn_graphs_have_their_sizes_and_are_the_same_again(make):
    g, again = make(SMALL), make(SMALL)
    assert g.num_edges == SMALL.edges
    assert torch.equal(g.edge_index, again.edge_index)
    assert 0.9 * SMALL.nodes <= g.num_nodes <= SMALL.nodes
    assert (g.node_type.diff() >= 0).all()


def test_relations_of_typed_graphs_lead_between_two_types():
    g = draw_typed(SMALL)
    for relation, (a, _, b) in enumerate(g.relation_names):
        here = g.rel == relation
        assert here.any()
        assert set(g.node_type[g.src[here]].tolist()) == {g.node_type_names.index(a)}
        assert set(g.node_type[g.dst[here]].tolist()) == {g.node_type_names.index(b)}
