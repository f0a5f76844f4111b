# SPDX-License-Identifier: Apache-2.0
"""Groups that are computed again: finds their recipes, measures these once, runs them.

How a recipe comes about is :mod:`ssdtrain.recorder`'s to say. Used inside the engine's lock, but
for what says that it is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import torch

from .checks import checksum
from .group import Group, State
from .recipes import Measurement, Operand, Recipe
from .recorder import Recorder
from .saved import Claim
from .storage import ByteRange, bytes_of

if TYPE_CHECKING:
    from .run import Run
    from .table import GroupTable

__all__ = ["Ingredients", "Recomputation"]

# Measurements remembered.
_MOST_KNOWN = 1 << 14


class Ingredients:
    """What a group needs to be computed again.

    Attributes
    ----------
    recipe : Recipe
    reads : list of Claim or torch.UntypedStorage
        For each input the part in the group that has its bytes, or the bytes themselves.
    """

    __slots__ = ("reads", "recipe")

    def __init__(self, recipe: Recipe, reads: list[Claim | torch.UntypedStorage]) -> None:
        self.recipe = recipe
        self.reads = reads

    def claims(self) -> Iterator[Claim]:
        """Those parts, to be given back."""
        return (read for read in self.reads if isinstance(read, Claim))


class Recomputation:
    """The recipes of an engine's groups.

    Parameters
    ----------
    table : GroupTable
    before_write : callable
        ``before_write(groups, readers)`` is called, not inside the lock, before bytes change: those
        of ``groups``, which ``readers`` are computed from.
    checks : bool
        Take a checksum of what will be computed again.

    Attributes
    ----------
    attached : set of object
        One for each that wants recipes to be recorded.
    """

    def __init__(
        self,
        table: GroupTable,
        before_write: Callable[[list[Group], list[Group]], None],
        *,
        checks: bool = False,
    ) -> None:
        self._table = table
        self._before_write = before_write
        self._checks = checks
        self._measured: dict[Any, float] = {}
        self._is_exact: dict[Any, bool] = {}
        self._paths: WeakKeyDictionary[Run, list[int]] = WeakKeyDictionary()
        self._readers: dict[int, set[Group]] = {}
        self._local = threading.local()
        self.attached: set[object] = set()

    # ------------------------------------------------------------------ not inside the lock

    def recorder(self) -> Recorder | None:
        """The recorder of this thread, to be entered with the forward pass."""
        if not self.attached:
            return None
        found: Recorder | None = getattr(self._local, "recorder", None)
        if found is None:
            found = self._local.recorder = Recorder(self._has_bytes, self._changes)
        return found

    def _changes(self, key: int) -> None:
        groups, readers = self._table.with_key(key), self._readers.get(key)
        if groups or readers:
            self._before_write(list(groups), list(readers or ()))

    # ------------------------------------------------------------------ recipes

    def _has_bytes(self, operand: Operand) -> bool:
        return self._source(operand) is not None

    def _source(self, operand: Operand) -> Group | None:
        for group in self._table.with_key(operand.key):
            same = group.version == operand.version == group.counter._version
            if (
                same
                and group.source.pointer == operand.source.pointer
                and group.span.covers(operand.span)
            ):
                return group
        return None

    def find(self, group: Group, tensor: torch.Tensor) -> Ingredients | None:
        """How to compute a new group again; None if nobody knows, or it would not be exact."""
        recorder: Recorder | None = getattr(self._local, "recorder", None)
        if recorder is None or group.held is None:
            return None
        recipe = recorder.recipe(tensor)
        if recipe is None or recipe.nbytes != group.held.nbytes():
            return None
        reads: list[Claim | torch.UntypedStorage] = []
        for operand in recipe.inputs:
            source = self._source(operand)
            if source is not None:
                if source is group or source.run is not group.run:
                    return None
                reads.append(Claim(source))
                continue
            storage = operand.source.get()
            is_watched = operand.is_saved or operand.watch is not None
            if storage is None or not is_watched or 2 * storage.nbytes() > recipe.nbytes:
                return None
            reads.append(storage)
        return Ingredients(recipe, reads)

    def measured(self, group: Group, ingredients: Ingredients) -> Measurement | None:
        """What a run of the recipe took, and gave; None if there was none yet.

        Equal recipes take equal times. But of two that are equal one may be exact and the other
        not, where a kernel behind PyTorch's back writes to what it made: each place in a step is
        looked at by itself.
        """
        key = _key_of(ingredients.recipe)
        seconds, is_exact = self._measured.get(key), self._is_exact.get((key, self._place(group)))
        if seconds is None or is_exact is None:
            return None
        return Measurement(seconds, is_exact)

    def measure(self, group: Group, ingredients: Ingredients) -> Measurement | None:
        """Measure that; None if the inputs are not at hand."""
        inputs = self._at_hand(ingredients)
        if inputs is None or group.held is None:
            return None
        recipe = ingredients.recipe
        key = _key_of(recipe)
        seconds = self._measured.get(key)
        if seconds is None:
            seconds = recipe.measure(inputs).seconds
        is_exact = recipe.gives(inputs, group.held)
        for known in (self._measured, self._is_exact):
            if len(known) >= _MOST_KNOWN:  # Shapes that are new in each step.
                known.clear()
        self._measured[key] = seconds
        self._is_exact[key, self._place(group)] = is_exact
        return Measurement(seconds, is_exact)

    def _place(self, group: Group) -> tuple[int, int]:
        """Equal for groups before which their steps have saved the same bytes."""
        path = self._paths.setdefault(group.run, [0])
        for nbytes in group.run.group_bytes[len(path) - 1 :]:
            path.append(hash((path[-1], nbytes)))
        return group.index, path[group.index + 1]

    @staticmethod
    def _at_hand(ingredients: Ingredients) -> list[torch.Tensor] | None:
        inputs = []
        for operand, read in zip(ingredients.recipe.inputs, ingredients.reads, strict=True):
            if isinstance(read, Claim):
                found = read.group.alive()
                if found is None or read.group.state is State.LOADED:
                    return None
            else:
                found = read, 0
            inputs.append(operand.layout.on(*found))
        return inputs

    # ------------------------------------------------------------------ groups without bytes

    def take(self, group: Group, ingredients: Ingredients) -> None:
        """A group's bytes go, and its recipe stays."""
        for claim in ingredients.claims():
            source = claim.group
            claim.is_counted, source.claims = True, source.claims + 1
            source.awaited += 1
        for operand in ingredients.recipe.inputs:
            self._readers.setdefault(operand.key, set()).add(group)
        group.ingredients = ingredients
        group.loaded_start = 0
        if self._checks and group.held is not None:
            group.checksum = checksum(bytes_of(group.held, group.span))
        group.state = State.DROPPED
        group.held = None

    def made(self, group: Group, output: torch.Tensor, stream: int | None) -> None:
        """A group has been computed again."""
        storage = output.untyped_storage()
        group.copy = bytes_of(storage, ByteRange(0, storage.nbytes()))
        group.loaded = ref(storage)
        group.loaded_start = 0
        group.load_stream = stream
        group.state = State.LOADED
        group.load_count += 1
        group.awaited = group.claims

    def keep(self, group: Group, output: torch.Tensor) -> list[Claim]:
        """A group has been computed again for good; the parts that it no longer needs."""
        group.held = output.untyped_storage()
        group.state = State.KEPT
        return self.release(group)

    def release(self, group: Group) -> list[Claim]:
        """A group needs its recipe no more; the parts that it no longer needs."""
        ingredients, group.ingredients = group.ingredients, None
        if ingredients is None:
            return []
        for operand in ingredients.recipe.inputs:
            readers = self._readers.get(operand.key)
            if readers is not None:
                readers.discard(group)
                if not readers:
                    del self._readers[operand.key]
        return list(ingredients.claims())


def _key_of(recipe: Recipe) -> tuple[object, ...]:
    inputs = tuple((o.layout.dtype, o.layout.size, o.layout.stride) for o in recipe.inputs)
    return recipe.name, recipe.layout, inputs
