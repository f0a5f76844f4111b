# SPDX-License-Identifier: Apache-2.0
"""``reorder_rows``: rows by expected heat, with the map from old ids to new ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from pytorch_direct.ops.arguments import check_ids, check_source
from pytorch_direct.ops.gather import gather
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, unified

__all__ = ["ReorderedTable", "reorder_rows", "row_heat"]


@dataclass(frozen=True)
class ReorderedTable:
    """A table whose rows stand in order of heat, the hottest first.

    Parameters
    ----------
    table : UnifiedTensor
        Row ``new_of_old[i]`` is row i of the table that was given.
    new_of_old, old_of_new : torch.Tensor
        int64 of shape ``[rows]``: each is the other's inverse.
    """

    table: UnifiedTensor
    new_of_old: torch.Tensor
    old_of_new: torch.Tensor

    def ids(self, old: torch.Tensor) -> torch.Tensor:
        """Return new ids for old ones: of seeds, of neighbours, of an ``edge_index``.

        Parameters
        ----------
        old : torch.Tensor
            int32 or int64 of any shape, on the CPU or on a GPU, where the map is copied to then.

        Returns
        -------
        torch.Tensor
            Same shape, dtype and device. A graph built from ``ids(edge_index)`` samples new ids,
            and nothing has to be mapped any more.

        Raises
        ------
        TypeError
            `old` is of int32, and the table has more than 2^31 rows.
        """
        return _mapped(self.new_of_old, old)

    def original_ids(self, new: torch.Tensor) -> torch.Tensor:
        """Return old ids for new ones, as :meth:`ids` does the other way."""
        return _mapped(self.old_of_new, new)


def _mapped(ids: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    check_ids(given)
    if given.dtype == torch.int32 and ids.shape[0] > 2**31:
        raise TypeError(
            f"ids of a table of {ids.shape[0]} rows do not fit into int32: give ids.long()"
        )
    return gather(ids.to(given.device), given.reshape(-1)).view(given.shape).to(given.dtype)


def row_heat(trace: torch.Tensor | Iterable[torch.Tensor], rows: int) -> torch.Tensor:
    """Count how often each row is expected to be read.

    Parameters
    ----------
    trace : torch.Tensor or iterable of torch.Tensor
        An ``edge_index`` of shape ``[2, edges]``: a sampler that walks against the edges reads a
        node once for each edge that leaves it. Or batches of row ids that were read.
    rows : int
        Rows of the table.

    Returns
    -------
    torch.Tensor
        int64 of shape ``[rows]``.

    Raises
    ------
    IndexError
        An id is out of range.
    """
    if isinstance(trace, torch.Tensor):
        if trace.dim() == 2 and trace.shape[0] == 2:
            trace = trace[0]
        trace = (trace,)
    heat = torch.zeros(rows, dtype=torch.int64)
    for batch in trace:
        check_ids(batch)
        ids = batch.reshape(-1).cpu().to(torch.int64)
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= rows):
            raise IndexError(
                f"the trace names rows {int(ids.min())} to {int(ids.max())}, but the table has "
                f"{rows}: valid are 0 to {rows - 1}"
            )
        heat += torch.bincount(ids, minlength=rows)
    return heat


def reorder_rows(
    table: torch.Tensor,
    heat: torch.Tensor | Iterable[torch.Tensor],
    *,
    out: torch.Tensor | None = None,
) -> ReorderedTable:
    """Lay a table out by heat, so that a batch touches few 64 KiB regions of it.

    Gathers of narrow rows from host memory are bound by the number of distinct regions whose
    addresses the GPU translates. Where a few rows are read most of the time, as the hubs of a graph
    are, they share few regions once they stand together.

    Parameters
    ----------
    table : torch.Tensor
        Shape ``[rows, ...]``, on the CPU, unified or not; it is left as it is.
    heat : torch.Tensor or iterable of torch.Tensor
        Expected reads of each row (shape ``[rows]``, any real dtype; equal ones keep their order),
        or what :func:`row_heat` counts them from: an ``edge_index`` of shape ``[2, edges]`` or
        batches of ids.
    out : torch.Tensor, optional
        Memory for the new table, for example of a ``datapath_core.PinnedPool``; by default
        allocated.

    Returns
    -------
    ReorderedTable
        The new table and the map of ids.

    Raises
    ------
    ValueError
        `heat` has not one number a row, or is not a number somewhere.
    """
    check_source(table, "table")
    if table.is_cuda:
        raise ValueError(f"reorder_rows() lays out host memory, but the table is on {table.device}")
    rows = table.shape[0]
    if not isinstance(heat, torch.Tensor) or heat.dim() == 2:
        heat = row_heat(heat, rows)
    if tuple(heat.shape) != (rows,):
        raise ValueError(f"heat must have one number for each of {rows} rows, not {heat.shape}")
    if heat.is_complex():
        raise TypeError(f"heat must be of real numbers, not {heat.dtype}")
    if heat.is_floating_point() and heat.itemsize == 1:
        heat = heat.float()  # torch does not sort these
    if heat.is_floating_point() and bool(heat.isnan().any()):
        raise ValueError("heat has a NaN, which no order puts anywhere")
    old_of_new = torch.sort(heat.cpu(), descending=True, stable=True).indices
    new_of_old = torch.empty_like(old_of_new)
    new_of_old[old_of_new] = torch.arange(rows)
    with torch.no_grad():
        moved = gather(table.detach(), old_of_new, out=out)
    return ReorderedTable(unified(moved), new_of_old, old_of_new)
