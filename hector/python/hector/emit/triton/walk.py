# SPDX-License-Identifier: Apache-2.0
"""The loop of a kernel over the rows of its targets; what it does with them is in reductions."""

from __future__ import annotations

from hector.emit.triton.expand import root
from hector.emit.triton.job import Job
from hector.emit.triton.reductions import SOFTMAX, Reductions, step
from hector.emit.triton.schedules import Traversal
from hector.emit.triton.writer import Scope, Writer

__all__ = ["store_rows", "walk"]


def _hoist(writer: Writer, job: Job, target: Scope) -> dict[tuple[object, ...], str]:
    """Load before the walk what is the same for all rows of a target."""
    loaded: dict[tuple[object, ...], str] = {}
    for op in job.group.ops:
        for operand in op.operands:
            through = op.map() if op.op == "gather" else None
            if operand in writer.made or op.type.space is not job.group.space:
                continue
            if through == job.group.map and op.op == "gather":
                key = (operand, through)
            elif operand.type.space.value == "weight" and operand.op != "const":
                key = (operand, None)
            else:
                continue
            if key not in loaded:
                loaded[key] = writer.value(operand, target)
    return loaded


def store_rows(writer: Writer, job: Job, scope: Scope) -> None:
    """Store what has the rows of a scope."""
    for value in job.stored:
        if value.type.space is scope.space:
            row = f"{scope.place}.to(tl.int64)" if value in job.orders else scope.row
            writer.store(value, writer.value(value, scope), row, scope.live)


def _role(kind: object, name: object) -> str:
    return f"{kind}_{str(name).split('.')[1]}"


def _maps(job: Job) -> list[str]:
    """Maps that the walk reads rows through."""
    found = {
        str(op.map()): None
        for op in job.group.ops
        if op.op == "gather" and op.type.space is job.group.space and op.map() != job.group.map
    }
    return list(found)


def _orders(job: Job) -> list[str]:
    """Maps in whose order stand values of edges that the walk reads."""
    members = set(job.group.ops)
    read = [operand for op in job.group.ops for operand in op.operands if operand not in members]
    return list(dict.fromkeys(job.orders[value] for value in read if value in job.orders))


def _apart(schedule: Traversal) -> int:
    """Places between the unrolled copies of a step."""
    return 1 if schedule.targets > 1 else schedule.lanes


def walk(
    writer: Writer, job: Job, schedule: Traversal, reductions: Reductions, target: Scope
) -> None:
    """The loop over a program's rows."""
    name = str(job.group.map)
    loaded = _hoist(writer, job, target)
    lanes = schedule.targets if schedule.targets > 1 else schedule.lanes
    reductions.start(writer, lanes)
    stride = schedule.unroll * (1 if schedule.targets > 1 else lanes)
    order = writer.param("order", f"tables.order(plan, {name!r})")
    ids = {each: f"tables.grouped(plan, {each!r}, {name!r})" for each in _maps(job)}
    lists: dict[tuple[object, ...], str] = {
        ("row", each): writer.param(each.replace(".", "_"), passed) for each, passed in ids.items()
    }
    for each in _orders(job):
        passed = f"tables.placed(plan, {each!r}, {name!r})"
        lists["placed", each] = writer.param(f"placed_{each.replace('.', '_')}", passed)

    def along(first: str) -> str:
        return first if schedule.targets > 1 else f"{first} + tl.arange(0, {lanes})"

    def look_up(place: str, suffix: str) -> None:
        """Ids of a step, loaded while the step before is computed."""
        for key, pointer in lists.items():
            load = f"tl.load({pointer} + {place}, mask={place} < end, other=0)"
            writer.line(f"{_role(*key)}{suffix} = {load}")
        writer.line(f"if {order} is not None:")
        load = f"tl.load({order} + {place}, mask={place} < end, other=0)"
        writer.line(f"    next{suffix} = {load}")

    for copy in range(schedule.unroll):
        writer.line(f"ahead_{copy} = begin + ({along(str(copy * _apart(schedule)))})")
        look_up(f"ahead_{copy}", f"_{copy}")
    writer.line("longest = tl.max(end - begin, 0)")
    writer.line(f"for step in range(0, longest, {stride}):")
    writer.indent += 1
    scopes = []
    for copy in range(schedule.unroll):
        suffix = f"_{copy}"
        writer.line(f"place{suffix} = begin + ({along(f'step + {copy * _apart(schedule)}')})")
        writer.line(f"live{suffix} = place{suffix} < end")
        scope = Scope(
            job.group.space, f"place{suffix}", f"row{suffix}", f"live{suffix}", lanes, name,
            {name: ("target", "live")}, suffix, loaded=dict(loaded),
        )  # fmt: skip
        writer.line(f"row{suffix} = place{suffix}.to(tl.int64)")
        writer.line(f"if {order} is not None:")
        writer.line(f"    row{suffix} = next{suffix}.to(tl.int64)")
        for key in lists:
            role = _role(*key)
            scope.loaded[key] = writer.let(f"wide_{role}", f"{role}{suffix}.to(tl.int64)")
        scopes.append(scope)
    asked = [op.operands[-1] for op in reductions.ops]
    asked += [root(op.operands[0]) if op.op in SOFTMAX else op.operands[0] for op in reductions.ops]
    asked += [value for value in job.stored if value.type.space is job.group.space]
    for scope in scopes:  # all loads first, so that they are in flight together
        for value in asked:
            writer.loads(value, scope)
    for copy in range(schedule.unroll):
        writer.line(f"ahead_{copy} = place_{copy} + {stride}")
        look_up(f"ahead_{copy}", f"_{copy}")
    step(writer, reductions, scopes)
    for scope in scopes:
        store_rows(writer, job, scope)
    writer.indent -= 1
