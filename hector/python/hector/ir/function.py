# SPDX-License-Identifier: Apache-2.0
"""Values, functions and the builder; operators' types are decided in ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hector.ir.ops import Attr, infer
from hector.ir.types import Type

__all__ = ["VIEWS", "Builder", "Function", "Value", "param_name", "rooted"]

VIEWS = frozenset("reshape slice transpose broadcast".split())
"""Operators whose results may show their operand's memory."""


@dataclass(frozen=True, eq=False)
class Value:
    """One SSA value: the result of one operator, or a parameter (``op == "param"``).

    Attributes
    ----------
    op : str
        Operator name, a key of ``hector.ir.ops.OPS``.
    operands : tuple of Value
    attrs : mapping of str to Attr
        Never changed after construction.
    type : Type
    location : str or None
        ``file:line`` and text of the user's source, kept for messages.
    """

    op: str
    operands: tuple[Value, ...]
    attrs: Mapping[str, Attr]
    type: Type
    location: str | None = field(default=None, repr=False)

    def map(self, name: str = "map") -> str | None:
        """A map-valued attribute, or None where the operator does not carry it."""
        value = self.attrs.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> float:
        """A numeric attribute."""
        value = self.attrs[name]
        assert isinstance(value, int | float)
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """A tuple-valued attribute."""
        value = self.attrs[name]
        assert isinstance(value, tuple)
        return value


@dataclass(frozen=True)
class Function:
    """A straight-line program.

    Attributes
    ----------
    name : str
    params : tuple of Value
        Named inputs, in call order.
    ops : tuple of Value
        In an order where operands come first.
    results : tuple of Value
    """

    name: str
    params: tuple[Value, ...]
    ops: tuple[Value, ...]
    results: tuple[Value, ...]

    def uses(self) -> dict[Value, int]:
        """How often each value is read, results included."""
        counts: dict[Value, int] = {}
        for op in self.ops:
            for operand in op.operands:
                counts[operand] = counts.get(operand, 0) + 1
        for result in self.results:
            counts[result] = counts.get(result, 0) + 1
        return counts


def rooted(value: Value) -> Value:
    """The value whose memory a view shows."""
    while value.op in VIEWS:
        value = value.operands[0]
    return value


def param_name(value: Value) -> str:
    """Name of a parameter."""
    name = value.attrs["name"]
    assert isinstance(name, str)
    return name


class Builder:
    """Appends typed operators to a function under construction.

    Parameters
    ----------
    name : str
        Name of the function.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.params: list[Value] = []
        self.ops: list[Value] = []
        self.location: str | None = None

    def param(self, name: str, type_: Type) -> Value:
        """Add a parameter."""
        value = Value("param", (), {"name": name}, type_)
        self.params.append(value)
        return value

    def emit(self, op: str, *operands: Value, **attrs: Attr | None) -> Value:
        """Append an operator; attributes given as None are left out.

        Raises
        ------
        ValueError
            If the operator does not exist or does not take these operands and attributes.
        """
        kept = {key: value for key, value in attrs.items() if value is not None}
        type_ = infer(op, tuple(operand.type for operand in operands), kept)
        value = Value(op, tuple(operands), kept, type_, self.location)
        self.ops.append(value)
        return value

    def again(self, like: Value, operands: Iterable[Value]) -> Value:
        """``like`` on other operands; ``like`` itself where they are the same."""
        new = tuple(operands)
        if new == like.operands:
            self.ops.append(like)
            return like
        before, self.location = self.location, like.location
        value = self.emit(like.op, *new, **like.attrs)
        self.location = before
        return value

    def reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        """``value`` with another feature shape; nothing is emitted where it has it already."""
        return value if value.type.shape == shape else self.emit("reshape", value, shape=shape)

    def scalar(self, number: float, dtype: str) -> Value:
        """A constant of no dimension."""
        return self.emit("const", value=float(number), dtype=dtype)

    def finish(self, results: Iterable[Value]) -> Function:
        """The function built so far."""
        return Function(self.name, tuple(self.params), tuple(self.ops), tuple(results))
