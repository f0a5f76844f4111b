# SPDX-License-Identifier: Apache-2.0
"""Measures recompute, offload, keep (ROK) and the planner's mix of them over batch sizes."""

from __future__ import annotations

import functools
import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .rok_running import Keeping, Offloading, Recomputing

__all__ = ["STRATEGIES", "Row", "Work", "as_work", "find_blocks", "measure"]

STRATEGIES = ("keep", "recompute", "offload", "planned")


@dataclass
class Work:
    """What a training step is made of.

    A factory given to ``ssdtrain rok`` takes no arguments and returns one of these, a tuple of its
    first three or four, or any object with these attributes::

        def make():
            model = Transformer().cuda()
            def make_batch(batch_size):
                return torch.randint(50257, (batch_size, 1024), device="cuda")
            def loss(model, batch):
                return model(batch).loss
            return model, make_batch, loss, torch.optim.AdamW(model.parameters())

    Attributes
    ----------
    model : torch.nn.Module
        On the device where it is to be measured.
    make_batch : callable
        From a number of samples to a batch of any type.
    loss : callable
        From model and batch to a loss of one element.
    optimizer : torch.optim.Optimizer, optional
        Without one the weights stay as they are.
    blocks : sequence of torch.nn.Module, optional
        What full recomputation computes again, each as a whole; by default :func:`find_blocks`.
    tokens : callable, optional
        From a batch to its number of tokens; by default the elements of its first integer tensor of
        two dimensions or more, and where there is none, samples are counted.
    """

    model: torch.nn.Module
    make_batch: Callable[[int], Any]
    loss: Callable[[torch.nn.Module, Any], torch.Tensor]
    optimizer: torch.optim.Optimizer | None = None
    blocks: Sequence[torch.nn.Module] | None = None
    tokens: Callable[[Any], int] | None = None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))


@dataclass
class Row:
    """One strategy at one batch size.

    Attributes
    ----------
    strategy : str
    batch : int
        Samples.
    status : str
        "ok", or why there are no numbers: "out of memory" or "not tried: ...".
    peak_bytes : int or None
        Over what is resident between steps.
    seconds : float or None
        Median of a step.
    throughput : float or None
    unit : str
        "tokens/s" or "samples/s".
    bytes : dict
        Where saved bytes went, as in ``Offloader.report()["bytes"]``; empty without an offloader.
    """

    strategy: str
    batch: int
    status: str = "ok"
    peak_bytes: int | None = None
    seconds: float | None = None
    throughput: float | None = None
    unit: str = ""
    bytes: dict[str, int] = field(default_factory=dict)


def as_work(made: Any) -> Work:
    """Return what a factory made as :class:`Work`.

    Raises
    ------
    TypeError
        If it is nothing of what :class:`Work` describes.
    """
    if isinstance(made, tuple):
        if not 3 <= len(made) <= 4:
            raise TypeError(f"a factory's tuple has model, make_batch, loss and perhaps optimizer,"
                            f" not {len(made)} items")  # fmt: skip
        work = Work(*made)
    else:
        names = ("model", "make_batch", "loss")
        missing = [name for name in names if not hasattr(made, name)]
        if missing:
            raise TypeError(f"a factory's {type(made).__name__} has no {', '.join(missing)}")
        more = ("optimizer", "blocks", "tokens")
        work = Work(*(getattr(made, n) for n in names), *(getattr(made, n, None) for n in more))
    if not isinstance(work.model, torch.nn.Module):
        raise TypeError(f"a factory's model is a torch.nn.Module, not {type(work.model).__name__}")
    for name in ("make_batch", "loss"):
        if not callable(getattr(work, name)):
            raise TypeError(f"a factory's {name} is a function, not {getattr(work, name)!r}")
    return work


def find_blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the layers of a model: the equal children of the list that has the most parameters.

    Raises
    ------
    ValueError
        If no ``ModuleList`` or ``Sequential`` has two children or more of one class; the factory
        must name the blocks then.
    """
    best: list[torch.nn.Module] = []
    most = 0
    for module in model.modules():
        if not isinstance(module, torch.nn.ModuleList | torch.nn.Sequential):
            continue
        children = list(module)
        count = sum(p.numel() for p in module.parameters())
        if len(children) > 1 and len({type(child) for child in children}) == 1 and count > most:
            best, most = children, count
    if not best:
        raise ValueError(
            "no list of equal layers in the model: let the factory return an object with blocks="
        )
    return best


def measure(
    work: Work,
    batches: Sequence[int],
    strategies: Sequence[str] = STRATEGIES,
    *,
    steps: int = 5,
    warmup: int = 6,
    max_slowdown: float | None = None,
    max_memory: int | str | None = None,
    progress: Callable[[Row], None] | None = None,
    **offloading: Any,
) -> list[Row]:
    """Measure every strategy at every batch size, from the smallest batch up.

    Parameters
    ----------
    work : Work
    batches : sequence of int
        Samples.
    strategies : sequence of str
        Among :data:`STRATEGIES`.
    steps, warmup : int
        Steps that are timed, strategy by strategy in turns, and steps before them in which the
        planner measures and plans: more of them until its plan stays, and two at most where nobody
        plans. One more step between them is watched for its peak.
    max_slowdown, max_memory
        For "planned", as :class:`ssdtrain.Offloader` takes them.
    progress : callable, optional
        Gets each row when its batch size is done.
    **offloading
        More arguments of :class:`ssdtrain.Offloader`, for "offload" and "planned".

    Returns
    -------
    list of Row
        By batch, then strategy. Running out of memory is a row; larger batches of that strategy
        are not tried. "offload" and "planned" hold their pinned memory at the same time.

    Raises
    ------
    ValueError
        For a strategy that is not known, no batch, or numbers that are not positive.
    """
    unknown = [name for name in strategies if name not in STRATEGIES]
    if unknown or not strategies:
        raise ValueError(f"strategies are {', '.join(STRATEGIES)}, not {', '.join(unknown)!r}")
    if not batches or min(batches) < 1 or steps < 1 or warmup < 0:
        raise ValueError("batches and steps must be 1 or more, warmup 0 or more")
    planning = {"max_slowdown": max_slowdown, "max_memory": max_memory}
    steering = {name: value for name, value in planning.items() if value is not None}
    makers: dict[str, Callable[[], Keeping]] = {
        "keep": lambda: Keeping(work),
        "recompute": lambda: Recomputing(work, work.blocks or find_blocks(work.model)),
        "offload": lambda: Offloading(work, plan="all", **offloading),
        "planned": lambda: Offloading(work, plan="auto", **steering, **offloading),
    }
    for strategy in strategies:
        makers[strategy]().close()  # A wrong argument shows now, not after an hour.
    rows = []
    failed: dict[str, int] = {}
    for batch in sorted(set(batches)):
        found = [Row(strategy, batch) for strategy in strategies]
        for row in found:
            if row.strategy in failed:
                row.status = f"not tried: {failed[row.strategy]} did not fit"
        _Turns(work, batch, warmup).measure([r for r in found if r.status == "ok"], makers, steps)
        failed |= {r.strategy: batch for r in found if r.status == "out of memory"}
        rows += found
        if progress is not None:
            for row in found:
                progress(row)
    return rows


class _Turns:
    """All strategies at one batch size, by turns: a drift of the machine is every strategy's."""

    def __init__(self, work: Work, size: int, warmup: int) -> None:
        self._work = work
        self._size = size
        self._warmup = warmup
        self._batch: Any = None
        self._running: dict[str, Keeping] = {}
        self._times: dict[str, list[float]] = {}

    def measure(
        self, rows: Sequence[Row], makers: Mapping[str, Callable[[], Keeping]], steps: int
    ) -> None:
        """Fill in the rows."""
        try:
            for row in rows:
                self._attempt(row, functools.partial(self._begin, row, makers[row.strategy]))
            for turn in range(steps):
                # Forwards and backwards, so that none always comes after the same one.
                for row in rows if turn % 2 == 0 else reversed(rows):
                    if row.status == "ok":
                        self._attempt(row, functools.partial(self._turn, row))
            for row in rows:
                if row.status == "ok":
                    self._fill(row)
        finally:
            for running in self._running.values():
                running.close()
            self._running.clear()
            self._batch = None
            _empty(self._work)

    def _attempt(self, row: Row, run: Callable[[], None]) -> None:
        try:
            run()
        except (MemoryError, torch.OutOfMemoryError):
            row.status = "out of memory"
        except RuntimeError as error:
            # The CPU allocator has no class of its own for it.
            if "can't allocate memory" not in str(error):
                raise
            row.status = "out of memory"
        if row.status != "ok":
            # Here, after the exception and with it the frames that hold the failed step's tensors.
            row.peak_bytes = None
            if row.strategy in self._running:
                self._running.pop(row.strategy).close()
            _empty(self._work)

    def _begin(self, row: Row, make: Callable[[], Keeping]) -> None:
        torch.manual_seed(0)
        if self._batch is None:
            self._batch = self._work.make_batch(self._size)
        running = self._running[row.strategy] = make()
        running.warm_up(self._batch, self._warmup)
        row.peak_bytes = running.peak(self._batch)
        self._times[row.strategy] = []

    def _turn(self, row: Row) -> None:
        running = self._running[row.strategy]
        self._times[row.strategy].append(running.timed(self._batch))

    def _fill(self, row: Row) -> None:
        amount, row.unit = _amount(self._work, self._batch, self._size)
        row.seconds = statistics.median(self._times[row.strategy])
        row.throughput = amount / row.seconds
        row.bytes = self._running[row.strategy].bytes


def _empty(work: Work) -> None:
    work.model.zero_grad(set_to_none=True)
    gc.collect()
    if work.device.type == "cuda":
        torch.cuda.empty_cache()


def _amount(work: Work, batch: Any, samples: int) -> tuple[int, str]:
    if work.tokens is not None:
        return work.tokens(batch), "tokens/s"
    for leaf in torch.utils._pytree.tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.dim() >= 2 and not leaf.is_floating_point():
            return leaf.numel(), "tokens/s"
    return samples, "samples/s"
