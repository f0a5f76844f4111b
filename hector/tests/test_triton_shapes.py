# SPDX-License-Identifier: Apache-2.0
"""Models with values of every shape as Triton kernels, interpreted on the CPU."""

from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_models import SMALL, WIDE, draw_model
from relational_layers import outputs_and_gradients
from test_compiled import graphs
from test_random_shapes import REDUCTIONS, results
from triton_interpreter import require_interpreter

import hector
from hector.forms import ALL_FORMS

require_interpreter()
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")


def agree(model, g, tensors, forms):
    """Compiled equals eager in fp64; a second pass gives the same bits, and changes nothing."""
    note("\n".join(model.text))
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    expected = outputs_and_gradients(model.function(), g, exact)
    compiled = hector.compile(model.function(), forms=forms, emitter="triton")
    found = results(compiled, g, tensors)
    for a, b in zip(found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, torch.float32)
        scale = max(1.0, float(b.detach().abs().max()) if b.numel() else 1.0)
        torch.testing.assert_close(a, b.float(), rtol=3e-3, atol=3e-3 * scale)
    given = [tensor.detach().clone() for tensor in tensors]
    outputs = compiled(g, *tensors)
    kept = [output.detach().clone() for output in outputs]
    wanted = [output for output in outputs if output.requires_grad]
    if wanted:
        seeds = [torch.ones_like(output) for output in wanted]
        first, second = (
            torch.autograd.grad(wanted, tensors, seeds, retain_graph=again, materialize_grads=True)
            for again in (True, False)
        )
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(
        torch.equal(a, b) for a, b in zip([*tensors, *outputs], [*given, *kept], strict=True)
    )


@settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    random=st.integers(0, 1 << 32).map(Random), steps=st.integers(8, 40), g=graphs(),
    forms=st.sampled_from(ALL_FORMS), seed=st.integers(0, 5),
)  # fmt: skip
def test_any_shapes(random, steps, g, forms, seed):
    model = draw_model(random, steps, REDUCTIONS, SMALL)
    agree(model, g, model.tensors(g, torch.float32, seed), forms)


@settings(deadline=None, max_examples=5, suppress_health_check=list(HealthCheck))
@given(
    random=st.integers(0, 1 << 32).map(Random), steps=st.integers(8, 24), g=graphs(),
    forms=st.sampled_from(ALL_FORMS), seed=st.integers(0, 5),
)  # fmt: skip
def test_wide_rows(random, steps, g, forms, seed):
    model = draw_model(random, steps, REDUCTIONS, WIDE)
    agree(model, g, model.tensors(g, torch.float32, seed), forms)
