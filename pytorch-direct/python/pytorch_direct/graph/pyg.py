# SPDX-License-Identifier: Apache-2.0
"""Reads PyG's ``Data`` and ``HeteroData``; imported only when one is given."""

from __future__ import annotations

from typing import Any

__all__ = ["read"]


def read(data: Any, weight_attr: str | None, time_attr: str | None) -> dict[str, Any]:
    """Return the arguments of ``Graph.from_edge_index`` for a PyG object."""
    from torch_geometric.data import Data, HeteroData

    if isinstance(data, HeteroData):
        return _read_hetero(data, weight_attr, time_attr)
    if isinstance(data, Data):
        return _read_homogeneous(data, weight_attr, time_attr)
    raise TypeError(f"from_pyg takes a PyG Data or HeteroData, not {type(data).__name__}")


def _read_homogeneous(data: Any, weight_attr: str | None, time_attr: str | None) -> dict[str, Any]:
    if data.edge_index is None:
        raise ValueError("from_pyg: the Data has no edge_index")
    found: dict[str, Any] = {"edge_index": data.edge_index, "num_nodes": data.num_nodes}
    if weight_attr is not None:
        found["edge_weight"] = _attribute(data, weight_attr, "weight_attr")
    if time_attr is not None:
        time = _attribute(data, time_attr, "time_attr")
        found["node_time" if data.is_node_attr(time_attr) else "edge_time"] = time
    return found


def _read_hetero(data: Any, weight_attr: str | None, time_attr: str | None) -> dict[str, Any]:
    edges: dict[Any, Any] = {}
    for kind, store in data.edge_items():
        if "edge_index" not in store:
            raise ValueError(f"from_pyg: edge type {kind} has no edge_index")
        edges[kind] = store.edge_index
    found: dict[str, Any] = {
        "edge_index": edges,
        "num_nodes": {kind: data[kind].num_nodes for kind in data.node_types},
    }
    if weight_attr is not None:
        weights = {kind: s[weight_attr] for kind, s in data.edge_items() if weight_attr in s}
        found["edge_weight"] = _some(weights, weight_attr, "weight_attr")
    if time_attr is not None:
        nodes = {kind: s[time_attr] for kind, s in data.node_items() if time_attr in s}
        of_edges = {kind: s[time_attr] for kind, s in data.edge_items() if time_attr in s}
        _some({**nodes, **of_edges}, time_attr, "time_attr")
        found["node_time"] = nodes or None
        found["edge_time"] = of_edges or None
    return found


def _attribute(data: Any, name: str, what: str) -> Any:
    if name not in data:
        raise ValueError(f"from_pyg: {what}={name!r}, but the Data has only {sorted(data.keys())}")
    return data[name]


def _some(found: dict[Any, Any], name: str, what: str) -> dict[Any, Any]:
    if not found:
        raise ValueError(f"from_pyg: {what}={name!r}, but no type of the HeteroData has it")
    return found
