# SPDX-License-Identifier: Apache-2.0
"""The template that walks and multiplies: what targets sum up goes into products from registers.

A program takes targets of one type, a tile at a time: it sums their rows, multiplies the sums by
the type's matrices and adds to outer products, so that the sums need not pass through memory.
Targets beyond a limit are summed beforehand by two smaller kernels.
"""

from __future__ import annotations

from hector.emit.triton.groups import BLOCK
from hector.emit.triton.job import Emitted, Job
from hector.emit.triton.product import (
    LEAST,
    block,
    matrices,
    multiplicand,
    padded_columns,
    precision_of,
    reduce_kernel,
)
from hector.emit.triton.reductions import Reductions, merge
from hector.emit.triton.schedules import Traversal, WalkProduct
from hector.emit.triton.walk import store_rows, walk
from hector.emit.triton.writer import Scope, Writer
from hector.ir.function import Value
from hector.ir.types import Space

__all__ = ["walk_product_kernel"]

_TILES = 16
"""Tiles that a program of outer products may always take in turn."""

_DOT = {"f32": "tl.float32", "bf16": "tl.bfloat16", "f16": "tl.float16"}


def _type(anchors: list[Value]) -> str:
    """The map to the types whose matrices are taken."""
    return next(name for name in (op.map("type") for op in anchors) if name is not None)


def _lanes(schedule: WalkProduct) -> Traversal:
    return Traversal(schedule.rows, 1, schedule.unroll, schedule.split, schedule.warps)


def _pieces(job: Job, schedule: WalkProduct, reductions: Reductions) -> Writer:
    """Sums of the pieces of targets that are cut."""
    writer = Writer(job, job.name + "_pieces", LEAST)
    for field in ("begin", "end", "target"):
        writer.param(f"{field}s", f"hubs.{field}")
    size = writer.size("n_pieces", "hubs.slots")
    writer.line(f"piece = tl.program_id(0) * {schedule.rows} + tl.arange(0, {schedule.rows})")
    writer.line(f"live = piece < {size}")
    for field in ("begin", "end", "target"):
        writer.line(f"{field} = tl.load({field}s + piece, mask=live, other=0)")
    writer.line("target = target.to(tl.int64)")
    writer.line("piece = piece.to(tl.int64)")
    space = job.group.target
    assert space is not None
    walk(
        writer, job, _lanes(schedule), reductions,
        Scope(space, "target", "target", "live", schedule.rows),
    )  # fmt: skip
    pointer = writer.param("parts", "parts")
    for register, at in reductions.places():
        address, mask = writer.address(
            f"{pointer} + {at}", "piece", "live", register.shape, reductions.width
        )
        writer.line(f"tl.store({address}, {register.name}, mask={mask})")
    return writer


def _hubs(job: Job, schedule: WalkProduct, reductions: Reductions) -> Writer:
    """Sums of whole targets from those of their pieces, in order."""
    writer = Writer(job, job.name + "_hubs", LEAST)
    for field in ("first", "last"):
        writer.param(f"{field}s", f"hubs.{field}")
    lanes = schedule.hub_lanes
    writer.line("hub = tl.program_id(0)")
    writer.line("begin = tl.load(firsts + hub)")
    writer.line("end = tl.load(lasts + hub)")
    reductions.start(writer, lanes)
    writer.line(f"for start in range(begin, end, {lanes}):")
    writer.indent += 1
    writer.line(f"place = start + tl.arange(0, {lanes})")
    writer.line("there = place < end")
    writer.line("row = place.to(tl.int64)")
    partial = {}
    pointer = writer.param("parts", "parts")
    for register, at in reductions.places():
        partial[register.name] = writer.load(
            f"{pointer} + {at}", "row", "there", register.shape, f"some_{register.name}",
            reductions.width,
        )  # fmt: skip
    scope = Scope(job.group.space, "place", "row", "there", lanes)
    merge(writer, reductions, scope, partial)
    writer.indent -= 1
    writer.line("row = hub.to(tl.int64) + tl.arange(0, 1)")
    pointer = writer.param("sums", "sums")
    for register, at in reductions.places():
        address, mask = writer.address(
            f"{pointer} + {at}", "row", None, register.shape, reductions.width
        )
        total = f"tl.sum({register.name}, 0)[None{', :' * len(register.shape)}]"
        masked = f", mask={mask}" if mask else ""
        writer.line(f"tl.store({address}, {total}{masked})")
    return writer


def _matrix(
    writer: Writer, job: Job, op: Value, number: int, by_column: bool, precision: str
) -> None:
    """Load a product's matrix of the program's type."""
    depth, columns = op.operands[0].type.shape[-1], op.type.shape[-1]
    bk, bn = block(depth, BLOCK), block(columns, BLOCK)
    laid_out, axes = matrices(job, op, by_column, f"w{number}")
    matrix = (
        writer.param(f"matrix{number}", f"w{number}") if laid_out else writer.memory(op.operands[1])
    )
    writer.line(f"depth{number} = tl.arange(0, {bk})[:, None]")
    writer.line(f"column{number} = tl.arange(0, {bn})[None, :]")
    masks = [f"(depth{number} < {depth})"] if depth != bk else []
    masks += [f"(column{number} < {columns})"] if columns != bn else []
    masked = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    address = (
        f"{matrix} + kind * {axes[0]} + depth{number} * {axes[1]} + column{number} * {axes[2]}"
    )
    tile = writer.let("matrix", f"tl.load({address}{masked})")
    writer.line(f"weights{number} = {multiplicand(writer, tile, precision)}")


def _operand(writer: Writer, value: Value, name: str | None, scope: Scope, precision: str) -> str:
    """A tile as a matrix instruction takes it, zeros where there is no row."""
    if value in writer.made:
        tile = padded_columns(writer, writer.value(value, scope), value.type.shape[-1])
        tile = writer.let("left", f"tl.where(live[:, None], {tile}, 0.0)")
    else:
        tile = padded_columns(writer, writer.read(value, name, scope), value.type.shape[-1])
    if value.type.dtype != "f32":
        tile = writer.let("left", f"({tile}).to({_DOT[value.type.dtype]})")
    return multiplicand(writer, tile, precision)


def _target(by_length: str, name: str, turn: str) -> str:
    """A line that loads the targets of some turns."""
    load = f"tl.load({by_length} + {turn}, mask={turn} < last, other=0)"
    return f"{name} = {load}.to(tl.int64)"


def _bounds(writer: Writer, bounds: str, numbers: str, stem: str, turn: str) -> None:
    """Lines that load where the rows of targets begin and end, and their numbers as hubs."""
    masked = f"mask={turn} < last"
    writer.line(f"{stem}begin = tl.load({bounds} + {stem}target, {masked}, other=0)")
    writer.line(f"{stem}end = tl.load({bounds} + {stem}target + 1, {masked}, other=0)")
    writer.line("if HUBS:")
    load = f"tl.load({numbers} + {stem}target, {masked}, other=-1)"
    writer.line(f"    {stem}number = {load}.to(tl.int64)")


def _main(
    job: Job, schedule: WalkProduct, reductions: Reductions, products: list[Value],
    outers: list[Value],
) -> Writer:  # fmt: skip
    group = job.group
    writer, space, name = Writer(job, least=LEAST), group.target, str(group.map)
    anchors = [*products, *outers]
    kind = _type(anchors)
    precision = precision_of(writer, anchors[0].operands[0].type.dtype)
    for field in ("kinds", "firsts", "lasts"):
        passed = {"kinds": "kind", "firsts": "begin", "lasts": "end"}[field]
        writer.param(field, f"work.{passed}")
    by_length = writer.param("by_length", f"by_length(plan, {name!r}, {kind!r}, {schedule.split})")
    bounds = writer.param("bounds", f"bounds(plan, {name!r})")
    numbers = writer.param("numbers", "hubs.number")
    writer.constant("HUBS", "hubs.count > 0")
    writer.line("run = tl.program_id(0)")
    writer.line("kind = tl.load(kinds + run).to(tl.int64)")
    writer.line("same_kind = kind + tl.arange(0, 1)")
    writer.line("some_kind = same_kind >= 0")
    writer.line("first = tl.load(firsts + run)")
    writer.line("last = tl.load(lasts + run)")
    for number, op in enumerate(products):
        _matrix(writer, job, op, number, schedule.matrix_by_column, precision)
    for number, op in enumerate(outers):
        ends = [block(operand.type.shape[-1], BLOCK) for operand in op.operands]
        writer.line(f"outer{number} = tl.zeros([{ends[0]}, {ends[1]}], tl.float32)")
    rows = schedule.rows
    # What a tile is looked up by is loaded a tile or two before: a chain of loads costs more than
    # the rows of its targets take.
    writer.line(f"turn = first + tl.arange(0, {rows})")
    writer.line(_target(by_length, "target", "turn"))
    _bounds(writer, bounds, numbers, "", "turn")
    writer.line(_target(by_length, "next_target", f"turn + {rows}"))
    writer.line(f"for start in range(first, last, {rows}):")
    writer.indent += 1
    writer.line(f"turn = start + tl.arange(0, {rows})")
    writer.line("live = turn < last")
    _bounds(writer, bounds, numbers, "next_", f"turn + {rows}")
    writer.line(_target(by_length, "later_target", f"turn + {2 * rows}"))
    writer.line("if HUBS:")
    writer.line("    end = tl.where(number < 0, end, begin)")
    assert space is not None
    scope = Scope(
        space, "target", "target", "live", schedule.rows,
        fixed={kind: ("same_kind", "some_kind")},
    )  # fmt: skip
    for op in outers:
        for operand, key in zip(op.operands, ("rows", "rows_y"), strict=True):
            if operand not in writer.made:
                writer.read(operand, op.map(key), scope)
    walk(writer, job, _lanes(schedule), reductions, scope)
    writer.line("if HUBS:")
    writer.line("    cut = live & (number >= 0)")
    pointer = writer.param("sums", "sums")
    for register, at in reductions.places():
        address, mask = writer.address(
            f"{pointer} + {at}", "number", "cut", register.shape, reductions.width
        )
        load = f"tl.load({address}, mask={mask}, other=0.0)"
        writer.line(f"    {register.name} += {load}")
    for op in reductions.ops:
        scope.known[op] = reductions.named[op]
    for op in group.ops:
        if op in products:
            number, columns = products.index(op), op.type.shape[-1]
            left = _operand(writer, op.operands[0], op.map("rows"), scope, precision)
            dot = f"tl.dot({left}, weights{number}, input_precision={precision})"
            product = writer.let("product", dot)
            if columns == 1:
                column = writer.columns(LEAST)
                first = f"tl.sum(tl.where({column}[None, :] == 0, {product}, 0.0), 1)"
                product = writer.let("product", f"{first}[:, None]")
            scope.known[op] = product
        elif op in outers:
            number = outers.index(op)
            tiles = [
                _operand(writer, operand, op.map(key), scope, precision)
                for operand, key in zip(op.operands, ("rows", "rows_y"), strict=True)
            ]
            pair = f"tl.trans({tiles[0]}), {tiles[1]}"
            dot = f"tl.dot({pair}, outer{number}, input_precision={precision})"
            writer.line(f"outer{number} = {dot}")
    store_rows(writer, job, scope)
    writer.line("target = next_target")
    writer.line("begin = next_begin")
    writer.line("end = next_end")
    writer.line("if HUBS:")
    writer.line("    number = next_number")
    writer.line("next_target = later_target")
    writer.indent -= 1
    for number, op in enumerate(outers):
        rows, columns = op.type.shape
        bl, br = block(rows, BLOCK), block(columns, BLOCK)
        part = writer.param(f"part{number}", f"part{number}")
        writer.line(f"left{number} = tl.arange(0, {bl})[:, None]")
        writer.line(f"right{number} = tl.arange(0, {br})[None, :]")
        masks = [f"(left{number} < {rows})"] if rows != bl else []
        masks += [f"(right{number} < {columns})"] if columns != br else []
        masked = f", mask={' & '.join(masks)}" if masks else ""
        place = f"run.to(tl.int64) * {rows * columns} + left{number} * {columns} + right{number}"
        writer.line(f"tl.store({part} + {place}, outer{number}{masked})")
    return writer


def walk_product_kernel(job: Job, schedule: WalkProduct) -> Emitted:
    """Make the kernels of sums along one map that go into products of their targets.

    Parameters
    ----------
    job : Job
    schedule : WalkProduct

    Returns
    -------
    Emitted
    """
    group = job.group
    reductions = Reductions(group.ops)
    products = [op for op in group.ops if op.op == "linear"]
    outers = [op for op in group.ops if op.op == "outer"]
    pieces, hubs = _pieces(job, schedule, reductions), _hubs(job, schedule, reductions)
    main = _main(job, schedule, reductions, products, outers)
    kind, space = _type([*products, *outers]), group.target
    assert space is not None
    runs = f"{kind!r}, {space.value!r}, {schedule.rows}"
    tiles = f"tables.type_tiles(plan, {runs} * {schedule.tiles})"
    if outers:
        tiles = f"tables.chunks(plan, {runs}, {max(schedule.tiles, _TILES)})"
    parts, sums = f"parts_{job.name}", f"sums_{job.name}"
    warps = f"num_warps={schedule.warps}"
    prepare = [
        f"hubs = find_hubs(plan, {group.map!r}, {schedule.split})",
        f"work = {tiles}",
        f"{parts} = room(hubs.slots, {reductions.width}, plan.device)",
        f"{sums} = room(hubs.count, {reductions.width}, plan.device)",
        pieces.prepare(f"(-(-hubs.slots // {schedule.rows}),)", warps),
        hubs.prepare("(hubs.count,)", "num_warps=4"),
        main.prepare("(work.count,)", warps),
    ]
    launch = [f"parts, sums = {parts}(), {sums}()"]
    for number, op in enumerate(products):
        launch += matrices(job, op, schedule.matrix_by_column, f"w{number}")[0]
    sources = [
        pieces.source(("The pieces of targets that are cut.",)),
        hubs.source(("Adds the pieces of each.",)),
        main.source(job.comments),
    ]
    after, gone = [], ["parts", "sums"]
    for number, op in enumerate(outers):
        width, part = op.type.shape[0] * op.type.shape[1], f"part{number}"
        types = "1" if op.type.space is Space.WEIGHT else f"plan.rows({op.type.space.value!r})"
        first = "work.first" if op.map("type") else "whole(work.first)"
        reduce, at_once, run = reduce_kernel(job, op, width, f"_chunks{number}", part, first)
        prepare += [
            f"{part}_{job.name} = room(work.count, {width}, plan.device)",
            reduce.prepare(f"({types}, {-(-width // run)})", "num_warps=4"),
        ]
        launch.append(f"{part} = {part}_{job.name}()")
        after.append(reduce.launch())
        gone.append(part)
        note = f"Adds the chunks of each type, {at_once} at a time, in their order."
        sources.append(reduce.source((note,)))
    launch += [pieces.launch(), hubs.launch(), main.launch(), *after, f"del {', '.join(gone)}"]
    helpers = frozenset(pieces.helpers | hubs.helpers | main.helpers)
    return Emitted(tuple(sources), tuple(prepare), tuple(launch), helpers)
