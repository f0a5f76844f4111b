# SPDX-License-Identifier: Apache-2.0
"""Checks what users pass to ``Offloader``, and says what is wrong with it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

from datapath_core.settings import parse_bytes

from .plan import GroupPlan, Plan

__all__ = ["PathLike", "parse_fraction", "parse_paths", "parse_plan", "parse_size"]

PathLike = str | os.PathLike[str]


def parse_plan(plan: object) -> Plan | None:
    """The plan that was given itself or as a file; None for "auto" and "all"."""
    if isinstance(plan, Plan):
        # One that was put together by hand has been looked at by nobody.
        for number, group in enumerate(plan.groups):
            if not isinstance(group, GroupPlan):
                raise TypeError(f"plan: groups[{number}] is {group!r}, not a GroupPlan")
        return Plan.from_dict(plan.to_dict())
    if plan in ("auto", "all"):
        return None
    if isinstance(plan, os.PathLike) or (isinstance(plan, str) and plan.endswith(".json")):
        return Plan.load(plan)
    raise ValueError(f"plan must be 'auto', 'all', a Plan, or the path of a .json file: {plan!r}")


def parse_paths(spill: PathLike | Sequence[PathLike]) -> list[PathLike]:
    """The directories to spill to."""
    paths: Any = [spill] if isinstance(spill, str | os.PathLike) else spill
    if not isinstance(paths, list | tuple):
        raise TypeError(f"spill must be a path or a list of paths, not {spill!r}")
    if not paths:
        raise ValueError("spill is empty; name a directory, or None for no disk tier")
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"spill has {path!r} among its directories, which is no path")
    return list(paths)


def parse_size(name: str, value: int | str) -> int:
    """Bytes of a size, which may not be negative."""
    if isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: a size is a number of bytes, not a bool")
    try:
        nbytes = parse_bytes(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}={value!r}: {error}") from None
    if nbytes < 0:
        raise ValueError(f"{name} must not be negative, is {value!r}")
    return nbytes


def parse_fraction(name: str, value: float | None) -> float | None:
    """A fraction of 0 or more: 0.02 is 2 %."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r}: a fraction is a number, 0.02 for 2 %")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a fraction of 0 or more, is {value!r}")
    return float(value)
