# SPDX-License-Identifier: Apache-2.0
"""The product template: each row times the matrix of its type, and the sums of outer products.

Rows are read through a list and grouped by type, so a program needs one matrix; results are
stored where their rows belong, each once. What precedes or follows row by row is fused where one
block holds all columns.
"""

from __future__ import annotations

from hector.emit.triton.expand import REDUCTIONS
from hector.emit.triton.groups import BLOCK
from hector.emit.triton.job import Emitted, Job
from hector.emit.triton.schedules import Outer, Product
from hector.emit.triton.tiles import padded
from hector.emit.triton.writer import Scope, Writer
from hector.ir.function import Value
from hector.ir.types import Space

__all__ = [
    "LEAST",
    "block",
    "matrices",
    "multiplicand",
    "outer_kernel",
    "padded_columns",
    "precision_of",
    "product_kernel",
    "reduce_kernel",
]

LEAST = 16
"""Least extent that a matrix instruction takes."""


def _extents(op: Value) -> tuple[int, int, int]:
    """(heads, depth, columns) of a product."""
    x = op.operands[0].type.shape
    return (x[0] if len(x) == 2 else 1), x[-1], op.type.shape[-1]


def block(extent: int, limit: int) -> int:
    """Columns that a program holds at once."""
    return max(min(padded(extent), limit), LEAST)


def _read(writer: Writer, scope: Scope, rows: str | None) -> str:
    """Name of the row to read for each place."""
    return scope.row if rows is None else writer.ids(scope, rows)


def _scope(writer: Writer, job: Job, lanes: int) -> Scope:
    """Lines that give place, live and row inside the loop over a run's rows."""
    anchor = job.group.anchor
    assert anchor is not None
    kind = anchor.map("type")
    writer.line(f"place = start + tl.arange(0, {lanes})")
    writer.line("live = place < end")
    writer.line("row = place.to(tl.int64)")
    if kind is not None:
        order = writer.param("order", f"tables.order(plan, {kind!r})")
        writer.line(f"if {order} is not None:")
        writer.line(f"    row = tl.load({order} + place, mask=live, other=0).to(tl.int64)")
    fixed = {} if kind is None else {kind: ("same_kind", "some_kind")}
    return Scope(job.group.space, "place", "row", "live", lanes, kind, fixed)


def _open(writer: Writer, run: str) -> None:
    for name in ("kinds", "begins", "ends"):
        writer.param(name, f"work.{name[:-1]}")
    writer.line(f"run = {run}")
    writer.line("kind = tl.load(kinds + run).to(tl.int64)")
    writer.line("same_kind = kind + tl.arange(0, 1)")
    writer.line("some_kind = same_kind >= 0")
    writer.line("begin = tl.load(begins + run)")
    writer.line("end = tl.load(ends + run)")


def precision_of(writer: Writer, dtype: str) -> str:
    """Text of how a product rounds what it takes."""
    if dtype != "f32":
        return '"ieee"'
    return writer.constant("PRECISION", "precision_on(plan.device)")


def multiplicand(writer: Writer, tile: str, precision: str) -> str:
    """A tile as a product takes it."""
    if precision == '"ieee"':
        return tile
    writer.helpers.add("multiplicand")
    return writer.let("multiplicand", f"multiplicand({tile}, {precision})")


def _tile(
    writer: Writer, pointer: str, row: str, column: str, bound: str, width: int, stem: str
) -> str:
    """Load a block of columns of rows, in the dtype of memory."""
    address = f"{pointer} + {row}[:, None] * {width} + {column}[None, :]"
    mask = f"live[:, None]{bound}"
    return writer.let(stem, f"tl.load({address}, mask={mask}, other=0.0)")


def _bound(column: str, extent: int, block: int, axis: int = 1) -> str:
    """Mask of columns, empty where blocks divide the extent."""
    if extent % block == 0:
        return ""
    return f" & ({column}[{'None, :' if axis else ':, None'}] < {extent})"


def product_kernel(job: Job, schedule: Product) -> Emitted:
    """Make the kernel of a product with what is fused into it.

    Parameters
    ----------
    job : Job
    schedule : Product

    Returns
    -------
    Emitted
    """
    op = job.group.anchor
    assert op is not None
    heads, depth, columns = _extents(op)
    bk, bn = block(depth, schedule.depth), block(columns, schedule.columns)
    blocks, steps = -(-columns // bn), -(-depth // bk)
    fused = len(job.group.ops) > 1
    if fused:
        bn, blocks = block(columns, BLOCK), 1
    if op.operands[0] in job.group.ops:
        bk, steps = block(depth, BLOCK), 1
    writer = Writer(job, least=LEAST)
    precision = precision_of(writer, op.type.dtype)
    x, w = op.operands
    laid_out, strides = matrices(job, op, schedule.matrix_by_column)
    matrix = writer.param("matrix", "w") if laid_out else writer.memory(w)
    # Blocks of one run stand side by side: they read its rows at about the same time.
    _open(writer, "tl.program_id(0)" if blocks == 1 else f"tl.program_id(0) // {blocks}")
    first = "" if blocks == 1 else f"tl.program_id(0) % {blocks} * {bn} + "
    writer.line(f"columns = {first}tl.arange(0, {bn})")
    writer.line(f"depth = tl.arange(0, {bk})")
    if heads > 1:
        writer.line("head = tl.program_id(1)")

    def matrix_tile(k: str) -> None:
        inner = (
            f"{matrix} + kind * {strides[0]} + ({k})[:, None] * {strides[1]} "
            f"+ columns[None, :] * {strides[2]}"
        )
        masks = _bound(f"({k})", depth, bk, 0) + _bound("columns", columns, bn)
        masks = masks.removeprefix(" & ")
        wide = f"tl.full([{bk}, {bn}], 1, tl.int1)"
        masked = f", mask={wide} & {masks}, other=0.0" if masks else ""
        tile = writer.let("matrix", f"tl.load({inner}{masked})")
        writer.line(f"weights = {multiplicand(writer, tile, precision)}")

    if steps == 1:
        matrix_tile("depth")
    writer.line(
        f"for start in tl.range(begin, end, {schedule.rows}, num_stages={schedule.stages}):"
    )
    writer.indent += 1
    scope = _scope(writer, job, schedule.rows)
    inline = x in writer.made
    if inline:
        left = padded_columns(writer, writer.value(x, scope), x.type.shape[-1])
        left = writer.let("left", f"({left}).to({matrix}.dtype.element_ty)")
        left = multiplicand(writer, left, precision)
        writer.line(f"product = tl.dot({left}, weights, input_precision={precision})")
    else:
        pointer = writer.memory(x)
        read = _read(writer, scope, op.map("rows"))
        pitch = writer.pitch.get(x, heads * depth)
        source = f"{pointer} + head * {depth}" if heads > 1 else pointer
        if steps == 1:
            bound = _bound("depth", depth, bk)
            left = _tile(writer, source, read, "depth", bound, pitch, "left")
            left = multiplicand(writer, left, precision)
            writer.line(f"product = tl.dot({left}, weights, input_precision={precision})")
        else:
            writer.line(f"product = tl.zeros([{schedule.rows}, {bn}], tl.float32)")
            writer.line(f"for block in range(0, {depth}, {bk}):")
            writer.indent += 1
            matrix_tile("block + depth")
            bound = _bound("(block + depth)", depth, bk)
            left = _tile(writer, source, read, "(block + depth)", bound, pitch, "left")
            left = multiplicand(writer, left, precision)
            writer.line(f"product = tl.dot({left}, weights, product, input_precision={precision})")
            writer.indent -= 1
    if fused:
        if columns == 1:
            first = "tl.sum(tl.where(columns[None, :] == 0, product, 0.0), 1)"
            writer.line(f"product = {first}[:, None]")
        scope.known[op] = "product"
        for value in job.stored:
            writer.store(value, writer.value(value, scope), scope.row, scope.live)
    else:
        out = writer.memory(op)
        pitch = writer.pitch.get(op, heads * columns)
        address = f"{out} + row[:, None] * {pitch} + columns[None, :]"
        if heads > 1:
            address += f" + head * {columns}"
        mask = "live[:, None]" + _bound("columns", columns, bn)
        writer.line(f"tl.store({address}, product.to({out}.dtype.element_ty), mask={mask})")
    writer.indent -= 1
    step = schedule.rows * schedule.tiles
    grid = f"(work.count * {blocks}, {heads})"
    prepare = (
        f"work = tables.type_tiles(plan, {op.map('type')!r}, {job.group.space.value!r}, {step})",
        writer.prepare(grid, f"num_warps={schedule.warps}"),
    )
    kernels, launch = (writer.source(job.comments),), (*laid_out, writer.launch())
    return Emitted(kernels, prepare, launch, frozenset(writer.helpers))


def matrices(
    job: Job, op: Value, by_column: bool, name: str = "w"
) -> tuple[tuple[str, ...], tuple[int, int, int]]:
    """Lines that lay a product's matrices out anew, and the strides of types, rows and columns."""
    w = op.operands[1]
    rows, columns = w.type.shape[-2:]
    kind = job.pitch.get(w, rows * columns)
    if op.attrs.get("transpose", False):
        return (), (kind, 1, columns)
    if by_column:
        return (f"{name} = by_column({job.host[w]})",), (rows * columns, 1, rows)
    return (), (kind, columns, 1)


def padded_columns(writer: Writer, tile: str, extent: int) -> str:
    """A tile with zeros where its padding is, as wide as a matrix instruction takes."""
    if extent == 1:
        wide = writer.columns(LEAST)
        return writer.let("widened", f"tl.where({wide}[None, :] == 0, {tile}, 0.0)")
    if writer.pad(extent) == extent:
        return tile
    column = writer.columns(extent)
    return writer.let("cut", f"tl.where({column}[None, :] < {extent}, {tile}, 0.0)")


def outer_kernel(job: Job, schedule: Outer) -> Emitted:
    """Make the kernels of a sum of outer products for each type.

    Parameters
    ----------
    job : Job
    schedule : Outer

    Returns
    -------
    Emitted
        The first kernel sums the rows of each chunk, the second the chunks of each type.
    """
    op = job.group.anchor
    assert op is not None
    x, y = op.operands
    shapes = x.type.shape, y.type.shape
    heads = shapes[0][0] if len(shapes[0]) == 2 else 1
    left, right = shapes[0][-1], shapes[1][-1]
    bl, br = block(left, schedule.left), block(right, schedule.right)
    if len(job.group.ops) > 1:
        bl, br = block(left, BLOCK), block(right, BLOCK)
    writer = Writer(job, least=LEAST)
    precision = precision_of(writer, x.type.dtype)
    part = writer.param("part", "part")
    across, down = -(-right // br), -(-left // bl)
    blocks = across * down
    _open(writer, "tl.program_id(0)" if blocks == 1 else f"tl.program_id(0) // {blocks}")
    at = "tl.program_id(0)"
    first = "" if down == 1 else f"{at} % {blocks} // {across} * {bl} + "
    writer.line(f"left = {first}tl.arange(0, {bl})")
    first = "" if across == 1 else f"{at} % {across} * {br} + "
    writer.line(f"right = {first}tl.arange(0, {br})")
    writer.line(f"total = tl.zeros([{bl}, {br}], tl.float32)")
    writer.line(
        f"for start in tl.range(begin, end, {schedule.rows}, num_stages={schedule.stages}):"
    )
    writer.indent += 1
    scope = _scope(writer, job, schedule.rows)
    for value in (x, y):  # loads stand outside the loop over heads
        if value in writer.made:
            writer.value(value, scope)
    reads = [_read(writer, scope, op.map(key)) for key in ("rows", "rows_y")]
    if heads > 1:
        writer.line(f"for head in range({heads}):")
        writer.indent += 1
    tiles = []
    for value, read, column, extent, size in (
        (x, reads[0], "left", left, bl), (y, reads[1], "right", right, br),
    ):  # fmt: skip
        if value in writer.made:
            tile = padded_columns(writer, writer.value(value, scope), extent)
            tile = writer.let(column, f"tl.where(live[:, None], {tile}, 0.0)")
            if value.type.dtype != "f32":
                kind = {"bf16": "tl.bfloat16", "f16": "tl.float16"}[value.type.dtype]
                tile = writer.let(column, f"{tile}.to({kind})")
            tiles.append(tile)
            continue
        pointer = writer.memory(value)
        source = f"{pointer} + head * {extent}" if heads > 1 else pointer
        bound, pitch = _bound(column, extent, size), writer.pitch.get(value, heads * extent)
        tiles.append(_tile(writer, source, read, column, bound, pitch, f"{column}s"))
    tiles = [multiplicand(writer, tile, precision) for tile in tiles]
    dot = f"tl.dot(tl.trans({tiles[0]}), {tiles[1]}, total, input_precision={precision})"
    writer.line(f"total = {dot}")
    if heads > 1:
        writer.indent -= 1
    for value in job.stored:
        if value is not op:
            assert value.op not in REDUCTIONS
            writer.store(value, writer.value(value, scope), scope.row, scope.live)
    writer.indent -= 1
    address = (
        f"{part} + run.to(tl.int64) * {left * right} + left[:, None] * {right} + right[None, :]"
    )
    mask = (_bound("left", left, bl, 0) + _bound("right", right, br)).removeprefix(" & ")
    whole = f"tl.full([{bl}, {br}], 1, tl.int1)"
    writer.line(f"tl.store({address}, total, mask={whole}{' & ' + mask if mask else ''})")
    reduce, step, width = reduce_kernel(job, op, left * right)
    space = job.group.space.value
    types = "1" if op.type.space is Space.WEIGHT else f"plan.rows({op.type.space.value!r})"
    runs = f"{op.map('type')!r}, {space!r}, {schedule.rows}, {schedule.chunk // schedule.rows}"
    prepare = (
        f"work = tables.chunks(plan, {runs})",
        f"part_{job.name} = room(work.count, {left * right}, plan.device)",
        writer.prepare(f"(work.count * {blocks},)", f"num_warps={schedule.warps}"),
        reduce.prepare(f"({types}, {-(-left * right // width)})", "num_warps=4"),
    )
    launch = (f"part = part_{job.name}()", writer.launch(), reduce.launch(), "del part")
    note = (f"Adds the chunks of each type, {step} at a time, in their order.",)
    kernels = (writer.source(job.comments), reduce.source(note))
    return Emitted(kernels, prepare, launch, frozenset(writer.helpers))


def reduce_kernel(
    job: Job,
    op: Value,
    elements: int,
    suffix: str = "_chunks",
    passed: str = "part",
    first_chunks: str = "work.first",
) -> tuple[Writer, int, int]:
    """The kernel that adds chunks, how many at a time, and the elements of a program."""
    width = min(max(padded(elements), 16), 32)
    step = 4096 // width
    writer = Writer(job, job.name + suffix)
    part, first = writer.param("part", passed), writer.param("first", first_chunks)
    out = writer.memory(op)
    writer.line("kind = tl.program_id(0).to(tl.int64)")
    writer.line(f"element = tl.program_id(1) * {width} + tl.arange(0, {width})")
    writer.line(f"begin = tl.load({first} + kind)")
    writer.line(f"end = tl.load({first} + kind + 1)")
    writer.line(f"total = tl.zeros([{step}, {width}], tl.float32)")
    writer.line(f"for start in range(begin, end, {step}):")
    writer.line(f"    chunk = (start + tl.arange(0, {step})).to(tl.int64)")
    mask = f"(chunk < end)[:, None] & (element < {elements})[None, :]"
    address = f"{part} + chunk[:, None] * {elements} + element[None, :]"
    writer.line(f"    total += tl.load({address}, mask={mask}, other=0.0)")
    target = f"{out} + kind * {elements} + element"
    summed = f"tl.sum(total, 0).to({out}.dtype.element_ty)"
    writer.line(f"tl.store({target}, {summed}, mask=element < {elements})")
    return writer, step, width
