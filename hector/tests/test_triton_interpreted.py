# SPDX-License-Identifier: Apache-2.0
"""Starts the interpreted tests of the Triton emitter where Triton is installed."""

import pytest
from triton_interpreter import run_interpreted

FILES = (
    "test_triton_layers.py",
    "test_triton_walk_products.py",
    "test_triton_graphs.py",
    "test_triton_programs.py",
    "test_triton_shapes.py",
    "test_triton_attention.py",
    "test_triton_launch_counts.py",
    "test_plan_kernels.py",
    "test_triton_inputs.py",
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FILES)
def test_under_the_interpreter(name):
    run_interpreted(name)
