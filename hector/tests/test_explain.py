# SPDX-License-Identifier: Apache-2.0
"""The account of a compilation says what runs."""

import torch
from relational_layers import LAYERS, graph, inputs, maker

import hector


def test_explanation_of_training():
    g = graph()
    tensors = inputs("rgcn", g, maker(torch.float32), 8, 8)
    layer = hector.compile(LAYERS["rgcn"])
    explained = layer.explain(g, *tensors)
    names = [name for name, _ in explained.stages]
    assert names[0] == "trace"
    assert names[-2:] == ["forward: fuse", "backward: fuse"]
    assert "differentiate" in names
    assert explained.bytes > 0
    assert explained.flops >= 3 * 2 * g.num_nodes * 8 * 8
    text = str(explained)
    for part in ("== trace\nfunc rgcn(", "== forms", "== backward:", "def rgcn_backward(plan"):
        assert part in text
    marked = [line for line in text.splitlines() if line.startswith("* ")]
    assert len(marked) == 1
    assert marked[0].endswith(str(explained.forms))


def test_explanation_of_inference_has_no_backward():
    g = graph()
    tensors = inputs("rgcn", g, maker(torch.float32, grad=False), 8, 8)
    text = str(hector.compile(LAYERS["rgcn"]).explain(g, *tensors))
    assert "backward" not in text
    assert "differentiate" not in text


def test_fixed_forms_are_used():
    g = graph()
    tensors = inputs("rgcn", g, maker(torch.float32), 8, 8)
    explained = hector.compile(LAYERS["rgcn"], forms="aggregate_first").explain(g, *tensors)
    assert explained.forms == hector.Forms(aggregate_first=True)
    assert list(explained.predicted_seconds) == [explained.forms]
    assert "type='dst_pair.rel'" in explained.source
