# SPDX-License-Identifier: Apache-2.0
"""The context manager of classes with a ``close``."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

__all__ = ["ClosesAtExit"]


class _Closes(Protocol):
    def close(self) -> None: ...


class ClosesAtExit:
    """Makes a class with a ``close`` a context manager that calls it at the end."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self: _Closes,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
