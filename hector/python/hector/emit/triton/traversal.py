# SPDX-License-Identifier: Apache-2.0
"""The traversal template: the rows of a map's source, target by target, in a fixed order.

Targets stand in programs longest first, one lane each, so that lanes end together. A target with
many rows is cut into pieces, whose partial results a second kernel adds in order. What follows a
reduction row by row is done where the reduction ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from hector.emit.triton.expand import REDUCTIONS, root
from hector.emit.triton.job import Emitted, Job
from hector.emit.triton.schedules import Traversal
from hector.emit.triton.writer import Scope, Writer
from hector.ir.function import Value

__all__ = ["traversal_kernel"]

_SOFTMAX = ("segment_lse", "attend")


@dataclass(frozen=True)
class _Register:
    """One accumulator: what it is called, its shape, where it starts, how two are joined."""

    name: str
    shape: tuple[int, ...]
    start: str


class _Reductions:
    """The accumulators of all reductions of a kernel; softmax reductions of a score share two."""

    def __init__(self, ops: list[Value]) -> None:
        self.ops = [op for op in ops if op.op in REDUCTIONS]
        self.registers: list[_Register] = []
        self.softmax: dict[Value, tuple[str, str]] = {}
        self.named: dict[Value, str] = {}
        for number, op in enumerate(self.ops):
            if op.op in _SOFTMAX:
                self._score(op.operands[0])
            if op.op != "segment_lse":
                start = "-float('inf')" if op.op == "segment_max" else "0.0"
                self.named[op] = f"acc{number}"
                self.registers.append(_Register(f"acc{number}", op.type.shape, start))

    def _score(self, score: Value) -> None:
        score = root(score)
        if score not in self.softmax:
            number = len(self.softmax)
            names = f"high{number}", f"total{number}"
            self.softmax[score] = names
            self.registers.append(_Register(names[0], score.type.shape, "-float('inf')"))
            self.registers.append(_Register(names[1], score.type.shape, "0.0"))

    def names(self, op: Value) -> tuple[str, str]:
        """The running maximum and total of a softmax reduction's score."""
        return self.softmax[root(op.operands[0])]

    def start(self, writer: Writer, lanes: int) -> None:
        for register in self.registers:
            shape = writer.tile_shape(lanes, register.shape)
            writer.line(f"{register.name} = tl.full({shape}, {register.start}, tl.float32)")


def _spread(tile: str, shape: tuple[int, ...]) -> str:
    """A mask of lanes for a tile with features."""
    return f"{tile}[:, {', '.join(['None'] * len(shape))}]" if shape else tile


def _join_softmax(
    writer: Writer, names: tuple[str, str], new: list[str], totals: list[str], suffix: str
) -> tuple[str, list[str]]:
    """Take scores (or partial maxima) into a running maximum and total.

    Gives what the accumulators so far are multiplied by, and the weight of each new one.
    """
    high, running = names
    top = high
    for tile in new:
        top = f"larger({top}, {tile})"
    top = writer.let(f"top{suffix}", top)
    # Nothing seen yet: any finite number keeps the differences from being NaN.
    base = writer.let(f"base{suffix}", f"tl.where({top} == -float('inf'), 0.0, {top})")
    keep = writer.let(f"keep{suffix}", f"tl.exp({high} - {base})")
    weights = [writer.let(f"weight{suffix}", f"tl.exp({tile} - {base})") for tile in new]
    more = [
        weight if total == "1.0" else f"{total} * {weight}"
        for weight, total in zip(weights, totals, strict=True)
    ]
    writer.line(f"{running} = {running} * {keep} + {_summed(more)}")
    writer.line(f"{high} = {top}")
    writer.helpers.add("larger")
    return keep, weights


def _summed(terms: list[str]) -> str:
    """Terms added in pairs, so that the chain is short."""
    while len(terms) > 1:
        terms = [f"({' + '.join(terms[i : i + 2])})" for i in range(0, len(terms), 2)]
    return terms[0]


def _weights(writer: Writer, op: Value, tile: str, scope: Scope) -> str:
    """A tile of the score's shape, in the shape that multiplies the value."""
    score = root(op.operands[0])
    return writer.reshape(tile, score.type.shape, op.integers("shape"), scope)


def _step(writer: Writer, reductions: _Reductions, scopes: list[Scope]) -> None:
    """Take the rows of some scopes into the accumulators."""
    scaled: dict[Value, tuple[str, list[str]]] = {}
    for number, (score, names) in enumerate(reductions.softmax.items()):
        tiles = []
        for scope in scopes:
            tile = writer.rounded(writer.value(score, scope), score.type.dtype)
            mask = _spread(scope.live, score.type.shape)
            tiles.append(writer.let("score", f"tl.where({mask}, {tile}, -float('inf'))"))
        ones = ["1.0"] * len(tiles)
        scaled[score] = _join_softmax(writer, names, tiles, ones, f"_s{number}")
    for op in reductions.ops:
        if op.op == "segment_lse":
            continue
        name, terms = reductions.named[op], []
        for i, scope in enumerate(scopes):
            tile = writer.value(op.operands[-1], scope)
            mask = _spread(scope.live, op.type.shape)
            if op.op == "segment_max":
                tile = writer.rounded(tile, op.type.dtype)
                terms.append(f"tl.where({mask}, {tile}, -float('inf'))")
                continue
            term = f"tl.where({mask}, {tile}, 0.0)"
            if op.op == "attend":
                weight = scaled[root(op.operands[0])][1][i]
                term = f"{_weights(writer, op, weight, scope)} * {term}"
            terms.append(term)
        if op.op == "segment_sum":
            writer.line(f"{name} += {_summed(terms)}")
        elif op.op == "segment_max":
            for term in terms:
                writer.line(f"{name} = larger({name}, {term})")
            writer.helpers.add("larger")
        else:
            keep = _weights(writer, op, scaled[root(op.operands[0])][0], scopes[0])
            writer.line(f"{name} = {name} * {keep} + {_summed(terms)}")


def _merge(writer: Writer, reductions: _Reductions, scope: Scope, partial: dict[str, str]) -> None:
    """Take partial accumulators of pieces into the accumulators."""
    scaled: dict[Value, tuple[str, list[str]]] = {}
    for number, (score, names) in enumerate(reductions.softmax.items()):
        high, total = names
        mask = _spread(scope.live, score.type.shape)
        tile = writer.let("score", f"tl.where({mask}, {partial[high]}, -float('inf'))")
        scaled[score] = _join_softmax(writer, names, [tile], [partial[total]], f"_s{number}")
    for op in reductions.ops:
        if op.op == "segment_lse":
            continue
        name = reductions.named[op]
        mask = _spread(scope.live, op.type.shape)
        if op.op == "segment_sum":
            writer.line(f"{name} += {partial[name]}")
        elif op.op == "segment_max":
            tile = f"tl.where({mask}, {partial[name]}, -float('inf'))"
            writer.line(f"{name} = larger({name}, {tile})")
            writer.helpers.add("larger")
        else:
            keep, (weight,) = scaled[root(op.operands[0])]
            keep, weight = (_weights(writer, op, each, scope) for each in (keep, weight))
            writer.line(f"{name} = {name} * {keep} + {weight} * {partial[name]}")


def _fold_lanes(writer: Writer, reductions: _Reductions, scope: Scope) -> None:
    """Join the lanes of one target; leaves accumulators of a single lane."""
    shares: dict[Value, str] = {}
    for number, (score, (high, total)) in enumerate(reductions.softmax.items()):
        rank = len(score.type.shape)
        writer.line(f"top = tl.reduce({high}, 0, larger)[None{', :' * rank}]")
        writer.line("base = tl.where(top == -float('inf'), 0.0, top)")
        shares[score] = writer.let(f"share{number}", f"tl.exp({high} - base)")
        writer.line(f"{high} = top")
        rows = f"tl.sum({total} * {shares[score]}, 0)[None{', :' * rank}]"
        writer.line(f"{total} = {rows}")
        writer.helpers.add("larger")
    for op in reductions.ops:
        if op.op == "segment_lse":
            continue
        name, rank = reductions.named[op], len(op.type.shape)
        text = f"tl.sum({name}, 0)"
        if op.op == "segment_max":
            text = f"tl.reduce({name}, 0, larger)"
            writer.helpers.add("larger")
        elif op.op == "attend":
            share = _weights(writer, op, shares[root(op.operands[0])], scope)
            text = f"tl.sum({name} * {share}, 0)"
        writer.line(f"{name} = {text}[None{', :' * rank}]")


def _finish(writer: Writer, reductions: _Reductions, scope: Scope, empty: str) -> None:
    """Results of the reductions; ``empty`` masks the targets without rows."""
    for op in reductions.ops:
        if op.op == "segment_lse":
            high, total = reductions.names(op)
            tile = writer.let("lse", f"{high} + tl.log({total})")
            scope.known[op] = writer.reshape(
                tile, root(op.operands[0]).type.shape, op.type.shape, scope
            )
            continue
        name, none = reductions.named[op], _spread(empty, op.type.shape)
        if op.op == "segment_sum":
            scope.known[op] = name
        elif op.op == "segment_max":
            scope.known[op] = writer.let("largest", f"tl.where({none}, 0.0, {name})")
        else:
            total = _weights(writer, op, reductions.names(op)[1], scope)
            scope.known[op] = writer.let("mean", f"tl.where({none}, 0.0, {name} / {total})")


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


def _store(writer: Writer, job: Job, scope: Scope) -> None:
    for value in job.stored:
        if value.type.space is scope.space:
            writer.store(value, writer.value(value, scope), scope.row, scope.live)


def _role(name: str) -> str:
    return f"ids_{name.split('.')[1]}"


def _maps(job: Job) -> list[str]:
    """Maps that the walk reads rows through."""
    found = {
        str(op.map()): None
        for op in job.group.ops
        if op.op == "gather" and op.type.space is job.group.space and op.map() != job.group.map
    }
    return list(found)


def _apart(schedule: Traversal) -> int:
    """Places between the unrolled copies of a step."""
    return 1 if schedule.targets > 1 else schedule.lanes


def _walk(
    writer: Writer, job: Job, schedule: Traversal, reductions: _Reductions, target: Scope
) -> None:
    """The loop over a program's rows."""
    name = str(job.group.map)
    loaded = _hoist(writer, job, target)
    lanes = schedule.targets if schedule.targets > 1 else schedule.lanes
    reductions.start(writer, lanes)
    stride = schedule.unroll * (1 if schedule.targets > 1 else lanes)
    order = writer.param("order", f"tables.order(plan, {name!r})")
    ids = {each: f"tables.grouped(plan, {each!r}, {name!r})" for each in _maps(job)}
    lists = {each: writer.param(each.replace(".", "_"), passed) for each, passed in ids.items()}

    def along(first: str) -> str:
        return first if schedule.targets > 1 else f"{first} + tl.arange(0, {lanes})"

    def look_up(place: str, suffix: str) -> None:
        """Ids of a step, loaded while the step before is computed."""
        for each, pointer in lists.items():
            load = f"tl.load({pointer} + {place}, mask={place} < end, other=0)"
            writer.line(f"{_role(each)}{suffix} = {load}")
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
        for each in lists:
            scope.loaded["row", each] = writer.let(
                each.split(".")[1] + suffix, f"{_role(each)}{suffix}.to(tl.int64)"
            )
        scopes.append(scope)
    asked = [op.operands[-1] for op in reductions.ops]
    asked += [
        root(op.operands[0]) if op.op in _SOFTMAX else op.operands[0] for op in reductions.ops
    ]
    asked += [value for value in job.stored if value.type.space is job.group.space]
    for scope in scopes:  # all loads first, so that they are in flight together
        for value in asked:
            writer.loads(value, scope)
    for copy in range(schedule.unroll):
        writer.line(f"ahead_{copy} = place_{copy} + {stride}")
        look_up(f"ahead_{copy}", f"_{copy}")
    _step(writer, reductions, scopes)
    for scope in scopes:
        _store(writer, job, scope)
    writer.indent -= 1


def _scratch(register: _Register) -> str:
    width = 1
    for extent in register.shape:
        width *= extent
    return f"scratch(work.slots, {width}, plan)"


def _main(job: Job, schedule: Traversal, reductions: _Reductions) -> Writer:
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
    _walk(writer, job, schedule, reductions, before)
    if not several and schedule.lanes > 1:
        _fold_lanes(writer, reductions, before)
    writer.line("whole = live")
    writer.line("if SPLIT:")
    writer.line("    slot = tl.load(slots + piece, mask=live, other=-1).to(tl.int64)")
    writer.line("    whole = live & (slot < 0)")
    writer.line("    part = live & (slot >= 0)")
    for register in reductions.registers:
        pointer = writer.param(f"part_{register.name}", f"part_{register.name}")
        address, mask = writer.address(pointer, "slot", "part", register.shape)
        writer.line(f"    tl.store({address}, {register.name}, mask={mask})")
    after = Scope(
        space, "target", "target", "whole", width,
        loaded=dict(before.loaded),
    )  # fmt: skip
    _finish(writer, reductions, after, "(begin == end)")
    _store(writer, job, after)
    return writer


def _hubs(job: Job, schedule: Traversal, reductions: _Reductions) -> Writer:
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
    for register in reductions.registers:
        pointer = writer.param(f"part_{register.name}", f"part_{register.name}")
        partial[register.name] = writer.load(
            pointer, "row", "there", register.shape, f"some_{register.name}"
        )
    _merge(writer, reductions, pieces, partial)
    writer.indent -= 1
    space = job.group.target
    assert space is not None
    after = Scope(space, "target", "target", "live", 1)
    if lanes > 1:
        _fold_lanes(writer, reductions, pieces)
    _finish(writer, reductions, after, "(target < 0)")
    _store(writer, job, after)
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
    reductions = _Reductions(job.group.ops)
    main = _main(job, schedule, reductions)
    hubs = _hubs(job, schedule, reductions)
    launch = [f"work = tables.pieces(plan, {job.group.map!r}, {schedule.split})"]
    launch += [f"part_{each.name} = {_scratch(each)}" for each in reductions.registers]
    grid = f"(-(-work.count // {schedule.targets}),)"
    launch += [
        "if work.count:",
        "    " + main.launch(grid, f"num_warps={schedule.warps}"),
        "if work.hubs:",
        "    " + hubs.launch("(work.hubs,)", f"num_warps={schedule.hub_warps}"),
    ]
    kernels = (main.source(job.comments), hubs.source(("The second pass over targets in pieces.",)))
    return Emitted(kernels, tuple(launch), frozenset(main.helpers | hubs.helpers))
