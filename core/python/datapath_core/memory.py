# SPDX-License-Identifier: Apache-2.0
"""Host memory that a GPU can read and write by itself: pools, and pinning in place."""

from __future__ import annotations

from typing import Any

from datapath_core import _core, _log
from datapath_core._context import ClosesAtExit
from datapath_core._core import Buffer, DeviceView
from datapath_core._device import DeviceLike, open_device

__all__ = ["Buffer", "DeviceView", "PinnedPool", "register"]


class PinnedPool(_core.Pool, ClosesAtExit):
    """Pinned memory in exact sizes, from one reserved range of addresses.

    It is backed and registered in pieces as it is needed: huge pages advised, touched in parallel
    on the right NUMA node, kept out of forked children. Without CUDA it is ordinary memory, locked
    on request, and :attr:`Buffer.is_pinned` is false.

    Parameters
    ----------
    budget : int or str, optional
        Ceiling in bytes. By default the setting ``memory.budget``, whose default is bounded by the
        control group and the memory available.
    numa_node : int, optional
        Where the memory lies; by default the device's node.
    huge_pages : bool, optional
        Whether to advise huge pages; by default the setting ``memory.huge_pages``.
    lock : bool, optional
        Without CUDA: whether to lock the memory; by default the setting ``memory.lock``.
    piece_bytes : int or str, optional
        What the pool grows by unless one request needs more; by default ``memory.piece_bytes``.
    device : str, int, torch.device or Device, optional
        Whose memory; by default CUDA where the driver is usable, else plain memory.

    Raises
    ------
    ValueError
        For a budget of 0, a negative size, or a node that does not exist.
    """

    def __init__(
        self,
        budget: int | str | None = None,
        numa_node: int | None = None,
        huge_pages: bool | None = None,
        *,
        lock: bool | None = None,
        piece_bytes: int | str | None = None,
        device: DeviceLike | None = None,
    ) -> None:
        super().__init__(
            budget,
            numa_node,
            huge_pages,
            lock,
            piece_bytes,
            None if device is None else open_device(device),
        )
        _log.flush()


def register(
    obj: Any,
    *,
    read_only: bool = False,
    required: bool = False,
    device: DeviceLike | None = None,
) -> Buffer:
    """Pin memory that exists already, in place.

    Parameters
    ----------
    obj : buffer
        CPU memory, contiguous, with the buffer protocol or DLPack: a torch tensor, a numpy array,
        an ``mmap``. It is held until the buffer and every view of it are gone and the recorded
        work has ended. Registrations may overlap and repeat.
    read_only : bool
        The memory may not be written, by the CPU or by the device.
    required : bool
        Raise where the memory cannot be pinned, instead of falling back to plain memory.
    device : str, int, torch.device or Device, optional
        As for :class:`PinnedPool`.

    Returns
    -------
    Buffer
        The same bytes. ``is_pinned`` says whether they are pinned, ``reason`` why not.

    Raises
    ------
    ValueError
        For memory that is not contiguous, or is read-only without ``read_only=True``.
    TypeError
        For an object without memory of the CPU.
    UnsupportedError, CudaError
        If it is required and cannot be pinned.
    """
    buffer = _core.register(
        obj, read_only, required, None if device is None else open_device(device)
    )
    _log.flush()
    return buffer
