# SPDX-License-Identifier: Apache-2.0
"""How to compute a saved tensor again, to the last bit; :mod:`ssdtrain.recorder` writes recipes.

A recipe holds operators, scalars, random states and copies of small tensors. It holds neither its
output nor the large tensors that it reads: whoever runs it brings those.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .storage import ByteRange, Layout, VersionWatch, WeakStorage, alignment_of, bytes_of

if TYPE_CHECKING:
    from torch._ops import OpOverload

__all__ = ["Measurement", "Operand", "RandomState", "Recipe", "Scratch", "Slot", "Step"]


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
class Scratch:
    """An argument whose layout matters but not its values: what a random operator fills."""

    layout: Layout


class RandomState:
    """A generator, and the state it had before an operator drew from it."""

    __slots__ = ("_device", "_generator", "_state", "is_default")

    def __init__(self, device: torch.device, generator: torch.Generator | None = None) -> None:
        self._device = device
        self.is_default = generator is None
        self._generator = _default_generator(device) if generator is None else generator
        self._state = self._generator.get_state()

    @property
    def nbytes(self) -> int:
        """Bytes of the state in host memory: 16 for CUDA, 5056 for the CPU."""
        return self._state.numel()

    def private(self) -> torch.Generator:
        """Another generator in this state."""
        generator = torch.Generator(self._device)
        generator.set_state(self._state)
        return generator

    @contextmanager
    def replay(self) -> Iterator[None]:
        """The generator is in this state within, and in its present one again afterwards.

        Of two threads that draw from one generator, the other's draws meanwhile are lost. Only
        operators that take no generator need this.
        """
        present = self._generator.get_state()
        self._generator.set_state(self._state)
        try:
            yield
        finally:
            self._generator.set_state(present)


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


@dataclass(frozen=True, slots=True)
class CpuState:
    """Settings of a thread on which the last bit of a vectorised CPU kernel depends."""

    threads: int
    flushes_denormals: bool

    @classmethod
    def now(cls) -> CpuState:
        """Those of this thread."""
        return cls(torch.get_num_threads(), _DENORMAL * _ONE == 0.0)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """These settings within, the thread's own afterwards."""
        present = CpuState.now()
        self._set(present)
        try:
            yield
        finally:
            present._set(self)

    def _set(self, present: CpuState) -> None:
        if self.threads != present.threads:
            torch.set_num_threads(self.threads)
        if self.flushes_denormals != present.flushes_denormals:
            torch.set_flush_denormal(self.flushes_denormals)


# Operands of a multiplication that no compiler folds.
_DENORMAL, _ONE = 5e-324, 1.0


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
        with _bare():
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
        same in each step: run no recipe whose comparison was not made once and was not exact.
        """
        output = self.run(inputs)
        is_exact = None
        if original is not None:
            whole = ByteRange(0, self.nbytes)
            same_size = original.nbytes() == self.nbytes
            is_exact = same_size and torch.equal(
                bytes_of(original, whole), bytes_of(output.untyped_storage(), whole)
            )
        del output
        return Measurement(min(self._timed(inputs) for _ in range(repeat)), is_exact)

    def _timed(self, inputs: Sequence[torch.Tensor]) -> float:
        if self.layout.device.type != "cuda":
            begin = time.perf_counter()
            self.run(inputs)
            return time.perf_counter() - begin
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
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


@contextmanager
def _bare() -> Iterator[None]:
    """Operators go to their kernels: no autograd, no autocast, no modes of any kind."""
    with (
        torch._C.DisableTorchFunction(),
        torch._C._DisableTorchDispatch(),  # type: ignore[no-untyped-call]
        torch._C._DisableAutocast(),  # type: ignore[no-untyped-call]
        torch._C._AutoDispatchBelowAutograd(),  # type: ignore[no-untyped-call]
    ):
        yield


def _default_generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
