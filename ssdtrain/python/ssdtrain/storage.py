# SPDX-License-Identifier: Apache-2.0
"""Identity of saved tensors: which bytes of which storage, at which version.

A data pointer is no identity (the allocator reuses it), nor is a Python object (autograd wraps one
tensor in many). A storage is: while a weak reference to it is held its address cannot be given to
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

__all__ = [
    "ALIGNMENT",
    "ByteRange",
    "Layout",
    "Memory",
    "VersionWatch",
    "WeakStorage",
    "address_of",
    "alignment_of",
    "byte_range",
    "bytes_of",
    "changed_in_place",
    "counter_of",
    "laid_on",
    "nbytes_of",
    "reinterpret",
    "storage_of",
    "strided",
    "with_counter",
]

# Every element size divides it, so a range that starts at a multiple holds whole elements of every
# view.
ALIGNMENT = 16

# A storage, or a flat tensor over the whole of one.
Memory = torch.UntypedStorage | torch.Tensor

# A storage by its identity, which a WeakStorage pins; None if it is gone.
storage_of = torch.UntypedStorage._new_with_weak_ptr
_new = tuple.__new__  # Half the time of the constructor that a named tuple has.
_empties: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}
_CPU = torch.device("cpu")
# Stands in for a tensor's bytes; for ``data`` any dtype and any device with memory will do.
with torch.inference_mode(False):  # Whatever the mode of the import, it has to have a version.
    _NO_BYTES = torch.empty(0, device="cpu")


class WeakStorage:
    """A reference to a storage that does not keep its bytes alive.

    Attributes
    ----------
    key : int
        The storage's identity: ``storage._cdata``.
    pointer, nbytes : int
        Of its memory when the reference was made. A storage can change its memory in place
        (``resize_``, swapped data); then it is another identity.
    """

    __slots__ = ("key", "nbytes", "pointer")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        # No public call makes a weak reference to a storage, or turns one into a storage.
        self.key: int = storage._weak_ref()  # type: ignore[assignment]
        self.pointer: int = storage.data_ptr()
        self.nbytes: int = storage.nbytes()

    def get(self) -> torch.UntypedStorage | None:
        """The storage, if something keeps it alive with the memory it had."""
        storage = storage_of(self.key)
        if storage is None or storage.data_ptr() != self.pointer or storage.nbytes() != self.nbytes:
            return None
        return storage

    def is_same_memory(self, storage: torch.UntypedStorage) -> bool:
        """Whether the storage still has the memory that was seen first."""
        return storage.data_ptr() == self.pointer and storage.nbytes() == self.nbytes

    # Kept as a default: at the interpreter's end module globals may be gone.
    def __del__(self, free: Callable[[int], None] = torch.UntypedStorage._free_weak_ref) -> None:
        free(self.key)


def counter_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without bytes whose ``_version`` is another tensor's, now and from here on.

    Autograd refuses to use a saved tensor that was changed in place, but not when hooks packed it.
    This is a detached alias, which shares the counter, whose memory has been swapped for none.
    """
    counter = tensor.detach()
    counter.data = _NO_BYTES
    return counter


def with_counter(counter: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as a tensor's under a counter, so that later saves are watched as well."""
    alias = counter.detach()
    alias.data = tensor
    return alias


class VersionWatch:
    """Follows a tensor's version counter without keeping its bytes alive.

    Attributes
    ----------
    version : int
        The counter when the watch began.
    counter : torch.Tensor
        Its ``_version`` is the counter now.
    """

    __slots__ = ("counter", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.version: int = tensor._version
        self.counter = counter_of(tensor)

    def current(self) -> int:
        """The counter now."""
        return self.counter._version


class ByteRange(NamedTuple):
    """Bytes ``start`` to ``stop`` (exclusive) of a storage."""

    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self.stop - self.start

    def covers(self, other: ByteRange) -> bool:
        """Whether the other range lies within."""
        return self.start <= other.start and other.stop <= self.stop

    def overlaps(self, other: ByteRange) -> bool:
        """Whether a byte is in both."""
        return self.start < other.stop and other.start < self.stop

    def union(self, other: ByteRange) -> ByteRange:
        """The smallest range with both."""
        return ByteRange(min(self.start, other.start), max(self.stop, other.stop))

    def widened(self, margin: int, limit: int) -> ByteRange:
        """The range with at least a margin on both sides, within bytes 0 to ``limit``."""
        start = max(self.start - margin, 0)
        return ByteRange(start - start % ALIGNMENT, min(self.stop + margin, limit))


class Layout(NamedTuple):
    """How a tensor lies on its storage: all that is needed to lay it on a copy of the bytes."""

    dtype: torch.dtype
    device: torch.device
    size: torch.Size
    stride: tuple[int, ...]
    offset: int  # elements

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """The layout of a strided tensor."""
        return _new(
            cls,
            (
                tensor.dtype,
                tensor.device,
                tensor.size(),
                tensor.stride(),
                tensor.storage_offset(),
            ),
        )

    def on(self, memory: Memory, start: int) -> torch.Tensor:
        """A tensor of this layout over memory that begins at byte ``start`` of the original."""
        dtype, device, size, stride, offset = self
        if start:
            offset -= start // dtype.itemsize
        return laid_on(memory, dtype, device, offset, size, stride)


def laid_on(
    memory: Memory,
    dtype: torch.dtype,
    device: torch.device,
    offset: int,
    size: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    """A tensor over memory that has all of its elements; ``offset`` and ``stride`` in elements."""
    if isinstance(memory, torch.Tensor):
        if memory.dtype is dtype:
            return reinterpret(memory, size, stride, offset)
        memory = memory.untyped_storage()
    found = _empties.get((dtype, device))
    if found is None:
        found = _empty(dtype, device)
    # ``data`` makes a tensor with a version counter of its own, and costs least.
    return found.data.set_(memory, offset, size, stride)


def _empty(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    key = dtype, device
    found = _empties.get(key)
    if found is None:
        with torch.inference_mode(False):  # It outlives the mode, and has to have a version.
            found = _empties[key] = torch.empty(0, dtype=dtype, device=device)
    return found


def changed_in_place(what: str, version: int, expected: int) -> RuntimeError:
    """The error to raise for a tensor that was changed after the save."""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace"
        f" operation: {what} is at version {version}; expected version {expected} instead"
        " (saved under ssdtrain.Offloader; clone it before the change, or use the"
        " out-of-place operation)"
    )


def alignment_of(device: torch.device) -> int:
    """The alignment in bytes of fresh memory, as far as kernels look at it."""
    return 64 if device == _CPU else 256


def byte_range(tensor: torch.Tensor) -> ByteRange:
    """The bytes to store for a strided tensor: those that its elements span.

    With gaps between the elements, it is the whole storage if they span most of it.
    Views with gaps come in sets (query, key and value of a fused projection, the halves of a gated
    MLP) whose spans nearly coincide: one stored copy then serves the set.
    """
    itemsize = tensor.element_size()
    start = int(tensor.storage_offset()) * itemsize
    if tensor.is_contiguous():
        first = start - start % ALIGNMENT
        return _new(ByteRange, (first, start + tensor.numel() * itemsize))
    last = sum(int(n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
    stop = start + (last + 1) * itemsize
    whole = int(tensor.untyped_storage().nbytes())
    has_gaps = stop - start > tensor.numel() * itemsize
    if has_gaps and 2 * (stop - start) >= whole:
        return ByteRange(0, whole)
    return ByteRange(start - start % ALIGNMENT, stop)


def bytes_of(storage: torch.UntypedStorage, span: ByteRange) -> torch.Tensor:
    """A one-dimensional uint8 tensor over a range of a storage."""
    tensor = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return tensor.set_(storage, span.start, (span.nbytes,), (1,))


def strided(
    base: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int
) -> torch.Tensor:
    """A tensor over the storage of one that begins with it; ``offset`` and ``stride`` in elements.

    ``reinterpret`` is the same for a third of the time. It is not public, and this takes its place
    where it is missing.
    """
    return base.as_strided(size, stride, offset)


reinterpret: Callable[..., torch.Tensor] = getattr(
    torch._C._dynamo.guards, "_reinterpret_tensor", strided
)


def nbytes_of(memory: Memory) -> int:
    """How many bytes memory has now: storages can be resized."""
    storage = memory.untyped_storage() if isinstance(memory, torch.Tensor) else memory
    return storage.nbytes()


def address_of(storage: torch.UntypedStorage, span: ByteRange) -> torch.Tensor:
    """As :func:`bytes_of`, but the tensor does not keep the memory alive."""
    loose = torch._C._construct_storage_from_data_pointer(
        storage.data_ptr() + span.start, storage.device, span.nbytes
    )
    tensor = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return tensor.set_(loose, 0, (span.nbytes,), (1,))
