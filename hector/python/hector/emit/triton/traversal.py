# SPDX-License-Identifier: Apache-2.0
"""The traversal template: the rows of a map's source, target by target, in a fixed order.

Targets stand in programs longest first, one lane each, so that lanes end together. A target with
many rows is cut into pieces, whose partial results a second kernel adds in order. What follows a
reduction row by row is done where the reduction ends.
"""

from __future__ import annotations

from hector.emit.triton.job import Emitted, Job
from hector.emit.triton.reductions import Reductions, finish, fold_lanes, merge
from hector.emit.triton.schedules import Traversal
from hector.emit.triton.walk import store_rows, walk
from hector.emit.triton.writer import Scope, Writer

__all__ = ["traversal_kernel"]


def _main(job: Job, schedule: Traversal, reductions: Reductions) -> Writer:
    writer = Writer(job)
    for field in ("begin", "end", "target", "slot"):
        writer.param(f"{field}s", f"work.{field}")
    size = writer.size("n_pieces", "work.count")
    writer.constant("SPLIT", "work.hubs > 0")
    several = schedule.targets > 1
    lane = (
        f" * {schedule.targets} + tl.arange(0, {schedule.targets})"
        if several
        else (" + tl.arange(0, 1)")
    )
    writer.line(f"piece = tl.program_id(0){lane}")
    writer.line(f"live = piece < {size}")
    for field in ("begin", "end", "target"):
        writer.line(f"{field} = tl.load({field}s + piece, mask=live, other=0)")
    writer.line("target = target.to(tl.int64)")
    space = job.group.target
    assert space is not None
    width = schedule.targets
    before = Scope(space, "target", "target", "live", width)
    walk(writer, job, schedule, reductions, before)
    if not several and schedule.lanes > 1:
        fold_lanes(writer, reductions, before)
    writer.line("whole = live")
    writer.line("if SPLIT:")
    writer.line("    slot = tl.load(slots + piece, mask=live, other=-1).to(tl.int64)")
    writer.line("    whole = live & (slot < 0)")
    writer.line("    part = live & (slot >= 0)")
    pointer = writer.param("parts", "parts")
    for register, start in reductions.places():
        address, mask = writer.address(
            f"{pointer} + {start}", "slot", "part", register.shape, reductions.width
        )
        writer.line(f"    tl.store({address}, {register.name}, mask={mask})")
    after = Scope(
        space, "target", "target", "whole", width,
        loaded=dict(before.loaded),
    )  # fmt: skip
    finish(writer, reductions, after, "(begin == end)")
    store_rows(writer, job, after)
    return writer


def _hubs(job: Job, schedule: Traversal, reductions: Reductions) -> Writer:
    writer = Writer(job, job.name + "_hubs")
    for field in ("begin", "end", "target"):
        writer.param(f"hub_{field}s", f"work.hub_{field}")
    lanes = schedule.hub_lanes
    writer.line("hub = tl.program_id(0)")
    writer.line("begin = tl.load(hub_begins + hub)")
    writer.line("end = tl.load(hub_ends + hub)")
    writer.line("target = tl.load(hub_targets + hub + tl.arange(0, 1)).to(tl.int64)")
    writer.line("live = target >= 0")
    reductions.start(writer, lanes)
    writer.line(f"for first in range(begin, end, {lanes}):")
    writer.indent += 1
    writer.line(f"place = first + tl.arange(0, {lanes})")
    writer.line("there = place < end")
    writer.line("row = place.to(tl.int64)")
    pieces = Scope(job.group.space, "place", "row", "there", lanes)
    partial = {}
    pointer = writer.param("parts", "parts")
    for register, start in reductions.places():
        partial[register.name] = writer.load(
            f"{pointer} + {start}", "row", "there", register.shape, f"some_{register.name}",
            reductions.width,
        )  # fmt: skip
    merge(writer, reductions, pieces, partial)
    writer.indent -= 1
    space = job.group.target
    assert space is not None
    after = Scope(space, "target", "target", "live", 1)
    if lanes > 1:
        fold_lanes(writer, reductions, pieces)
    finish(writer, reductions, after, "(target < 0)")
    store_rows(writer, job, after)
    return writer


def traversal_kernel(job: Job, schedule: Traversal) -> Emitted:
    """Make the kernels of a group of reductions along one map.

    Parameters
    ----------
    job : Job
    schedule : Traversal

    Returns
    -------
    Emitted
    """
    reductions = Reductions(job.group.ops)
    main = _main(job, schedule, reductions)
    hubs = _hubs(job, schedule, reductions)
    grid = f"(-(-work.count // {schedule.targets}),)"
    prepare = (
        f"work = tables.pieces(plan, {job.group.map!r}, {schedule.split})",
        f"parts_{job.name} = room(work.slots, {reductions.width}, plan.device)",
        main.prepare(grid, f"num_warps={schedule.warps}"),
        hubs.prepare("(work.hubs,)", f"num_warps={schedule.hub_warps}"),
    )
    launch = (f"parts = parts_{job.name}()", main.launch(), hubs.launch(), "del parts")
    kernels = (main.source(job.comments), hubs.source(("The second pass over targets in pieces.",)))
    return Emitted(kernels, prepare, launch, frozenset(main.helpers | hubs.helpers))
