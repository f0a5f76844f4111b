# SPDX-License-Identifier: Apache-2.0
"""Measures recompute, offload, keep (ROK) and the planner's mix of them over batch sizes."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from .live_bytes import peak_over_resident
from .offloader import Offloader

__all__ = ["STRATEGIES", "Row", "Work", "as_work", "find_blocks", "load_factory", "measure"]

STRATEGIES = ("keep", "recompute", "offload", "planned")
Forward = contextlib.AbstractContextManager[Any]


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


def load_factory(name: str) -> Callable[[], Any]:
    """Return the function that "script.py:make" or "package.module:make" names.

    Raises
    ------
    ValueError
        If there is no such file, module or function.
    """
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        raise ValueError(f"{name!r} names no factory: 'script.py:make' or 'module:make' wanted")
    path = Path(where)
    if where.endswith(".py"):
        if not path.is_file():
            raise ValueError(f"there is no file {where}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ValueError(f"{where} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        # Pickling and dataclasses of the script look its module up by name; what stands beside it
        # is imported as if it were run.
        sys.modules.setdefault(path.stem, module)
        sys.path.insert(0, str(path.resolve().parent))
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise ValueError(f"no module {where!r}: {error}") from None
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ValueError(f"{where} has no function {attribute!r}")
    return factory  # type: ignore[no-any-return]


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
        Steps that are timed, and steps before them, in which the planner measures and plans. One
        more step between them is watched for its peak.
    max_slowdown, max_memory
        For "planned", as :class:`ssdtrain.Offloader` takes them.
    progress : callable, optional
        Gets each row as it is there.
    **offloading
        More arguments of :class:`ssdtrain.Offloader`, for "offload" and "planned".

    Returns
    -------
    list of Row
        By batch, then strategy. Running out of memory is a row; larger batches of that strategy
        are not tried.

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
    contexts: dict[str, Callable[[], Forward]] = {
        "keep": contextlib.nullcontext,
        "recompute": functools.partial(_recomputing, work),
        "offload": functools.partial(_offloading, work, plan="all", **offloading),
        "planned": functools.partial(_offloading, work, plan="auto", **steering, **offloading),
    }
    for strategy in strategies:
        with contexts[strategy]():
            pass  # A wrong argument shows now, not after an hour.
    rows = []
    failed: dict[str, int] = {}
    for batch in sorted(set(batches)):
        for strategy in strategies:
            row = Row(strategy, batch)
            if strategy in failed:
                row.status = f"not tried: {failed[strategy]} did not fit"
            else:
                _measure_row(row, work, contexts[strategy], steps, warmup)
                if row.status != "ok":
                    failed[strategy] = batch
            rows.append(row)
            if progress is not None:
                progress(row)
    return rows


def _measure_row(
    row: Row, work: Work, context: Callable[[], Forward], steps: int, warmup: int
) -> None:
    torch.manual_seed(0)
    try:
        _measure_steps(row, work, context, steps, warmup)
    except (MemoryError, torch.OutOfMemoryError):
        row.status = "out of memory"
    except RuntimeError as error:
        # The CPU allocator has no class of its own for it.
        if "can't allocate memory" not in str(error):
            raise
        row.status = "out of memory"
    # Here, after the exception and with it the frames that hold the failed step's tensors.
    work.model.zero_grad(set_to_none=True)
    gc.collect()
    if work.device.type == "cuda":
        torch.cuda.empty_cache()


def _measure_steps(
    row: Row, work: Work, context: Callable[[], Forward], steps: int, warmup: int
) -> None:
    batch = work.make_batch(row.batch)
    with context() as off:
        around = off if isinstance(off, Offloader) else contextlib.nullcontext()
        step = functools.partial(_step, work, batch, around)
        for _ in range(max(1, warmup)):  # The first makes gradients and optimizer's states.
            step()
        peak = peak_over_resident(step, work.device)
        times = []
        for _ in range(steps):
            begun = _now(work.device)
            step()
            times.append(_now(work.device) - begun)
        if isinstance(off, Offloader):
            row.bytes = dict(off.report()["bytes"])
    amount, row.unit = _amount(work, batch, row.batch)
    row.peak_bytes = peak
    row.seconds = statistics.median(times)
    row.throughput = amount / row.seconds


def _step(work: Work, batch: Any, around: Forward) -> None:
    with around:
        loss = work.loss(work.model, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    if work.optimizer is not None:
        work.optimizer.step()
    # Gradients stay allocated: they belong to what is resident, not to activations.
    for parameter in work.model.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _amount(work: Work, batch: Any, samples: int) -> tuple[int, str]:
    if work.tokens is not None:
        return work.tokens(batch), "tokens/s"
    for leaf in torch.utils._pytree.tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.dim() >= 2 and not leaf.is_floating_point():
            return leaf.numel(), "tokens/s"
    return samples, "samples/s"


@contextlib.contextmanager
def _recomputing(work: Work) -> Iterator[None]:
    blocks = list(work.blocks) if work.blocks is not None else find_blocks(work.model)
    own = [block.__dict__.get("forward") for block in blocks]
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block, forward in zip(blocks, own, strict=True):
            if forward is None:
                del block.forward
            else:
                block.forward = forward


@contextlib.contextmanager
def _offloading(work: Work, **arguments: Any) -> Iterator[Offloader]:
    off = Offloader(**arguments)
    attached = off.attach(work.model)
    try:
        yield off
    finally:
        attached.remove()
        off.close()
