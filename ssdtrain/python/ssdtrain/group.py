# SPDX-License-Identifier: Apache-2.0
"""An alias group: one byte range of one storage at one version, for all saved tensors in it.

A group only holds state; :mod:`ssdtrain.engine` moves it from one state to the next, under its
lock.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from .storage import ByteRange, Memory, WeakStorage, changed_in_place

if TYPE_CHECKING:
    from weakref import ReferenceType

    import torch

    from datapath_core.streams import Ticket

    from .copies import StoredCopy
    from .recomputation import Ingredients
    from .run import Run

__all__ = ["KEPT", "LOADED", "LOADING", "RELEASED", "STORED", "STORING", "Group", "State"]


class State(enum.Enum):
    """Where a group's bytes are."""

    KEPT = "kept"  # held here, and nowhere else
    STORING = "storing"  # held here, and on the way to a tier
    STORED = "stored"  # on a tier; the original may be alive by other means
    LOADING = "loading"  # on a tier, and on the way back
    LOADED = "loaded"  # on a tier, and in memory again
    DROPPED = "recompute"  # nowhere: a recipe computes them again
    RELEASED = "released"


# Python 3.11 takes several times as long to find a member of an enumeration as a global.
KEPT: Final = State.KEPT
STORING: Final = State.STORING
STORED: Final = State.STORED
LOADING: Final = State.LOADING
LOADED: Final = State.LOADED
RELEASED: Final = State.RELEASED


class Group:
    """State of one stored range.

    Attributes
    ----------
    state : State
    source : WeakStorage
        The original storage.
    counter, version : torch.Tensor, int
        Its version counter (:func:`~ssdtrain.storage.counter_of`), that of the tensor saved first,
        and where it stood then.
    span : ByteRange
        The bytes of it that this group stands for.
    held : torch.UntypedStorage or None
        The original, while this group keeps it alive (KEPT, STORING).
    copy : torch.Tensor or None
        A loaded copy that this group keeps alive: a flat tensor over its storage.
    loaded : weak reference to torch.UntypedStorage
        To the last loaded copy. Set with ``copy``.
    dtype : torch.dtype
        Of the tensor saved first: that of loaded copies.
    stream : int or None
        The stream that was current at the save: when it comes after the store, the original's
        memory may be used again. Set with ``stored``.
    begun : int
        When its last transfer was started, in ``time.monotonic_ns()``.
    transfer : Ticket or None
        A load that has not been seen to end.
    ingredients : Ingredients or None
        What it is computed from, if it is dropped.
    load_stream : int or None
        The stream for which a loaded copy was allocated. Set with ``copy``.
    run, index : Run, int
        The step that saved it, and its position there.
    is_resident : bool
        Whether its bytes are counted as in the device's memory.
    is_needed : bool
        Whether backward has asked for it.
    nbytes : int
        Bytes of the range.
    claims : int
        How many there are: live saved tensors in the group, other groups' recipes that read it.
    awaited : int
        How many of them have not asked for their bytes since the last load.
    loaded_start : int
        Position in the original of a loaded copy's first byte. Padding before the range puts the
        copy where the original was relative to an aligned address: kernels choose their path, and
        with it the order in which they add, by alignment. Set with ``copy``.
    is_torn : bool
        Whether the memory was replaced while it was being stored (``resize_``, ``share_memory_``).
    """

    __slots__ = (
        "awaited", "begun", "checksum", "claims", "copy", "counter", "device", "dtype", "held",
        "index", "ingredients", "is_counted", "is_needed", "is_resident", "is_torn", "load_count",
        "load_stream", "loaded", "loaded_start", "merged_into", "nbytes", "run", "source", "span",
        "state", "stored", "stream", "transfer", "version",
    )  # fmt: skip

    load_stream: int | None
    loaded: ReferenceType[torch.UntypedStorage]
    loaded_start: int
    stream: int | None

    def __init__(
        self,
        storage: torch.UntypedStorage,
        dtype: torch.dtype,
        counter: torch.Tensor,
        version: int,
        span: ByteRange,
        run: Run,
    ) -> None:
        start, stop = span
        self.state: State = KEPT
        self.device = storage.device
        self.source = WeakStorage(storage)
        self.dtype = dtype
        self.counter = counter
        self.version = version
        self.span = span
        self.nbytes = stop - start
        self.held: torch.UntypedStorage | None = storage
        self.copy: torch.Tensor | None = None
        self.stored: StoredCopy | None = None
        self.begun = 0
        self.transfer: Ticket | None = None
        self.checksum: torch.Tensor | None = None
        self.ingredients: Ingredients | None = None
        self.claims = 0
        self.awaited = 0
        self.load_count = 0
        self.merged_into: Group | None = None
        self.run = run
        self.index = run.add(self)
        self.is_needed = False
        self.is_counted = False
        self.is_torn = False
        self.is_resident = False

    def resolve(self) -> Group:
        """The group that took over this one's saved tensors, or itself."""
        group = self
        while group.merged_into is not None:
            group = group.merged_into
        return group

    def matches(self, storage: torch.UntypedStorage, version: int) -> bool:
        """Whether the group stands for bytes of this storage at this version."""
        # Tensors over one storage can have counters of their own (``.data``): equal numbers only
        # mean equal bytes if this group's counter has not moved either.
        unchanged = self.version == version == self.counter._version
        return unchanged and self.source.is_same_memory(storage)

    def check_version(self, what: str) -> None:
        """Raise ``RuntimeError`` if the tensor saved first was changed in place since."""
        version = self.counter._version
        if version != self.version:
            raise changed_in_place(what, version, self.version)

    def alive(self) -> tuple[Memory, int] | None:
        """Memory with the bytes, and the position in the original of its first byte.

        The original if anything keeps it alive (*forwarding*), else a loaded copy that is still
        alive.
        """
        original = self.held
        if original is None:
            original = self.source.get()
        if original is not None:
            return original, 0
        if self.state is LOADED:
            if self.copy is not None:
                return self.copy, self.loaded_start
            copy = self.loaded()
            if copy is not None:
                return copy, self.loaded_start
        return None

    def whereabouts(self) -> str:
        """The tier that the bytes are on, or why memory still holds them."""
        if self.state is STORING:
            return "still being stored"
        if self.ingredients is not None:
            return "alive elsewhere" if self.source.get() is not None else "recompute"
        if self.stored is not None:
            return "alive elsewhere" if self.source.get() is not None else self.stored.tier
        return "kept"

    def phase(self) -> str:
        """Where the bytes are, in a word for the report."""
        if self.stored is None or self.state is not STORED:
            return self.state.value
        return self.stored.phase
