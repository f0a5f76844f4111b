# SPDX-License-Identifier: Apache-2.0
"""A small engine for tests: it drops every saved tensor that has a recipe, and holds the others."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from ssdtrain.recipes import Operand, Recipe
from ssdtrain.recorder import Recorder
from ssdtrain.storage import Layout, VersionWatch, WeakStorage, with_counter

CHANGED = "has been modified by an inplace operation"


class ChangedError(RuntimeError):
    """What a recipe reads was changed in place."""


class Bytes:
    """All bytes of a storage at a version: held, or a recipe and what it reads."""

    def __init__(
        self, source: WeakStorage, watch: VersionWatch, held: torch.UntypedStorage | None
    ) -> None:
        self.source = source
        self.watch = watch
        self.held = held
        self.recipe: Recipe | None = None
        self.reads: list[Bytes] = []

    def is_current(self, version: int) -> bool:
        return self.watch.version == version == self.watch.current()

    def get(self) -> torch.UntypedStorage:
        if self.recipe is None:
            assert self.held is not None
            if self.watch.current() != self.watch.version:
                raise ChangedError(f"what is computed again from {CHANGED}")
            return self.held
        return self.run().untyped_storage()

    def run(self) -> torch.Tensor:
        assert self.recipe is not None
        inputs = [
            operand.layout.on(source.get(), 0)
            for operand, source in zip(self.recipe.inputs, self.reads, strict=True)
        ]
        return self.recipe.run(inputs)

    def materialise(self) -> None:
        if self.recipe is not None:
            self.held = self.get()
            self.recipe = None
            self.reads = []


class Saved:
    """What the graph holds."""

    def __init__(self, data: Bytes, layout: Layout, watch: VersionWatch) -> None:
        self.data = data
        self.layout = layout
        self.watch = watch

    def get(self) -> torch.Tensor:
        if self.watch.current() != self.watch.version:
            raise RuntimeError(f"a saved tensor {CHANGED}")
        if self.data.recipe is None:
            assert self.data.held is not None
            return with_counter(self.watch.counter, self.layout.on(self.data.held, 0))
        return with_counter(self.watch.counter, self.layout.on(self.data.get(), 0))


class Kept:
    """A leaf, or a small tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        is_leaf = tensor.is_leaf and tensor.requires_grad
        self.tensor = tensor if is_leaf else tensor.detach()
        self.version = tensor._version

    def get(self) -> torch.Tensor:
        if self.tensor._version != self.version:
            raise RuntimeError(f"a saved tensor {CHANGED}")
        return self.tensor


class DroppingHooks:
    """Use it around the forward pass.

    Parameters
    ----------
    min_bytes : int
        Smaller tensors stay.
    small_bytes : int
        Smaller tensors may be copied into recipes.
    materialises : bool
        Compute dropped tensors before something that they depend on is written to.

    Attributes
    ----------
    names : list of str
        Recipes of what was dropped.
    """

    def __init__(
        self, min_bytes: int = 256, small_bytes: int = 128, *, materialises: bool = False
    ) -> None:
        self.min_bytes = min_bytes
        self.recorder = Recorder(
            self.has_bytes, self.before_write if materialises else None, small_bytes=small_bytes
        )
        self.names: list[str] = []
        self.by_key: dict[int, list[weakref.ref[Bytes]]] = {}
        self.hooks: list[Any] = []

    def __enter__(self) -> DroppingHooks:
        context = torch.autograd.graph.saved_tensors_hooks(self.save, lambda saved: saved.get())
        context.__enter__()
        self.hooks.append(context)
        self.recorder.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.recorder.__exit__(*exception)
        self.hooks.pop().__exit__(*exception)

    def has_bytes(self, operand: Operand) -> bool:
        return self.find(operand.key, operand.version) is not None

    def find(self, key: int, version: int) -> Bytes | None:
        for reference in self.by_key.get(key, ()):
            data = reference()
            if data is not None and data.is_current(version):
                return data
        return None

    def before_write(self, key: int) -> None:
        for references in list(self.by_key.values()):
            for reference in references:
                data = reference()
                if data is not None and any(read.source.key == key for read in data.reads):
                    data.materialise()

    def save(self, tensor: torch.Tensor) -> Saved | Kept:
        with torch._C._DisableTorchDispatch():
            return self._save(tensor)

    def _save(self, tensor: torch.Tensor) -> Saved | Kept:
        base = tensor if tensor._base is None else tensor._base
        is_leaf = base.is_leaf and base.requires_grad
        nbytes = tensor.numel() * tensor.element_size()
        if type(tensor) is not torch.Tensor or is_leaf or nbytes < self.min_bytes:
            return Kept(tensor)
        storage = tensor.untyped_storage()
        watch = VersionWatch(tensor)
        data = self.find(storage._cdata, tensor._version)
        if data is None:
            data = Bytes(WeakStorage(storage), watch, storage)
            recipe = self.recorder.recipe(tensor)
            if recipe is not None:
                data.held = None
                data.reads = [self._source_of(operand) for operand in recipe.inputs]
                data.recipe = recipe
                self.names.append(recipe.name)
            self._enter(data)
        return Saved(data, Layout.of(tensor), watch)

    def _source_of(self, operand: Operand) -> Bytes:
        found = self.find(operand.key, operand.version)
        if found is None:
            assert not operand.is_saved
            assert operand.watch is not None
            found = Bytes(operand.source, operand.watch, operand.source.get())
            self._enter(found)
        return found

    def _enter(self, data: Bytes) -> None:
        self.by_key.setdefault(data.source.key, []).append(weakref.ref(data))


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal to the last bit, also where both are NaN."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    pair = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*pair)


def assert_same_training(
    model: torch.nn.Module,
    step: Callable[[], torch.Tensor],
    hooks: DroppingHooks,
    *,
    inside: bool = False,
) -> None:
    """One step plain and one with tensors dropped: losses, gradients and buffers are equal."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}

    def run(is_dropping: bool) -> list[torch.Tensor]:
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
        torch.manual_seed(0)
        if is_dropping:
            with hooks:
                loss = step()
                if inside:
                    loss.backward()
        else:
            loss = step()
        if not (is_dropping and inside):
            loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        # The draw shows whether the generator stands where it stood in plain training.
        return [loss.detach(), *gradients, *model.buffers(), torch.rand(3)]

    expected = [tensor.clone() for tensor in run(False)]
    found = run(True)
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert same_bits(one, other)


def everything(operand: Operand) -> bool:
    return True


def only(tensor: torch.Tensor) -> Callable[[Operand], bool]:
    key = tensor.untyped_storage()._cdata
    return lambda operand: operand.key == key


def run(recipe: Recipe, *inputs: torch.Tensor) -> torch.Tensor:
    return recipe.run(inputs)


def recipe_of(recorder: Recorder, tensor: torch.Tensor) -> Recipe:
    recipe = recorder.recipe(tensor)
    assert recipe is not None
    return recipe
