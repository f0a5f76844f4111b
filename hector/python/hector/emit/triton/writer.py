# SPDX-License-Identifier: Apache-2.0
"""Text of one kernel: its parameters, and operators on tiles of rows in a scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hector.emit.triton.job import Job
from hector.emit.triton.tiles import HELPERS, elementwise, literal, padded
from hector.ir.function import Value
from hector.ir.types import MAPS, Space

__all__ = ["Scope", "Writer"]

_POINTERS = {"f32": "tl.float32", "bf16": "tl.bfloat16", "f16": "tl.float16"}


@dataclass
class Scope:
    """Rows that a piece of a kernel stands at.

    Attributes
    ----------
    space : Space
    place : str
        Name of the vector of places in the order that the kernel walks.
    row : str
        Name of the vector of rows (64 bits); equal to ``place`` in value where the order is none.
    live : str
        Name of the mask of rows that exist.
    lanes : int
        Length of the three.
    grouping : str or None
        Map whose grouped order ``place`` counts in.
    fixed : dict of str to str
        Maps whose target row is known, with the name of its vector and of its mask.
    suffix : str
        Keeps names of unrolled copies apart.
    """

    space: Space
    place: str
    row: str
    live: str
    lanes: int
    grouping: str | None = None
    fixed: dict[str, tuple[str, str]] = field(default_factory=dict)
    suffix: str = ""
    known: dict[Value, str] = field(default_factory=dict)
    loaded: dict[tuple[object, ...], str] = field(default_factory=dict)


def _spread(name: str, axis: int, rank: int) -> str:
    """A vector along one axis of a tile of ``rank`` axes."""
    if rank == 1:
        return name
    return f"{name}[{', '.join(':' if i == axis else 'None' for i in range(rank))}]"


class Writer:
    """Collects the text of one kernel.

    Parameters
    ----------
    job : Job
    name : str
        Of the kernel, where it is not the job's.
    least : int
        Least padded extent of any axis that is not 1.
    """

    def __init__(self, job: Job, name: str = "", least: int = 1) -> None:
        self.name = name or job.name
        self.least = least
        self.host = job.host
        self.pitch = job.pitch
        self.orders = job.orders
        self.made = frozenset(job.group.ops)
        self.params: dict[str, str] = {}
        """Parameter names with what is passed for them."""
        self.constants: set[str] = set()
        """Parameters that a kernel is compiled for."""
        self.sizes: set[str] = set()
        """Integers that it is not: they change from batch to batch."""
        self.lines: list[str] = []
        self.head: list[str] = []
        """Lines before the body: column numbers."""
        self.helpers: set[str] = set()
        self.indent = 1
        self._count = 0
        self._columns: set[int] = set()

    def line(self, text: str) -> None:
        """Append one line at the present depth."""
        self.lines.append("    " * self.indent + text)

    def let(self, stem: str, text: str) -> str:
        """Append an assignment to a fresh name, and give the name."""
        name = f"{stem}_{self._count}"
        self._count += 1
        self.line(f"{name} = {text}")
        return name

    def param(self, name: str, passed: str) -> str:
        """Add a parameter once for each thing passed."""
        for known, what in self.params.items():
            if what == passed:
                return known
        while name in self.params:
            name += "_"
        self.params[name] = passed
        return name

    def constant(self, name: str, passed: str) -> str:
        """Add a parameter whose value is compiled in."""
        self.constants.add(name)
        return self.param(name, passed)

    def size(self, name: str, passed: str) -> str:
        """Add an integer whose value is not compiled in."""
        self.sizes.add(name)
        return self.param(name, passed)

    def memory(self, value: Value) -> str:
        """The pointer parameter of a value in memory."""
        passed = self.host[value]
        return self.param(passed.split("(")[0].replace(".", "_"), passed)

    def pad(self, extent: int) -> int:
        """Extent of a tile's axis."""
        return 1 if extent == 1 else max(padded(extent), self.least)

    def tile_shape(self, lanes: int | str, shape: tuple[int, ...]) -> str:
        """Text of a tile's shape."""
        return f"[{', '.join([str(lanes), *(str(self.pad(extent)) for extent in shape)])}]"

    def columns(self, extent: int) -> str:
        """Name of the column numbers of an extent."""
        size = self.pad(extent)
        if size not in self._columns:
            self._columns.add(size)
            self.head.append(f"    c{size} = tl.arange(0, {size})")
        return f"c{size}"

    def address(
        self,
        pointer: str,
        row: str | None,
        live: str | None,
        shape: tuple[int, ...],
        pitch: int | None = None,
    ) -> tuple[str, str]:
        """Text of the addresses of rows, and of their mask (empty where none is needed)."""
        rank, width = len(shape) + 1, 1
        terms, masks = [], []
        for axis in range(len(shape), 0, -1):
            extent = shape[axis - 1]
            if extent != 1:
                along = _spread(self.columns(extent), axis, rank)
                terms.append(along if width == 1 else f"{along} * {width}")
                if self.pad(extent) != extent:
                    masks.append(f"({along} < {extent})")
            width *= extent
        if row is not None:
            width = width if pitch is None else pitch
            along = _spread(row, 0, rank)
            terms.append(along if width == 1 else f"{along} * {width}")
        elif not terms:
            terms.append(f"tl.zeros({self.tile_shape(1, shape)}, tl.int32)")
        if live is not None:
            masks.append(_spread(live, 0, rank))
        return " + ".join([pointer, *reversed(terms)]), " & ".join(reversed(masks))

    def load(
        self,
        pointer: str,
        row: str | None,
        live: str | None,
        shape: tuple[int, ...],
        stem: str,
        pitch: int | None = None,
    ) -> str:
        """Load rows as fp32 tiles; what does not exist is 0."""
        address, mask = self.address(pointer, row, live, shape, pitch)
        masked = f", mask={mask}, other=0.0" if mask else ""
        return self.let(stem, f"tl.load({address}{masked}).to(tl.float32)")

    def store(self, value: Value, tile: str, row: str, live: str) -> None:
        """Store a tile's rows."""
        pointer = self.memory(value)
        pitch = self.pitch.get(value)
        address, mask = self.address(pointer, row, live, value.type.shape, pitch)
        shape = self.tile_shape(1, value.type.shape)
        tile = tile if tile[0].isalpha() else f"tl.full({shape}, {tile}, tl.float32)"
        self.line(f"tl.store({address}, ({tile}).to({pointer}.dtype.element_ty), mask={mask})")

    def at(self, scope: Scope, name: str) -> tuple[str, str]:
        """Row of a map's target for each row of a scope, and the mask that goes with it."""
        return scope.fixed.get(name) or (self.ids(scope, name), scope.live)

    def ids(self, scope: Scope, name: str) -> str:
        """Row of a map's target for each row of a scope, read from memory."""
        key = ("row", name)
        if key not in scope.loaded:
            if scope.grouping is None:
                passed, place = f"tables.index(plan, {name!r})", scope.row
            else:
                passed, place = f"tables.grouped(plan, {name!r}, {scope.grouping!r})", scope.place
            ids = self.param(f"{name.replace('.', '_')}", passed)
            load = f"tl.load({ids} + {place}, mask={scope.live}, other=0).to(tl.int64)"
            scope.loaded[key] = self.let(f"{name.split('.')[1]}{scope.suffix}", load)
        return scope.loaded[key]

    def value(self, value: Value, scope: Scope) -> str:
        """The name of a value's tile at a scope's rows, computed if it is not yet."""
        if value not in scope.known:
            scope.known[value] = self._compute(value, scope)
        return scope.known[value]

    def loads(self, value: Value, scope: Scope) -> None:
        """Append the loads of what a value is computed from, and nothing that waits for them."""
        if value in scope.known or value.op == "const":
            return
        stored = value in self.host and value not in self.made
        if stored or value.op in ("gather", "count_scale"):
            self.value(value, scope)
        else:
            for operand in value.operands:
                self.loads(operand, scope)

    def rounded(self, tile: str, dtype: str) -> str:
        """A tile as it would be read back from memory."""
        if dtype == "f32" or not tile[0].isalpha():
            return tile
        return self.let("rounded", f"({tile}).to({_POINTERS[dtype]}).to(tl.float32)")

    def _compute(self, value: Value, scope: Scope) -> str:
        if value.op == "const":
            return literal(value.number("value"))
        if value.op == "count_scale":
            return self._count_scale(value, scope)
        if value in self.host and value not in self.made:
            return self.read(value, None, scope)
        if value.op == "gather":
            return self.read(value.operands[0], value.map(), scope)
        args = [self.value(operand, scope) for operand in value.operands]
        if value.op == "equal":
            kinds = [operand.type.dtype for operand in value.operands]
            args = [self.rounded(arg, kind) for arg, kind in zip(args, kinds, strict=True)]
        stem = f"{value.op}{scope.suffix}"
        if value.op == "sum":
            return self._sum(value, args[0], scope, stem)
        if value.op == "reshape":
            return self.reshape(args[0], value.operands[0].type.shape, value.type.shape, scope)
        if value.op == "broadcast":
            shape = self.tile_shape(scope.lanes, value.type.shape)
            return self.let(stem, f"tl.broadcast_to({args[0]}, {shape})")
        rank = max(len(operand.type.shape) for operand in value.operands)
        args = [
            self._lifted(arg, operand, rank)
            for arg, operand in zip(args, value.operands, strict=True)
        ]
        text = elementwise(value, args)
        for helper in HELPERS:
            if f"{helper}(" in text:
                self.helpers.add(helper)
        return self.let(stem, text)

    def _lifted(self, arg: str, operand: Value, rank: int) -> str:
        """A weight of lower rank, with its axes aligned to the right."""
        missing = rank - len(operand.type.shape)
        if operand.op == "const" or missing == 0 or operand.type.space is not Space.WEIGHT:
            return arg
        old = ", ".join([":"] * len(operand.type.shape))
        return f"{arg}[:, {', '.join(['None'] * missing)}{', ' + old if old else ''}]"

    def reshape(self, arg: str, old: tuple[int, ...], new: tuple[int, ...], scope: Scope) -> str:
        """A tile with other extents of one."""
        if old == new:
            return arg
        if len(new) > len(old) and new[len(new) - len(old) :] == old:
            return f"{arg}[:, {', '.join(['None'] * (len(new) - len(old)) + [':'] * len(old))}]"
        if len(new) > len(old) and new[: len(old)] == old:
            kept = [":"] * len(old) + ["None"] * (len(new) - len(old))
            return f"{arg}[:, {', '.join(kept)}]"
        lanes = f"{arg}.shape[0]"
        return self.let("reshaped", f"tl.reshape({arg}, {self.tile_shape(lanes, new)})")

    def _sum(self, value: Value, arg: str, scope: Scope, stem: str) -> str:
        shape, axes = value.operands[0].type.shape, value.integers("axes")
        rank = len(shape) + 1
        masks = [
            f"({_spread(self.columns(shape[axis]), axis + 1, rank)} < {shape[axis]})"
            for axis in axes
            if self.pad(shape[axis]) != shape[axis]
        ]
        text = f"tl.where({' & '.join(masks)}, {arg}, 0.0)" if masks else arg
        for axis in sorted(axes, reverse=True):
            text = f"tl.sum({text}, {axis + 1})"
        return self.let(stem, text)

    def _count_scale(self, value: Value, scope: Scope) -> str:
        """A factor that the plan keeps beside each row, in the order of the walk."""
        passed = self.host[value].replace("None)", f"{scope.grouping!r})")
        place = scope.row if scope.grouping is None else scope.place
        scales = self.param(f"inverse_count_{len(self.params)}", passed)
        return self.load(scales, place, scope.live, (), f"scale{scope.suffix}")

    def read(self, value: Value, name: str | None, scope: Scope) -> str:
        """Rows of a value in memory, through a map or not."""
        shape = value.type.shape
        key = (value, name)
        if key not in scope.loaded:
            pointer = self.memory(value)
            if value.type.space is Space.WEIGHT:
                row, live = None, None
            elif name is None and value in self.orders:
                row, live = scope.loaded["placed", self.orders[value]], scope.live
            elif name is None:
                row, live = scope.row, scope.live
            else:
                assert MAPS[name].target is value.type.space
                row, live = self.at(scope, name)
            stem = f"t_{pointer.removeprefix('p_')}{scope.suffix}"
            scope.loaded[key] = self.load(pointer, row, live, shape, stem, self.pitch.get(value))
        return scope.loaded[key]

    def prepare(self, grid: str, schedule: str) -> str:
        """The text that makes the launch ready for one graph: tensors of a call are left open."""
        args = ["..." if what.isidentifier() else what for what in self.params.values()]
        return f"launch_{self.name} = Launch({self.name}, {grid}, ({', '.join(args)},), {schedule})"

    def launch(self) -> str:
        """The text of the launch."""
        tensors = [what for what in self.params.values() if what.isidentifier()]
        return f"launch_{self.name}({', '.join(tensors)})"

    def source(self, comments: Sequence[str]) -> str:
        """The kernel as text, the IR that it carries out as comments."""
        plain = ", ".join(f'"{name}"' for name in self.params if name in self.sizes)
        decorator = f"@triton.jit(do_not_specialize=[{plain}])" if plain else "@triton.jit"
        params = ", ".join(
            f"{name}: tl.constexpr" if name in self.constants else name for name in self.params
        )
        notes = [f"    # {note}" for note in comments]
        parts = [decorator, f"def {self.name}({params}):", *notes, *self.head, *self.lines]
        return "\n".join(parts) + "\n"
