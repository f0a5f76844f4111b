# SPDX-License-Identifier: Apache-2.0
"""Which memory the values of Triton programs take, and in what order kernels run for that."""

import pytest
import torch

import hector
from hector.emit.triton.arrange import arrange
from hector.emit.triton.cost import stored_values
from hector.emit.triton.expand import expand
from hector.emit.triton.groups import Family
from hector.emit.triton.sequence import in_turn, memory, replaced
from hector.ir import parse
from hector.measure.layers import LAYERS
from hector.measure.shapes import Shape
from hector.plan import Counts

COUNTS = Counts(1000, 9000, 5000, 5000, 7, 3)
ROW = 64 * 4


def arranged(text):
    expanded, groups = arrange(expand(parse(text)), COUNTS)
    return expanded, in_turn(expanded, groups, COUNTS), stored_values(expanded, groups)


def taken(text):
    """Operators whose results take the place of others, with what those were."""
    expanded, groups, stored = arranged(text)
    return {(new.op, old.op) for new, old in replaced(expanded, groups, stored).items()}


def test_a_product_takes_the_place_of_its_rows():
    text = """func f(%x: node[64] f32, %w: weight[64, 64] f32, %v: weight[64, 64] f32) {
        %0 = linear(%x, %w) : node[64] f32
        %1 = linear(%0, %v) : node[64] f32
        return %1
    }"""
    assert taken(text) == {("linear", "linear")}
    assert memory(*arranged(text), COUNTS) == COUNTS.node * ROW


@pytest.mark.parametrize(
    "line",
    [
        "%1 = linear(%0, %v) {rows = edge.src} : edge[64] f32",  # rows are read many times
        "%1 = linear(%0, %v) {transpose = True} : node[64] f32\n %2 = mul(%1, %0) : node[64] f32",
    ],
)
def test_rows_that_others_read_stay(line):
    last = "%2" if "%2" in line else "%1"
    text = f"""func f(%x: node[64] f32, %w: weight[64, 64] f32, %v: weight[64, 64] f32) {{
        %0 = linear(%x, %w) : node[64] f32
        {line}
        return {last}
    }}"""
    assert ("linear", "linear") not in taken(text)


def test_results_and_rows_read_through_maps_stay():
    text = """func f(%x: node[64] f32, %w: weight[64, 64] f32) {
        %0 = linear(%x, %w) : node[64] f32
        %1 = gather_sum(%0) {map = edge.dst, rows = edge.src} : node[64] f32
        %2 = add(%1, %x) : node[64] f32
        return %0, %2
    }"""
    assert taken(text) == set()


@pytest.mark.parametrize("name", list(LAYERS))
def test_kernels_come_after_those_that_they_read(name):
    layer = LAYERS[name]
    g = layer.draw(Shape("small", 30, 200, 4, 4), "cpu")
    function = hector.compile(layer.function)._match((g, *layer.inputs(g)), {}).trace.function
    lowered = hector.compiler.lower(
        function, frozenset(p.attrs["name"] for p in function.params),
        hector.Forms(True, False, True, True), hector.passes.node_routes(COUNTS), True,
    )  # fmt: skip
    for made in (lowered.forward, lowered.backward):
        expanded, groups = arrange(expand(made), COUNTS)
        stored = stored_values(expanded, groups)
        order = in_turn(expanded, groups, COUNTS)
        assert set(order) == set(groups)
        before = memory(expanded, groups, stored, COUNTS)
        assert memory(expanded, order, stored, COUNTS) <= before
        done = set()
        for each in order:
            done |= set(each.ops)
            read = {value for op in each.ops for value in op.operands}
            assert not {v for other in groups for v in other.ops if v in read} - done
        for new, old in replaced(expanded, order, stored).items():
            home = next(i for i, each in enumerate(order) if new in each.ops)
            assert order[home].family is not Family.HOST
            assert not any(old in op.operands for each in order[home + 1 :] for op in each.ops)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", list(LAYERS))
def test_programs_in_place_equal_pytorchs_on_a_gpu(name, dtype):
    layer = LAYERS[name]
    g = layer.draw(Shape("many tiles", 60_000, 700_000, 30, 5), "cuda")
    inputs = layer.inputs(g, dtype=dtype)
    forms = hector.Forms(fold=True, compact_src=True)
    ours = hector.compile(layer.function, forms=forms, emitter="triton")
    exact = tuple(t.detach().double().requires_grad_() for t in inputs)
    theirs = hector.compile(layer.function, emitter="torch")
    seeds = torch.randn(g.num_nodes, 64, device="cuda", dtype=dtype)

    def step(run, tensors):
        out = run(g, *tensors)
        return (out, *torch.autograd.grad(out, tensors, seeds.to(out.dtype)))

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        found, again, expected = step(ours, inputs), step(ours, inputs), step(theirs, exact)
    finally:
        torch.set_float32_matmul_precision(before)
    bound = 1e-4 if dtype is torch.float32 else 0.1
    for a, b, c in zip(found, again, expected, strict=True):
        assert torch.equal(a, b)
        difference = (a.double() - c).square().sum() / c.square().sum()
        assert float(difference) ** 0.5 < bound
