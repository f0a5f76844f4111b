# SPDX-License-Identifier: Apache-2.0
"""Models with values of every shape, on random graphs: compiled and eager must agree."""

from random import Random

import pytest
import torch
from hypothesis import HealthCheck, assume, given, note, reject, settings
from hypothesis import strategies as st
from random_models import SMALL, WIDE, draw_model
from relational_layers import outputs_and_gradients
from test_compiled import graphs

import hector
from hector.forms import ALL_FORMS

REDUCTIONS = ("sum", "mean", "mean_rel", "max")
COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck)}
drawn = {
    "random": st.integers(0, 1 << 32).map(Random), "steps": st.integers(8, 40), "g": graphs(),
    "forms": st.sampled_from(["auto", *ALL_FORMS]), "seed": st.integers(0, 5),
    "sizes": st.sampled_from([SMALL, SMALL, SMALL, WIDE]),
    "wanted": st.lists(st.booleans(), min_size=40, max_size=40),
}  # fmt: skip


def results(function, g, tensors):
    """Outputs and gradients, or a rejection where a program needs a matrix for each edge."""
    try:
        return outputs_and_gradients(function, g, tensors)
    except RuntimeError as error:
        if "would need rows x k x n memory" not in str(error):
            raise
        reject()


@settings(max_examples=100, **COMMON)
@given(**drawn)
def test_any_shapes(random, steps, g, forms, seed, sizes, wanted):
    model = draw_model(random, steps, REDUCTIONS, sizes)
    note("\n".join(model.text))
    tensors = model.tensors(g, torch.float64, seed)
    for tensor, want in zip(tensors, wanted, strict=False):
        tensor.requires_grad_(want)
    expected = outputs_and_gradients(model.function(), g, tensors)
    compiled = hector.compile(model.function(), forms=forms)
    found = results(compiled, g, tensors)
    assert [a.requires_grad for a in found] == [b.requires_grad for b in expected]
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)
    again = outputs_and_gradients(compiled, g, tensors)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@settings(max_examples=25, **COMMON)
@given(**{key: value for key, value in drawn.items() if key != "wanted"})
def test_low_precision_errs_no_more_than_eager(dtype, random, steps, g, forms, seed, sizes):
    model = draw_model(
        random, min(steps, 20), REDUCTIONS[:3], sizes
    )  # A maximum may choose another.
    note("\n".join(model.text))
    # Eager computes a layer norm in fp32 inside; the torch emitter rounds its steps (guide).
    assume(not any("layer_norm" in line for line in model.text))
    tensors = model.tensors(g, dtype, seed)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    expected = outputs_and_gradients(model.function(), g, exact)
    eager = outputs_and_gradients(model.function(), g, tensors)
    found = results(hector.compile(model.function(), forms=forms), g, tensors)
    unit = torch.finfo(dtype).eps
    for a, b, c in zip(found, expected, eager, strict=True):
        assert a.dtype is dtype
        ours, theirs = ((each.double() - b).norm() for each in (a, c))
        assert ours <= 3 * theirs + 8 * unit * (b.norm() + b.numel() ** 0.5)
