# SPDX-License-Identifier: Apache-2.0
"""``Offloader``: the one thing that users of this package touch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from .arguments import PathLike, parse_fraction, parse_paths, parse_plan, parse_size
from .engine import Engine
from .plan import Limits, Plan
from .policy import StreamingPolicy
from .saved import KeptTensor, MovedTensor
from .selection import Selection
from .steps import Steps
from .streams import Streams
from .tiers import DiskTier, HostTier, PinnedMemory, Tier
from .timeline import Rates

if TYPE_CHECKING:
    from .steering import Steering

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
    plan : {"auto", "all"}
        "all": everything that may go goes, and the forward pass waits when the drives fall behind.
        "auto": what the drives cannot take in time stays.
    checks : bool, default False
        Verify a checksum of every range that comes back; slow, to find faults.
    backlog : int or str, default "256MiB"
        Bytes that may be on their way out at a time.
    prefetch : int or str, default "256MiB"
        Bytes that may be loaded before backward asks for them.

    Raises
    ------
    ValueError
        For an argument out of its domain.
    UnsupportedError
        For ``max_memory``, ``max_slowdown`` and ``write_budget``, which need the planner that this
        release does not have yet.

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
        write_budget: int | str | None = None,
    ) -> None:
        if not isinstance(checks, bool):
            raise TypeError(f"checks must be True or False, not {checks!r}")
        given = parse_plan(plan)
        sizes = {
            "host": parse_size("host", host),
            "ssd": parse_size("ssd", ssd) if spill is not None else 0,
            "backlog": parse_size("backlog", backlog),
            "prefetch": parse_size("prefetch", prefetch),
        }
        streams = Streams()
        memory = _pinned_memory(sizes)
        tiers: list[Tier] = []
        if sizes["host"] > 0:
            tiers.append(HostTier(memory, streams))
        if spill is not None and sizes["ssd"] > 0:
            tiers.append(DiskTier(parse_paths(spill), sizes["ssd"], memory, streams))
        self._memory = memory
        self._plan = "given" if given is not None else str(plan)
        self._engine = Engine(
            Selection(parse_size("min_bytes", min_bytes)),
            tiers,
            streams,
            Steps(
                lambda: StreamingPolicy(sizes["backlog"], sizes["prefetch"], plan == "all"),
                _steering(given, plan, sizes, memory, max_memory, max_slowdown, write_budget),
                streams,
            ),
            checks=checks,
        )
        self._entered = threading.local()

    # ------------------------------------------------------------------ around the forward pass

    def __enter__(self) -> Offloader:
        hooks = self._hooks()
        if not hooks:
            self._engine.begin_step()
        context = contextlib.ExitStack()
        context.enter_context(torch.autograd.graph.saved_tensors_hooks(self._engine.save, _get))
        recorder = self._engine.recomputation.recorder()
        if recorder is not None:
            context.enter_context(recorder)
        hooks.append(context)
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
        engine = self._engine
        engine.recomputation.is_on = engine.steps.steering is not None

        def before_forward(
            module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> None:
            for parameter in module.parameters():
                _exclude(engine, parameter, "parameter")
            for buffer in module.buffers():
                _exclude(engine, buffer, "buffer")
            for value in (*args, *kwargs.values()):
                _exclude(engine, value, "model input")

        names = engine.steps.modules
        return _Handles(
            [
                model.register_forward_pre_hook(before_forward, with_kwargs=True),
                *names.attach(model),
            ]
        )

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
            ``"plan"``, ``"device_type"``.
        """
        return {
            **self._engine.report(),
            "plan": self._plan,
            "steering": self._engine.steps.describe(),
            "device_type": self._engine.selection.device_type,
            "tiers": {tier.name: tier.describe() for tier in self._engine.tiers},
        }

    @property
    def plan(self) -> Plan | None:
        """The plan that steps run under; None while there is none. Save it, edit it, give it back.

        See Also
        --------
        Plan.save, Plan.edit
        """
        return self._engine.steps.plan

    def close(self) -> None:
        """End what is on its way and give everything back. Call it after the last backward."""
        self._engine.close()


class _Handles:
    """Several hooks' handles as one."""

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Take the hooks away."""
        while self._handles:
            self._handles.pop().remove()


def _get(saved: KeptTensor | MovedTensor) -> torch.Tensor:
    return saved.get()


def _exclude(engine: Engine, value: object, reason: str) -> None:
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        try:
            storage = value.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return  # A subclass without a storage of its own: it stays anyway.
        engine.exclude(storage, reason)
    elif isinstance(value, dict):
        for item in value.values():
            _exclude(engine, item, reason)
    elif isinstance(value, list | tuple):
        for item in value:
            _exclude(engine, item, reason)


def _pinned_memory(sizes: dict[str, int]) -> PinnedMemory:
    """One budget: with a host tier the way to disk is part of it, else it is the backlog."""
    if sizes["host"] == 0:
        return PinnedMemory(sizes["backlog"], sizes["backlog"])
    staging = min(sizes["backlog"], sizes["host"] // 2) if sizes["ssd"] > 0 else 0
    return PinnedMemory(sizes["host"], staging)


def _steering(
    given: Plan | None,
    plan: object,
    sizes: dict[str, int],
    memory: PinnedMemory,
    max_memory: int | str | None,
    max_slowdown: float | None,
    write_budget: int | str | None,
) -> Steering | None:
    if plan == "all":
        for name, value in (
            ("max_memory", max_memory),
            ("max_slowdown", max_slowdown),
            ("write_budget", write_budget),
        ):
            if value is not None:
                raise ValueError(f"{name} steers the planner, and plan='all' does without one")
        return None
    try:
        from .steering import Steering
    except ImportError:
        return None
    limits = Limits(
        max_memory=None if max_memory is None else parse_size("max_memory", max_memory),
        max_slowdown=parse_fraction("max_slowdown", max_slowdown),
        host_bytes=memory.budget,
        disk_bytes=sizes["ssd"],
        write_bytes=None if write_budget is None else parse_size("write_budget", write_budget),
        allow_host=sizes["host"] > 0,
    )
    return Steering(limits, lambda: Rates(), given)
