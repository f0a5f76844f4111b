# SPDX-License-Identifier: Apache-2.0
"""What the recorder remembers of a forward pass, and how it becomes a recipe."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import torch

from .operators import Rule
from .recipes import Operand, Recipe, Slot, Step, View
from .replay import RandomState
from .storage import ByteRange, Layout, VersionWatch, WeakStorage, alignment_of, bytes_of
from .subclasses import is_parameter

_T = TypeVar("_T")
_exclude = torch._C._SetExcludeDispatchKeyGuard
_ADInplaceOrView = torch._C.DispatchKey.ADInplaceOrView

__all__ = ["Read", "Record", "SeenStorage", "shared_counters", "span_of", "write_recipe"]

# The longest chain of operators, and the bytes that it may move for each byte of output: what a
# norm that is written out, with casts, needs.
MAX_STEPS = 12
MAX_TRAFFIC = 24
# Copies of small tensors may take this share of what the recipe makes.
MAX_HELD_SHARE = 1 / 8


class SeenStorage:
    """A storage that a listed operator read or made.

    Attributes
    ----------
    writes : int
        Counts what the mode saw; version counters do not see writes through ``.data``.
    latest : Record or None
        How all of its bytes came to be; None once something else has written to it.
    """

    __slots__ = ("copies", "latest", "weak", "writes")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.weak = WeakStorage(storage)
        self.writes = 0
        self.latest: Record | None = None
        self.copies: dict[tuple[int, int, Layout], torch.Tensor] = {}


class Read:
    """A tensor that an operator read: which bytes, and how they came to be."""

    __slots__ = ("alias", "fields", "record", "storage", "version", "watch", "writes")

    def __init__(
        self, storage: SeenStorage, tensor: torch.Tensor, small_bytes: int, *, widens: bool
    ) -> None:
        self.storage = storage
        fields = layout_fields(tensor)
        self.version = tensor._version
        self.writes = storage.writes
        latest = storage.latest
        self.record = latest if latest is not None and latest.version == self.version else None
        # What lives as long costs each garbage collection.
        self.fields = latest.fields if latest is not None and latest.fields == fields else fields
        self.alias: torch.Tensor | None = None
        self.watch: VersionWatch | None = None
        if storage.weak.nbytes <= small_bytes or type(tensor) is torch.nn.Parameter:
            # Held until a recipe is asked for, and copied then.
            self.alias = tensor if tensor.is_leaf else _detached(tensor)
        elif widens and tensor.grad_fn is not None and not is_parameter(tensor):
            # What the graph made; buffers and inputs may be filled anew before backward.
            with shared_counters():
                self.watch = VersionWatch(tensor)

    @property
    def layout(self) -> Layout:
        """How the tensor lay on its storage."""
        return Layout(*self.fields)


class Record:
    """One call of a listed operator, for one of its outputs."""

    __slots__ = ("arguments", "fields", "function", "keywords", "random", "result", "rule",
                 "version")  # fmt: skip

    def __init__(
        self,
        rule: Rule,
        function: Any,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        random: RandomState | None,
        output: torch.Tensor,
        result: int | None,
    ) -> None:
        self.rule = rule
        self.function = function
        self.arguments = arguments
        self.keywords = keywords
        self.random = random
        self.result = result
        self.fields = layout_fields(output)
        # The counter moves when the operator returns to autograd, which called it.
        self.version = output._version + rule.is_in_place

    @property
    def layout(self) -> Layout:
        """How the output lies on its storage."""
        return Layout(*self.fields)


LayoutFields = tuple[torch.dtype, torch.device, torch.Size, tuple[int, ...], int]


def layout_fields(tensor: torch.Tensor) -> LayoutFields:
    """The fields of a `Layout`, which costs more to make than most records are worth."""
    return (
        tensor.dtype,
        tensor.device,
        tensor.size(),
        tensor.stride(),
        tensor.storage_offset(),  # type: ignore[return-value]
    )


def shared_counters() -> AbstractContextManager[None]:
    """Within, an alias made in a dispatch mode shares its original's version counter.

    Modes run below the dispatch key that sees to it.
    """
    guard: AbstractContextManager[None] = _exclude(_ADInplaceOrView, False)
    return guard


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    with shared_counters():
        return tensor.detach()


def span_of(layout: Layout) -> ByteRange:
    """The bytes that the elements span, without the rounding of `storage.byte_range`."""
    last = sum((n - 1) * s for n, s in zip(layout.size, layout.stride, strict=True))
    itemsize = layout.dtype.itemsize
    return ByteRange(layout.offset * itemsize, (layout.offset + last + 1) * itemsize)


def write_recipe(
    record: Record, has_bytes: Callable[[Operand], bool], small_bytes: int
) -> Recipe | None:
    """The recipe of a record; None if something that it reads cannot be had again."""
    for may_keep_origin in (False, True):
        writer = _Writer(record, has_bytes, small_bytes, may_keep_origin=may_keep_origin)
        try:
            writer.add(record)
        except _Unknown:
            if record.rule.name != "cast":
                return None
        else:
            return writer.finish()
    return None


class _Unknown(Exception):  # noqa: N818 - no error: the usual answer
    """There is no recipe."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a value comes from, while the numbers of inputs and copies are not known yet."""

    kind: Literal["input", "held", "step"]
    index: int
    layout: Layout | None = None


class _Writer:
    """Reads what a group has, copies what is small, and computes what is recorded."""

    def __init__(
        self,
        record: Record,
        has_bytes: Callable[[Operand], bool],
        small_bytes: int,
        *,
        may_keep_origin: bool,
    ) -> None:
        self._record = record
        self._may_keep_origin = may_keep_origin
        self._has_bytes = has_bytes
        self._small_bytes = small_bytes
        self._nbytes = _nbytes(record.layout)
        self._inputs: list[Operand] = []
        self._held: list[torch.Tensor] = []
        self._steps: list[tuple[Record, tuple[Any, ...]]] = []
        self._known: dict[Any, _Source] = {}
        self._entered = 0
        self._traffic = 0
        self._held_bytes = 0

    def add(self, record: Record) -> _Source:
        """Add the steps that make a record's output."""
        self._entered += 1
        reads = [value for value in record.arguments if isinstance(value, Read)]
        self._traffic += sum(_nbytes(read.layout) for read in reads) + _nbytes(record.layout)
        if self._entered > MAX_STEPS or self._traffic > MAX_TRAFFIC * self._nbytes:
            raise _Unknown
        arguments = []
        for position, value in enumerate(record.arguments):
            if not isinstance(value, Read):
                arguments.append(value)
            elif record.rule.is_in_place and position == 0:
                # It will be written to, so nothing else may read it.
                arguments.append(self.add(_present(value.record)))
            else:
                arguments.append(self._source(value, record))
        self._steps.append((record, tuple(arguments)))
        return _Source("step", len(self._steps) - 1)

    def _source(self, read: Read, reader: Record) -> _Source:
        storage, layout = read.storage, read.layout
        is_unwritten = read.writes == storage.writes
        key = (id(storage), read.version, read.writes, layout)
        if key in self._known:
            return self._known[key]
        span = span_of(layout)
        if is_unwritten:
            operand = Operand(storage.weak, span, read.version, layout)
            if self._has_bytes(operand):
                return self._input(key, operand)
            if self._may_copy(read, span):
                return self._copy(key, read, span)
        watch = read.watch
        if self._may_keep_origin and is_unwritten and reader is self._record and watch is not None:
            is_alive = storage.weak.get() is not None
            if is_alive and watch.current() == watch.version:
                operand = Operand(storage.weak, span, read.version, layout, False, watch)
                return self._input(key, operand)
        if read.record is not None:
            made = id(read.record)
            if made not in self._known:
                self._known[made] = self.add(read.record)
            is_whole = read.fields == read.record.fields
            return self._known[made] if is_whole else replace(self._known[made], layout=layout)
        raise _Unknown

    def _input(self, key: Any, operand: Operand) -> _Source:
        self._inputs.append(operand)
        self._known[key] = found = _Source("input", len(self._inputs) - 1)
        return found

    def _may_copy(self, read: Read, span: ByteRange) -> bool:
        if read.alias is None or read.alias._version != read.version:
            return False
        if span.nbytes > self._small_bytes:
            return False
        if not read.storage.weak.is_same_memory(read.alias.untyped_storage()):  # resharded
            return False
        return self._held_bytes + span.nbytes <= MAX_HELD_SHARE * self._nbytes

    def _copy(self, key: Any, read: Read, span: ByteRange) -> _Source:
        self._held_bytes += span.nbytes
        copies = read.storage.copies
        copied = copies.get(key[1:])
        if copied is None:
            copied = copies[key[1:]] = _aligned_copy(_present(read.alias), span)
        self._held.append(copied)
        self._known[key] = found = _Source("held", len(self._held) - 1)
        return found

    def finish(self) -> Recipe:
        """The recipe of what was added."""
        held = len(self._inputs)
        first = held + len(self._held)
        begin = {"input": 0, "held": held, "step": first}

        def place(value: Any) -> Any:
            if not isinstance(value, _Source):
                return value
            index = begin[value.kind] + value.index
            return Slot(index) if value.layout is None else View(index, value.layout)

        steps = [
            Step(
                record.function,
                tuple(place(value) for value in arguments),
                record.keywords,
                record.result,
                record.random,
            )
            for record, arguments in self._steps
        ]
        steps = _with_frees(steps, first)
        names = [record.rule.name for record, _ in reversed(self._steps)]
        return Recipe(
            " < ".join(names),
            self._inputs,
            self._held,
            steps,
            self._record.layout,
            moved_bytes=self._traffic,
            scratch_bytes=self._peak(steps, first) - self._nbytes,
        )

    def _peak(self, steps: list[Step], first: int) -> int:
        """The most that the results of steps take together; ``first`` is the first one's slot."""
        live: dict[int, int] = {}
        peak = 0
        for number, step in enumerate(steps):
            record = self._steps[number][0]
            if record.rule.is_in_place and isinstance(step.arguments[0], Slot):
                del live[step.arguments[0].index]
            live[first + number] = _nbytes(record.layout)
            peak = max(peak, sum(live.values()))
            for index in step.frees:
                live.pop(index, None)
        return peak


def _with_frees(steps: list[Step], first: int) -> list[Step]:
    """The same steps; each frees what is read for the last time there, from slot ``first`` on."""
    last = {
        value.index: number
        for number, step in enumerate(steps)
        for value in step.arguments
        if isinstance(value, Slot | View) and value.index >= first
    }
    return [
        replace(step, frees=tuple(index for index, at in last.items() if at == number))
        for number, step in enumerate(steps)
    ]


def _aligned_copy(alias: torch.Tensor, span: ByteRange) -> torch.Tensor:
    """The same bytes in memory of their own, at an address that is aligned like the original's."""
    storage = alias.untyped_storage()
    padding = (storage.data_ptr() + span.start) % alignment_of(alias.device)
    memory = torch.empty(padding + span.nbytes, dtype=torch.uint8, device=alias.device)
    memory[padding:].copy_(bytes_of(storage, span))
    return Layout.of(alias).on(memory.untyped_storage(), span.start - padding)


def _nbytes(layout: Layout) -> int:
    return layout.size.numel() * layout.dtype.itemsize


def _present(value: _T | None) -> _T:
    assert value is not None
    return value
