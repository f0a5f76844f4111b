# SPDX-License-Identifier: Apache-2.0
"""Differentiation on the IR by one table of rules; where gradients run is decided in split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hector.ir.function import Builder, Function, Value, param_name
from hector.ir.types import Space, Type
from hector.passes.rewrite import rewrite

__all__ = ["RULES", "Gradients", "attached", "differentiate"]

Wanted: TypeAlias = Sequence[bool]
Rule: TypeAlias = Callable[[Builder, Value, Value, Wanted], list[Value | None]]


def _reduce_to(b: Builder, grad: Value, type_: Type) -> Value:
    """Sum a gradient over what its operand was broadcast along."""
    shape = grad.type.shape
    padded = (1,) * (len(shape) - len(type_.shape)) + type_.shape
    axes = tuple(i for i, (old, new) in enumerate(zip(padded, shape, strict=True)) if old != new)
    if axes:
        grad = b.emit("sum", grad, axes=axes)
    grad = b.reshape(grad, type_.shape)
    if type_.space is Space.WEIGHT and grad.type.space is not Space.WEIGHT:
        grad = b.emit("sum_rows", grad)
    return grad


def _both(
    first: Callable[[Builder, Value, Value], Value],
    second: Callable[[Builder, Value, Value], Value],
) -> Rule:
    """A rule of two operands; the parts give gradients of the broadcast result's shape."""

    def rule(b: Builder, y: Value, g: Value, wanted: Wanted) -> list[Value | None]:
        parts = (first, second)
        return [
            _reduce_to(b, parts[i](b, y, g), y.operands[i].type) if wanted[i] else None
            for i in range(2)
        ]

    return rule


def _one(part: Callable[[Builder, Value, Value], Value]) -> Rule:
    return lambda b, y, g, wanted: [part(b, y, g)]


def _linear(b: Builder, y: Value, g: Value, wanted: Wanted) -> list[Value | None]:
    x, w = y.operands
    kind, transposed = y.map("type"), bool(y.attrs.get("transpose", False))
    dx = dw = None
    if wanted[0]:
        dx = b.emit("linear", g, w, type=kind, transpose=None if transposed else True)
    if wanted[1]:
        shared = w.type.space is Space.WEIGHT
        pair = (g, x) if transposed else (x, g)
        dw = b.emit("outer", *pair, type=kind, rows_summed=True if shared else None)
    return [dx, dw]


def _segment_max(b: Builder, y: Value, g: Value) -> Value:
    """Ties share the gradient evenly, as ``scatter_reduce`` has it."""
    name = y.map()
    largest = b.emit("equal", y.operands[0], b.emit("gather", y, map=name))
    ties = b.emit("segment_sum", largest, map=name)
    none = b.emit("equal", ties, b.scalar(0.0, ties.type.dtype))
    share = b.emit("div", g, b.emit("add", ties, none))  # finite where nothing was reduced
    return b.emit("mul", b.emit("gather", share, map=name), largest)


def _segment_softmax(b: Builder, y: Value, g: Value) -> Value:
    name = y.map()
    weighted = b.emit("mul", g, y)
    total = b.emit("gather", b.emit("segment_sum", weighted, map=name), map=name)
    return b.emit("sub", weighted, b.emit("mul", y, total))


def _sum(b: Builder, y: Value, g: Value) -> Value:
    shape, axes = y.operands[0].type.shape, y.integers("axes")
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return b.emit("broadcast", b.reshape(g, kept), shape=shape)


def _broadcast(b: Builder, y: Value, g: Value) -> Value:
    return _reduce_to(b, g, y.operands[0].type)


def _slice(b: Builder, y: Value, g: Value) -> Value:
    axis, start, stop = (int(y.number(key)) for key in ("axis", "start", "stop"))
    extent = y.operands[0].type.shape[axis]
    return b.emit("pad", g, axis=axis, before=start, after=extent - stop)


def _pad(b: Builder, y: Value, g: Value) -> Value:
    axis, before = int(y.number("axis")), int(y.number("before"))
    stop = before + y.operands[0].type.shape[axis]
    return b.emit("slice", g, axis=axis, start=before, stop=stop)


def _concat(b: Builder, y: Value, g: Value, wanted: Wanted) -> list[Value | None]:
    axis, start = int(y.number("axis")), 0
    parts: list[Value | None] = []
    for operand, want in zip(y.operands, wanted, strict=True):
        stop = start + operand.type.shape[axis]
        parts.append(b.emit("slice", g, axis=axis, start=start, stop=stop) if want else None)
        start = stop
    return parts


def _transpose(b: Builder, y: Value, g: Value) -> Value:
    perm = y.integers("perm")
    return b.emit("transpose", g, perm=tuple(perm.index(i) for i in range(len(perm))))


def _slope(factor: Callable[[Builder, Value], Value]) -> Rule:
    """A rule of an elementwise operator: the gradient times a factor."""
    return _one(lambda b, y, g: b.emit("mul", g, factor(b, y)))


def _on_input(op: str, *keys: str) -> Callable[[Builder, Value], Value]:
    return lambda b, y: b.emit(op, y.operands[0], **{key: y.attrs[key] for key in keys})


def _one_minus(b: Builder, value: Value) -> Value:
    return b.emit("sub", b.scalar(1.0, value.type.dtype), value)


def _scaled(b: Builder, value: Value, number: float) -> Value:
    return b.emit("mul", value, b.scalar(number, value.type.dtype))


def _silu(b: Builder, y: Value) -> Value:
    s = b.emit("sigmoid", y.operands[0])
    return b.emit("add", s, b.emit("mul", y, _one_minus(b, s)))


def _power(b: Builder, y: Value) -> Value:
    exponent = y.number("exponent")
    if exponent == 0:  # where 0 times an infinite power of -1 would be NaN
        return _scaled(b, y, 0.0)
    lower = b.emit("power", y.operands[0], exponent=exponent - 1)
    return _scaled(b, lower, exponent)


def _times_power(b: Builder, g: Value, y: Value, exponent: int) -> Value:
    """``g * y**exponent``, one factor after the other.

    A power by itself overflows in fp16 where its product with a small gradient does not: the
    gradient of a layer norm of equal numbers would be infinity times zero.
    """
    for _ in range(exponent):
        g = b.emit("mul", g, y)
    return g


def _larger(b: Builder, y: Value, g: Value, of: int) -> Value:
    """The gradient where an operand is the one chosen; ties share it evenly, as in PyTorch."""
    this, other = y.operands[of], y.operands[1 - of]
    first, second = (this, other) if y.op == "maximum" else (other, this)
    won = b.emit("gate", g, b.emit("sub", first, second))
    same = (second, first) if first.op == "const" else (first, second)
    return b.emit("add", won, b.emit("gate", _scaled(b, g, 0.5), b.emit("equal", *same)))


_CHOICE = _both(
    lambda b, y, g: _larger(b, y, g, 0),
    lambda b, y, g: _larger(b, y, g, 1),
)


def _amax(b: Builder, y: Value, g: Value) -> Value:
    """Ties share the gradient evenly, as ``torch.amax`` has it."""
    x = y.operands[0]
    shape, axes = x.type.shape, y.integers("axes")
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    largest = b.emit("equal", x, b.emit("broadcast", b.reshape(y, kept), shape=shape))
    ties = b.emit("sum", largest, axes=axes)
    share = b.emit("broadcast", b.reshape(b.emit("div", g, ties), kept), shape=shape)
    return b.emit("mul", share, largest)


RULES: dict[str, Rule] = {
    "gather": _one(lambda b, y, g: b.emit("segment_sum", g, map=y.map())),
    "segment_sum": _one(lambda b, y, g: b.emit("gather", g, map=y.map())),
    "segment_max": _one(_segment_max),
    "segment_softmax": _one(_segment_softmax),
    "linear": _linear,
    "sum": _one(_sum),
    "amax": _one(_amax),
    "maximum": _CHOICE,
    "minimum": _CHOICE,
    "sin": _slope(_on_input("cos")),
    "cos": _slope(lambda b, y: b.emit("neg", b.emit("sin", y.operands[0]))),
    "clamp": _one(lambda b, y, g: b.emit("gate", g, _on_input("clamp_step", "low", "high")(b, y))),
    "broadcast": _one(_broadcast),
    "reshape": _one(lambda b, y, g: b.reshape(g, y.operands[0].type.shape)),
    "slice": _one(_slice),
    "pad": _one(_pad),
    "concat": _concat,
    "transpose": _one(_transpose),
    "add": _both(lambda b, y, g: g, lambda b, y, g: g),
    "sub": _both(lambda b, y, g: g, lambda b, y, g: b.emit("neg", g)),
    "mul": _both(
        lambda b, y, g: b.emit("mul", g, y.operands[1]),
        lambda b, y, g: b.emit("mul", g, y.operands[0]),
    ),
    "div": _both(
        lambda b, y, g: b.emit("div", g, y.operands[1]),
        lambda b, y, g: b.emit("neg", b.emit("div", b.emit("mul", g, y), y.operands[1])),
    ),
    "neg": _one(lambda b, y, g: b.emit("neg", g)),
    "exp": _slope(lambda b, y: y),
    "log": _one(lambda b, y, g: b.emit("div", g, y.operands[0])),
    "sqrt": _one(lambda b, y, g: b.emit("div", _scaled(b, g, 0.5), y)),
    "rsqrt": _one(lambda b, y, g: _scaled(b, _times_power(b, g, y, 3), -0.5)),
    "reciprocal": _one(lambda b, y, g: b.emit("neg", _times_power(b, g, y, 2))),
    "abs": _slope(_on_input("sign")),
    "relu": _one(lambda b, y, g: b.emit("gate", g, y.operands[0])),
    "leaky_relu": _slope(_on_input("leaky_step", "slope")),
    "elu": _slope(_on_input("elu_slope", "alpha")),
    "sigmoid": _slope(lambda b, y: b.emit("mul", y, _one_minus(b, y))),
    "tanh": _slope(lambda b, y: _one_minus(b, b.emit("mul", y, y))),
    "silu": _slope(_silu),
    "gelu": _slope(_on_input("gelu_slope")),
    "softplus": _slope(_on_input("sigmoid")),
    "power": _slope(_power),
}
"""The gradient of each operator that the front end can write."""


_CONSTANT = frozenset("const inverse_count seed keep detach".split())
"""What no gradient passes."""


@dataclass(frozen=True)
class Gradients:
    """What ``differentiate`` gives.

    Attributes
    ----------
    joint : Function
        Parameters: those of the function, then ``grad_0``, ... for its results. Results: those of
        the function, then one gradient for each name in ``reached``.
    reached : tuple of str
        The wanted parameters that a result depends on, in parameter order.
    active : tuple of bool
        Which results depend on a wanted parameter.
    """

    joint: Function
    reached: tuple[str, ...]
    active: tuple[bool, ...]


def attached(function: Function) -> Function:
    """The function without ``detach``: nothing is differentiated any more."""
    return rewrite(function, lambda b, op, operands: operands[0] if op.op == "detach" else None)


def differentiate(function: Function, wrt: frozenset[str]) -> Gradients:
    """The function followed by its vector-Jacobian product.

    Parameters
    ----------
    function : Function
        Not fused.
    wrt : frozenset of str
        Names of the parameters whose gradients are wanted.

    Returns
    -------
    Gradients
        Without ``detach``, which has done its work then.
    """
    b = Builder(function.name)
    b.params.extend(function.params)
    b.ops.extend(function.ops)
    active = {param for param in function.params if param_name(param) in wrt}
    for op in function.ops:
        if op.op not in _CONSTANT and any(x in active for x in op.operands):
            active.add(op)
    grads: dict[Value, Value] = {}

    def add(value: Value, grad: Value) -> None:
        grads[value] = b.emit("add", grads[value], grad) if value in grads else grad

    for number, result in enumerate(function.results):
        seed = b.param(f"grad_{number}", result.type)
        if result in active:
            add(result, seed)
    for op in reversed(function.ops):
        if op in active and op in grads:
            b.location = op.location
            wanted = [operand in active for operand in op.operands]
            for operand, grad in zip(
                op.operands, RULES[op.op](b, op, grads[op], wanted), strict=True
            ):
                if grad is not None and operand in active:
                    add(operand, grad)
    reached = [param for param in function.params if param in active and param in grads]
    joint = attached(b.finish((*function.results, *(grads[param] for param in reached))))
    names = tuple(param_name(param) for param in reached)
    return Gradients(joint, names, tuple(result in active for result in function.results))
