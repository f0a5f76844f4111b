# SPDX-License-Identifier: Apache-2.0
"""``Offloader``: the one thing that users of this package touch."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch

from datapath_core import UnsupportedError
from datapath_core.settings import parse_bytes

from .engine import Engine
from .saved import KeptTensor, MovedTensor
from .selection import Selection
from .tiers import DiskTier, HostTier, Tier

__all__ = ["Offloader"]

PathLike = str | os.PathLike[str]


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
        plan: str = "auto",
        checks: bool = False,
        *,
        backlog: int | str = "256MiB",
        prefetch: int | str = "256MiB",
        max_memory: int | str | None = None,
        max_slowdown: float | None = None,
        write_budget: int | str | None = None,
    ) -> None:
        if plan not in ("auto", "all"):
            raise ValueError(f"plan must be 'auto' or 'all', not {plan!r}")
        for name, value in (
            ("max_memory", max_memory),
            ("max_slowdown", max_slowdown),
            ("write_budget", write_budget),
        ):
            if value is not None:
                raise UnsupportedError(
                    f"{name}= steers the planner, which this release does not have; leave it out"
                    " and bound the tiers with host= and ssd="
                )
        if not isinstance(checks, bool):
            raise TypeError(f"checks must be True or False, not {checks!r}")
        tiers: list[Tier] = []
        if _size("host", host) > 0:
            tiers.append(HostTier(_size("host", host)))
        if spill is not None and _size("ssd", ssd) > 0:
            tiers.append(DiskTier(_paths(spill), _size("ssd", ssd)))
        self._engine = Engine(
            Selection(_size("min_bytes", min_bytes)),
            tiers,
            backlog=_size("backlog", backlog),
            wait_for_backlog=plan == "all",
            prefetch=_size("prefetch", prefetch),
            checks=checks,
        )
        self._plan = plan
        self._entered = threading.local()

    # ------------------------------------------------------------------ around the forward pass

    def __enter__(self) -> Offloader:
        hooks = self._hooks()
        if not hooks:
            self._engine.begin_step()
        context = torch.autograd.graph.saved_tensors_hooks(self._engine.save, _get)
        context.__enter__()
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

        def before_forward(
            module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> None:
            for parameter in module.parameters():
                _exclude(engine, parameter, "parameter")
            for buffer in module.buffers():
                _exclude(engine, buffer, "buffer")
            for value in (*args, *kwargs.values()):
                _exclude(engine, value, "model input")

        return model.register_forward_pre_hook(before_forward, with_kwargs=True)

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
            "device_type": self._engine.selection.device_type,
            "tiers": {tier.name: tier.describe() for tier in self._engine.tiers},
        }

    def close(self) -> None:
        """End what is on its way and give everything back. Call it after the last backward."""
        self._engine.close()


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


def _paths(spill: PathLike | Sequence[PathLike]) -> list[PathLike]:
    paths: Any = [spill] if isinstance(spill, str | os.PathLike) else spill
    if not isinstance(paths, list | tuple):
        raise TypeError(f"spill must be a path or a list of paths, not {spill!r}")
    if not paths:
        raise ValueError("spill is empty; name a directory, or None for no disk tier")
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"spill has {path!r} among its directories, which is no path")
    return list(paths)


def _size(name: str, value: int | str) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: a size is a number of bytes, not a bool")
    try:
        nbytes = parse_bytes(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}={value!r}: {error}") from None
    if nbytes < 0:
        raise ValueError(f"{name} must not be negative, is {value!r}")
    return nbytes
