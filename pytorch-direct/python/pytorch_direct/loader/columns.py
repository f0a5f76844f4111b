# SPDX-License-Identifier: Apache-2.0
"""An attribute with one row a node or an edge, and how the rows of a batch are fetched."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct.graph.graph import EdgeType
from pytorch_direct.ops.gather import gather
from pytorch_direct.tensor.unified_tensor import (
    UnifiedTensor,
    current_registration,
    plain,
    unified,
)

__all__ = ["Attribute", "Column", "Remote", "column_of"]

_logger = logging.getLogger("pytorch_direct")


@dataclass(frozen=True)
class Attribute:
    """A value with one row a node, or an edge, of a type."""

    of: Literal["node", "edge"]
    kind: str | EdgeType
    name: str
    value: Any
    dim: int = 0  #: Along which the rows lie.

    def __str__(self) -> str:
        return f"{self.name!r} of {self.of}s {self.kind!r}"


@dataclass(frozen=True)
class Remote:
    """A tensor of a PyG ``FeatureStore`` that only gives rows."""

    store: Any
    attr: Any

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Ask for rows by ids on the CPU."""
        attr = copy.copy(self.attr)
        attr.index = ids
        return torch.as_tensor(self.store.get_tensor(attr))


class Column:
    """Fetches rows of one attribute.

    The thread that makes batches calls `read`, `empty` and `fill`; where `is_late`, the one that
    takes them calls `late`.
    """

    is_late = False

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute

    def read(self, ids: torch.Tensor) -> Any:
        """Return what has to be known before memory is allocated."""
        return None

    def empty(self, count: int, device: torch.device, found: Any) -> torch.Tensor:
        """Return memory for rows, ahead of which their number goes."""
        raise NotImplementedError

    def fill(self, out: torch.Tensor, ids: torch.Tensor, found: Any) -> None:
        """Write the rows."""
        raise NotImplementedError

    def late(self, ids: torch.Tensor) -> Any:
        """Return the rows at once."""
        raise NotImplementedError

    def shown(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows with the dimension where the attribute has it."""
        return rows if self.attribute.dim == 0 else rows.movedim(0, self.attribute.dim)


class _Gathered(Column):
    """By the device that has the ids, from memory that it reads itself."""

    def __init__(
        self, attribute: Attribute, table: torch.Tensor, sm_share: float | None = None
    ) -> None:
        super().__init__(attribute)
        self._table = table.movedim(attribute.dim, 0) if attribute.dim else table
        self._sm_share = sm_share

    def empty(self, count: int, device: torch.device, found: Any) -> torch.Tensor:
        return torch.empty((count, *self._table.shape[1:]), dtype=self._table.dtype, device=device)

    def fill(self, out: torch.Tensor, ids: torch.Tensor, found: Any) -> None:
        gather(self._table, ids, out=out, sm_share=self._sm_share)


class _Staged(_Gathered):
    """By the CPU and a copy, from memory that the GPU cannot read."""

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        host = ids.cpu()
        shape = (host.numel(), *self._table.shape[1:])
        rows = torch.empty(shape, dtype=self._table.dtype, pin_memory=True)
        return gather(self._table, host, out=rows)

    def fill(self, out: torch.Tensor, ids: torch.Tensor, found: torch.Tensor) -> None:
        out.copy_(found, non_blocking=True)


class _Asked(Column):
    """By a store of PyG's."""

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.attribute.value.rows(ids.cpu())
        return rows

    def empty(self, count: int, device: torch.device, found: torch.Tensor) -> torch.Tensor:
        if device.type == "cpu":
            return found
        return torch.empty(found.shape, dtype=found.dtype, device=device)

    def fill(self, out: torch.Tensor, ids: torch.Tensor, found: torch.Tensor) -> None:
        if out is not found:
            out.copy_(found if found.is_cuda else found.pin_memory(), non_blocking=True)


class _Late(Column):
    """When the batch is taken, by torch or with gradients."""

    is_late = True

    def __init__(
        self, attribute: Attribute, rows: Callable[[torch.Tensor], Any], device: torch.device
    ) -> None:
        super().__init__(attribute)
        self._rows, self._device = rows, device

    def late(self, ids: torch.Tensor) -> Any:
        rows = self._rows(ids)
        return rows.to(self._device) if hasattr(rows, "to") else rows


def column_of(attribute: Attribute, device: torch.device, sm_share: float | None) -> Column:
    """Return the way to fetch an attribute's rows to a device, by a share of a GPU if it does that.

    Raises
    ------
    TypeError
        Rows of such a value cannot be taken; the text says which.
    """
    value = attribute.value
    if isinstance(value, Remote):
        return _Asked(attribute)
    if isinstance(value, (list, tuple)):
        raise TypeError(
            f"{attribute} is a {type(value).__name__}, whose rows a loader cannot take: make it a "
            "tensor, or take it away and look it up by n_id"
        )
    if not isinstance(value, torch.Tensor):
        if not hasattr(value, "__array_interface__"):
            # PyG's TensorFrame and the like index themselves.
            return _Late(attribute, lambda ids: value[ids.cpu()], device)
        value = unified(value)
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        return _Late(attribute, _selected(value, attribute.dim), device)
    if value.requires_grad:
        return _Late(attribute, _with_gradient(value, attribute.dim, device), device)
    if value.is_cuda:
        if value.device == device:
            return _Gathered(attribute, value.detach())
        return _Late(attribute, _selected(value, attribute.dim), device)
    if value.device.type != "cpu":
        return _Late(attribute, _selected(value, attribute.dim), device)
    if device.type != "cuda":
        return _Gathered(attribute, value if isinstance(value, UnifiedTensor) else value.detach())
    with torch.cuda.device(device):
        table = unified(value)
    try:
        current_registration(table).device_address(device.index)
    except UnsupportedError as error:
        _logger.warning("%s is gathered by the CPU and copied: %s", attribute, error)
        return _Staged(attribute, plain(table))
    return _Gathered(attribute, table, sm_share)


def _selected(value: torch.Tensor, dim: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda ids: torch.index_select(value, dim, ids.to(value.device))


def _with_gradient(
    value: torch.Tensor, dim: int, device: torch.device
) -> Callable[[torch.Tensor], torch.Tensor]:
    table = unified(value) if device.type == "cuda" and value.device.type == "cpu" else value
    if table.is_cuda and table.device != device:
        return _selected(table, dim)

    def rows(ids: torch.Tensor) -> torch.Tensor:
        first = table.movedim(dim, 0) if dim else table
        return gather(first, ids).movedim(0, dim)

    return rows
