# SPDX-License-Identifier: Apache-2.0
"""GPUs and drives on paper: catalogue entries, or numbers of one's own."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ssdtrain.wear import parse_rating

from .catalogue import entry
from .constants import LINKS

__all__ = ["Drive", "Gpu", "find_drive", "find_gpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU gives.

    Attributes
    ----------
    name : str
    flops : float
        Peak of dense bf16 products, FLOP/s.
    memory : float
        Bytes.
    bandwidth : float
        Of its own memory, bytes/s.
    link : float
        To the host, bytes/s in one direction, as measured rather than nominal.
    source, link_source : str

    Raises
    ------
    ValueError
        For a number that is not positive.
    """

    name: str
    flops: float
    memory: float
    bandwidth: float
    link: float
    source: str
    link_source: str

    def __post_init__(self) -> None:
        _check(self, "flops", "memory", "bandwidth", "link")


@dataclass(frozen=True, slots=True)
class Drive:
    """What a drive gives: sequential rates in bytes/s, sizes in bytes.

    Attributes
    ----------
    name : str
    read, write : float
    capacity : float
    endurance : float
        Bytes that may be written by its rating.
    source : str

    Raises
    ------
    ValueError
        For a number that is not positive.
    """

    name: str
    read: float
    write: float
    capacity: float
    endurance: float
    source: str

    def __post_init__(self) -> None:
        _check(self, "read", "write", "capacity", "endurance")


def _check(device: Gpu | Drive, *names: str) -> None:
    for name in names:
        value = getattr(device, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{device.name}: {name} must be positive, is {value:g}")


def find_gpu(
    name: str,
    *,
    flops: float | None = None,
    memory: float | None = None,
    link: float | None = None,
) -> Gpu:
    """Return a GPU of the catalogue, with numbers of one's own where they are given.

    Parameters
    ----------
    name : str
        See ``ssdtrain plan --list``.
    flops, memory, link : float, optional
        FLOP/s, bytes, bytes/s.

    Raises
    ------
    ValueError
        For a name that is not in the catalogue, or a number that is not positive.
    """
    found = entry("gpus", name)
    gpu = Gpu(
        name=found["name"],
        flops=found["flops"],
        memory=found["memory"],
        bandwidth=found["bandwidth"],
        link=found["link"],
        source=found["source"],
        link_source=LINKS[found["link_source"]],
    )
    if flops is not None:
        gpu = replace(gpu, flops=flops, source=f"peak given; the rest {gpu.source}")
    if memory is not None:
        gpu = replace(gpu, memory=memory, source=f"memory given; the rest {gpu.source}")
    return gpu if link is None else replace(gpu, link=link, link_source="given")


def find_drive(
    name: str,
    *,
    read: float | None = None,
    write: float | None = None,
    capacity: float | None = None,
    rating: str | None = None,
) -> Drive:
    """Return a drive of the catalogue, with numbers of one's own where they are given.

    Parameters
    ----------
    name : str
        See ``ssdtrain plan --list``; "custom" for a drive of which all four numbers are given.
    read, write : float, optional
        Sequential rates, bytes/s.
    capacity : float, optional
        Bytes.
    rating : str, optional
        As :func:`ssdtrain.wear.parse_rating` takes it.

    Raises
    ------
    ValueError
        For a name that is not in the catalogue, a number that is missing, or one that is not
        positive.
    """
    mine = {"read": read, "write": write, "capacity": capacity, "rating": rating}
    if name == "custom":
        missing = ", ".join(key for key, value in mine.items() if value is None)
        if missing:
            raise ValueError(f"a drive of your own needs {missing} as well")
        found = {"name": "your drive", "source": "given"}
    else:
        found = entry("ssds", name)
    changed = [key for key, value in mine.items() if value is not None]
    merged: dict[str, Any] = {**found, **{key: mine[key] for key in changed}}
    source = found["source"]
    if changed and name != "custom":
        source = f"{', '.join(changed)} given; the rest {source}"
    return Drive(
        name=merged["name"],
        read=merged["read"],
        write=merged["write"],
        capacity=merged["capacity"],
        endurance=parse_rating(merged["rating"], merged["capacity"]),
        source=f"{source}; rated {merged['rating']}",
    )
