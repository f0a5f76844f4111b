# SPDX-License-Identifier: Apache-2.0
"""Integer arguments of a traced function: a seed stays free, any other use fixes the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hector.frontend.record import Call

__all__ = ["TracedInt"]


class TracedInt:
    """``scale * argument + offset``; becomes a plain number, and a guard, wherever it is needed.

    Parameters
    ----------
    value : int
        Of this expression, in the traced call.
    fix : callable
        Notes that the program depends on the argument's value.
    record : callable
        Gives the recorded input for a scale and an offset.
    scale, offset : int
    """

    def __init__(
        self,
        value: int,
        fix: Callable[[], None],
        record: Callable[[int, int], Call],
        scale: int = 1,
        offset: int = 0,
    ) -> None:
        self._value, self._fix, self._record = value, fix, record
        self._scale, self._offset = scale, offset

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        from hector.frontend.symbol import Symbol

        return Symbol.__torch_function__(*args, **kwargs)

    def fixed(self) -> int:
        """The plain number."""
        self._fix()
        return self._value

    def recorded(self) -> Call:
        """The number as an input of the program."""
        return self._record(self._scale, self._offset)

    def _affine(self, scale: int, offset: int) -> TracedInt:
        return TracedInt(
            self._value * scale + offset, self._fix, self._record,
            self._scale * scale, self._offset * scale + offset,
        )  # fmt: skip

    def __add__(self, other: Any) -> Any:
        return self._affine(1, other) if type(other) is int else self.fixed() + other

    def __sub__(self, other: Any) -> Any:
        return self._affine(1, -other) if type(other) is int else self.fixed() - other

    def __mul__(self, other: Any) -> Any:
        return self._affine(other, 0) if type(other) is int else self.fixed() * other

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return repr(self.fixed())


def _delegate(name: str) -> Callable[..., Any]:
    def method(self: TracedInt, *others: Any) -> Any:
        plain = [other.fixed() if isinstance(other, TracedInt) else other for other in others]
        return getattr(self.fixed(), name)(*plain)

    return method


for _name in (
    "abs bool ceil eq float floor floordiv format ge gt hash index int le lt mod ne neg pos pow "
    "rfloordiv rmod round rpow rsub rtruediv str truediv and or xor rand ror rxor lshift rshift "
    "invert divmod"
).split():
    setattr(TracedInt, f"__{_name}__", _delegate(f"__{_name}__"))
