# SPDX-License-Identifier: Apache-2.0
"""Fused IR to Python source over PyTorch; the kernels are in products and traversals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from hector.cost import Machine, function_cost
from hector.dtypes import TORCH
from hector.emit import Program
from hector.emit.torch import dropout, products, traversals
from hector.emit.torch.joins import join_biases
from hector.ir.function import VIEWS, Function, Value, param_name
from hector.ir.types import Space, Type
from hector.plan import Counts, Plan

__all__ = ["INLINE", "SCOPE", "TorchEmitter", "expression", "inline"]

INLINE = frozenset({"const", "seed", "inverse_count"})
"""Operators that have no line of their own."""

_ELEMENTWISE = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "equal": "({0} == {1}).to({0}.dtype)",
    "neg": "-{0}",
    "leaky_relu": "functional.leaky_relu({0}, {slope})",
    "leaky_step": "torch.where({0} > 0, {0}.new_ones(()), {slope})",
    "elu": "functional.elu({0}, {alpha})",
    "elu_slope": "torch.where({0} > 0, {0}.new_ones(()), {alpha} * {0}.exp())",
    "silu": "functional.silu({0})",
    "gelu": "functional.gelu({0})",
    "gelu_slope": "0.5 * (1 + torch.erf({0} * 0.7071067811865476)) "
    "+ {0} * torch.exp(-0.5 * {0} * {0}) * 0.3989422804014327",
    "softplus": "functional.softplus({0})",
    "power": "{0} ** {exponent}",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "gate": "torch.ops.aten.threshold_backward({0}, {1}, 0)",
    "clamp": "{0}.clamp({low!r}, {high!r})",
    "clamp_step": "(({0} >= {low!r}) & ({0} <= {high!r})).to({0}.dtype)",
    **{
        name: "torch." + name + "({0})"
        for name in "exp log sqrt rsqrt reciprocal abs sign relu sin cos".split()
    },
    "sigmoid": "torch.sigmoid({0})",
    "tanh": "torch.tanh({0})",
}

_KERNELS: dict[str, Callable[..., Tensor]] = {
    "keep": dropout.keep,
    "biased_linear": products.linear,
    "linear": products.linear,
    "outer": products.outer,
    "gather_sum": traversals.gather_sum,
    "segment_sum": traversals.gather_sum,
    "gather_dot": traversals.gather_dot,
    "segment_max": traversals.segment_max,
    "segment_softmax": traversals.segment_softmax,
    "segment_lse": traversals.segment_lse,
    "segment_weights": traversals.segment_weights,
}


def _maximum(x: Tensor, y: Tensor | float) -> Tensor:
    return torch.maximum(x, y) if isinstance(y, Tensor) else x.clamp(min=y)


def _minimum(x: Tensor, y: Tensor | float) -> Tensor:
    return torch.minimum(x, y) if isinstance(y, Tensor) else x.clamp(max=y)


def _dims(type_: Type, axes: Sequence[int]) -> tuple[int, ...]:
    """Feature axes as axes of the whole tensor."""
    first = 0 if type_.space is Space.WEIGHT else 1
    return tuple(first + axis for axis in axes)


def _whole_shape(type_: Type, shape: tuple[int, ...]) -> str:
    rows = () if type_.space is Space.WEIGHT else (f"plan.rows({type_.space.value!r})",)
    inner = ", ".join((*rows, *map(str, shape)))
    return f"({inner},)" if inner else "()"


SCOPE: dict[str, object] = {
    "torch": torch,
    "functional": torch.nn.functional,
    "inf": math.inf,
    "nan": math.nan,
    "maximum": _maximum,
    "minimum": _minimum,
    **{kernel.__name__: kernel for kernel in _KERNELS.values()},
}
"""The names that emitted expressions use, beside ``plan`` and their operands."""


def expression(op: Value, names: Mapping[Value, str]) -> str:
    """The right-hand side for one operator, on named operands.

    Parameters
    ----------
    op : Value
        None of ``INLINE``.
    names : mapping of Value to str

    Returns
    -------
    str
        Python over PyTorch; what it calls is in ``SCOPE``.
    """
    args = [names[operand] for operand in op.operands]
    if op.op in _ELEMENTWISE:
        return _ELEMENTWISE[op.op].format(*args, **op.attrs)
    if op.op in _KERNELS:
        name = _KERNELS[op.op].__name__
        keys = [f"{key}={op.attrs[key]!r}" for key in sorted(op.attrs)]
        return f"{name}({', '.join(['plan', *args, *keys])})"
    type_ = op.operands[0].type
    if op.op == "gather":
        return f"{args[0]}.index_select(0, plan.index({op.map()!r}))"
    if op.op == "sum":
        return f"{args[0]}.sum({_dims(type_, op.integers('axes'))})"
    if op.op == "amax":
        return f"{args[0]}.amax({_dims(type_, op.integers('axes'))})"
    if op.op == "sum_rows":
        return f"{args[0]}.sum(0)"
    if op.op == "reshape":
        return f"{args[0]}.reshape({_whole_shape(type_, op.type.shape)})"
    if op.op == "broadcast":
        return f"{args[0]}.expand({_whole_shape(type_, op.type.shape)})"
    if op.op == "transpose":
        first = () if type_.space is Space.WEIGHT else (0,)
        return f"{args[0]}.permute({(*first, *_dims(type_, op.integers('perm')))})"
    (axis,) = _dims(type_, (int(op.number("axis")),))
    if op.op == "slice":
        start, stop = int(op.number("start")), int(op.number("stop"))
        return f"{args[0]}.narrow({axis}, {start}, {stop - start})"
    if op.op == "concat":
        return f"torch.cat(({', '.join(args)},), {axis})"
    assert op.op == "pad", op.op
    last = len(op.type.shape) - 1 - int(op.number("axis"))
    widths = (0, 0) * last + (int(op.number("before")), int(op.number("after")))
    return f"functional.pad({args[0]}, {widths})"


def inline(op: Value) -> str:
    """The text of an operator of ``INLINE``."""
    if op.op == "const":
        return f"({op.number('value')!r})"
    if op.op == "seed":
        return str(int(op.number("value")))
    return f"plan.inverse_count({op.map()!r}, {TORCH[op.type.dtype]})"


def _last_reads(function: Function) -> dict[Value, Value]:
    last: dict[Value, Value] = {}
    for op in function.ops:
        for operand in op.operands:
            last[operand] = op
    return last


def _source(function: Function) -> str:
    function = join_biases(function)
    names: dict[Value, str] = {}
    for param in function.params:
        names[param] = "p_" + param_name(param).replace(".", "_")
    params = "".join(f", {names[param]}" for param in function.params)
    lines = [f"def {function.name}(plan{params}):"]
    last, kept = _last_reads(function), set(function.results)
    for number, op in enumerate(function.ops):
        if op.op in INLINE:
            names[op] = inline(op)
            continue
        names[op] = f"v{number}"
        lines.append(f"    v{number} = {expression(op, names)}  # {op.type}")
        dead = [
            names[operand]
            for operand in dict.fromkeys(op.operands)
            if last[operand] is op and operand not in kept and operand.op not in INLINE
        ]
        if dead:
            lines.append(f"    del {', '.join(dead)}")
    results = []
    for result in function.results:
        text = names[result]
        if result.op == "const":
            dtype = TORCH[result.type.dtype]
            text = f"torch.full((), {text}, dtype={dtype}, device=plan.device)"
        results.append(text)
    lines.append(f"    return ({', '.join(results)},)")
    return "\n".join(lines) + "\n"


class TorchEmitter:
    """Emits Python source that calls PyTorch; deterministic, on any device."""

    name = "torch"
    recomputes = False

    def seconds(self, function: Function, counts: Counts, machine: Machine) -> float:
        """Predicted time: each operator by itself."""
        return function_cost(function, counts, machine).seconds

    def size_class(self, counts: Counts) -> str:
        """The same for all: these programs serve graphs of any size."""
        return ""

    def emit(self, function: Function, counts: Counts | None = None) -> Program:
        """The program of one fused function.

        Parameters
        ----------
        function : Function
        counts : Counts or None
            Not looked at.

        Returns
        -------
        Program
        """
        source = _source(function)
        scope = dict(SCOPE)
        exec(compile(source, f"<hector {function.name}>", "exec"), scope)
        call = scope[function.name]
        assert callable(call)

        def run(plan: Plan, args: Sequence[Tensor]) -> tuple[Tensor, ...]:
            results: tuple[Tensor, ...] = call(plan, *args)
            return results

        created = (op.type for op in function.ops if op.op not in INLINE | VIEWS)
        return Program(run, source, tuple(created))
