# SPDX-License-Identifier: Apache-2.0
"""An alias group: one byte range of one storage at one version, for all saved tensors in it.

A group only holds state; :mod:`ssdtrain.engine` moves it from one state to the next, under its
lock.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from .storage import ByteRange, VersionWatch, WeakStorage, alignment_of

if TYPE_CHECKING:
    import torch

    from datapath_core.streams import Ticket

    from .copies import StoredCopy
    from .recomputation import Ingredients
    from .run import Run
    from .saved import Claim

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
    watch : VersionWatch
        Its version counter: that of the tensor saved first.
    span : ByteRange
        The bytes of it that this group stands for.
    held : torch.UntypedStorage or None
        The storage that this group keeps alive: the original (KEPT, STORING) or a loaded copy.
    stream : int or None
        The stream that was current at the save: when it comes after the store, the original's
        memory may be used again.
    begun : int
        When its last transfer was started, in ``time.monotonic_ns()``.
    transfer : Ticket or None
        A load that has not been seen to end.
    ingredients : Ingredients or None
        What it is computed from, if it is dropped.
    load_stream : int or None
        The stream for which a loaded copy was allocated.
    run, index : Run, int
        The step that saved it, and its position there.
    is_resident : bool
        Whether its bytes are counted as in the device's memory.
    is_needed : bool
        Whether backward has asked for it.
    nbytes : int
        Bytes of the range.
    claims : set of Claim
        Of the live saved tensors in the group.
    awaited : int
        Of these, how many have not asked for their bytes since the last load.
    loaded_start : int
        Position in the original of a loaded copy's first byte. Padding before the range puts the
        copy where the original was relative to an aligned address: kernels choose their path, and
        with it the order in which they add, by alignment.
    is_torn : bool
        Whether the memory was replaced while it was being stored (``resize_``, ``share_memory_``).
    """

    __slots__ = (
        "awaited", "begun", "checksum", "claims", "device", "held", "index", "ingredients",
        "is_counted", "is_needed", "is_resident", "is_torn", "load_count", "load_stream", "loaded",
        "loaded_start", "merged_into", "nbytes", "run", "source", "span", "state", "stored",
        "stream", "transfer", "watch",
    )  # fmt: skip

    def __init__(
        self,
        storage: torch.UntypedStorage,
        watch: VersionWatch,
        span: ByteRange,
        run: Run,
    ) -> None:
        start, stop = span
        self.state: State = KEPT
        self.device = device = storage.device
        self.source = source = WeakStorage(storage)
        self.watch = watch
        self.span = span
        self.nbytes = stop - start
        self.loaded_start = start - (source.pointer + start) % alignment_of(device)
        self.held: torch.UntypedStorage | None = storage
        self.loaded: WeakStorage | None = None
        self.stored: StoredCopy | None = None
        self.stream: int | None = None
        self.begun = 0
        self.transfer: Ticket | None = None
        self.load_stream: int | None = None
        self.checksum: torch.Tensor | None = None
        self.ingredients: Ingredients | None = None
        self.claims: set[Claim] = set()
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
        watch = self.watch
        unchanged = watch.version == version == watch.current()
        return unchanged and self.source.is_same_memory(storage)

    def in_memory_again(self) -> bool:
        """Whether a loaded copy is held or on its way."""
        return self.held is not None and (self.state is LOADED or self.state is LOADING)

    def alive(self) -> tuple[torch.UntypedStorage, int] | None:
        """A storage with the bytes, and the position in the original of its first byte.

        The original if anything keeps it alive (*forwarding*), else a loaded copy that is still
        alive.
        """
        state = self.state
        if (state is KEPT or state is STORING) and self.held is not None:
            return self.held, 0
        original = self.source.get()
        if original is not None:
            return original, 0
        if state is LOADED and self.loaded is not None:
            copy = self.loaded.get()
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
