# SPDX-License-Identifier: Apache-2.0
"""Moves saved tensors out and back; which ones may go is :mod:`ssdtrain.selection`'s to say.

One lock guards all state and is never held while a transfer is waited for. The graph may drop a
saved tensor on any thread at any moment, also inside the lock: dropped ones go to a queue that
whoever holds the lock empties.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

import torch

from datapath_core import BudgetError, Error, OutOfSpaceError

from .accounting import StepCounts
from .checks import checksum, verify
from .faults import FaultLog, lost, resized
from .group import Group, State
from .guard import Guard
from .saved import Claim, KeptTensor, MovedTensor
from .selection import Selection
from .storage import ByteRange, Layout, VersionWatch, WeakStorage, byte_range, bytes_of
from .table import GroupTable
from .tiers import Tier, Transfer

__all__ = ["Engine"]

_T = TypeVar("_T")

# Stores looked at per call: one that never ends must not hide those behind it, nor cost more than
# it holds.
_SETTLE_WINDOW = 16
# Groups without anything to load that prefetch walks past: thousands may have stayed in memory.
_PREFETCH_WINDOW = 64


class Engine:
    """State of one offloader.

    Parameters
    ----------
    selection : Selection
    tiers : sequence of Tier
        In the order in which they are tried.
    backlog : int
        Bytes that may be on their way out.
    wait_for_backlog : bool
        Past the backlog: wait for the oldest transfer, or else keep the tensor.
    prefetch : int
        Bytes that may be loaded before they are asked for.
    checks : bool
        Verify a checksum of every range that comes back.
    """

    def __init__(
        self,
        selection: Selection,
        tiers: Sequence[Tier],
        *,
        backlog: int,
        wait_for_backlog: bool,
        prefetch: int,
        checks: bool,
    ) -> None:
        self.selection = selection
        self.tiers = list(tiers)
        self.counts = StepCounts(0)
        self.faults = FaultLog()
        self._backlog = backlog
        self._wait_for_backlog = wait_for_backlog
        self._prefetch = prefetch
        self._checks = checks
        self._lock = Guard()
        self._table = GroupTable()
        self._dropped: deque[Claim] = deque()
        self._outgoing: deque[Group] = deque()
        self._outgoing_bytes = 0
        self._lingering: list[Transfer] = []
        self._excluded: dict[int, tuple[WeakStorage, str]] = {}
        self._closing = False
        self._closed = False

    # ------------------------------------------------------------------ saving

    def save(self, tensor: torch.Tensor) -> KeptTensor | MovedTensor:
        """Take over a tensor that autograd saves."""
        if self._closing:
            reason: str | None = "offloader closed"
        elif self._lock.is_forked:
            reason = "offloader of the parent process"
        else:
            reason = self.selection.reason_to_keep(tensor)
        with self._lock:
            self._drain()
            self.counts.saved_tensors += 1
            if reason is None:
                storage = tensor.untyped_storage()
                reason = self._reason_of_storage(storage)
            if reason is not None:
                self.counts.keep(reason, tensor.numel() * tensor.element_size())
                return KeptTensor(tensor)
            watch = VersionWatch(tensor)
            group = self._group_of(storage, watch, byte_range(tensor))
            group.handles += 1
            group.awaited += 1
        saved = MovedTensor(self, group, Layout.of(tensor), watch)
        if self._wait_for_backlog:
            self._bound_backlog()
        self.faults.flush()
        return saved

    def exclude(self, storage: torch.UntypedStorage, reason: str) -> None:
        """Leave the tensors of a storage alone for as long as it lives."""
        with self._lock:
            self._excluded[storage._cdata] = (WeakStorage(storage), reason)

    def _reason_of_storage(self, storage: torch.UntypedStorage) -> str | None:
        known = self._excluded.get(storage._cdata)
        if known is not None and known[0].is_same_memory(storage):
            return known[1]
        return None

    def _group_of(
        self, storage: torch.UntypedStorage, watch: VersionWatch, span: ByteRange
    ) -> Group:
        """The group with these bytes: one that covers them, or a new one that absorbs others."""
        overlapped = []
        for group in self._table.of(storage):
            if group.matches(storage, watch.version) and group.span.overlaps(span):
                if group.checksum is not None and _is_changed(storage, group):
                    continue
                if group.span.covers(span):
                    self.counts.shared_tensors += 1
                    return group
                overlapped.append(group)
        for group in overlapped:
            span = span.union(group.span)
        if overlapped:
            # A window that slides would be stored again at each step: ranges grow geometrically.
            margin = max(group.nbytes for group in overlapped)
            span = span.widened(margin, storage.nbytes())
        group = Group(storage, watch, span, self.counts)
        self._table.add(group)
        for other in overlapped:
            group.handles += other.handles
            group.awaited += other.handles
            other.merged_into = group
            other.is_counted = True
            self._release(other)
        self._store(group)
        return group

    def _store(self, group: Group) -> None:
        data = bytes_of(_present(group.held), group.span)
        # One larger than the backlog goes when nothing else is on its way.
        waiting = self._outgoing_bytes
        if not self._wait_for_backlog and waiting and waiting + group.nbytes > self._backlog:
            self._count_kept(group, "drives behind")
            return
        reason = "no tier for this device"
        for tier in self.tiers:
            if data.device.type not in tier.device_types:
                continue
            try:
                group.stored, group.transfer = tier.put(data)
            except (BudgetError, OutOfSpaceError):
                reason = f"{tier.name} full"
                continue
            except (Error, OSError) as error:
                reason = f"{tier.name} failed"
                self.faults.note(f"storing {group.nbytes} bytes to {tier.name}: {error}")
                continue
            if self._checks:
                group.checksum = checksum(data)
            group.state = State.STORING
            self._outgoing.append(group)
            self._outgoing_bytes += group.nbytes
            return
        self._count_kept(group, reason)

    def _bound_backlog(self) -> None:
        while True:
            with self._lock:
                self._drain()
                if self._outgoing_bytes <= self._backlog or not self._outgoing:
                    return
                oldest = self._outgoing[0]
                transfer, stored = oldest.transfer, oldest.stored
            if transfer is None or stored is None:
                return
            try:
                self._wait(transfer)
            except TimeoutError as error:
                raise TimeoutError(
                    f"ssdtrain: the store of {oldest.nbytes} bytes to {stored.tier} does not end:"
                    f" {error}"
                ) from error

    # ------------------------------------------------------------------ giving back

    def fetch(self, saved: MovedTensor) -> tuple[torch.UntypedStorage, int]:
        """A storage with a saved tensor's bytes, and the original position of its first byte."""
        with self._lock:
            self._drain()
            group = saved.claim.group.resolve()
            if group.state is State.RELEASED:
                raise RuntimeError(
                    "ssdtrain: the offloader was closed before this backward pass; call close()"
                    " after the last backward"
                )
            found = group.alive()
            self._count(group)
            if found is not None:
                if found[0].nbytes() < group.span.stop - found[1]:
                    raise resized(saved.describe(), group, found[0].nbytes())
                if found[1] == 0 and group.state is not State.LOADED:
                    self.counts.forwarded_bytes += group.nbytes
                self._after_fetch(saved.claim, group)
                return found
            if not group.in_memory_again():
                self._load(group, saved.describe())
            transfer, storage = group.transfer, _present(group.held)
        self._arrive(group, transfer, storage, saved)
        with self._lock:
            self._after_fetch(saved.claim, group)
        return storage, group.loaded_start

    def _load(self, group: Group, what: str) -> None:
        padding = group.span.start - group.loaded_start
        copy = torch.empty(padding + group.nbytes, dtype=torch.uint8, device=group.device)
        try:
            group.transfer = _present(group.stored).read(copy[padding:])
        except (Error, OSError) as error:
            raise lost(error, what, group) from error
        group.held = copy.untyped_storage()
        group.loaded = WeakStorage(group.held)
        group.state = State.LOADING
        group.load_count += 1
        group.awaited = group.handles
        self.counts.loaded_bytes += group.nbytes

    def _arrive(
        self,
        group: Group,
        transfer: Transfer | None,
        storage: torch.UntypedStorage,
        saved: MovedTensor,
    ) -> None:
        if transfer is None:  # Another thread saw it arrive.
            return
        try:
            self._wait(transfer, saved.device)
        except (Error, OSError) as error:
            with self._lock:
                if group.transfer is transfer:
                    group.state = State.STORED
                    group.held = group.loaded = group.transfer = None
            raise lost(error, saved.describe(), group) from error
        if self._checks:
            verify(group, storage, saved.describe())
        with self._lock:
            if group.transfer is transfer:
                group.state = State.LOADED
                if transfer.done():
                    group.transfer = None

    def _after_fetch(self, claim: Claim, group: Group) -> None:
        self._consume(claim, group)
        self._prefetch_before(group)

    def _consume(self, claim: Claim, group: Group) -> None:
        """Let go of a loaded copy once every saved tensor in it has asked for it."""
        if claim.load_seen == group.load_count:
            return
        claim.load_seen = group.load_count
        group.awaited -= 1
        if group.awaited <= 0 and group.state is State.LOADED:
            group.held = None

    def _prefetch_before(self, group: Group) -> None:
        """Load what was saved before this group: backward asks for it next."""
        budget = self._prefetch
        candidate = group.previous
        passed = 0
        while candidate is not None and budget > 0 and passed < _PREFETCH_WINDOW:
            if candidate.in_memory_again():
                budget -= candidate.nbytes
            elif candidate.stored is not None and candidate.alive() is None:
                if candidate.nbytes > budget:
                    return
                try:
                    self._load(candidate, "prefetched")
                except (Error, OSError, RuntimeError):
                    return  # The fetch that needs it tries again, and reports.
                budget -= candidate.nbytes
            else:
                passed += 1
            candidate = candidate.previous

    # ------------------------------------------------------------------ upkeep

    def drop(self, claim: Claim) -> None:
        """The graph has let go of a saved tensor. Safe on any thread, also inside the lock."""
        if self._lock.is_forked:
            return
        self._dropped.append(claim)
        self.settle(blocking=False)

    def settle(self, *, blocking: bool = True) -> None:
        """Catch up with ended transfers and dropped tensors."""
        if blocking:
            with self._lock:
                self._drain()
        # One may have been dropped between a drain and the release.
        while (not blocking or self._dropped) and self._lock.try_enter():
            try:
                self._drain()
            finally:
                self._lock.leave()
            if not self._dropped:
                break
        self.faults.flush()

    def _drain(self) -> None:
        if self._lock.is_forked:  # Transfers and tiers are the parent's.
            return
        while self._dropped:
            claim = self._dropped.popleft()
            group = claim.group.resolve()
            if group.state is State.RELEASED:
                continue
            group.handles -= 1
            self._consume(claim, group)
            if group.handles == 0:
                self._release(group)
        pending = []
        for _ in range(min(_SETTLE_WINDOW, len(self._outgoing))):
            group = self._outgoing.popleft()
            if not self._settle_store(group):
                pending.append(group)
        self._outgoing.extendleft(reversed(pending))
        if self._lingering:
            self._lingering = [transfer for transfer in self._lingering if not transfer.done()]

    def _settle_store(self, group: Group) -> bool:
        """Whether the store has ended."""
        if group.state is not State.STORING:
            return True
        if not group.source.is_same_memory(_present(group.held)):
            group.is_torn = True
        if not _present(group.transfer).done():
            return False
        self._outgoing_bytes -= group.nbytes
        try:
            _present(group.transfer).result()
        except (Error, OSError) as error:
            tier = _present(group.stored).tier
            self.faults.note(f"storing {group.nbytes} bytes to {tier}, kept instead: {error}")
            self._keep_instead(group, f"{tier} failed")
            return True
        if group.is_torn:
            self._keep_instead(group, "memory replaced while it was stored")
            return True
        group.state = State.STORED
        group.held = group.transfer = None
        return True

    def _keep_instead(self, group: Group, reason: str) -> None:
        self._count_kept(group, reason)
        group.state = State.KEPT
        _present(group.stored).free()
        group.stored = group.checksum = group.transfer = None

    def _release(self, group: Group) -> None:
        self._count(group)
        if group.state is State.STORING:
            self._outgoing_bytes -= group.nbytes
        if group.transfer is not None and not group.transfer.done():
            self._lingering.append(group.transfer)
        if group.stored is not None:
            group.stored.free()
        group.state = State.RELEASED
        group.held = group.loaded = group.stored = group.transfer = group.checksum = None
        self._table.remove(group)

    def _wait(self, transfer: Transfer, device: torch.device | None = None) -> None:
        if not transfer.done():
            self.counts.waits += 1
        begin = time.perf_counter()
        try:
            if device is None:
                transfer.wait()
            else:
                transfer.order(device)
        finally:
            self.counts.wait_seconds += time.perf_counter() - begin

    # ------------------------------------------------------------------ accounts

    def _count(self, group: Group) -> None:
        """Book a group under where it is, the first time that backward, or its end, shows that."""
        if group.is_counted:
            return
        where = group.whereabouts()
        if where in ("host", "disk"):
            group.counts.moved[where] += group.nbytes
            group.is_counted = True
        else:
            self._count_kept(group, where)

    def _count_kept(self, group: Group, reason: str) -> None:
        if not group.is_counted:
            group.is_counted = True
            group.counts.keep(reason, group.nbytes)

    def begin_step(self) -> None:
        """A new forward pass: counts start again."""
        self.settle()
        with self._lock:
            self._excluded = {k: v for k, v in self._excluded.items() if v[0].get() is not None}
            self.counts = StepCounts(self.counts.step + 1)

    def report(self) -> dict[str, object]:
        """Counts of the last step, with the groups that are still waiting for their backward."""
        self.settle()
        with self._lock:
            counts = self.counts.copy()
            live: dict[str, int] = {}
            for group in self._table:
                live[group.state.value] = live.get(group.state.value, 0) + group.nbytes
                if group.counts is self.counts and not group.is_counted:
                    where = group.whereabouts()
                    if where in ("host", "disk"):
                        counts.moved[where] += group.nbytes
                    else:
                        counts.keep(where, group.nbytes)
            return {**counts.as_dict(), "live_bytes": live, "faults": self.faults.texts()}

    def close(self) -> None:
        """Wait for what is on its way, then give everything back."""
        self._closing = True
        if self._closed or self._lock.is_forked:
            return
        with self._lock:
            transfers = [group.transfer for group in self._table if group.transfer is not None]
            transfers += self._lingering
        for transfer in transfers:
            try:
                transfer.wait()
            except (Error, OSError):
                break  # The tier that it belongs to says more about that.
        with self._lock:
            self._drain()
            for group in list(self._table):
                self._release(group)
        self.faults.flush()
        for tier in self.tiers:
            tier.close()
        # Only now: after an interrupt a second call goes on.
        self._closed = True


def _present(value: _T | None) -> _T:
    """A value that the state at hand guarantees."""
    if value is None:
        raise AssertionError("the group's state promises this value")
    return value


def _is_changed(storage: torch.UntypedStorage, group: Group) -> bool:
    """Whether memory no longer has the bytes that were stored, though no version says so."""
    return not torch.equal(checksum(bytes_of(storage, group.span)), _present(group.checksum))
