# SPDX-License-Identifier: Apache-2.0
"""``Offloader``: the one thing that users of this package touch."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch

from .accounting import StepCounts
from .arguments import PathLike, parse_plan
from .assembly import Wishes, assemble
from .attaching import attach
from .garbage import seldom_collected
from .plan import Plan
from .streams import Streams
from .subclasses import Saved

__all__ = ["Offloader"]


class Offloader:
    """Moves the tensors that autograd saves for backward to host memory and disk, and back in time.

    Use it around the forward pass, step after step; ``loss.backward()`` may stand inside or
    outside::

        off = ssdtrain.Offloader(spill="/nvme/spill")
        for batch in batches:
            with off:
                loss = model(batch)
            loss.backward()

    Within it Python collects garbage less often, since what the offloader remembers is none.
    Gradients are those of plain training to the last bit. GPU tensors go to pinned host memory
    first and to disk when that is full; CPU tensors go to disk.

    Parameters
    ----------
    spill : path or sequence of paths, optional
        Directories for the disk tier, striped over. None switches the tier off.
    host : int or str, default "8GiB"
        Ceiling of pinned host memory in bytes; 0 switches the tier off.
    ssd : int or str, default "200GiB"
        Ceiling of disk space in bytes; ignored without ``spill``.
    min_bytes : int or str, default "1MiB"
        Smaller tensors stay.
    plan : {"auto", "all"}, Plan or path of a .json file
        "auto": some steps are measured, then a plan says what moves, what is computed again and
        what stays. "all": everything that may go goes, and the forward pass waits when the drives
        fall behind. A plan of :attr:`plan`, or one edited: it is followed from the first step on.
    checks : bool, default False
        Verify a checksum of every range that comes back, overwrite what is given back, and pause
        at random where the environment says ``SSDTRAIN_DELAYS="SEED:MILLISECONDS"``; slow, to find
        faults.
    backlog : int or str, default "256MiB"
        Bytes that may be on their way out at a time while no plan holds; where single tensors are
        large, twice the largest so far, so that copies overlap with computation. With 0 each one
        is waited for. Also the pinned memory through which GPU tensors pass to disk: a part of
        ``host``, or beside it with ``host=0``. That is a ceiling, whatever the tensors' sizes.
    prefetch : int or str, default "256MiB"
        Bytes that may be loaded before backward asks for them, while no plan holds.
    max_memory : int or str, optional
        Bytes that may be allocated on the device at a time: as fast as that allows.
    max_slowdown : float, optional
        Fraction of a step's time that may be added: as little memory as that allows. Without either
        limit it is 0.02.
    write_budget : float or str, optional
        Bytes that a plan may write to all drives together a day: "20TiB/day", "1DWPD" (of the
        drives under ``spill``, where their size is visible), "1DWPD x 7.68TB". Steps without a plan
        (the first ones, and those whose shapes are new) are not bound by it.
    drive_rating : float or str, optional
        Endurance of all drives together, for the report and a warning long before harm: "600TBW",
        "1DWPD".

    Raises
    ------
    TypeError, ValueError
        For an argument out of its domain, a file that is no plan, or ``max_memory``,
        ``max_slowdown`` or ``write_budget`` with ``plan="all"`` or a plan that is given.
    OSError
        If the file of a plan cannot be read.
    IoError, OutOfSpaceError
        If a directory cannot be spilled to.

    Notes
    -----
    Source: SSDTrain (arXiv 2408.10013), whose identity of tensors lacked the storage offset and the
    version; see ``docs/decisions``.
    """

    def __init__(
        self,
        spill: PathLike | Sequence[PathLike] | None = None,
        host: int | str = "8GiB",
        ssd: int | str = "200GiB",
        min_bytes: int | str = "1MiB",
        plan: str | PathLike | Plan = "auto",
        checks: bool = False,
        *,
        backlog: int | str = "256MiB",
        prefetch: int | str = "256MiB",
        max_memory: int | str | None = None,
        max_slowdown: float | None = None,
        write_budget: float | str | None = None,
        drive_rating: float | str | None = None,
    ) -> None:
        if not isinstance(checks, bool):
            raise TypeError(f"checks must be True or False, not {checks!r}")
        given = parse_plan(plan)
        parts = assemble(
            streams=Streams(),
            spill=spill,
            host=host,
            ssd=ssd,
            min_bytes=min_bytes,
            backlog=backlog,
            prefetch=prefetch,
            checks=checks,
            streams_only=plan == "all",
            wishes=Wishes(given, max_memory, max_slowdown, write_budget, drive_rating),
        )
        self._engine = parts.engine
        self._parts = parts
        self._plan = "given" if given is not None else str(plan)
        self._wear = parts.wear
        self._wear_from = (0, time.monotonic())
        self._entered = threading.local()

    # ------------------------------------------------------------------ around the forward pass

    def __enter__(self) -> Offloader:
        if self._engine.is_closed:
            raise ValueError("the offloader is closed; make a new one")
        hooks = self._hooks()
        if not hooks:
            last = self._engine.begin_step()
            if last is not None:
                self._count_wear(last)
        context = contextlib.ExitStack()
        try:
            context.enter_context(seldom_collected())
            context.enter_context(torch.autograd.graph.saved_tensors_hooks(self._engine.save, _get))
            recorder = self._engine.recomputation.recorder()
            if recorder is not None:
                context.enter_context(recorder)
            hooks.append(context)
        except BaseException:
            context.close()  # Python does not call __exit__ then.
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        hooks = self._hooks()
        if not hooks:
            raise RuntimeError("the offloader was left on a thread that has not entered it")
        hooks.pop().__exit__(kind, value, traceback)

    def _hooks(self) -> list[Any]:
        # Hooks are per thread in autograd, so the stack of entered contexts is, too.
        if not hasattr(self._entered, "hooks"):
            self._entered.hooks = []
        hooks: list[Any] = self._entered.hooks
        return hooks

    def attach(self, model: torch.nn.Module) -> Any:
        """Tell what only the model knows: its parameters, buffers and inputs need not be saved.

        Parameters
        ----------
        model : torch.nn.Module

        Returns
        -------
        handle
            ``handle.remove()`` undoes it.

        Raises
        ------
        TypeError
            If ``model`` is not a module.
        """
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"attach() takes a torch.nn.Module, not {type(model).__name__}")
        return attach(self._engine, model)

    # ------------------------------------------------------------------ to look at

    def report(self) -> dict[str, Any]:
        """What happened to the saved tensors of the last step.

        Returns
        -------
        dict
            ``"bytes"``: ``host``, ``disk``, ``recompute`` and ``kept`` bytes, each stored range
            counted once; what something else keeps alive counts as nothing. ``"kept_by_reason"``,
            ``"saved_tensors"``, ``"shared_tensors"`` (needed no copy of their own),
            ``"forwarded_bytes"``, ``"loaded_bytes"``, ``"waits"``, ``"wait_seconds"``,
            ``"live_bytes"`` (by state, now), ``"faults"`` (texts), ``"tiers"`` (budgets and use),
            ``"plan"`` ("auto", "all" or "given"), ``"steering"`` (mode, plan, prediction and
            measurement; None with "all"), ``"device_type"``, ``"lanes"`` (what the schedulers of
            the devices say), ``"wear"`` (bytes written and the drives' life; None without a disk).
            Bytes and seconds throughout.
        """
        return {
            **self._engine.report(),
            "plan": self._plan,
            "steering": self._engine.steps.describe(),
            "device_type": self._engine.selection.device_type,
            "tiers": {tier.name: tier.describe() for tier in self._engine.tiers},
            "lanes": self._parts.streams.stats(),
            "wear": None if self._wear is None else self._wear.report(),
        }

    def _count_wear(self, last: StepCounts) -> None:
        if self._wear is None or self._parts.disk is None:
            return
        written, now = self._parts.disk.bytes_written(), time.monotonic()
        before, since = self._wear_from
        self._wear_from = written, now
        if last.saved_tensors:
            self._wear.step(max(written - before, 0), now - since)

    def trace(self, path: PathLike) -> None:
        """Write what happened in the last steps, for https://ui.perfetto.dev.

        Parameters
        ----------
        path : path
            Of a JSON file.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        self._engine.settle()
        self._engine.books.tracer.export(path, self._parts.streams.describe())

    @property
    def plan(self) -> Plan | None:
        """The plan that steps run under; None while there is none. Save it, edit it, give it back.

        See Also
        --------
        Plan.save, Plan.edit
        """
        return self._engine.steps.plan

    def close(self) -> None:
        """End what is on its way and give everything back. Call it after the last backward.

        Entering the offloader is a ``ValueError`` from then on.
        """
        self._engine.close()


def _get(saved: Saved) -> torch.Tensor:
    return saved.get()
