# SPDX-License-Identifier: Apache-2.0
"""When groups are really needed, and for how long, given which ones are computed again."""

from __future__ import annotations

from collections.abc import Collection

from .timeline import Timeline

__all__ = ["effective_needs"]


def effective_needs(
    timeline: Timeline, recomputed: Collection[int]
) -> tuple[list[int | None], list[int]]:
    """Return the tick at which each group must be in memory, and the last one at which it is.

    What a recomputation reads is needed when that runs, and held until then.

    Parameters
    ----------
    timeline : Timeline
    recomputed : collection of int
        Groups that are computed again.

    Returns
    -------
    needed : list of (int or None)
        None: backward never asks.
    released : list of int

    Raises
    ------
    ValueError
        If recomputations need each other in a circle.
    """
    groups = timeline.groups
    needed = [group.needed_at for group in groups]
    released = [group.released_after for group in groups]
    if not recomputed:
        return needed, released
    # Inputs are saved before outputs, nearly always: one pass, and one that changes nothing.
    order = sorted(recomputed, reverse=True)
    for _ in range(len(order) + 1):
        changed = False
        for index in order:
            need = needed[index]
            if need is None:
                continue
            for source in groups[index].recompute_inputs:
                known = needed[source]
                if known is None or known > need:
                    needed[source] = need
                    changed = True
                released[source] = max(released[source], need)
        if not changed:
            break
    _refuse_circles(timeline, recomputed)
    return needed, released


def _refuse_circles(timeline: Timeline, recomputed: Collection[int]) -> None:
    wanted = set(recomputed)
    state: dict[int, bool] = {}  # False: on the way, True: done
    for start in wanted:
        stack = [(start, False)]
        while stack:
            index, leaving = stack.pop()
            if leaving:
                state[index] = True
                continue
            if index in state:
                continue
            state[index] = False
            stack.append((index, True))
            for source in timeline.groups[index].recompute_inputs:
                if source not in wanted:
                    continue
                if state.get(source) is False:
                    raise ValueError(
                        f"groups {source} and {index} are computed from each other; keep one"
                    )
                if source not in state:
                    stack.append((source, False))
