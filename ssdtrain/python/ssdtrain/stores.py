# SPDX-License-Identifier: Apache-2.0
"""Bytes on their way out: from the save to where the original's memory is given back.

:class:`Stores` is used inside the engine's lock, but for what says that it waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING, Final, TypeVar

from datapath_core import BudgetError, Error, OutOfSpaceError

from .books import Books
from .checks import checksum, poison
from .copies import StoredCopy
from .group import KEPT, STORED, STORING, Group
from .plan import Where
from .policy import Actions, Placement
from .storage import bytes_of, storage_of
from .streams import Streams
from .tiers import StagingBusyError, Tier
from .trace import Lane

if TYPE_CHECKING:
    import torch

    from datapath_core.streams import Ticket

__all__ = ["Stores", "end_of", "present"]

_T = TypeVar("_T")

# Every so many calls not only the oldest stores are looked at: one that never ends must not hide
# those behind it.
_PATIENCE = 16
_SETTLE_WINDOW = 64
# Seconds between two looks at a transfer: next to nothing beside any that is waited for.
_LOOK_AGAIN = 50e-6
# After so long without room none is waited for, for as long.
_LONGEST_WAIT_NS = 2_000_000_000

_KEEP: Final = Where.KEEP
_RECOMPUTE: Final = Where.RECOMPUTE
_DISK: Final = Where.DISK
_WRITE: Final = Lane.WRITE


class Stores:
    """The groups on their way out, oldest first.

    Parameters
    ----------
    tiers : sequence of Tier
        In the order in which they are tried.
    streams : Streams
    books : Books
    checks : bool
        Take a checksum of what is stored.

    Attributes
    ----------
    nbytes : int
        Bytes of groups whose originals are still held for a store.
    groups : dict
        These groups, oldest first.
    trailing : dict
        Groups whose originals are gone, while bytes may still be on the way from the host to disk.
    """

    def __init__(
        self, tiers: Sequence[Tier], streams: Streams, books: Books, *, checks: bool
    ) -> None:
        self.tiers = list(tiers)
        self.nbytes = 0
        self._streams = streams
        self._books = books
        self._checks = checks
        self._calls = 0
        self._no_waiting_before = 0
        # By whether only the disk will do, and whether it is a tensor of the CPU.
        self._ways = [
            [
                [t for t in tiers if t.takes(kind) and not (only_disk and t.name != "disk")]
                for kind in ("cuda", "cpu")
            ]
            for only_disk in (False, True)
        ]
        self.groups: dict[Group, None] = {}
        self.trailing: dict[Group, None] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def in_stream_order(self, group: Group) -> bool:
        """Whether the group's device goes on by itself while the host does."""
        return self._streams.kind(group.device) == "cuda"

    # ------------------------------------------------------------------ out

    def start(self, group: Group, placement: Placement) -> bool:
        """Start a group's store. False if the host is to wait for room first, and to try again."""
        where = placement.where
        group.begun = now = monotonic_ns()
        if now >= self._books.next_count:
            self._books.count_bytes(now, self.nbytes)
        if where is _KEEP or where is _RECOMPUTE:
            self._books.count_kept(group, placement.reason)
            return True
        device, streams, held = group.device, self._streams, present(group.held)
        stream = streams.current(device)
        first = 0 if stream is None else streams.submitted(device)
        reason = "no tier for this device"
        for tier in self._ways[where is _DISK][stream is None]:
            try:
                stored = self._put(tier, group, stream)
            except StagingBusyError as busy:
                may_wait = group.run.policy.waits or (
                    now >= self._no_waiting_before and streams.is_busy(device)
                )
                if may_wait and busy.passage is not None:
                    return False
                reason = "drives behind"
            except (BudgetError, OutOfSpaceError):
                reason = f"{tier.name} full"
            except (Error, OSError) as error:
                reason = f"{tier.name} failed"
                text = f"storing {group.nbytes} bytes to {tier.name}: {error}"
                self._books.faults.note(text)
            else:
                # Before anything that can be interrupted: who lets go of the group sees the store.
                group.stream, group.stored, group.state = stream, stored, STORING
                self.groups[group] = None
                self.nbytes += group.nbytes
                if stream is not None:
                    self._trace(group, first, (Lane.D2H, Lane.WRITE))
                if self._checks:
                    group.checksum = checksum(bytes_of(held, group.span))
                return True
        self._books.count_kept(group, reason)
        return True

    def _trace(self, group: Group, first: int, lanes: tuple[Lane, ...]) -> None:
        """Enter the transfers since ``first``; when they really moved the scheduler remembers."""
        count = self._streams.submitted(group.device) - first
        now = monotonic_ns()
        for number, lane in zip(range(first, first + count), lanes, strict=False):
            self._books.tracer.span(
                lane,
                "store",
                group.begun,
                now,
                group=group.index,
                nbytes=group.nbytes,
                sequence=(f"cuda:{group.device.index or 0}", number),
            )

    def _put(self, tier: Tier, group: Group, stream: int | None) -> StoredCopy:
        held = present(group.held)
        try:
            return tier.put(held, group.span, group.device, stream)
        except StagingBusyError:
            # What has been written gives its memory back when it is looked at.
            self.settle_all()
        passage = tier.oldest_passage()
        try:
            return tier.put(held, group.span, group.device, stream)
        except StagingBusyError as busy:
            busy.passage = passage
            raise

    def wait_for_room(self, group: Group) -> None:
        """Outside the lock: wait until memory to pass through to disk comes free.

        A host that is ahead of its device asks for that memory long before the device gets to the
        save, often before the last step's loads have left it. As long as the device has work its
        host may wait at no cost; but not for ever, since that work may itself wait for what this
        host would do next, as where ranks exchange tensors.
        """
        deadline = monotonic_ns() + _LONGEST_WAIT_NS
        for tier in self.tiers:
            ticket = tier.oldest_passage()
            if ticket is None:
                continue
            if group.run.policy.waits:
                with self._books.waiting():
                    end_of(ticket)
            while not ticket.done() and self._streams.is_busy(group.device):
                if monotonic_ns() > deadline:
                    self._no_waiting_before = monotonic_ns() + _LONGEST_WAIT_NS
                    return
                sleep(_LOOK_AGAIN)

    # ------------------------------------------------------------------ giving memory back

    def wait(self, group: Group, stored: StoredCopy) -> None:
        """Outside the lock: let the group's stream, or on the CPU the host, wait for its store."""
        if stored.out.done():
            return  # Settling finds out how it has ended.
        try:
            with self._books.waiting():
                self._streams.order(stored.out, group.stream)
        except TimeoutError as error:
            raise TimeoutError(
                f"ssdtrain: the store of {group.nbytes} bytes to {stored.tier} does not end:"
                f" {error}"
            ) from error
        except Exception:
            # Also ValueError, where another thread's graph let go of the group meanwhile.
            if not stored.out.done():
                raise

    def give_back(self, group: Group) -> None:
        """The group's stream comes after its store: the original may go."""
        if group.state is not STORING or self.settle_one(group):
            return
        if self.in_stream_order(group) and not group.is_torn:
            self._has_left(group)

    def _has_left(self, group: Group) -> None:
        """As the end of :meth:`settle_one`, for a store that only the device's stream waits for."""
        self._forget(group)
        held, group.held, group.state = group.held, None, STORED
        if self._checks:
            self._poison(group, present(held))
        del held
        self._books.residency.given_back(group)
        self.trailing[group] = None

    def have_ended(self, actions: Actions) -> bool:
        """Give back the memory that actions want given back, if nothing has to wait for that."""
        drops, reads, loads = actions
        if reads or loads:
            return False
        for group in drops:  # noqa: SIM110 (a generator would cost more than all else here)
            if group.state is STORING and not self.settle_one(group):
                return False
        return True

    def settle(self) -> None:
        """Catch up with stores that have ended."""
        groups, trailing = self.groups, self.trailing
        if not (groups or trailing):
            return
        while groups and self.settle_one(next(iter(groups))):
            pass
        while trailing and self._settle_trailing(next(iter(trailing))):
            pass
        self._calls = calls = self._calls + 1
        if not calls % _PATIENCE:
            self._look_behind()

    def _look_behind(self) -> None:
        """Catch up with stores that have ended before the oldest one."""
        for group in _first(self.groups, _SETTLE_WINDOW):
            self.settle_one(group)
        for group in _first(self.trailing, _SETTLE_WINDOW):
            self._settle_trailing(group)

    def settle_all(self) -> None:
        """Catch up with all stores that have ended."""
        for group in list(self.groups):
            self.settle_one(group)
        for group in list(self.trailing):
            self._settle_trailing(group)

    def settle_one(self, group: Group) -> bool:
        """Whether the store has ended, or is no longer."""
        stored, held, source = group.stored, group.held, group.source
        if group.state is not STORING or stored is None or held is None:
            self._forget(group)
            return True
        if held.data_ptr() != source.pointer or held.nbytes() != source.nbytes:
            group.is_torn = True
        out = stored.out
        if not out.done():
            return False
        try:
            out.result()
        except Exception as error:  # noqa: BLE001
            # Of any kind: ValueError if the extent was freed before its turn.
            text = f"storing {group.nbytes} bytes to {stored.tier}, kept instead: {error}"
            self._books.faults.note(text)
            self._keep_instead(group, f"{stored.tier} failed")
            return True
        if group.is_torn:
            self._keep_instead(group, "memory replaced while it was stored")
            return True
        # It has left. None is what a group that stands there has.
        if self.groups.pop(group, group) is None:
            self.nbytes -= group.nbytes
        group.held, group.state = None, STORED
        if self._checks:
            self._poison(group, held)
        del held  # So that it shows whether anything else holds it.
        books, residency = self._books, self._books.residency
        if group.stream is None:
            books.tracer.moved(_WRITE, "store", group)
        if residency.profile is None and group.is_resident and storage_of(source.key) is None:
            residency.nbytes, group.is_resident = residency.nbytes - group.nbytes, False
        else:
            residency.given_back(group)
        if not stored.is_settled:
            self.trailing[group] = None
        return True

    def _poison(self, group: Group, original: torch.UntypedStorage) -> None:
        """Overwrite what is given back, if nobody else has it, in the order of its stream."""
        # Dropped at its own need, or later, it has been handed out already.
        if group.stream == self._streams.current(group.device) and not group.is_needed:
            poison(original, group.span)

    def _settle_trailing(self, group: Group) -> bool:
        stored = group.stored
        if stored is not None:
            fault = stored.settle()
            if fault is not None:
                self._books.faults.note(fault)
            if not stored.is_settled:
                return False
        self.trailing.pop(group, None)
        return True

    def _keep_instead(self, group: Group, reason: str) -> None:
        self._forget(group)
        self._books.count_kept(group, reason)
        group.state = KEPT
        present(group.stored).free()
        group.stored = group.checksum = None

    def release(self, group: Group) -> None:
        """The graph has let go of a group; see what its store needs first."""
        if group.state is STORING:
            self._forget(group)
        self.trailing.pop(group, None)

    def begin_step(self) -> None:
        """Count again what an interrupt may have left uncounted."""
        self.nbytes = sum(group.nbytes for group in self.groups)

    def _forget(self, group: Group) -> None:
        if self.groups.pop(group, group) is None:
            self.nbytes -= group.nbytes


def present(value: _T | None) -> _T:
    """A value that the state at hand guarantees."""
    if value is None:
        raise AssertionError("the group's state promises this value")
    return value


def _first(groups: dict[Group, None], count: int) -> list[Group]:
    return [group for group, _ in zip(groups, range(count), strict=False)]


def end_of(ticket: Ticket) -> Exception | None:
    """Wait for the end; the error of the work. Raises only if the end does not come in time."""
    try:
        ticket.result()
    except Exception as error:
        # Of any kind: ValueError if the extent was freed before its turn.
        if not ticket.done():
            raise
        return error
    return None
