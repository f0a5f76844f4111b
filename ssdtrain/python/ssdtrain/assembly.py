# SPDX-License-Identifier: Apache-2.0
"""Puts an engine together from an offloader's arguments; checks them, and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from datapath_core import Error
from datapath_core.streams import Scheduler

from .arguments import PathLike, parse_fraction, parse_paths, parse_size
from .drives import capacity_of
from .engine import Engine
from .optimise import optimise
from .pinned import PinnedMemory
from .plan import Limits, Plan
from .policy import StreamingPolicy
from .rates import measure_rates
from .selection import Selection
from .steering import Steering
from .steps import Steps
from .streams import Streams
from .tiers import DiskTier, HostTier, Tier
from .timeline import Rates, Timeline
from .wear import WearMeter, parse_rating, parse_write_budget, write_budget_per_step

__all__ = ["Parts", "Wishes", "assemble"]

# Bytes: a volume gives room in multiples of it.
_GRAIN = 4096


@dataclass(frozen=True)
class Wishes:
    """What steers the planner, and what the report says of the drives."""

    plan: Plan | None
    max_memory: int | str | None
    max_slowdown: float | None
    write_budget: float | str | None
    drive_rating: float | str | None

    def refuse(self, why: str) -> None:
        """Raise ``ValueError`` for a wish that nobody would hear."""
        for name in ("max_memory", "max_slowdown", "write_budget"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} steers the planner, and {why}: leave it out")


@dataclass(frozen=True)
class Parts:
    """What an offloader consists of."""

    engine: Engine
    streams: Streams
    memory: PinnedMemory
    disk: DiskTier | None
    wear: WearMeter | None

    def rates(self) -> Rates:
        """Measure the lanes; a drive that fails has none."""
        device = self.engine.steps.device
        if device is None:
            return Rates()
        volumes = [None] if self.disk is None else [self.disk.volume, None]
        # One of its own: those of the engine number their transfers for the trace.
        scheduler = Scheduler(f"cuda:{device.index or 0}") if device.type == "cuda" else None
        try:
            for volume in volumes:
                try:
                    return measure_rates(
                        device, scheduler=scheduler, pinned=self._pinned, volume=volume
                    )
                except (Error, OSError) as error:
                    self.engine.books.faults.note(f"measuring the lanes: {error}")
            return Rates()
        finally:
            if scheduler is not None:
                scheduler.close()

    def _pinned(self, nbytes: int) -> object:
        return self.memory.allocate(nbytes, resident=False)


def assemble(
    *,
    streams: Streams,
    spill: PathLike | Sequence[PathLike] | None,
    host: int | str,
    ssd: int | str,
    min_bytes: int | str,
    backlog: int | str,
    prefetch: int | str,
    checks: bool,
    streams_only: bool,
    wishes: Wishes,
) -> Parts:
    """Make the parts of an offloader.

    Raises
    ------
    TypeError, ValueError
        For an argument out of its domain; it is named.
    IoError, OutOfSpaceError
        If a directory to spill to cannot be used.
    """
    host_bytes, backlog_bytes = parse_size("host", host), parse_size("backlog", backlog)
    prefetch_bytes = parse_size("prefetch", prefetch)
    disk_bytes = 0 if spill is None else parse_size("ssd", ssd)
    if 0 < disk_bytes < _GRAIN:
        raise ValueError(f"ssd={ssd!r}: a disk tier takes {_GRAIN} bytes at least, or 0 for none")
    directories = [] if spill is None else parse_paths(spill)
    selection = Selection(parse_size("min_bytes", min_bytes))
    if streams_only:
        wishes.refuse("plan='all' does without one")
    if wishes.plan is not None:
        wishes.refuse("a plan that is given is followed as it is")
    capacity = capacity_of(directories)
    budget = wishes.write_budget
    if budget is not None:
        budget = parse_write_budget(budget, capacity)
    rating = wishes.drive_rating
    if rating is not None:
        rating = parse_rating(rating, capacity, name="drive_rating")
    memory = _pinned_memory(host_bytes, backlog_bytes, has_disk=disk_bytes > 0, checks=checks)
    limits = _limits(wishes, memory, host_bytes, disk_bytes)
    tiers: list[Tier] = [HostTier(memory, streams)] if host_bytes > 0 else []
    disk = None
    if directories and disk_bytes > 0:
        disk = DiskTier(directories, disk_bytes, memory, streams)
        tiers.append(disk)

    def streaming() -> StreamingPolicy:
        return StreamingPolicy(backlog_bytes, prefetch_bytes, streams_only)

    def planner(timeline: Timeline, rates: Rates, given: Limits) -> Plan:
        if budget is not None:
            nbytes = write_budget_per_step(budget, timeline.seconds)
            given = replace(given, write_bytes=nbytes)
        return optimise(timeline, rates, given)

    steering = None
    if not streams_only:
        steering = Steering(limits, lambda: parts.rates(), wishes.plan, planner)
    steps = Steps(streaming, steering, streams)
    engine = Engine(selection, tiers, streams, steps, checks=checks)
    wear = None if disk is None else WearMeter(rating)
    parts = Parts(engine, streams, memory, disk, wear)
    return parts


def _pinned_memory(host: int, backlog: int, *, has_disk: bool, checks: bool) -> PinnedMemory:
    """One budget: with a host tier the way to disk is part of it, else it is the backlog."""
    if host == 0:
        return PinnedMemory(backlog, backlog, checks=checks)
    return PinnedMemory(host, min(backlog, host // 2) if has_disk else 0, checks=checks)


def _limits(wishes: Wishes, memory: PinnedMemory, host: int, disk: int) -> Limits:
    most = wishes.max_memory
    return Limits(
        max_memory=None if most is None else parse_size("max_memory", most),
        max_slowdown=parse_fraction("max_slowdown", wishes.max_slowdown),
        host_bytes=memory.budget,
        staging_bytes=memory.staging,
        disk_bytes=disk,
        allow_host=host > 0,
    )
