# SPDX-License-Identifier: Apache-2.0
"""Triton kernels, interpreted on the CPU, equal the eager text in every form."""

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker, outputs_and_gradients
from triton_interpreter import require_interpreter

import hector
from hector.forms import Forms

require_interpreter()

FORMS = (
    "auto",
    *(Forms(*choice) for choice in ((0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 0), (1, 0, 1, 1))),
    Forms(True, True, True, True),
)
# NumPy's, for lanes whose results are thrown away.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
COMPILED = {
    (name, forms): hector.compile(layer, forms=forms, emitter="triton")
    for name, layer in LAYERS.items()
    for forms in FORMS
}


def small(name, g, *widths, grad=True):
    """Inputs of the size that layers see in use: scores do not saturate."""
    tensors = inputs(name, g, maker(torch.float32, grad=False), *widths)
    return tuple((t / t.shape[-1] ** 0.5).requires_grad_(grad) for t in tensors)


def check(name, forms, g, tensors):
    compiled = COMPILED[name, forms]
    doubles = [tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in tensors]
    expected = outputs_and_gradients(LAYERS[name], g, doubles)
    found = outputs_and_gradients(compiled, g, tensors)
    assert compiled.explain(g, *tensors).emitter == "triton"
    for a, b in zip(found, expected, strict=True):
        scale = max(float(b.detach().abs().max()) if b.numel() else 0.0, 1.0)
        torch.testing.assert_close(a, b.float(), rtol=1e-4, atol=1e-5 * scale)
    again = outputs_and_gradients(compiled, g, tensors)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize("forms", FORMS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_every_form_equals_eager(name, forms):
    g = graph(30, 200)
    check(name, forms, g, small(name, g, 5, 6))


@pytest.mark.parametrize("widths", [(1, 1), (3, 64), (16, 16), (100, 3), (64, 200)])
@pytest.mark.parametrize("name", LAYERS)
def test_widths(name, widths):
    g = graph()
    check(name, "auto", g, small(name, g, *widths))


@pytest.mark.parametrize("name", LAYERS)
def test_inference(name):
    g = graph()
    with torch.no_grad():
        check(name, "auto", g, small(name, g, 8, 8, grad=False))
