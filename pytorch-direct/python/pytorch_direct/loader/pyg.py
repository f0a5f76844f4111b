# SPDX-License-Identifier: Apache-2.0
"""Reads PyG's ``Data`` and ``HeteroData``, and makes batches of the same class."""

from __future__ import annotations

import copy
from typing import Any, Self

from torch_geometric.data import HeteroData

from datapath_core.errors import UnsupportedError
from pytorch_direct.graph.graph import EDGE, NODE, Graph
from pytorch_direct.loader.columns import Attribute

__all__ = ["PygSource"]

#: What a batch gets from the sampler instead.
_STRUCTURE = ("edge_index", "num_nodes")


class PygSource:
    """A ``Data`` or ``HeteroData``."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.is_hetero = isinstance(data, HeteroData)

    def graph(self, weight_attr: str | None, time_attr: str | None) -> Graph:
        """See `Source`."""
        for store in self._data.stores:
            if "adj_t" in store and "edge_index" not in store:
                raise UnsupportedError(
                    "adj_t is not read: give edge_index, which ToSparseTensor(remove_edge_index="
                    "False) leaves in place"
                )
        return Graph.from_pyg(self._data, weight_attr=weight_attr, time_attr=time_attr)

    def sources(self, weight_attr: str | None, time_attr: str | None) -> list[Any] | None:
        """See `Source`."""
        names = [name for name in ("edge_index", weight_attr, time_attr) if name is not None]
        found: list[Any] = []
        for store in self._data.stores:
            found.append((store._key, store.num_nodes if self._has_nodes(store) else None))
            found.extend((name, store[name]) for name in names if name in store)
        return found

    def _has_nodes(self, store: Any) -> bool:
        return not self.is_hetero or isinstance(store._key, str)

    def now(self) -> Self:
        """See `Source`."""
        return type(self)(copy.copy(self._data))

    def attributes(self) -> list[Attribute]:
        """See `Source`."""
        found = []
        for store in self._data.stores:
            if self.is_hetero and store._key is None:
                continue
            for name, value in store.items():
                if name in _STRUCTURE:
                    continue
                dim = self._data.__cat_dim__(name, value, store)
                if store.is_node_attr(name):
                    kind = store._key if self.is_hetero else NODE
                    found.append(Attribute("node", kind, name, value, _dim(dim, value)))
                elif store.is_edge_attr(name):
                    kind = store._key if self.is_hetero else EDGE
                    found.append(Attribute("edge", kind, name, value, _dim(dim, value)))
        return found

    def blank(self) -> Any:
        """See `Source`."""
        return copy.copy(self._data)

    def store(self, batch: Any, kind: Any) -> Any:
        """See `Source`."""
        return batch[kind] if self.is_hetero else batch

    def edge_index(self, kind: Any) -> Any:
        """See `Source`."""
        return self._data[kind].edge_index if self.is_hetero else self._data.edge_index


def _dim(dim: int, value: Any) -> int:
    """Return the dimension of rows from the front."""
    return dim if dim >= 0 else dim + len(getattr(value, "shape", (0,)))
