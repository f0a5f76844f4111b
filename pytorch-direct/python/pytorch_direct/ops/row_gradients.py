# SPDX-License-Identifier: Apache-2.0
"""Gradients of single rows of a table: (id, row) pairs, sorted and added up by id."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pytorch_direct.ops.scatter_add import scatter_add_

__all__ = ["RowGradient", "added_up", "from_sparse", "joined", "reduce_rows"]


@dataclass(frozen=True)
class RowGradient:
    """Rows of a gradient, on one device.

    Parameters
    ----------
    ids : torch.Tensor
        int64 of shape ``[n]``, each in ``[0, rows of the table)``; in any order, with duplicates,
        unless `is_reduced`.
    rows : torch.Tensor
        Shape ``[n, ...]``, of the table's dtype; kept contiguous, which the gradient of a sum, one
        number seen as many, is not.
    is_reduced : bool
        The ids ascend and are unique.
    """

    ids: torch.Tensor
    rows: torch.Tensor
    is_reduced: bool = False

    def __post_init__(self) -> None:
        # Kernels read ids and rows by address alone.
        object.__setattr__(self, "ids", self.ids.contiguous())
        object.__setattr__(self, "rows", self.rows.contiguous())

    def as_sparse(self, shape: torch.Size) -> torch.Tensor:
        """Return a sparse COO tensor of the table's shape, coalesced if `is_reduced`."""
        return torch.sparse_coo_tensor(
            self.ids[None], self.rows, shape, is_coalesced=self.is_reduced, check_invariants=False
        )


def from_sparse(gradient: torch.Tensor) -> RowGradient:
    """Return what a sparse COO gradient holds."""
    if gradient.sparse_dim() != 1:
        raise ValueError(
            f"a gradient of rows has one sparse dimension, this one has {gradient.sparse_dim()}"
        )
    ids = gradient._indices()[0]
    # Autograd forgets that a gradient was coalesced when it keeps it.
    reduced = gradient.is_coalesced() or (not ids.is_cuda and bool((ids[1:] > ids[:-1]).all()))
    return RowGradient(ids, gradient._values(), reduced)


def joined(gradients: list[RowGradient]) -> RowGradient:
    """Return several gradients as one, in their order."""
    if len(gradients) == 1:
        return gradients[0]
    return RowGradient(
        torch.cat([one.ids for one in gradients]), torch.cat([one.rows for one in gradients])
    )


def added_up(
    known: torch.Tensor | None, pending: list[RowGradient], shape: torch.Size
) -> torch.Tensor:
    """Return the gradient on the CPU that a tensor's sparse or dense one and GPU rows make.

    Sparse and coalesced, unless `known` is dense.
    """
    lists = []
    if known is not None and known.layout is torch.sparse_coo:
        lists.append(reduce_rows(from_sparse(known), shape))
    if pending:
        on_gpu = reduce_rows(joined(pending), shape)
        lists.append(RowGradient(on_gpu.ids.cpu(), on_gpu.rows.cpu(), is_reduced=True))
    found = reduce_rows(joined(lists), shape).as_sparse(shape)
    dense = known is not None and known.layout is not torch.sparse_coo
    return known + found if dense else found  # type: ignore[operator]


def reduce_rows(gradient: RowGradient, shape: torch.Size) -> RowGradient:
    """Add up the rows of each id, in the order in which they stand; the ids ascend then.

    The same bits on the CPU and on a GPU. Ids out of range are left out. On a GPU the host waits
    for the number of distinct ids.
    """
    if gradient.is_reduced:
        return gradient
    ids = gradient.ids
    good = (ids >= 0) & (ids < shape[0])
    # Bad ones, which their gather has reported, count as one more id behind the others.
    unique, inverse = torch.unique(torch.where(good, ids, shape[0]), return_inverse=True)
    sums = torch.zeros((unique.numel(), *shape[1:]), dtype=gradient.rows.dtype, device=ids.device)
    scatter_add_(sums, inverse, gradient.rows)
    if unique.numel() and int(unique[-1]) == shape[0]:
        unique, sums = unique[:-1], sums[:-1]
    return RowGradient(unique, sums, is_reduced=True)
