# SPDX-License-Identifier: Apache-2.0
"""Gradient rows among ranks, before any of them changes a row."""

from __future__ import annotations

import torch
import torch.distributed

from pytorch_direct.ops.row_gradients import RowGradient, reduce_rows

__all__ = ["exchanged"]


def exchanged(
    gradient: RowGradient | None,
    table: torch.Tensor,
    group: torch.distributed.ProcessGroup | None,
    *,
    average: bool,
    owned: bool,
) -> RowGradient | None:
    """Return the sums of all ranks' gradient rows; with `owned`, of this rank's rows only.

    Each rank adds up its rows by id, gives them to all, and adds up what it got in the order of
    the ranks: all know the same bits.
    """
    world = torch.distributed.get_world_size(group)
    rank = torch.distributed.get_rank(group)
    if gradient is None:
        # A rank whose batch touched nothing takes part all the same.
        on_gpu = torch.distributed.get_backend(group) == "nccl"
        device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else "cpu"
        gradient = RowGradient(
            torch.empty(0, dtype=torch.int64, device=device),
            torch.empty((0, *table.shape[1:]), dtype=table.dtype, device=device),
            is_reduced=True,
        )
    mine = reduce_rows(gradient, table.shape)
    home = mine.ids.device
    via = home if torch.distributed.get_backend(group) == "nccl" else torch.device("cpu")
    ids, rows = _gathered(mine, via, group, world)
    if average:
        rows = rows / world
    if owned:
        own = ids % world == rank
        ids, rows = ids[own], rows[own]
    if ids.numel() == 0:
        return None
    return reduce_rows(RowGradient(ids.to(home), rows.to(home)), table.shape)


def _gathered(
    mine: RowGradient,
    via: torch.device,
    group: torch.distributed.ProcessGroup | None,
    world: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids and rows of all ranks, one rank after the other."""
    counts = [torch.zeros(1, dtype=torch.int64, device=via) for _ in range(world)]
    count = torch.tensor([mine.ids.numel()], device=via)
    torch.distributed.all_gather(counts, count, group=group)
    sizes = [int(one) for one in counts]
    most = max(sizes)
    width = mine.rows.shape[1:]
    ids = torch.zeros(most, dtype=torch.int64, device=via)
    ids[: mine.ids.numel()] = mine.ids.to(via)
    rows = torch.zeros((most, *width), dtype=mine.rows.dtype, device=via)
    rows[: mine.ids.numel()] = mine.rows.to(via)
    all_ids = [torch.empty_like(ids) for _ in range(world)]
    all_rows = [torch.empty_like(rows) for _ in range(world)]
    torch.distributed.all_gather(all_ids, ids, group=group)
    torch.distributed.all_gather(all_rows, rows, group=group)
    return (
        torch.cat([one[:size] for one, size in zip(all_ids, sizes, strict=True)]),
        torch.cat([one[:size] for one, size in zip(all_rows, sizes, strict=True)]),
    )
