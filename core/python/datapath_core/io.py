# SPDX-License-Identifier: Apache-2.0
"""Disk I/O: engines, files, and volumes that stripe extents over drives."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from datapath_core import _core, _json, _log
from datapath_core._context import ClosesAtExit
from datapath_core._core import Extent, File

__all__ = ["Engine", "Extent", "File", "Volume"]


class Engine(_core.Engine, ClosesAtExit):
    """Reads and writes files with many requests in flight.

    Parameters
    ----------
    backend : {"auto", "uring", "threads", "cufile"}, optional
        ``"auto"`` takes the fastest that works and :meth:`describe` says why. By default the
        setting ``io.backend``.
    depth, threads : int, optional
        Requests in flight for each ring or pool, and how many of these; by default ``io.depth``
        and ``io.threads``.
    direct : bool, optional
        O_DIRECT: required, or never; by default the setting ``io.direct``, which is "where the
        file system allows it".
    faults : str, optional
        Fault plan for tests; by default the setting ``io.faults``.
    max_inflight_bytes : int or str, optional
        Bytes in flight; by default ``io.max_inflight_bytes``.

    Raises
    ------
    UnsupportedError
        If a backend that is asked for by name cannot serve on this machine.
    ValueError
        For an argument out of its domain.
    """

    def __init__(
        self,
        backend: str | None = None,
        *,
        depth: int | None = None,
        threads: int | None = None,
        direct: bool | None = None,
        faults: str | None = None,
        max_inflight_bytes: int | str | None = None,
    ) -> None:
        super().__init__(backend, depth, threads, direct, faults, max_inflight_bytes)
        _log.flush()

    def describe(self) -> dict[str, Any]:
        """Return the backend in use, why each other one is not, and what it does, JSON-like."""
        return _json.described(self.describe_json())


class Volume(_core.Volume, ClosesAtExit):
    """One space over one or several directories, best one for each drive.

    Extents are striped over the drives, each of which has its own queue, and lie in files that
    grow in segments.

    Parameters
    ----------
    dirs : str, os.PathLike, or an iterable of them
        Existing directories.
    capacity : int or str
        Ceiling in bytes over all directories.
    unlink : bool
        Files have no name from the start, so that whatever ends the process, nothing is left.
        Otherwise they stay until :meth:`close`.
    engine : Engine, optional
        Who does the I/O; by default an engine of the volume's own.
    segment_bytes, stripe_bytes, reserve_bytes : int or str, optional
        Growth of a file, unit of striping, and free bytes left alone on each drive; by default the
        settings ``volume.segment_bytes``, ``volume.stripe_bytes`` and ``volume.reserve_bytes``.

    Raises
    ------
    IoError
        If a directory does not exist or cannot be written.
    OutOfSpaceError
        If a drive has no room.
    ValueError
        For no directory, or an argument out of its domain.
    """

    def __init__(
        self,
        dirs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        capacity: int | str,
        *,
        unlink: bool = True,
        engine: Engine | None = None,
        segment_bytes: int | str | None = None,
        stripe_bytes: int | str | None = None,
        reserve_bytes: int | str | None = None,
    ) -> None:
        directories = [dirs] if isinstance(dirs, str | bytes | os.PathLike) else list(dirs)
        super().__init__(
            directories, capacity, unlink, engine, segment_bytes, stripe_bytes, reserve_bytes
        )
        _log.flush()

    def describe(self) -> dict[str, Any]:
        """Return drives, files and use as a JSON-like dict."""
        return _json.described(self.describe_json())
