# SPDX-License-Identifier: Apache-2.0
"""The account of a compilation says what runs."""

import xml.etree.ElementTree as ET

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker
from test_operators import CASES, inputs_of

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
    assert 0 < explained.roofline <= 1
    text = str(explained)
    for part in (
        "of the roofline",
        "== trace\nfunc rgcn(",
        "== forms",
        "== backward:",
        "def rgcn_backward(plan",
    ):
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


def test_forms_keep_to_a_workspace():
    g = graph(40, 2000, 30)
    tensors = inputs("rgat", g, maker(torch.float64), 16, 16)

    def choice(limit):
        layer = hector.compile(LAYERS["rgat"], max_workspace=limit)
        torch.testing.assert_close(layer(g, *tensors), LAYERS["rgat"](g, *tensors))
        found = layer.explain(g, *tensors)
        return next(each for each in found.considered if each.in_use), found.considered

    fastest, considered = choice(None)
    assert fastest.seconds == min(each.seconds for each in considered)
    least = min(each.memory for each in considered)
    most = max(each.memory for each in considered)
    assert least < most
    chosen = [choice(int(limit))[0] for limit in (least * 1.3, (least + most) / 2, most * 1.3)]
    # Counts are rounded to an eighth before forms are compared.
    assert chosen[0].memory <= least * 1.3 * 1.125
    times = [each.seconds for each in chosen]
    assert times == sorted(times, reverse=True)
    assert chosen[-1].seconds == fastest.seconds
    assert choice(0)[0].memory == least


def test_fixed_forms_are_used():
    g = graph()
    tensors = inputs("rgcn", g, maker(torch.float32), 8, 8)
    explained = hector.compile(LAYERS["rgcn"], forms="aggregate_first").explain(g, *tensors)
    assert explained.forms == hector.Forms(aggregate_first=True)
    assert list(explained.predicted_seconds) == [explained.forms]
    assert "type='dst_pair.rel'" in explained.source


@pytest.mark.parametrize("case", CASES)
def test_everything_can_be_explained_and_drawn(case):
    g = graph()
    explained = hector.compile(CASES[case]).explain(g, *inputs_of(CASES[case], g))
    assert str(explained).count("== ") >= 3
    assert ET.fromstring(explained.svg()).tag.endswith("svg")
    assert 0 <= explained.roofline <= 1
