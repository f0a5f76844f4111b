# SPDX-License-Identifier: Apache-2.0
"""The memory of one storage, registered with the GPUs that use it; not the tensors over it."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import TYPE_CHECKING

import torch
import torch.utils.dlpack

import datapath_core
from datapath_core.errors import UnsupportedError
from pytorch_direct import _native

if TYPE_CHECKING:
    from datapath_core import Buffer

__all__ = [
    "Registration",
    "can_use_cuda",
    "registration_of",
    "registration_of_view",
    "require_cuda",
]

_logger = logging.getLogger("pytorch_direct")
_NO_DEVICE = -1
_live: weakref.WeakValueDictionary[int, Registration] = weakref.WeakValueDictionary()
_live_lock = threading.Lock()
_by_device_address: weakref.WeakValueDictionary[int, Registration] = weakref.WeakValueDictionary()


def registration_of(tensor: torch.Tensor, *, lazy: bool = False) -> Registration:
    """Return the registration of a CPU tensor's whole storage; there is one for each.

    Parameters
    ----------
    tensor : torch.Tensor
        A strided CPU tensor.
    lazy : bool
        Register only when a GPU is to read the memory: for tensors that other processes sent, whose
        receivers may be workers that never touch a GPU.
    """
    with torch._C.DisableTorchFunctionSubclass():
        storage = tensor.untyped_storage()
    with _live_lock:
        found = _live.get(storage._cdata)
        if found is None or found.address != storage.data_ptr():
            found = _live[storage._cdata] = Registration(storage)
    if not lazy:
        found.register()
    return found


def can_use_cuda() -> bool:
    """Whether this process could use a GPU."""
    return not torch.cuda._is_in_bad_fork() and torch.cuda.is_available()


def require_cuda() -> None:
    """Raise `UnsupportedError`, saying why, where this process cannot use a GPU."""
    if torch.cuda._is_in_bad_fork():
        raise UnsupportedError(
            "a forked process cannot use CUDA once its parent has: use the unified tensor as a CPU "
            "tensor here, or start the process with the spawn method"
        )
    if not torch.cuda.is_available():
        raise UnsupportedError(
            f"no CUDA device can read a unified tensor here: torch {torch.__version__} sees no "
            "GPU; use it as a CPU tensor"
        )


def registration_of_view(view: torch.Tensor) -> Registration | None:
    """Return the registration whose memory a CUDA tensor is a device view of, if it is one."""
    return _by_device_address.get(view.untyped_storage().data_ptr())


class _Work:
    """The last use of the memory by one stream of a GPU."""

    def __init__(self) -> None:
        self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.turn = 0
        self.is_running = False
        self.writes = False


class Registration:
    """The bytes of one CPU storage as the CPU and as GPUs address them.

    It keeps the storage alive. The registration is undone when this object, every device view and
    all recorded work are gone (``datapath_core.register``).
    """

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.address = storage.data_ptr()
        self.nbytes = storage.nbytes()
        self._storage = storage
        #: Whether the memory is a copy that `unified` had to make.
        self.copied = False
        #: Whether nothing may write the memory.
        self.read_only = False
        self._buffers: dict[int, Buffer] = {}
        self._device_bytes: dict[int, torch.Tensor] = {}
        self._lock = threading.Lock()
        self._works: dict[tuple[int, int], _Work] = {}
        #: The live unified tensors over this memory, by identity.
        self.tensors: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()

    @property
    def is_registered(self) -> bool:
        """Whether the memory is really pinned now."""
        return any(buffer.is_pinned for buffer in self._buffers.values())

    @property
    def reason(self) -> str:
        """Why the memory is not pinned; empty if it is."""
        if self.is_registered:
            return ""
        if self.nbytes == 0:
            return "it has no bytes"
        reasons = [buffer.reason for buffer in self._buffers.values() if buffer.reason]
        return reasons[0] if reasons else "no GPU has used it yet"

    def register(self) -> None:
        """Register with the current GPU, or with what core finds where torch sees none; once."""
        if self._buffers:
            return
        if can_use_cuda():
            self._buffer(torch.cuda.current_device())
        else:
            self._buffer(_NO_DEVICE)

    def device_address(self, device: int) -> int:
        """Return the address of the first byte for a GPU.

        Raises
        ------
        UnsupportedError
            The GPU cannot read this memory; the text says why.
        """
        return int(self.device_bytes(device).data_ptr()) if self.nbytes else 0

    def device_bytes(self, device: int) -> torch.Tensor:
        """Return the bytes as a CUDA tensor (uint8, one dimension) over the same memory.

        Raises
        ------
        UnsupportedError
            The GPU cannot read this memory; the text says why.
        """
        known = self._device_bytes.get(device)
        if known is not None:
            return known
        require_cuda()
        # Tensors made in inference mode count no versions, and a view made now may be used outside.
        with torch.inference_mode(False), torch.cuda.device(device):
            if self.nbytes == 0:
                view = torch.empty(0, dtype=torch.uint8, device=device)
            else:
                buffer = self._buffer(device)
                if not buffer.is_pinned:
                    raise UnsupportedError(
                        f"cuda:{device} cannot read this unified tensor: its memory at "
                        f"{self.address:#x} ({self.nbytes} bytes) is not pinned: {buffer.reason}"
                    )
                view = torch.utils.dlpack.from_dlpack(buffer.device_view())
        with self._lock:
            if self.nbytes:
                _by_device_address[view.data_ptr()] = self
            return self._device_bytes.setdefault(device, view)

    def is_read_only(self, device: int) -> bool:
        """Whether a GPU may only read the memory."""
        return self.read_only or (self.nbytes > 0 and self._buffer(device).read_only)

    def record_use(self, device: int, stream: int, *, writes: bool = False) -> None:
        """Say that work now on a stream of a GPU reads the memory, or `writes` it."""
        if self.nbytes == 0:
            return
        self._buffer(device).record_use(stream)
        current = torch.cuda.current_stream(device)
        if current.cuda_stream != stream:
            current = torch.cuda.ExternalStream(stream, device)  # type: ignore[no-untyped-call]
        with self._lock:
            work = self._works.setdefault((device, stream), _Work())
            work.event.record(current)
            work.turn += 1
            work.is_running = True
            work.writes |= writes

    def settle(self, *, to_write: bool = False) -> None:
        """Wait until the CPU may read the memory, or write it: for GPUs that write it, or use it.

        A gather has not read its rows yet when it returns, but its caller has seen it done.
        """
        if not self._works or torch.cuda._is_in_bad_fork():
            return
        with self._lock:
            ahead = [
                (device, work, work.turn)
                for (device, _), work in self._works.items()
                if work.is_running and (to_write or work.writes)
            ]
        for device, work, turn in ahead:
            # torch's own wait would end a graph that this thread is recording.
            _native.wait_for_event(device, work.event.cuda_event)
            with self._lock:
                if work.turn == turn:
                    work.is_running = work.writes = False

    def _buffer(self, device: int) -> Buffer:
        with self._lock:
            known = self._buffers.get(device)
            if known is None:
                known = self._buffers[device] = self._make_buffer(device)
            return known

    def _make_buffer(self, device: int) -> Buffer:
        with torch.inference_mode(False):
            whole = torch.empty(0, dtype=torch.uint8).set_(self._storage)
        where = None if device == _NO_DEVICE else f"cuda:{device}"
        buffer = datapath_core.register(whole, device=where)
        if device != _NO_DEVICE and not buffer.is_pinned:
            # A file that is mapped for reading only can be pinned for reading only.
            read_only = datapath_core.register(whole, device=where, read_only=True)
            if read_only.is_pinned:
                return read_only
            _logger.warning(
                "memory stays unpinned, so cuda:%d cannot read it: %s", device, buffer.reason
            )
        return buffer
