# SPDX-License-Identifier: Apache-2.0
"""Lets Python look for reference cycles less often while a forward pass is watched; frees nothing.

What hooks and the recorder remember of a forward pass is thousands of objects that live until its
end, or backward. Collections in between look at them again and again, find nothing, and count them
as reasons to look through the whole heap: measured, half of what an offloader costs the host.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["seldom_collected"]

# Net allocations of containers between two collections: the default is 700, or 2,000.
_FEW = 10_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within, the youngest objects are collected after 10,000 allocations.

    Thresholds are the process's: they are as before from the end on. What is seldom collected
    already, or never, stays so.
    """
    first, *others = gc.get_threshold()
    if not 0 < first < _FEW:
        yield
        return
    try:
        gc.set_threshold(_FEW, *others)
        yield
    finally:
        if gc.get_threshold()[0] == _FEW:  # Not set by the model meanwhile.
            gc.set_threshold(first, *others)
