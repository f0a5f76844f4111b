# SPDX-License-Identifier: Apache-2.0
"""A PyG ``FeatureStore`` whose tensors are unified, so that existing loaders gather from them."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import FeatureStore, TensorAttr

from pytorch_direct.ops.gather import gather
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, unified

__all__ = ["UnifiedFeatureStore"]

Key = tuple[Any, Any]


class UnifiedFeatureStore(FeatureStore):  # type: ignore[misc]
    """Features in host memory that a PyG loader reads rows of.

    Parameters
    ----------
    device : torch.device or str, optional
        Where rows go. With a GPU, ids are moved there and the GPU gathers by itself; use it where
        the loader fetches in the process that trains (``filter_per_worker=False``), since a forked
        worker cannot use CUDA. By default rows come where the ids are.

    Examples
    --------
    >>> store = UnifiedFeatureStore()
    >>> store["paper", "x", None] = torch.randn(100, 16)
    >>> store["paper", "x", torch.tensor([3, 5])].shape
    torch.Size([2, 16])
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__()
        self._device = None if device is None else torch.device(device)
        self._tables: dict[Key, UnifiedTensor] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A file has ordinary tensors.
        self._tables = {key: unified(table) for key, table in self._tables.items()}

    def table(self, group_name: Any, attr_name: Any) -> UnifiedTensor:
        """Return a whole table; `KeyError` if there is none of that name."""
        return self._tables[group_name, attr_name]

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        key = (attr.group_name, attr.attr_name)
        if attr.index is None:
            self._tables[key] = unified(tensor)
            return True
        if key not in self._tables:
            return False
        self._tables[key][attr.index] = torch.as_tensor(tensor)
        return True

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor:
        table = self._tables.get((attr.group_name, attr.attr_name))
        if table is None:
            raise KeyError(f"the store has no {attr.attr_name!r} of {attr.group_name!r}")
        index = attr.index
        if index is None:
            return table
        if not isinstance(index, torch.Tensor):
            if isinstance(index, (slice, int)):
                rows = table[index]
                return rows if self._device is None else rows.to(self._device)
            index = torch.as_tensor(index)
            if index.numel() == 0:
                index = index.long()  # of an empty list torch makes floats
        if self._device is not None:
            index = index.to(self._device)
        if index.dtype in (torch.int32, torch.int64) and index.dim() == 1:
            return gather(table, index)
        return table[index]

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return self._tables.pop((attr.group_name, attr.attr_name), None) is not None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        return tuple(self._get_tensor(attr).shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Return the names of all tables."""
        return [TensorAttr(group, name) for group, name in self._tables]
