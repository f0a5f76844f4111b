# SPDX-License-Identifier: Apache-2.0
"""Fused IR to a module of Triton kernels and the function that launches them in order."""

from __future__ import annotations

import functools
import importlib.util
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hector.cost import Machine, function_cost
from hector.dtypes import TORCH
from hector.emit import Program
from hector.emit.torch.emitter import INLINE, SCOPE, TorchEmitter, expression, inline
from hector.emit.triton import runtime, tables, walk_tables
from hector.emit.triton.arrange import arrange
from hector.emit.triton.columns import columns, walk_orders
from hector.emit.triton.cost import predicted_seconds, stored_values
from hector.emit.triton.expand import REDUCTIONS, Expanded, expand
from hector.emit.triton.groups import Family, Group
from hector.emit.triton.in_place import last_reads
from hector.emit.triton.job import Emitted, Job
from hector.emit.triton.launching import Launch, precision_on, room
from hector.emit.triton.product import outer_kernel, product_kernel
from hector.emit.triton.reductions import Reductions
from hector.emit.triton.rows import rows_kernel
from hector.emit.triton.schedules import (
    Key,
    Outer,
    Product,
    Rows,
    Traversal,
    WalkProduct,
    schedule,
    size_class,
)
from hector.emit.triton.sequence import in_turn, replaced
from hector.emit.triton.tiles import HELPERS, padded, padded_width
from hector.emit.triton.traversal import traversal_kernel
from hector.emit.triton.walk_product import walk_product_kernel
from hector.ir.function import Function, Value, param_name
from hector.ir.types import Space, Type
from hector.plan import Counts, Plan

__all__ = ["TritonEmitter", "available"]

_UNNAMED = INLINE | {"count_scale"}
_STRIDED = frozenset({"slice", "transpose", "broadcast"})
_SCOPE: dict[str, object] = {
    **SCOPE, "tables": tables, "by_column": runtime.by_column, "partial": functools.partial,
    "Launch": Launch, "precision_on": precision_on, "room": room, "find_hubs": walk_tables.hubs,
    "by_length": walk_tables.by_length, "bounds": walk_tables.bounds,
    "whole": walk_tables.whole,
}  # fmt: skip
_LOCAL = frozenset(
    "plan run work hubs w w0 w1 part part0 part1 part2 part3 parts sums triton tl".split()
)
_TAKEN = frozenset({*_SCOPE, *HELPERS, *_LOCAL})
_HEADER = "import triton\nimport triton.language as tl\n"


def available() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def _unfit(function: Function) -> str | None:
    """Why the whole function is left to PyTorch, or None."""
    for value in (*function.params, *function.ops):
        if value.type.dtype == "f64":
            return "fp64 is computed by PyTorch: the templates accumulate in fp32"
        if value.type.width == 0:
            return "values of no width are computed by PyTorch"
    return None


def _text(op: Value, names: dict[Value, str]) -> str:
    operands = ", ".join(names[operand] for operand in op.operands)
    attrs = ", ".join(f"{key} = {op.attrs[key]}" for key in sorted(op.attrs))
    return f"{names[op]} = {op.op}({operands})" + (f" {{{attrs}}}" if attrs else "")


def _architecture(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


class _Module:
    """The text of one function's module under construction."""

    def __init__(self, function: Function, expanded: Expanded, counts: Counts, arch: str) -> None:
        self.function, self.counts, self.arch = function, counts, arch
        self.name = function.name if function.name not in _TAKEN else f"{function.name}_program"
        self.expanded, groups = arrange(expanded, counts)
        self.groups = in_turn(self.expanded, groups, counts)
        self.kernels: list[str] = []
        self.helpers: set[str] = set()
        self.prepare: list[str] = []
        """Lines that are run once for a graph."""
        self.body: list[str] = []
        """Lines that are run at each call."""
        self.notes: list[str] = []
        self.host: dict[Value, str] = {}
        self.ir: dict[Value, str] = {}
        self.pitch: dict[Value, int] = {}
        self._uses: dict[str, int] = {}
        home = {op: each for each in self.groups for op in each.ops}
        self.stored = stored_values(self.expanded, self.groups)
        self.columns = columns(self.expanded, home)
        self.orders = walk_orders(self.expanded, home, self.stored)
        self._name(home)
        self._find_columns()
        self._last = last_reads(self.groups)
        self.in_place = replaced(self.expanded, self.groups, self.stored)
        """Results that take the memory of what only their kernel still reads."""

    def _name(self, home: dict[Value, Group]) -> None:
        for param in self.function.params:
            self.host[param] = "p_" + param_name(param).replace(".", "_")
            self.ir[param] = f"%{param_name(param)}"
        for number, op in enumerate(self.expanded.ops):
            self.ir[op] = f"%{number}"
            if op.op in INLINE:
                self.host[op] = inline(op)
            elif op.op == "count_scale":
                names = f"{op.map()!r}, {op.map('through')!r}"
                dtype = str(TORCH[op.type.dtype])
                self.host[op] = f"tables.count_scale(plan, {names}, {dtype}, None)"
            elif op in self.stored or home[op].family is Family.HOST:
                self.host[op] = f"v{number}"

    def _find_columns(self) -> None:
        """Views whose rows are a run of another value's: kernels read them where they are."""
        self.pitch.update((part, at.whole.type.width) for part, at in self.columns.items())
        for op in self.expanded.ops:
            if op.op not in ("slice", "reshape") or op.type.space is Space.WEIGHT:
                continue
            of = op.operands[0]
            lead = of.type.shape[: int(op.number("axis"))] if op.op == "slice" else ()
            if op in self.host and all(extent == 1 for extent in lead):
                pitch = self.pitch.get(of, of.type.width)
                if pitch != op.type.width:
                    self.pitch[op] = pitch

    def emit(self) -> str:
        """The module's text."""
        for each in self.groups:
            if each.family is Family.HOST:
                self._host(each.ops[0])
            else:
                self._kernel(each)
            gone = [
                self.host[value]
                for value, reader in self._last.items()
                if reader is each and value in self.host and value not in self.expanded.results
            ]
            if gone:
                self.body.append(f"del {', '.join(gone)}")
        results = [self._result(result) for result in self.expanded.results]
        params = "".join(f", {self.host[param]}" for param in self.function.params)
        lines = [f"def {self.name}(plan):", *(f"    {line}" for line in self.prepare), ""]
        lines.append(f"    def run(plan{params}):")
        for param in self.function.params:
            if param.type.shape or param.type.space is not Space.WEIGHT:
                name = self.host[param]
                lines.append(f"        {name} = {name}.contiguous()")
        lines += ["        " + line for line in self.body]
        lines += [f"        return ({', '.join(results)},)", "", "    return run"]
        helpers = [HELPERS[name] for name in HELPERS if name in self.helpers]
        header = [_HEADER] if self.kernels else []
        notes = [f"# {note}" for note in self.notes]
        return "\n".join([*notes, *header, *helpers, *self.kernels, "\n".join(lines)]) + "\n"

    def _result(self, result: Value) -> str:
        name = self.host[result]
        if result.op == "const":
            return f"torch.full((), {name}, dtype={TORCH[result.type.dtype]}, device=plan.device)"
        return name

    def _host(self, op: Value) -> None:
        if any(at.whole is op for at in self.columns.values()):
            return
        text = expression(op, self.host)
        if op.op in _STRIDED and op not in self.pitch:
            text += ".contiguous()"
        self.body.append(f"{self.host[op]} = {text}  # {_text(op, self.ir)} : {op.type}")
        if op.op not in ("reshape", "slice", "transpose", "broadcast"):
            self.notes.append(f"by PyTorch: {_text(op, self.ir)} : {op.type}")

    def _kernel(self, each: Group) -> None:
        stored = tuple(op for op in each.ops if op in self.stored)
        host = {value: name for value, name in self.host.items() if value.op != "const"}
        comments = tuple(f"{_text(op, self.ir)} : {op.type}" for op in each.ops)
        job = Job(self._kernel_name(each), each, stored, host, self.pitch, self.orders, comments)
        for value in stored:
            self._allocate(value)
        emitted = self._template(job)
        self.kernels.extend("\n" + kernel for kernel in emitted.kernels)
        self.helpers |= emitted.helpers
        self.prepare.extend(emitted.prepare)
        self.body.extend(emitted.launch)

    def _allocate(self, value: Value) -> None:
        """Memory of a result."""
        at = self.columns.get(value)
        if value in self.in_place:
            self.body.append(f"{self.host[value]} = {self.host[self.in_place[value]]}")
            return
        if at is None:
            self._new(self.host[value], value.type)
            return
        whole, shape = self.host[at.whole], value.type.shape
        if f"{whole} = new_{whole}()" not in self.body:
            self._new(whole, at.whole.type)
        run = f"{whole}.flatten(1).narrow(1, {at.start}, {value.type.width})"
        if len(shape) != 1:
            run += f".unflatten(1, {shape})" if shape else ".squeeze(1)"
        self.body.append(f"{self.host[value]} = {run}")

    def _new(self, name: str, type_: Type) -> None:
        self.prepare.append(f"new_{name} = {_empty(type_)}")
        self.body.append(f"{name} = new_{name}()")

    def _kernel_name(self, each: Group) -> str:
        if each.map is not None:
            words = {"segment_sum": "sum", "segment_max": "max", "segment_lse": "lse"}
            kinds = dict.fromkeys(words.get(op.op, op.op) for op in each.ops if op.op in REDUCTIONS)
            stem = f"{'_'.join(kinds)}_along_{each.map}"
            stem += "".join(f"_{kind}" for kind in dict.fromkeys(op.op for op in each.anchors))
        elif each.anchor is not None:
            stem = "product" if each.family is Family.PRODUCT else "outer"
            kind = each.anchor.map("type")
            if each.anchor.attrs.get("transpose", False):
                stem += "_transposed"
            stem += f"_by_{kind}" if kind else "_shared"
        else:
            stem = f"rows_of_{each.space.value}"
        name = f"{self.name}_{stem}".replace(".", "_")
        self._uses[name] = self._uses.get(name, 0) + 1
        return name if self._uses[name] == 1 else f"{name}_{self._uses[name]}"

    def _key(self, each: Group, width: int, other: int = 0) -> Key:
        family = each.family.value
        dtype = each.ops[-1].type.dtype
        size = size_class(self.counts.rows(each.space))
        return Key(family, dtype, width, other, size, self.arch)

    def _template(self, job: Job) -> Emitted:
        each = job.group
        if each.anchor is not None:
            x, y = each.anchor.operands[0].type.shape[-1], each.anchor.type.shape[-1]
            ends = sorted((padded(x), padded(y)))
            found = schedule(self._key(each, ends[1], ends[0]))
            if isinstance(found, Product):
                return product_kernel(job, found)
            assert isinstance(found, Outer)
            return outer_kernel(job, found)
        width = max(padded_width(op.type.shape) for op in each.ops if op.op != "outer")
        sums = sum(padded_width(op.type.shape) for op in each.ops if op.op in REDUCTIONS)
        walked = padded(sums) if each.anchors else _accumulators(each)
        found = schedule(self._key(each, width, walked))
        if isinstance(found, WalkProduct):
            return walk_product_kernel(job, found)
        if isinstance(found, Traversal):
            return traversal_kernel(job, found)
        assert isinstance(found, Rows)
        return rows_kernel(job, found)


def _accumulators(each: Group) -> int:
    """How many a traversal holds for each target."""
    return len(Reductions(each.ops).registers)


def _empty(type_: Type) -> str:
    rows = [] if type_.space is Space.WEIGHT else [f"plan.rows({type_.space.value!r})"]
    shape = ", ".join([*rows, *map(str, type_.shape)])
    dtype = str(TORCH[type_.dtype])
    return f"partial(torch.empty, ({shape},), dtype={dtype}, device=plan.device)"


class TritonEmitter:
    """Emits Triton kernels; deterministic, on CUDA and under Triton's interpreter.

    What no template takes is computed by PyTorch, operator by operator, and said at the top of
    the emitted text.

    Parameters
    ----------
    device : torch.device
        Where the programs will run; decides which tuned schedules apply.
    """

    name = "triton"
    recomputes = True
    scope = _SCOPE
    """The names that emitted programs use."""

    def __init__(self, device: torch.device) -> None:
        self._architecture = _architecture(device)

    def seconds(self, function: Function, counts: Counts, machine: Machine) -> float:
        """Predicted time: each group of operators that shares a kernel."""
        if _unfit(function) is not None:
            return function_cost(function, counts, machine).seconds
        arranged, groups = arrange(expand(function), counts)
        return predicted_seconds(arranged, groups, counts, machine)

    def size_class(self, counts: Counts) -> str:
        """Programs are emitted anew where this differs."""
        return ",".join(size_class(count) for count in vars(counts).values())

    def emit(self, function: Function, counts: Counts) -> Program:
        """The program of one fused function.

        Parameters
        ----------
        function : Function
        counts : Counts
            Of graphs like those it will run on.

        Returns
        -------
        Program
        """
        reason = _unfit(function)
        if reason is not None:
            plain = TorchEmitter().emit(function, counts)
            return Program(plain.run, f"# {reason}\n{plain.source}", plain.tensors)
        module = _Module(function, expand(function), counts, self._architecture)
        source = module.emit()
        ready: weakref.WeakKeyDictionary[Plan, Callable[..., tuple[Tensor, ...]]]
        ready = weakref.WeakKeyDictionary()

        def run(plan: Plan, args: Sequence[Tensor]) -> tuple[Tensor, ...]:
            call = ready.get(plan)
            if call is None:  # Triton is imported when a program first runs.
                made = runtime.load(source, self.scope)[module.name]
                assert callable(made)
                call = ready[plan] = made(plan)
            device = plan.device
            if device.type != "cuda" or device.index == torch.cuda.current_device():
                return call(plan, *args)
            # Triton launches where the current device is, not where the tensors are.
            with torch.cuda.device(device):
                return call(plan, *args)

        created = (value.type for value in module.host if value.op not in ("param", *_UNNAMED))
        return Program(run, source, tuple(created))
