# SPDX-License-Identifier: Apache-2.0
"""Which of torch's functions ask about a tensor, view it, keep it where it is, or compute."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional
from torch.overrides import get_testing_overrides, resolve_name
from torch.utils.checkpoint import checkpoint

from pytorch_direct import UnifiedTensor, unified
from pytorch_direct.tensor import placement
from pytorch_direct.tensor.operators import Kind, kind_of

# They return no tensor, but what they return depends on the numbers.
READS_NUMBERS = {
    "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__", "__long__",
    "__nonzero__", "_assert_async", "_local_scalar_dense", "allclose", "equal", "is_nonzero",
    "item",
}  # fmt: skip
# Views where they can be, else copies.
VIEWS_PERHAPS = {
    "_autocast_to_full_precision", "_autocast_to_reduced_precision", "contiguous", "flatten",
    "ravel", "reshape", "reshape_as", "resolve_conj", "resolve_neg",
}  # fmt: skip
# Of other layouts than those of unified tensors.
NOT_OF_STRIDED = {"_indices", "_values", "ccol_indices", "col_indices", "crow_indices", "indices",
                  "row_indices", "values", "coalesce"}  # fmt: skip


def overridable():
    return sorted(get_testing_overrides(), key=lambda f: resolve_name(f) or repr(f))


def schemas(func):
    """What torch declares of a function; nothing for those written in Python."""
    name = getattr(func, "__name__", "")
    packet = getattr(torch.ops.aten, name, None) if name and not name.startswith("__") else None
    if packet is None or getattr(func, "__module__", None) not in (None, "torch"):
        return []
    return [getattr(packet, overload)._schema for overload in packet.overloads()
            if "out" not in overload]  # fmt: skip


def test_what_returns_no_tensor_is_about_the_object():
    wrong = []
    for func in overridable():
        declared = schemas(func)
        returns = [str(r.type) for schema in declared for r in schema.returns]
        silent = declared and not any("Tensor" in kind for kind in returns)
        known = func.__name__ in READS_NUMBERS or func.__name__.endswith("_")
        if silent and not known and kind_of(func) not in (Kind.ABOUT, Kind.BOUND):
            wrong.append(func.__name__)
    assert wrong == []


def test_what_only_views_is_a_view():
    wrong = []
    for func in overridable():
        returns = [r for schema in schemas(func) for r in schema.returns]
        aliases = returns and all(r.alias_info is not None for r in returns)
        writes = any(r.alias_info.is_write for r in returns) if aliases else False
        known = func.__name__ in VIEWS_PERHAPS | NOT_OF_STRIDED
        views = aliases and not writes and not known
        if views and kind_of(func) not in (Kind.VIEW, Kind.BOUND):
            wrong.append(func.__name__)
    assert wrong == []


def test_attributes_are_about_the_object_or_views_of_it():
    for func in overridable():
        if getattr(func, "__name__", "") == "__get__":
            assert kind_of(func) in (Kind.ABOUT, Kind.VIEW)
    assert kind_of(torch.Tensor.T.__get__) is Kind.VIEW
    assert kind_of(torch.Tensor.requires_grad.__set__) is Kind.ABOUT


def test_what_is_no_operator_is_never_moved():
    for func in overridable():
        module = getattr(func, "__module__", None) or "torch"
        if "autograd" in module or "distributed" in module or "init" in module:
            assert kind_of(func) in (Kind.ABOUT, Kind.BOUND)
    assert kind_of(torch.autograd.grad) is kind_of(torch.autograd.backward) is Kind.ABOUT
    assert kind_of(torch.Tensor.unfold) is Kind.VIEW
    assert kind_of(functional.unfold) is Kind.COMPUTES
    assert kind_of(torch.ops.aten.add.Tensor) is Kind.COMPUTES


@pytest.fixture
def gpu_of(monkeypatch):
    """Say of tensors that they are on a GPU; returns that and a list of the functions moved there.

    Unified operands are then replaced by copies, so that what needs the object itself goes wrong.
    """
    there, moved = [], []

    def on_device(func, args, kwargs, device):
        moved.append(func)

        def replaced(value):
            if isinstance(value, UnifiedTensor):
                with torch._C.DisableTorchFunctionSubclass():
                    return value.detach().as_subclass(torch.Tensor).clone()
            if isinstance(value, list | tuple):
                return type(value)(map(replaced, value))
            return value

        return func(*replaced(args), **{key: replaced(value) for key, value in kwargs.items()})

    monkeypatch.setattr(placement, "_on_device", on_device)
    monkeypatch.setattr(placement, "_is_cuda", lambda t: any(t is one for one in there))
    return (lambda t: (there.append(t), t)[1]), moved


def test_autograd_gets_the_leaf_itself(gpu_of):
    on_gpu, moved = gpu_of
    u = unified(torch.randn(4, 3)).requires_grad_()
    weights = torch.randn(4, 3)

    def loss():
        return on_gpu((u * weights).sum())

    (found,) = torch.autograd.grad(loss(), [u])
    assert torch.equal(found, weights)
    (named,) = torch.autograd.grad(loss(), {"u": u}).values()
    assert torch.equal(named, weights)
    torch.autograd.backward([loss()], inputs=[u])
    assert torch.equal(u.grad, weights)
    u.grad = None
    loss().backward(inputs=[u])
    assert torch.equal(u.grad, weights)
    u.grad = None
    (u * weights).backward(gradient=on_gpu(torch.ones(4, 3)))
    assert torch.equal(u.grad, weights)
    assert torch.autograd.graph.get_gradient_edge(u).node is not None
    assert moved == []


def test_hooks_are_those_of_the_leaf(gpu_of):
    on_gpu, moved = gpu_of
    u = unified(torch.randn(4)).requires_grad_()
    seen = []
    u.register_hook(lambda g: seen.append(g.clone()))
    u.register_post_accumulate_grad_hook(lambda t: seen.append(t))
    v = u * 2
    v.retain_grad()
    on_gpu(v.sum()).backward()
    assert torch.equal(seen[0], torch.full((4,), 2.0))
    assert seen[1] is u
    assert torch.equal(v.grad, torch.ones(4))
    assert moved == []


def test_questions_with_a_gpu_operand_get_the_object(gpu_of):
    on_gpu, moved = gpu_of
    u, x = unified(torch.randn(4, 3)), on_gpu(torch.randn(4, 3))
    assert torch.is_same_size(u, x)
    assert not u.is_set_to(x)
    assert u.view_as(x).data_ptr() == u.data_ptr()
    assert type(u[:1].expand_as(x)) is UnifiedTensor
    assert x.view_as(u) is not None
    assert u.to(x).dtype == u.type_as(x).dtype == x.dtype
    assert torch.result_type(u, x) is torch.float32
    assert moved == []
    for result in (u + x, torch.cat([u, x]), functional.linear(u, x), torch.where(x > 0, u, x)):
        assert type(result) is torch.Tensor
    u.new_tensor([1.0])
    assert [f.__name__ for f in moved] == ["__add__", "cat", "linear", "where"] or len(moved) == 4


def test_questions_and_views_do_not_wait_for_the_gpu(monkeypatch):
    u = unified(torch.randn(4, 3))
    waits = []
    monkeypatch.setattr(type(u._registration), "settle", lambda self, **_: waits.append(self))
    views = (u.view(-1), u.t(), u[1:], u[2], u[None, ..., 0], u.detach(), u.T, u.data,
             *u.split(2), *torch.chunk(u, 2), u.unsqueeze(0), u.narrow(0, 1, 2))  # fmt: skip
    assert all(type(view) is UnifiedTensor for view in views)
    assert not u._is_zerotensor()
    assert not torch.is_complex(u)
    assert u.numel() == 12
    assert u.is_contiguous()
    assert not u.requires_grad
    assert torch.zeros_like(u).sum() == 0
    assert u.new_empty(3).shape == (3,)
    assert waits == []
    for read in (lambda: u.sum(), lambda: u.tolist(), lambda: repr(u), lambda: u.numpy(),
                 lambda: u.clone(), lambda: u[[0]], lambda: u.reshape(-1)):  # fmt: skip
        before = len(waits)
        read()
        assert len(waits) > before


def test_unified_tensors_work_in_hooks_of_a_backward_pass_for_one():
    u, other = unified(torch.randn(4, 3)).requires_grad_(), unified(torch.randn(4, 3))
    seen = []
    for run in (
        lambda y: torch.autograd.grad(y.sum(), [u]),
        lambda y: torch.autograd.grad(y.sum(), [u], allow_unused=True),
        lambda y: y.sum().backward(inputs=[u]),
        lambda y: torch.autograd.backward(y.sum(), inputs=u),
        lambda y: u.view(-1).backward(torch.ones(12)) or y.sum().backward(),
    ):
        y = u * 2
        y.register_hook(lambda g: seen.append(type(other[1:])))
        run(y)
        assert seen.pop() is UnifiedTensor
    (same,) = torch.autograd.grad(u, u, torch.ones(4, 3))
    assert torch.equal(same, torch.ones(4, 3))
    unused, zero = unified(torch.ones(2)).requires_grad_(), unified(torch.ones(2)).requires_grad_()
    assert torch.autograd.grad(u.sum(), [unused], allow_unused=True) == (None,)
    (found,) = torch.autograd.grad(u.sum(), [zero], materialize_grads=True)
    assert torch.equal(found, torch.zeros(2))
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(u.sum(), [unused])
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(u.sum(), [other])
    middle = u[1:]
    (found,) = torch.autograd.grad((middle * 3).sum(), middle)
    assert torch.equal(found, torch.full((3, 3), 3.0))
    (found,) = torch.autograd.grad((u * u).sum(), u, create_graph=True)
    (second,) = torch.autograd.grad(found.sum(), u)
    assert torch.equal(second, torch.full((4, 3), 2.0))


def test_views_of_a_leaf_are_one_step_behind_it_in_the_graph():
    u = unified(torch.randn(4, 3)).requires_grad_()
    view = u.expand_as(u)
    assert type(view) is UnifiedTensor
    node = view.grad_fn.next_functions[0][0]  # how others find where gradients add up
    assert node.variable is u
    assert torch.autograd.graph.get_gradient_edge(u).node is node
    (u[1:].view(-1) * 2).sum().backward()
    assert torch.equal(u.grad, torch.tensor([0.0, 2, 2, 2])[:, None].expand(4, 3))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    u = unified(torch.randn(4, 3)).requires_grad_()
    weights = torch.randn(4, 3)
    checkpoint(lambda t: (t * weights).sin(), u, use_reentrant=reentrant).sum().backward()
    expected = u.detach().mul(weights).cos() * weights
    torch.testing.assert_close(u.grad, expected)


def test_functional_transforms():
    u, x = unified(torch.randn(4, 3)), torch.randn(4, 3)

    def loss(table):
        return (table * x).square().sum()

    expected = 2 * u.clone() * x * x
    torch.testing.assert_close(torch.func.grad(loss)(u), expected)
    torch.testing.assert_close(torch.autograd.functional.jacobian(loss, u), expected)
    torch.testing.assert_close(torch.func.vmap(torch.sum)(u), u.sum(1))
    torch.testing.assert_close(torch.autograd.functional.hvp(loss, u, x)[1], 2 * x * x * x)


def test_parameters_of_modules():
    module = torch.nn.Linear(3, 4)
    module.weight = torch.nn.Parameter(unified(torch.randn(4, 3)))
    torch.nn.utils.parametrize.register_parametrization(module, "weight", torch.nn.Tanh())
    module(torch.randn(2, 3)).sum().backward()
    original = module.parametrizations.weight.original
    assert original.grad is not None
    twin = copy.deepcopy(module)
    assert torch.equal(twin.weight, module.weight)
    optimiser = torch.optim.AdamW(module.parameters())
    before = original.detach().clone()
    optimiser.step()
    assert not torch.equal(before, original)
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
