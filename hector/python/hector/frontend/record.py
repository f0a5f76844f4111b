# SPDX-License-Identifier: Apache-2.0
"""The record of a traced function: what was called on which symbol, and which spaces must agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hector._errors import unsupported
from hector.frontend.location import user_location
from hector.ir.types import Space
from hector.plan import Counts

__all__ = ["SEED", "Call", "Recorder", "SpaceVar"]

SEED = "i64"
"""What an int64 tensor of no dimension is; nothing but dropout takes it."""


_WITHOUT_HISTORY = ("input", "const", "seed", "keep")


def _autocast() -> tuple[object, ...]:
    """Whether autocast is on, and its dtype, for each kind of device that graphs are on."""
    kinds = ("cpu", "cuda")
    return tuple((torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds)


def _shown(space: Space) -> str:
    name = space.value.replace("_", " ")
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


class SpaceVar:
    """The space of a recorded tensor, perhaps not yet known; variables that agree are joined."""

    def __init__(self, space: Space | None = None) -> None:
        self._parent: SpaceVar | None = None
        self._space = space
        self._either: tuple[SpaceVar, SpaceVar] | None = None

    @classmethod
    def either(cls, a: SpaceVar, b: SpaceVar) -> SpaceVar:
        """Of what two tensors of one row each give: rows of either, the other may be a weight."""
        made = cls()
        made._either = (a, b)
        return made

    def root(self) -> SpaceVar:
        """The variable that stands for all joined with this one."""
        return self if self._parent is None else self._parent.root()

    @property
    def space(self) -> Space | None:
        """The space, or None while nothing has decided it."""
        return self._decided(set())

    def _decided(self, seen: set[SpaceVar]) -> Space | None:
        """The space, not asking anyone twice: a tensor may be joined with its own result."""
        root = self.root()
        if root._space is not None or root._either is None or root in seen:
            return root._space
        seen.add(root)
        a, b = (each._decided(seen) for each in root._either)
        return b if a in (None, Space.WEIGHT) and b is not Space.WEIGHT else a

    def join(self, other: SpaceVar) -> bool:
        """Make both one; False where they are known to differ."""
        a, b = self.root(), other.root()
        if a is b:
            return True
        mine, yours = a.space, b.space
        if mine is not None and yours is not None and mine is not yours:
            return False
        b._space = mine if yours is None else yours
        a._parent = b
        return True

    def resolve(self) -> Space:
        """The space; a tensor that no row index ever touched is a weight."""
        return Space.WEIGHT if self.space is None else self.space


@dataclass(frozen=True, eq=False)
class Call:
    """One recorded operation.

    Attributes
    ----------
    kind : str
        Key of the table in lowering.
    operands : tuple of Call
    attrs : mapping
        Axes count the whole tensor's dimensions, rows included.
    shape : tuple of int
        Of the whole tensor, on the graph that was traced with.
    var : SpaceVar
    dtype : str
    location : str
    """

    kind: str
    operands: tuple[Call, ...]
    attrs: Mapping[str, Any]
    shape: tuple[int, ...]
    var: SpaceVar
    dtype: str
    location: str


class Recorder:
    """Collects calls and their constraints during one trace.

    Parameters
    ----------
    counts : Counts
        Of the graph that is traced with; row counts are checked against it.
    """

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.calls: list[Call] = []
        self._autocast = _autocast()

    def call(
        self,
        kind: str,
        operands: tuple[Call, ...],
        shape: tuple[int, ...],
        var: SpaceVar,
        dtype: str | None = None,
        **attrs: Any,
    ) -> Call:
        """Record an operation; the dtype is that of the operands unless given.

        Where the function has switched gradients off, the result is detached.
        """
        if kind != "keep" and any(operand.dtype == SEED for operand in operands):
            remedy = "compute the seed before the call, or pass it as an int"
            raise self.refuse("an int64 tensor that is not simply a seed of hector.dropout", remedy)
        if dtype is None:
            dtypes = {operand.dtype for operand in operands if operand.kind != "const"}
            if len(dtypes) != 1:
                raise TypeError(
                    f"{user_location()}: operands of different dtypes ({', '.join(sorted(dtypes))})"
                    f" in hector.compile; convert them before the call"
                )
            (dtype,) = dtypes
        if self._autocast != _autocast():
            raise self.refuse("a change of autocast", "set it around the call of the function")
        call = Call(kind, operands, attrs, shape, var, dtype, user_location())
        self.calls.append(call)
        return call if torch.is_grad_enabled() or kind in _WITHOUT_HISTORY else self.detached(call)

    def detached(self, x: Call) -> Call:
        """Record that no gradient passes a tensor."""
        attrs = {"op": "detach", "attrs": {}}
        self.calls.append(Call("unary", (x,), attrs, x.shape, x.var, x.dtype, user_location()))
        return self.calls[-1]

    def const(self, number: float, dtype: str) -> Call:
        """Record a Python number."""
        return self.call("const", (), (), SpaceVar(Space.WEIGHT), dtype, value=float(number))

    def require(self, call: Call, space: Space, reason: str) -> None:
        """State that a tensor's rows are the members of a space (or that it has no rows)."""
        if not call.var.join(SpaceVar(space)):
            raise ValueError(
                f"{user_location()}: {reason} needs {_shown(space)} tensor, but this is "
                f"{_shown(call.var.resolve())} tensor (from {call.location})"
            )
        if space is not Space.WEIGHT:
            rows = self.counts.rows(space)
            if not call.shape or call.shape[0] != rows:
                raise ValueError(
                    f"{user_location()}: {reason} needs a tensor of exactly {rows} rows (one for "
                    f"each {space.value.replace('_', ' ')}), not of shape {call.shape}"
                )

    def join(self, a: Call, b: Call, reason: str) -> SpaceVar:
        """State that two tensors of equal row count have rows of the same space."""
        if not a.var.join(b.var):
            raise ValueError(
                f"{user_location()}: {reason} of {_shown(a.var.resolve())} tensor and "
                f"{_shown(b.var.resolve())} tensor; index the node or relation tensor by g.src, "
                f"g.dst or g.rel first, so that both have one row an edge"
            )
        return a.var

    def settle(self) -> None:
        """Give every tensor of one row its space, once all that was recorded is known.

        A result's rows are those of an operand: of the one that is asked for one kind of rows only,
        since a weight may be asked for several.
        """
        pairs = [call for call in self.calls if call.attrs.get("one_row")]
        asked: dict[SpaceVar, set[Space | None]] = {}
        for call in pairs:
            for x in call.operands:
                asked.setdefault(x.var.root(), set()).add(call.var.space)
        for call in reversed(pairs):
            space = call.var.space
            if space in (None, Space.WEIGHT) or any(x.var.space is space for x in call.operands):
                continue
            free = [x.var for x in call.operands if x.var.space is None]
            free.sort(key=lambda var: len(asked.get(var.root(), ())))
            if free:
                free[0].join(SpaceVar(space))
        for call in pairs:
            for x in call.operands:
                if call.var.space is None and x.var.space not in (None, Space.WEIGHT):
                    call.var.join(x.var)

    def refuse(self, what: str, remedy: str) -> Exception:
        """An UnsupportedError at the user's line."""
        return unsupported(
            f"{user_location()}: {what} is not supported inside hector.compile; {remedy}"
        )
