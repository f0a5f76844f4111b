# SPDX-License-Identifier: Apache-2.0
"""What a template is given and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hector.emit.triton.groups import Group
from hector.ir.function import Value

__all__ = ["Emitted", "Job"]


@dataclass(frozen=True)
class Job:
    """One group to make a kernel of.

    Attributes
    ----------
    name : str
        Of the kernel.
    group : Group
    stored : tuple of Value
        The group's values that something outside reads.
    host : mapping of Value to str
        Names of values in memory, ``stored`` among them.
    pitch : mapping of Value to int
        Elements between rows of values that are columns of another.
    orders : mapping of Value to str
        Maps in whose grouped order values of edges stand, where that is not the order of rows.
    comments : tuple of str
        The IR lines.
    """

    name: str
    group: Group
    stored: tuple[Value, ...]
    host: Mapping[Value, str]
    pitch: Mapping[Value, int]
    orders: Mapping[Value, str]
    comments: tuple[str, ...]


@dataclass(frozen=True)
class Emitted:
    """Kernels as text, and what runs them.

    Attributes
    ----------
    kernels : tuple of str
    prepare : tuple of str
        Lines that are run once for a graph.
    launch : tuple of str
        Lines that are run at each call.
    helpers : frozenset of str
        Device functions that the kernels call.
    """

    kernels: tuple[str, ...]
    prepare: tuple[str, ...]
    launch: tuple[str, ...]
    helpers: frozenset[str]
