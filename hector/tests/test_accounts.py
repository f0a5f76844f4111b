# SPDX-License-Identifier: Apache-2.0
"""What programs are said to move and hold, against programs small enough to count by hand."""

import inspect

import pytest
import torch

import hector
from hector.compiler import Candidates, rounded
from hector.cost import GPU
from hector.emit.account import account_of
from hector.emit.triton import TritonEmitter
from hector.explain import Explanation
from hector.frontend.trace import trace
from hector.measure.bounds import gather_bytes
from hector.measure.layers import LAYERS
from hector.measure.shapes import SHAPES
from hector.passes import node_routes

SMALL = SHAPES["aifb"].scaled(0.02)


def as_triton(name, **options):
    """What Triton would run, which needs no GPU to be said."""
    layer = LAYERS[name]
    g = layer.draw(SMALL, "cpu")
    inputs = layer.inputs(g, **options)
    names = dict(enumerate(inspect.signature(layer.function).parameters))
    traced = trace(layer.function, g, (g, *inputs), {}, names)
    wrt = frozenset(item.name for item in traced.inputs)
    counts = rounded(g.plan().counts)
    emitter = TritonEmitter(torch.device("cpu"))
    candidates = Candidates(traced.function, wrt, node_routes(counts), emitter)
    return Explanation(candidates.build(counts, None, GPU), g.plan().counts)


def sums(g, x):
    return hector.aggregate(x[g.src], g)


def test_a_sum_moves_a_row_for_each_edge_and_each_node():
    g = LAYERS["RGCN"].draw(SMALL, "cpu")
    x = torch.randn(g.num_nodes, 16)
    explained = hector.compile(sums, emitter="torch").explain(g, x)
    (kernel,) = explained.programs["forward"].kernels
    assert kernel.name == "gather_sum"
    rows, ids = (g.num_edges + g.num_nodes) * 16 * 4, g.num_edges * 8
    assert kernel.bytes == rows + ids
    assert explained.programs["forward"].memory == g.num_nodes * 16 * 4
    assert rows < gather_bytes(explained.counts, 16, 4, backward=False) < rows + ids


@pytest.mark.parametrize("name", list(LAYERS))
def test_kernels_of_the_account_are_kernels_of_the_program(name):
    explained = as_triton(name)
    for account in explained.programs.values():
        assert account.kernels
        for kernel in account.kernels:
            assert kernel.bytes > 0
            if kernel.family != "operator":
                assert f"def {kernel.name}(" in explained.source
    assert "k1" in explained.svg()


@pytest.mark.parametrize("name", list(LAYERS))
def test_memory_lies_between_the_results_and_everything_made(name):
    layer = LAYERS[name]
    g = layer.draw(SMALL, "cpu")
    inputs = layer.inputs(g)
    explained = hector.compile(layer.function, emitter="torch").explain(g, *inputs)
    for part, account in explained.programs.items():
        function = getattr(explained._built.lowered, part)
        program = getattr(explained._built, part)
        counts = explained.counts
        everything = sum(counts.rows(t.space) * t.width * 4 for t in program.tensors)
        results = {id(value): value.type for value in function.results if value.op != "reshape"}
        least = sum(counts.rows(t.space) * t.width * 4 for t in results.values())
        assert least <= account.memory <= everything


def test_a_sum_takes_the_place_of_what_is_added_to_it():
    # The rows of the root weight, and the output: one memory, beside the pairs' rows.
    explained = as_triton("RGCN")
    counts, row = explained.counts, 64 * 4
    forms = explained.forms
    pairs = counts.edge
    if forms.aggregate_first:
        pairs = counts.dst_pair
    elif forms.compact_src:
        pairs = counts.src_pair
    assert explained.programs["forward"].memory == (pairs + counts.node) * row
    run = explained.source.split("def run(")[1]
    assert sum(f"= new_v{i}()" in run for i in range(50)) == 2


def test_nothing_is_stored_twice():
    for name in LAYERS:
        for account in as_triton(name).programs.values():
            for kernel in account.kernels:
                made = [(op.op, op.operands, str(op.attrs)) for op in kernel.stored if op.operands]
                assert len(set(made)) == len(made), kernel.name


def test_bytes_of_the_form_in_use_are_those_of_the_account():
    layer = LAYERS["RGCN"]
    g = layer.draw(SMALL, "cpu")
    explained = hector.compile(layer.function, emitter="torch").explain(g, *layer.inputs(g))
    (used,) = [each for each in explained.considered if each.in_use]
    programs = explained.programs
    assert (used.forms, used.seconds) == (
        explained.forms,
        min(explained.predicted_seconds.values()),
    )
    assert used.forward_bytes == programs["forward"].bytes
    assert used.backward_bytes == programs["backward"].bytes
    assert len(explained.considered) == 16
    assert account_of("torch", explained._built.lowered.forward, explained.counts).bytes > 0
