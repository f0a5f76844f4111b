# SPDX-License-Identifier: Apache-2.0
"""The batches of a loader where PyG is not used: named tensors, under the names that PyG has."""

from __future__ import annotations

from collections.abc import ItemsView, KeysView
from typing import Any, Self

import torch

__all__ = ["Batch", "HeteroBatch", "Store"]

Kind = str | tuple[str, str, str]

#: Names that a model may ask for whether or not they are there; None then, as in PyG.
_OPTIONAL = frozenset({"x", "y", "edge_attr", "edge_weight", "batch", "pos", "time", "seed_time"})


class Store:
    """Values by name, as attributes and as items; None takes a name away."""

    def __init__(self, **values: Any) -> None:
        self.__dict__["_values"] = {}
        for name, value in values.items():
            self[name] = value

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        if name in _OPTIONAL:
            return None
        raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {list(values)}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        self[name] = None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return int(self.n_id.shape[0])

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return int(self.edge_index.shape[1])

    def keys(self) -> KeysView[str]:
        """Return the names."""
        names: KeysView[str] = self._values.keys()
        return names

    def items(self) -> ItemsView[str, Any]:
        """Return names and values."""
        pairs: ItemsView[str, Any] = self._values.items()
        return pairs

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> Self:
        """Move all tensors to a device, in place, and return this object."""
        for name, value in self._values.items():
            if isinstance(value, torch.Tensor):
                self._values[name] = value.to(device, non_blocking=non_blocking)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_described(self._values)})"


class Batch(Store):
    """A sampled subgraph of a homogeneous graph with the rows of its nodes and edges.

    Attributes
    ----------
    edge_index : torch.Tensor
        int64 of shape ``[2, edges]``: places in `n_id` of sources and destinations.
    n_id, e_id : torch.Tensor
        Ids in the whole graph of the nodes and of the edges.
    input_id : torch.Tensor
        Places of the batch's seeds among all seeds.
    batch_size : int
        Number of seeds, which are the first nodes.
    num_sampled_nodes, num_sampled_edges : list of int
        By hop; the seeds are hop 0 of the nodes.

    Notes
    -----
    Besides, what the loader was given: ``x``, ``y`` and so on; for links ``edge_label_index`` and
    ``edge_label``, or ``src_index``, ``dst_pos_index`` and ``dst_neg_index``.
    """


class HeteroBatch:
    """A sampled subgraph of a heterogeneous graph: ``batch["paper"].x``, ``batch.x_dict``.

    Types of nodes and of edges each have a store with the names of :class:`Batch`.
    """

    def __init__(self) -> None:
        self.__dict__["_stores"] = {}

    def __getitem__(self, kind: Kind) -> Store:
        stores: dict[Kind, Store] = self._stores
        if kind not in stores:
            stores[kind] = Store()
        return stores[kind]

    def __getattr__(self, name: str) -> Any:
        stores = self.__dict__.get("_stores", {})
        plain = name.removesuffix("_dict")
        found = {kind: store[plain] for kind, store in stores.items() if plain in store}
        if plain == name or not found:
            raise AttributeError(f"HeteroBatch has no {name!r}")
        return found

    @property
    def node_types(self) -> list[str]:
        """Types of nodes."""
        return [kind for kind in self._stores if isinstance(kind, str)]

    @property
    def edge_types(self) -> list[tuple[str, str, str]]:
        """Types of edges."""
        return [kind for kind in self._stores if not isinstance(kind, str)]

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> Self:
        """Move all tensors to a device, in place, and return this object."""
        for store in self._stores.values():
            store.to(device, non_blocking)
        return self

    def __repr__(self) -> str:
        lines = [f"  {kind}: {_described(store)}" for kind, store in self._stores.items()]
        return "\n".join(["HeteroBatch(", *lines, ")"])


def _described(values: Any) -> str:
    parts = []
    for name, value in values.items():
        shown = list(value.shape) if isinstance(value, torch.Tensor) else value
        parts.append(f"{name}={shown}")
    return ", ".join(parts)
