# SPDX-License-Identifier: Apache-2.0
"""One edge type compressed by destination, where its arrays lie, and its address for kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from pytorch_direct import _native
from pytorch_direct.memory.registration import Registration, registration_of_view
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, current_registration

__all__ = ["Address", "Relation"]


@dataclass(frozen=True)
class Relation:
    """The edges of one type, those into one node side by side. All arrays are on one device.

    Parameters
    ----------
    indptr : torch.Tensor
        int64, ``num_dst + 1``: where the edges into each node begin.
    indices : torch.Tensor
        int32 or int64, one an edge: sources.
    num_src, num_dst : int
        Nodes of the two types.
    edge_ids : torch.Tensor or None
        int64: the name of each edge; None: its position.
    weight_sums, drawable : torch.Tensor or None
        int64: running sums of integer weights within each neighbourhood, and for each destination
        how many neighbours have a positive one.
    edge_time : torch.Tensor or None
        int64, not falling within a neighbourhood.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    num_src: int
    num_dst: int
    edge_ids: torch.Tensor | None = None
    weight_sums: torch.Tensor | None = None
    drawable: torch.Tensor | None = None
    edge_time: torch.Tensor | None = None

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return int(self.indices.shape[0])

    def tensors(self) -> list[torch.Tensor]:
        """Return the arrays that there are."""
        values = (getattr(self, field.name) for field in fields(self))
        return [value for value in values if isinstance(value, torch.Tensor)]

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Relation:
        """Return a relation with each array replaced by what a function makes of it."""
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, torch.Tensor):
                changed[field.name] = function(value)
        return replace(self, **changed)

    def native(
        self,
        address: Address,
        *,
        weighted: bool,
        edge_ids: bool,
        edge_time: bool,
        source_time: torch.Tensor | None,
    ) -> _native.Relation:
        """Return the relation as kernels on the address' device read it."""
        return _native.Relation(
            address.of(self.indptr),
            address.of(self.indices),
            self.indices.dtype == torch.int64,
            self.num_dst,
            self.num_src,
            address.of(self.edge_ids) if edge_ids else 0,
            address.of(self.weight_sums) if weighted else 0,
            address.of(self.drawable) if weighted else 0,
            address.of(self.edge_time) if edge_time else 0,
            address.of(source_time),
        )


class Address:
    """Where tensors begin for the processor of one device; remembers registered memory it met."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.registrations: set[Registration] = set()

    def of(self, tensor: torch.Tensor | None) -> int:
        """Return the address of a tensor's first element; 0 for None.

        Raises
        ------
        UnsupportedError
            The GPU cannot read a unified tensor; the text says why.
        """
        if tensor is None:
            return 0
        if self._device.type == "cpu":
            return int(tensor.data_ptr())
        if isinstance(tensor, UnifiedTensor):
            registration = current_registration(tensor)
            self.registrations.add(registration)
            offset = int(tensor.storage_offset()) * tensor.element_size()
            return registration.device_address(self._device.index) + offset
        view = registration_of_view(tensor)
        if view is not None:
            self.registrations.add(view)
        return int(tensor.data_ptr())
