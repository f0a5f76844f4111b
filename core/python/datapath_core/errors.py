# SPDX-License-Identifier: Apache-2.0
"""The error tree of the four packages; messages are written where the fault is known.

Every error of ``datapath_core``, ``pytorch_direct``, ``hector`` and ``ssdtrain`` that is not a
plain built-in (``ValueError``, ``TypeError``, ``IndexError``, ``TimeoutError``) derives from
:class:`Error`.
"""

from __future__ import annotations

import errno as _errno

__all__ = ["BudgetError", "CudaError", "Error", "IoError", "OutOfSpaceError", "UnsupportedError"]


class Error(Exception):
    """Root of the tree; the text says what failed, where, why and the remedy where one is known."""


class CudaError(Error):
    """A CUDA driver call failed.

    Attributes
    ----------
    code : int
        The driver's ``CUresult``.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class IoError(Error, OSError):
    """A file operation failed.

    Attributes
    ----------
    errno : int
        The operating system's error number.
    filename : str or None
        The path, where one is known (an unlinked file keeps the path that it had).
    offset : int or None
        Byte offset in the file at which the operation failed.
    """

    def __init__(
        self,
        errno: int,
        message: str,
        filename: str | None = None,
        offset: int | None = None,
    ) -> None:
        OSError.__init__(self, errno, message, filename)
        self.offset = offset

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (type(self), (self.errno, self.strerror, self.filename, self.offset))


class OutOfSpaceError(IoError):
    """No room is left on a drive, in a volume or under a quota (``errno`` is ``ENOSPC``)."""

    def __init__(
        self,
        message: str,
        filename: str | None = None,
        offset: int | None = None,
        errno: int = _errno.ENOSPC,
    ) -> None:
        super().__init__(errno, message, filename, offset)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return (type(self), (self.strerror, self.filename, self.offset, self.errno))


class BudgetError(Error, MemoryError):
    """An allocation would exceed a byte budget that the user or the machine sets."""


class UnsupportedError(Error, RuntimeError):
    """What was asked for by name cannot be served on this machine, in this state."""
