# SPDX-License-Identifier: Apache-2.0
"""Triton kernels, interpreted on the CPU, equal the eager text in every form."""

import numpy as np
import pytest
import torch
from relational_layers import LAYERS, decided, graph, inputs, maker, outputs_and_gradients
from triton_interpreter import require_interpreter

import hector
from hector.emit.triton import emitter
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


@pytest.fixture
def products_of_numbers(monkeypatch):
    """Triton 3.6's interpreter multiplies the bit patterns of bf16."""
    import triton.language as tl
    from triton.runtime import interpreter

    multiply = interpreter.InterpreterBuilder.create_dot

    def number(handle):
        if handle.dtype.scalar is not tl.bfloat16:
            return handle
        wide = handle.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(wide.view(np.float32), tl.float32)

    def create_dot(self, a, b, *others):
        return multiply(self, number(a), number(b), *others)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


# In units of the largest value; the interpreter cuts bf16 off where a GPU rounds it.
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 4e-2), (torch.float16, 2.5e-3)])
@pytest.mark.parametrize("name", LAYERS)
def test_low_precision(name, dtype, bound, products_of_numbers):
    g = graph(30, 200)
    g = decided(name, g, small(name, g, 16, 16))
    tensors = [t.detach().to(dtype).requires_grad_() for t in small(name, g, 16, 16)]
    exact = [t.detach().double().requires_grad_() for t in tensors]
    expected = outputs_and_gradients(LAYERS[name], g, exact, dtype)
    found = outputs_and_gradients(hector.compile(LAYERS[name], emitter="triton"), g, tensors)
    for a, b in zip(found, expected, strict=True):
        scale = float(b.detach().abs().max())
        torch.testing.assert_close(a.double(), b, rtol=bound, atol=bound * scale)


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_products_in_tf32_have_errors_without_direction(name, monkeypatch):
    from triton.runtime import interpreter

    multiply = interpreter.InterpreterBuilder.create_dot

    def cut(handle):
        bits = np.ascontiguousarray(handle.data).view(np.uint32) & np.uint32(0xFFFFE000)
        return interpreter.TensorHandle(bits.view(np.float32), handle.dtype)

    def create_dot(self, a, b, *others):
        return multiply(self, cut(a), cut(b), *others)

    # What matrix units do.
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)
    monkeypatch.setitem(emitter.TritonEmitter.scope, "precision_on", lambda device: "tf32")
    g = graph(30, 200)
    g = decided(name, g, small(name, g, 64, 64))
    tensors = small(name, g, 64, 64)
    exact = [t.detach().double().requires_grad_() for t in tensors]
    expected = outputs_and_gradients(LAYERS[name], g, exact)
    found = outputs_and_gradients(hector.compile(LAYERS[name], emitter="triton"), g, tensors)
    for a, b in zip(found, expected, strict=True):
        scale = float(b.detach().abs().max())
        worst = float((a.detach().double() - b).abs().max())
        assert 1e-6 * scale < worst or name == "rgcn"
        assert worst < 1e-3 * scale
