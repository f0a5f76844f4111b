# SPDX-License-Identifier: Apache-2.0
"""gather under torch.compile."""

from __future__ import annotations

import pytest
import torch

from pytorch_direct import gather, scatter_add_, unified


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_plain_tables_are_traced_whole():
    table, ids = torch.randn(20, 3), torch.tensor([3, 3, 19])

    @torch.compile(backend="aot_eager", fullgraph=True)
    def double(table, ids):
        return gather(table, ids, dtype=torch.float64) * 2

    assert torch.equal(double(table, ids), table[ids].double() * 2)
    with pytest.raises(IndexError):
        double(table, torch.tensor([0, 1, 20]))


def test_gradients_flow_through_the_traced_operator():
    table = torch.randn(20, 3, requires_grad=True)
    ids = torch.tensor([3, 3, 19])
    compiled = torch.compile(lambda t, i: gather(t, i).square().sum(), backend="aot_eager")
    compiled(table, ids).backward()
    expected = torch.zeros(20, 3).index_add_(0, ids, 2 * table.detach()[ids])
    assert torch.equal(table.grad, expected)


def test_unified_tables_run_outside_of_the_graph():
    table, ids = torch.randn(20, 3), torch.tensor([3, 3, -1])

    @torch.compile(backend="aot_eager")
    def double(table, ids):
        return table[ids] * 2 + gather(table, ids % 20)

    assert torch.equal(double(unified(table), ids), table[ids] * 3)


def test_a_whole_graph_over_a_unified_table_says_what_to_do():
    compiled = torch.compile(lambda u, i: gather(u, i), backend="aot_eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="device_view"):
        compiled(unified(torch.randn(20, 3)), torch.tensor([3]))


def test_operator_is_registered_as_torch_asks():
    operator = torch.ops.pytorch_direct.gather.default
    table = torch.randn(20, 3, requires_grad=True)
    torch.library.opcheck(operator, (table, torch.tensor([3, 3, 19]), torch.float32))


def test_additions_are_traced_whole():
    ids, rows = torch.tensor([3, 3, 19]), torch.randn(3, 4)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def added(table, ids, rows):
        scatter_add_(table, ids, rows)
        return table * 2

    table = torch.zeros(20, 4)
    expected = torch.zeros(20, 4).index_add_(0, ids, rows)
    assert torch.equal(added(table, ids, rows), expected * 2)
    assert torch.equal(table, expected)
    operator = torch.ops.pytorch_direct.scatter_add_.default
    torch.library.opcheck(operator, (torch.zeros(20, 4), ids, rows))


def test_scale_is_traced_and_has_its_gradient():
    table = torch.randn(20, 3, requires_grad=True)
    ids, factors = torch.tensor([3, 3, 19]), torch.rand(20)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def scaled(table, ids, factors):
        return gather(table, ids, scale=factors) + gather(table, ids, scale=0.5)

    rows = scaled(table, ids, factors)
    factor = factors[ids][:, None] + 0.5
    torch.testing.assert_close(rows, table[ids] * factor)
    rows.sum().backward()
    expected = torch.zeros(20, 3).index_add_(0, ids, factor.expand(3, 3))
    torch.testing.assert_close(table.grad, expected)
