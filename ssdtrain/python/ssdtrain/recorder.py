# SPDX-License-Identifier: Apache-2.0
"""Watches operators in the forward pass, to write recipes for what the graph saves.

A dispatch mode adds 3 us to each operator and 8 to 16 us to a listed one, of a host that runs
ahead of the GPU by milliseconds (``benchmarks/bench_recorder.py``). Reading the private attributes
``grad_fn._raw_saved_*`` at the save instead would cost 0.2 us a tensor and nothing else, but casts
and sums save no input there, dropout no random state, and nothing shows writes through ``.data``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    is_traceable_wrapper_subclass_type,
)
from torch.utils._pytree import tree_leaves

from .operators import RULES, Rule, is_evaluation, written_arguments
from .recipes import Operand, Recipe, Scratch
from .records import Read, Record, SeenStorage, shared_counters, span_of, write_recipe
from .replay import RandomState
from .storage import alignment_of

__all__ = ["Recorder", "is_only_recorded"]

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


class Recorder(TorchDispatchMode):
    """The mode that is active inside ``with off:``; one per thread.

    It sees every operator that the dispatcher sees, also within DTensors, and lets compiled
    functions be compiled. It does not see kernels that are launched on raw pointers: what they
    write to a recorded tensor makes its recipe wrong, which :meth:`Recipe.measure` shows.

    Parameters
    ----------
    has_bytes : callable
        ``has_bytes(operand) -> bool``: whether a group of the engine has the operand's bytes at
        its version. Called by :meth:`recipe`.
    before_write : callable, optional
        ``before_write(key)`` is called before an operator writes to a storage: the last moment to
        compute what depends on its bytes, or copy them.
    small_bytes : int, default 256 KiB
        Tensors up to this size are copied into a recipe where no group has them.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        has_bytes: Callable[[Operand], bool],
        before_write: Callable[[int], None] | None = None,
        *,
        small_bytes: int = 256 << 10,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._has_bytes = has_bytes
        self._before_write = before_write
        self._small_bytes = small_bytes
        self._storages: dict[int, SeenStorage] = {}
        self._depth = 0
        self._thread = 0
        self._is_after_backward = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled functions stay compiled: the mode is off while they are traced."""
        return True

    def __enter__(self) -> Recorder:
        if self._depth > 0 and self._thread != threading.get_ident():
            raise RuntimeError(
                "ssdtrain: a Recorder is active on another thread; make one for each"
            )
        self._thread = threading.get_ident()
        if self._depth == 0:
            super().__enter__()  # type: ignore[no-untyped-call]
        self._depth += 1
        return self

    def __exit__(self, *exception: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            super().__exit__(*exception)  # type: ignore[no-untyped-call]
            self.forget_step()

    def forget_step(self) -> None:
        """Drop all records; recipes given before stay valid. Leaving the context does it too."""
        for known in self._storages.values():
            known.latest = None  # An in-place record refers to its own storage.
        self._storages = {}

    def recipe(self, tensor: torch.Tensor) -> Recipe | None:
        """How to compute the storage of a tensor again, as it is now; None if that is unknown.

        Parameters
        ----------
        tensor : torch.Tensor
            That autograd saves: a recorded output, or a view of one.

        Notes
        -----
        May be asked again later in the same context: what a recipe reads is often saved by the
        next operator only.
        """
        storage = tensor.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is None or known.latest is None or not known.weak.is_same_memory(storage):
            return None
        if known.latest.version != tensor._version:
            return None
        with torch._C._DisableTorchDispatch():
            return write_recipe(known.latest, self._has_bytes, self._small_bytes)

    # ------------------------------------------------------------------ watching

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and remember it if it is on the list."""
        kwargs = kwargs or {}
        if types:
            return self._run_subclass(func, types, args, kwargs)
        _, rule, written = _facts.get(id(func)) or _learn(func)
        if not self._records() or rule is None:
            if written:
                self._note_writes(func, args, kwargs)
            return func(*args, **kwargs)
        return self._run_recorded(rule, func, args, kwargs, writes=bool(written))

    def _records(self) -> bool:
        """Whether the graph may save what an operator makes now."""
        if torch._C._current_graph_task_id() != -1:
            self._is_after_backward = True
            return False
        if self._is_after_backward:  # A loop of steps in one context must not pile up records.
            self._is_after_backward = False
            self.forget_step()
        return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()

    def _run_subclass(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Let a wrapper, such as a DTensor, unwrap itself: the mode sees what it does inside."""
        if all(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented
        if _written_by(func) and not all(issubclass(kind, FakeTensor) for kind in types):
            self.forget_step()  # It may hold any memory.
        return func(*args, **kwargs)

    def _run_recorded(
        self, rule: Rule, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, writes: bool
    ) -> Any:
        again = args if rule.again is None else rule.again(args)
        prepared = None if again is None else self._prepare(rule, func, again, kwargs)
        if writes:
            self._note_writes(func, args, kwargs)
        output = func(*args, **kwargs)
        if prepared is not None:
            if isinstance(output, tuple):
                for index, result in enumerate(output):
                    self._enter_record(rule, func, prepared, len(output), index, result)
            else:
                self._enter_record(rule, func, prepared, 1, 0, output)
        return output

    def _prepare(
        self, rule: Rule, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], RandomState | None] | None:
        """The arguments as a record has them, taken before the operator runs."""
        device = args[0].device
        if (
            rule.is_in_place
            and not rule.is_random
            and not (_is_plain(args[0]) and self._is_recorded(args[0]))
        ):
            return None
        widens = rule.name == "cast" and _widens(args[0], kwargs)
        arguments = []
        for value in args:
            if isinstance(value, torch.Tensor):
                if not _is_plain(value) or value.device != device:
                    return None
                storage = self._storage_of(value)
                value = Read(storage, value, self._small_bytes, widens=widens)
            arguments.append(value)
        random = None
        if rule.is_random:
            if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                return None
            random = RandomState(device, kwargs.get("generator"))
            if func is torch.ops.aten.bernoulli_.float:
                kwargs = {**kwargs, "generator": None}
        return tuple(arguments), kwargs, random

    def _enter_record(
        self,
        rule: Rule,
        func: Any,
        prepared: tuple[tuple[Any, ...], dict[str, Any], RandomState | None],
        results: int,
        index: int,
        output: Any,
    ) -> None:
        if not isinstance(output, torch.Tensor):
            return
        nbytes = output.nbytes
        if index > 0 and nbytes <= self._small_bytes:  # statistics of a norm: copied where read
            return
        if not _is_plain(output):
            return
        arguments, keywords, random = prepared
        storage = self._storage_of(output)
        weak = storage.weak
        is_whole = output.storage_offset() == 0 and nbytes == weak.nbytes
        if nbytes == 0 or not is_whole or weak.pointer % alignment_of(output.device):
            return
        reads = [value for value in arguments if isinstance(value, Read)]
        first = reads[0]
        if output.device != first.fields[1]:  # a copy between devices
            return
        for read in reads[rule.is_in_place :]:
            if read.storage is storage:
                return
        if index in rule.blind_results:
            start = first.storage.weak.pointer + span_of(first.layout).start
            if start % alignment_of(output.device):
                return
            arguments = (Scratch(first.layout), *arguments[1:])
        elif rule.is_in_place and (first.record is None or first.fields != first.record.fields):
            return
        result = index if results > 1 else None
        storage.latest = Record(rule, func, arguments, keywords, random, output, result)

    def _storage_of(self, tensor: torch.Tensor) -> SeenStorage:
        storage = tensor.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is None or not known.weak.is_same_memory(storage):
            known = self._storages[storage._cdata] = SeenStorage(storage)
        return known

    def _is_recorded(self, tensor: torch.Tensor) -> bool:
        known = self._storages.get(tensor.untyped_storage()._cdata)
        return known is not None and known.latest is not None

    def _note_writes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        written = _written_by(func)
        if not written or is_evaluation(func, args):
            return
        for tensor in _written_tensors(written, args, kwargs):
            self._note_write(tensor)

    def _note_write(self, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.strided:
            return
        try:
            key = tensor.untyped_storage()._cdata
        except (RuntimeError, NotImplementedError):
            return  # A subclass without memory of its own; what it wraps is seen by itself.
        if self._before_write is not None:
            with shared_counters():
                self._before_write(key)
        known = self._storages.get(key)
        if known is not None:
            known.writes += 1
            known.latest = None


def is_only_recorded(modes: int) -> bool:
    """Whether of so many active dispatch modes there is one only, and that a recorder."""
    return modes == 1 and type(torch._C._get_dispatch_stack_at(0)) is Recorder


_EVERYTHING: tuple[int | str, ...] = ("*",)
# By the identity of an operator, whose hash costs more than all else here: it itself, so that it
# lives, its rule if it is listed, and what it writes to.
_Facts = tuple[Any, Rule | None, tuple[int | str, ...]]
_facts: dict[int, _Facts] = {}


def _learn(func: Any) -> _Facts:
    is_operator = isinstance(func, torch._ops.OpOverload)
    written = written_arguments(func) if is_operator else _EVERYTHING
    facts = func, RULES.get(func), written
    if is_operator:  # Others come and go.
        _facts[id(func)] = facts
    return facts


def _written_by(func: Any) -> tuple[int | str, ...]:
    return (_facts.get(id(func)) or _learn(func))[2]


def _written_tensors(
    written: tuple[int | str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[torch.Tensor]:
    if written is _EVERYTHING:
        values = tree_leaves((args, kwargs))
    else:
        values = [
            kwargs.get(where)
            if isinstance(where, str)
            else args[where]
            if where < len(args)
            else None
            for where in written
        ]
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (tensor for tensor in tree_leaves(value) if isinstance(tensor, torch.Tensor))


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in _PLAIN
        and tensor.layout is torch.strided
        and (tensor.is_cuda or tensor.is_cpu)
        and (tensor.is_floating_point() or tensor.dtype is torch.bool)
        and not tensor.is_inference()
        and not tensor.is_neg()
    )


def _widens(tensor: torch.Tensor, keywords: dict[str, Any]) -> bool:
    dtype = keywords.get("dtype")
    return dtype is not None and dtype.itemsize > tensor.dtype.itemsize
