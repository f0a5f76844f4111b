# SPDX-License-Identifier: Apache-2.0
"""How to compute a saved tensor again, to the last bit; :mod:`ssdtrain.recorder` writes recipes.

A recipe holds operators, scalars, random states and copies of small tensors. It holds neither its
output nor the large tensors that it reads: whoever runs it brings those.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .replay import CpuState, RandomState, bare_kernels
from .storage import ByteRange, Layout, VersionWatch, WeakStorage, alignment_of, bytes_of

if TYPE_CHECKING:
    from torch._ops import OpOverload

__all__ = ["Measurement", "Operand", "Recipe", "Scratch", "Slot", "Step", "View"]


@dataclass(frozen=True, slots=True)
class Operand:
    """A large tensor that a recipe reads.

    Attributes
    ----------
    source : WeakStorage
        Its storage. The reference pins the address, so ``key`` stays unambiguous.
    span : ByteRange
        The bytes of the storage that its elements span.
    version : int
        The version counter at which these bytes are meant.
    layout : Layout
        How the tensor lies on the storage: ``layout.on(storage, start)`` is what
        :meth:`Recipe.run` takes.
    is_saved : bool
        Whether the graph saves these bytes anyway. If not, the tensor is smaller than what is
        computed from it (the origin of a widening cast), is alive now, and must be kept or stored
        in its stead.
    watch : VersionWatch or None
        Follows the version counter of an operand that is not saved.
    """

    source: WeakStorage
    span: ByteRange
    version: int
    layout: Layout
    is_saved: bool = True
    watch: VersionWatch | None = None

    @property
    def key(self) -> int:
        """The storage's identity, as ``storage._cdata``."""
        return self.source.key

    @property
    def nbytes(self) -> int:
        """Bytes of the range."""
        return self.span.nbytes

    def check(self, storage: torch.UntypedStorage, what: str) -> None:
        """Raise ``RuntimeError`` if a storage that is not saved no longer has the bytes meant."""
        changed = self.watch is not None and self.watch.current() != self.version
        if changed or not self.source.is_same_memory(storage):
            raise RuntimeError(
                f"ssdtrain: {what}, [{self.layout.dtype}, {tuple(self.layout.size)}], was changed"
                " in place after the forward pass, and a saved tensor is computed again from it;"
                " change it within 'with off:', or after the backward pass"
            )


@dataclass(frozen=True, slots=True)
class Measurement:
    """What running a recipe showed.

    Attributes
    ----------
    seconds : float
        Time of one run on the device.
    is_exact : bool or None
        Whether the output was equal to the original to the last bit; None without an original.
    """

    seconds: float
    is_exact: bool | None


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument that is a tensor: an input, a held copy or the result of an earlier step."""

    index: int


@dataclass(frozen=True, slots=True)
class View:
    """As `Slot`, in another layout over the same storage."""

    index: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class Scratch:
    """An argument whose layout matters but not its values: what a random operator fills."""

    layout: Layout


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an operator; ``arguments`` and ``keywords`` may hold `Slot` and `Scratch`.

    Attributes
    ----------
    result : int or None
        Which of several outputs is meant; None for an operator with one.
    frees : tuple of int
        Slots that no later step reads.
    """

    function: OpOverload
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    result: int | None
    random: RandomState | None = None
    frees: tuple[int, ...] = ()


class Recipe:
    """How to compute one saved tensor's storage again.

    Attributes
    ----------
    name : str
        The operators, last one first: ``"mul < silu"``.
    inputs : tuple of Operand
        What :meth:`run` takes, in this order.
    layout : Layout
        Of the output; it fills its storage from the first byte.
    nbytes : int
        Bytes of the output.
    moved_bytes : int
        Bytes that the operators read and write.
    scratch_bytes : int
        The most that a run allocates beside the output.
    held_bytes : int
        Copies of small tensors, and random states, that the recipe keeps in memory.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Operand],
        held: Sequence[torch.Tensor],
        steps: Sequence[Step],
        layout: Layout,
        *,
        moved_bytes: int,
        scratch_bytes: int,
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.layout = layout
        self.nbytes = layout.size.numel() * layout.dtype.itemsize
        self.moved_bytes = moved_bytes
        self.scratch_bytes = scratch_bytes
        self._held = tuple(held)
        self._steps = tuple(steps)
        self._cpu = CpuState.now() if layout.device.type == "cpu" else None
        states = [step.random.nbytes for step in steps if step.random is not None]
        self.held_bytes = sum(tensor.untyped_storage().nbytes() for tensor in held) + sum(states)

    def __repr__(self) -> str:
        return f"Recipe({self.name!r}, {self.nbytes} bytes from {len(self.inputs)} inputs)"

    def seconds(self, bandwidth: float) -> float:
        """An estimate of a run's time at a memory bandwidth in bytes per second."""
        return self.moved_bytes / bandwidth

    def run(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Compute the output, on the current stream.

        Parameters
        ----------
        inputs : sequence of torch.Tensor
            For each of :attr:`inputs` a tensor of its layout, at an address that is aligned like
            the original's. None of them is written to.

        Returns
        -------
        torch.Tensor
            With the original's bytes, dtype, shape and strides, alone on a fresh storage.

        Raises
        ------
        ValueError
            If the inputs are not those of the recipe.
        RuntimeError
            If the operators do not give what they gave at first.
        """
        if len(inputs) != len(self.inputs):
            raise ValueError(f"{self.name} takes {len(self.inputs)} inputs, not {len(inputs)}")
        for tensor, operand in zip(inputs, self.inputs, strict=True):
            _check_input(self.name, tensor, operand.layout)
        with bare_kernels():
            if self._cpu is None or self._cpu == CpuState.now():
                output = self._compute(inputs)
            else:
                with self._cpu.applied():
                    output = self._compute(inputs)
        found = Layout.of(output)
        if found != self.layout or output.data_ptr() % alignment_of(output.device):
            raise RuntimeError(
                f"ssdtrain: computing {self.name} again gave {found} at {output.data_ptr():#x},"
                f" the forward pass gave {self.layout}; was a global setting of PyTorch changed?"
            )
        return output

    def measure(
        self,
        inputs: Sequence[torch.Tensor],
        original: torch.UntypedStorage | None = None,
        *,
        repeat: int = 3,
    ) -> Measurement:
        """Time runs, and compare the output with the original storage. Waits for the device.

        A kernel that writes to a tensor behind PyTorch's back (launched on a raw pointer, without
        a bump of the version counter) cannot be seen by the recorder. It shows here, and does the
        same in each step: run no recipe that was not compared, at its place in the step, and exact.
        """
        self.run(inputs)  # Loads kernels.
        is_exact = None if original is None else self.gives(inputs, original)
        return Measurement(min(self._timed(inputs) for _ in range(repeat)), is_exact)

    def gives(self, inputs: Sequence[torch.Tensor], original: torch.UntypedStorage) -> bool:
        """Whether a run gives the bytes of the original storage. Waits for the device."""
        if original.nbytes() != self.nbytes:
            return False
        whole = ByteRange(0, self.nbytes)
        output = self.run(inputs).untyped_storage()
        return torch.equal(bytes_of(original, whole), bytes_of(output, whole))

    def _timed(self, inputs: Sequence[torch.Tensor]) -> float:
        if self.layout.device.type != "cuda":
            begin = time.perf_counter()
            self.run(inputs)
            return time.perf_counter() - begin
        first = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        last = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        with torch.cuda.device(self.layout.device):
            first.record()
            self.run(inputs)
            last.record()
            last.synchronize()
        return float(first.elapsed_time(last)) / 1000

    def _compute(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        slots: list[Any] = [*inputs, *self._held]
        for step in self._steps:
            slots.append(_call(step, slots))
            for index in step.frees:
                slots[index] = None
        output: torch.Tensor = slots[-1]
        return output


def _call(step: Step, slots: list[Any]) -> torch.Tensor:
    arguments = [_argument(value, slots) for value in step.arguments]
    keywords = {name: _argument(value, slots) for name, value in step.keywords.items()}
    if step.random is None:
        output = step.function(*arguments, **keywords)
    elif "generator" in keywords:
        keywords["generator"] = step.random.private()
        output = step.function(*arguments, **keywords)
    else:
        with step.random.replay():
            output = step.function(*arguments, **keywords)
    found: torch.Tensor = output if step.result is None else output[step.result]
    return found


def _argument(value: Any, slots: list[Any]) -> Any:
    if isinstance(value, Slot):
        return slots[value.index]
    if isinstance(value, View):
        return value.layout.on(slots[value.index].untyped_storage(), 0)
    if isinstance(value, Scratch):
        layout = value.layout
        return torch.empty_strided(
            layout.size, layout.stride, dtype=layout.dtype, device=layout.device
        )
    return value


def _check_input(name: str, tensor: torch.Tensor, layout: Layout) -> None:
    given = (tensor.dtype, tensor.device, tensor.size(), tensor.stride())
    if given != (layout.dtype, layout.device, layout.size, layout.stride):
        raise ValueError(f"{name} takes {layout}, not {given}")
