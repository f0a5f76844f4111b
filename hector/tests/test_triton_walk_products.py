# SPDX-License-Identifier: Apache-2.0
"""Kernels that walk and multiply, which the cost model takes where they are fast: taken here."""

import pytest
import torch
from relational_layers import LAYERS, graph, outputs_and_gradients
from test_triton_layers import small

import hector
from hector.emit.triton import cost
from hector.emit.triton.groups import Family
from hector.forms import Forms

FORMS = (Forms(False, True), Forms(False, False, True, True), Forms(True, False, True, True))
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def taken(monkeypatch):
    monkeypatch.setitem(cost.SHARES, Family.WALK_PRODUCT, 10.0)
    monkeypatch.setattr(cost, "WALK_AND_LINEAR", 10.0)


@pytest.mark.parametrize("sizes", [(30, 200, 4), (300, 3000, 3), (5, 0, 3), (2, 400, 2)])
@pytest.mark.parametrize("forms", FORMS, ids=str)
@pytest.mark.parametrize("name", ["rgcn", "rgat", "rgcn_sum"])
def test_walks_that_multiply_equal_eager(name, forms, sizes):
    g = graph(*sizes)
    tensors = small(name, g, 16, 16)
    doubles = [tensor.detach().double().requires_grad_() for tensor in tensors]
    compiled = hector.compile(LAYERS[name], forms=forms, emitter="triton")
    expected = outputs_and_gradients(LAYERS[name], g, doubles)
    found = outputs_and_gradients(compiled, g, tensors)
    again = outputs_and_gradients(compiled, g, tensors)
    kernels = compiled.explain(g, *tensors).programs.values()
    walks = [k for each in kernels for k in each.kernels if k.family == Family.WALK_PRODUCT.value]
    assert walks
    for a, b, c in zip(found, again, expected, strict=True):
        scale = max(float(c.detach().abs().max()) if c.numel() else 0.0, 1.0)
        torch.testing.assert_close(a, c.float(), rtol=1e-4, atol=1e-5 * scale)
        assert torch.equal(a, b)
