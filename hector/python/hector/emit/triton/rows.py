# SPDX-License-Identifier: Apache-2.0
"""Kernels that treat each row by itself: what is left of elementwise work and gathers."""

from __future__ import annotations

from hector.emit.triton.job import Emitted, Job
from hector.emit.triton.schedules import Rows
from hector.emit.triton.writer import Scope, Writer

__all__ = ["rows_kernel"]


def rows_kernel(job: Job, schedule: Rows) -> Emitted:
    """Make the kernel of a group of row-wise operators.

    Parameters
    ----------
    job : Job
    schedule : Rows

    Returns
    -------
    Emitted
    """
    space = job.group.space
    writer = Writer(job)
    size = writer.size("n_rows", f"plan.rows({space.value!r})")
    lanes = schedule.rows
    writer.line(f"row = tl.program_id(0).to(tl.int64) * {lanes} + tl.arange(0, {lanes})")
    writer.line(f"live = row < {size}")
    scope = Scope(space, "row", "row", "live", lanes)
    for value in job.stored:
        writer.store(value, writer.value(value, scope), "row", "live")
    grid = f"(-(-plan.rows({space.value!r}) // {lanes}),)"
    prepare = (writer.prepare(grid, f"num_warps={schedule.warps}"),)
    kernels, launch = (writer.source(job.comments),), (writer.launch(),)
    return Emitted(kernels, prepare, launch, frozenset(writer.helpers))
