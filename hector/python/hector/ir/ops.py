# SPDX-License-Identifier: Apache-2.0
"""The operators of the inter-operator IR, each with its typing rule; not their gradients or cost.

Rows never appear in a rule: a value of space S has as many rows as the graph has members of S.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hector.ir.types import MAPS, Map, Space, Type

__all__ = ["BINARY", "OPS", "UNARY", "Attr", "OpSpec", "infer"]

Attr: TypeAlias = str | int | float | bool | tuple[int, ...]
Attrs: TypeAlias = Mapping[str, Attr]
Rule: TypeAlias = Callable[[Sequence[Type], Attrs], Type]

UNARY = frozenset(
    "neg exp log sqrt rsqrt reciprocal abs sign relu leaky_relu leaky_step elu elu_slope "
    "sigmoid tanh silu gelu gelu_slope softplus power sin cos clamp clamp_step detach".split()
)
BINARY = frozenset("add sub mul div equal maximum minimum gate".split())
"""``gate`` is its first operand where the second is positive, 0 elsewhere whatever the first is."""
DTYPES = ("f64", "f32", "bf16", "f16")
SEED = "i64"
"""The dtype of dropout seeds, which no arithmetic takes."""


@dataclass(frozen=True)
class OpSpec:
    """How an operator is typed.

    Attributes
    ----------
    arity : tuple of int
        Accepted numbers of operands; empty means one or more.
    required, optional : frozenset of str
        Attribute names.
    rule : callable
        Operand types and attributes to the result type; raises ValueError.
    """

    arity: tuple[int, ...]
    required: frozenset[str]
    optional: frozenset[str]
    rule: Rule


def _fail(text: str) -> Type:
    raise ValueError(text)


def _map(attrs: Attrs, key: str = "map") -> Map:
    name = attrs[key]
    if not isinstance(name, str) or name not in MAPS:
        raise ValueError(f"{key} = {name!r} is no map; maps are {', '.join(MAPS)}")
    return MAPS[name]


def _ints(attrs: Attrs, key: str) -> tuple[int, ...]:
    value = attrs[key]
    if not isinstance(value, tuple):
        raise ValueError(f"{key} = {value!r} must be a tuple of integers")
    return value


def _int(attrs: Attrs, key: str) -> int:
    value = attrs[key]
    if not isinstance(value, int):
        raise ValueError(f"{key} = {value!r} must be an integer")
    return value


def _read(type_: Type, attrs: Attrs, key: str) -> Type:
    """Type after an optional access through a map."""
    if key not in attrs:
        return type_
    through = _map(attrs, key)
    if through.target is not type_.space:
        raise ValueError(f"{key} = {through.name} cannot read rows of {type_}")
    return Type(through.source, type_.shape, type_.dtype)


def _joined(types: Sequence[Type]) -> tuple[Space, str]:
    """Common space (weights join any) and dtype."""
    dtypes = {type_.dtype for type_ in types}
    if len(dtypes) != 1:
        raise ValueError(f"operands differ in dtype: {', '.join(map(str, types))}")
    spaces = {type_.space for type_ in types} - {Space.WEIGHT}
    if len(spaces) > 1:
        raise ValueError(f"operands differ in space: {', '.join(map(str, types))}")
    return (spaces.pop() if spaces else Space.WEIGHT), dtypes.pop()


def _binary(types: Sequence[Type], attrs: Attrs) -> Type:
    space, dtype = _joined(types)
    a, b = types[0].shape, types[1].shape
    for short, type_ in ((a, types[0]), (b, types[1])):
        if len(short) < max(len(a), len(b)) and type_.space is not Space.WEIGHT:
            raise ValueError(f"{types[0]} and {types[1]} differ in rank")
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    shape = []
    for x, y in zip(a, b, strict=True):
        if x != y and 1 not in (x, y):
            raise ValueError(f"{types[0]} and {types[1]} do not broadcast")
        shape.append(y if x == 1 else x)
    return Type(space, tuple(shape), dtype)


def _gather(types: Sequence[Type], attrs: Attrs) -> Type:
    return _read(types[0], attrs, "map")


def _segment(types: Sequence[Type], attrs: Attrs) -> Type:
    into, type_ = _map(attrs), types[0]
    if into.source is not type_.space:
        raise ValueError(f"map = {into.name} does not start at {type_}")
    return Type(into.target, type_.shape, type_.dtype)


def _softmax(types: Sequence[Type], attrs: Attrs) -> Type:
    _segment(types, attrs)
    return types[0]


def _lse(types: Sequence[Type], attrs: Attrs) -> Type:
    """In fp32 for narrower scores: a rounded logarithm is no longer a normaliser."""
    found = _segment(types, attrs)
    return Type(found.space, found.shape, "f64" if found.dtype == "f64" else "f32")


def _weights(types: Sequence[Type], attrs: Attrs) -> Type:
    """Softmax weights from scores and what ``segment_lse`` gives of them."""
    if _lse(types[:1], attrs) != types[1]:
        raise ValueError(f"{types[1]} does not normalise {types[0]} along {attrs['map']}")
    return types[0]


def _gather_sum(types: Sequence[Type], attrs: Attrs) -> Type:
    read = _read(types[0], attrs, "rows")
    if len(types) == 2 and _binary((read, types[1]), {}) != read:
        raise ValueError(f"scale {types[1]} does not fit rows {read}")
    return _segment((read,), attrs)


def _gather_dot(types: Sequence[Type], attrs: Attrs) -> Type:
    a, b = _read(types[0], attrs, "rows"), _read(types[1], attrs, "rows_y")
    joined = _binary((a, b), {})
    if a.shape != b.shape or not joined.shape:
        raise ValueError(f"{a} and {b} have no common last dimension")
    return joined.with_shape(joined.shape[:-1])


def _weight_space(row: Type, weight: Type, attrs: Attrs) -> None:
    if "type" in attrs:
        kind = _map(attrs, "type")
        if kind.source is not row.space or kind.target is not weight.space:
            raise ValueError(f"type = {kind.name} does not lead from {row} to {weight}")
    elif weight.space not in (Space.WEIGHT, row.space):
        raise ValueError(f"{weight} is neither shared nor one matrix for each row of {row}")


def _linear(types: Sequence[Type], attrs: Attrs) -> Type:
    row, weight = _read(types[0], attrs, "rows"), types[1]
    _joined((Type(row.space, (), row.dtype), Type(row.space, (), weight.dtype)))
    _weight_space(row, weight, attrs)
    if len(weight.shape) != 2 or not row.shape:
        raise ValueError(f"linear takes rows [.., k] and matrices [k, n], not {row} and {weight}")
    k, n = weight.shape[::-1] if attrs.get("transpose", False) else weight.shape
    if row.shape[-1] != k:
        raise ValueError(f"linear: {row} has {row.shape[-1]} columns, {weight} takes {k}")
    return row.with_shape((*row.shape[:-1], n))


def _outer(types: Sequence[Type], attrs: Attrs) -> Type:
    a, b = _read(types[0], attrs, "rows"), _read(types[1], attrs, "rows_y")
    space, dtype = _joined((a, b))
    if not a.shape or not b.shape or a.shape[:-1] != b.shape[:-1]:
        raise ValueError(f"outer takes [.., k] and [.., n], not {a} and {b}")
    if "type" in attrs:
        kind = _map(attrs, "type")
        if kind.source is not space:
            raise ValueError(f"type = {kind.name} does not start at {a}")
        space = kind.target
    elif attrs.get("rows_summed", False):
        space = Space.WEIGHT
    return Type(space, (a.shape[-1], b.shape[-1]), dtype)


def _const(types: Sequence[Type], attrs: Attrs) -> Type:
    return Type(Space.WEIGHT, (), _dtype(attrs))


def _inverse_count(types: Sequence[Type], attrs: Attrs) -> Type:
    return Type(_map(attrs).target, (), _dtype(attrs))


def _keep(types: Sequence[Type], attrs: Attrs) -> Type:
    """Dropout's factors: a function of the seed and of each element's place."""
    p = attrs["p"]
    if types[0] != Type(Space.WEIGHT, (), SEED) or not isinstance(p, float) or not 0 <= p < 1:
        raise ValueError(f"keep takes a seed and 0 <= p < 1, not {types[0]} and {p}")
    return Type(Space(attrs["space"]), _ints(attrs, "shape"), _dtype(attrs))


def _dtype(attrs: Attrs) -> str:
    dtype = attrs["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype = {dtype!r} is none of {', '.join(DTYPES)}")
    return dtype


def _sum(types: Sequence[Type], attrs: Attrs) -> Type:
    axes, shape = _ints(attrs, "axes"), types[0].shape
    if not all(0 <= axis < len(shape) for axis in axes) or len(set(axes)) != len(axes):
        raise ValueError(f"axes = {axes} do not fit {types[0]}")
    return types[0].with_shape(tuple(n for i, n in enumerate(shape) if i not in axes))


def _reshape(types: Sequence[Type], attrs: Attrs) -> Type:
    new = types[0].with_shape(_ints(attrs, "shape"))
    return new if new.width == types[0].width else _fail(f"{types[0]} does not reshape to {new}")


def _broadcast(types: Sequence[Type], attrs: Attrs) -> Type:
    shape, old = _ints(attrs, "shape"), types[0].shape
    if len(shape) != len(old) or any(a not in (1, b) for a, b in zip(old, shape, strict=False)):
        raise ValueError(f"{types[0]} does not broadcast to {shape}")
    return types[0].with_shape(shape)


def _axis(type_: Type, attrs: Attrs) -> int:
    axis = _int(attrs, "axis")
    if not 0 <= axis < len(type_.shape):
        raise ValueError(f"axis = {axis} does not fit {type_}")
    return axis


def _resized(type_: Type, axis: int, extent: int) -> Type:
    return type_.with_shape((*type_.shape[:axis], extent, *type_.shape[axis + 1 :]))


def _slice(types: Sequence[Type], attrs: Attrs) -> Type:
    axis, start, stop = _axis(types[0], attrs), _int(attrs, "start"), _int(attrs, "stop")
    if not 0 <= start <= stop <= types[0].shape[axis]:
        raise ValueError(f"slice {start}:{stop} does not fit axis {axis} of {types[0]}")
    return _resized(types[0], axis, stop - start)


def _pad(types: Sequence[Type], attrs: Attrs) -> Type:
    axis = _axis(types[0], attrs)
    extent = types[0].shape[axis] + _int(attrs, "before") + _int(attrs, "after")
    return _resized(types[0], axis, extent)


def _concat(types: Sequence[Type], attrs: Attrs) -> Type:
    axis, first = _axis(types[0], attrs), types[0]
    total = 0
    for type_ in types:
        if (type_.space, type_.dtype) != (first.space, first.dtype) or len(type_.shape) != len(
            first.shape
        ):
            raise ValueError(f"concat: {first} and {type_} do not fit")
        if _resized(type_, axis, 0) != _resized(first, axis, 0):
            raise ValueError(f"concat: {first} and {type_} differ outside axis {axis}")
        total += type_.shape[axis]
    return _resized(first, axis, total)


def _transpose(types: Sequence[Type], attrs: Attrs) -> Type:
    perm = _ints(attrs, "perm")
    if sorted(perm) != list(range(len(types[0].shape))):
        raise ValueError(f"perm = {perm} does not fit {types[0]}")
    return types[0].with_shape(tuple(types[0].shape[i] for i in perm))


def _sum_rows(types: Sequence[Type], attrs: Attrs) -> Type:
    return Type(Space.WEIGHT, types[0].shape, types[0].dtype)


def _spec(arity: tuple[int, ...], rule: Rule, required: str = "", optional: str = "") -> OpSpec:
    return OpSpec(arity, frozenset(required.split()), frozenset(optional.split()), rule)


_PARAMETERS = {"leaky_relu": "slope", "leaky_step": "slope", "elu": "alpha", "elu_slope": "alpha"}
_PARAMETERS |= {"power": "exponent", "clamp": "low high", "clamp_step": "low high"}

OPS: dict[str, OpSpec] = {
    "const": _spec((0,), _const, "value dtype"),
    "inverse_count": _spec((0,), _inverse_count, "map dtype"),
    "gather": _spec((1,), _gather, "map"),
    "segment_sum": _spec((1,), _segment, "map"),
    "segment_max": _spec((1,), _segment, "map"),
    "segment_softmax": _spec((1,), _softmax, "map"),
    "segment_lse": _spec((1,), _lse, "map"),
    "segment_weights": _spec((2,), _weights, "map"),
    "gather_sum": _spec((1, 2), _gather_sum, "rows map"),
    "gather_dot": _spec((2,), _gather_dot, "", "rows rows_y"),
    "linear": _spec((2,), _linear, "", "type rows transpose"),
    "outer": _spec((2,), _outer, "", "type rows rows_y rows_summed"),
    "sum": _spec((1,), _sum, "axes"),
    "amax": _spec((1,), _sum, "axes"),
    "seed": _spec((0,), lambda types, attrs: Type(Space.WEIGHT, (), SEED), "value"),
    "keep": _spec((1,), _keep, "space shape dtype p"),
    "sum_rows": _spec((1,), _sum_rows),
    "reshape": _spec((1,), _reshape, "shape"),
    "broadcast": _spec((1,), _broadcast, "shape"),
    "slice": _spec((1,), _slice, "axis start stop"),
    "pad": _spec((1,), _pad, "axis before after"),
    "concat": _spec((), _concat, "axis"),
    "transpose": _spec((1,), _transpose, "perm"),
    **{name: _spec((2,), _binary) for name in sorted(BINARY)},
    **{
        name: _spec((1,), lambda types, attrs: types[0], _PARAMETERS.get(name, ""))
        for name in sorted(UNARY)
    },
}
"""Every operator by name."""


def infer(op: str, types: Sequence[Type], attrs: Attrs) -> Type:
    """Result type of an operator.

    Raises
    ------
    ValueError
        If the operator is unknown or does not take these operands and attributes.
    """
    if op not in OPS:
        raise ValueError(f"unknown operator {op!r}")
    spec = OPS[op]
    if (spec.arity and len(types) not in spec.arity) or (not spec.arity and not types):
        raise ValueError(f"{op} takes {spec.arity or 'one or more'} operands, not {len(types)}")
    missing = spec.required - attrs.keys()
    unknown = attrs.keys() - spec.required - spec.optional
    if missing or unknown:
        raise ValueError(f"{op}: attributes missing {sorted(missing)}, unknown {sorted(unknown)}")
    return spec.rule(types, attrs)
