# SPDX-License-Identifier: Apache-2.0
"""How many kernels a layer's forward starts, second passes over long segments included."""

import inspect
import re

import pytest
import torch
from triton_interpreter import INTERPRETED

from hector.compiler import Candidates, rounded
from hector.cost import GPU
from hector.emit.triton import TritonEmitter
from hector.emit.triton.launching import Launch
from hector.forms import Forms
from hector.frontend.trace import trace
from hector.measure.layers import LAYERS
from hector.measure.shapes import SHAPES
from hector.passes import node_routes
from hector.plan import Counts

MOST = {"RGCN": 4, "RGAT": 5, "HGT": 6}
SMALL = SHAPES["aifb"].scaled(0.02)
FORMS = (Forms(), Forms(False, False, True, True), Forms(True, False, True, False))


def forward(name, counts, training, forms):
    """The traced layer's forward program, for graphs of these counts."""
    layer = LAYERS[name]
    g = layer.draw(SMALL, "cpu")
    inputs = layer.inputs(g)
    names = dict(enumerate(inspect.signature(layer.function).parameters))
    traced = trace(layer.function, g, (g, *inputs), {}, names)
    wrt = frozenset(item.name for item in traced.inputs) if training else frozenset()
    counts = rounded(g.plan().counts if counts is None else counts)
    emitter = TritonEmitter(torch.device("cpu"))
    candidates = Candidates(traced.function, wrt, node_routes(counts), emitter)
    return g, inputs, candidates.build(counts, forms, GPU).forward


def launches(program):
    return len(re.findall(r"^ +launch_(\w+)\(", program.source, re.MULTILINE))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MOST)
def test_forward(name, training):
    for shape in SHAPES.values():
        pairs = shape.edges // 2
        counts = Counts(shape.nodes, shape.edges, pairs, pairs, shape.relations, shape.types)
        for forms in FORMS:
            program = forward(name, counts, training, forms)[2]
            assert launches(program) <= MOST[name], (shape, forms)
            assert "by PyTorch" not in program.source


@pytest.mark.skipif(not INTERPRETED, reason="runs kernels: test_triton_interpreted does that")
@pytest.mark.parametrize("name", MOST)
def test_what_is_launched_is_what_the_text_says(name, monkeypatch):
    pytest.importorskip("triton")
    started = []
    plain = Launch._plain

    def counted(self, mode, tensors):
        started.append(self)
        return plain(self, mode, tensors)

    monkeypatch.setattr(Launch, "_plain", counted)
    g, inputs, program = forward(name, None, False, Forms(False, False, True, True))
    with torch.no_grad():
        program.run(g.plan(), [tensor.detach() for tensor in inputs])
    hubs = program.source.count("_hubs = Launch(")
    assert launches(program) - hubs <= len(started) <= launches(program) <= MOST[name]
