# SPDX-License-Identifier: Apache-2.0
"""Where batches go, where the graph's structure lies, and which loaders share it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct import _native
from pytorch_direct.graph.device import as_device
from pytorch_direct.graph.graph import Graph
from pytorch_direct.loader.said import say_once
from pytorch_direct.loader.sources import Source
from pytorch_direct.memory.registration import can_use_cuda

__all__ = ["PlacedGraph", "batch_device", "made_on_host", "placed_graph"]

#: Of the GPU's free memory, the share that structure may take without being asked to.
_SHARE = 8

_known: weakref.WeakValueDictionary[tuple[Any, ...], PlacedGraph] = weakref.WeakValueDictionary()
_known_lock = threading.Lock()


class PlacedGraph:
    """A graph that loaders over the same tensors share."""

    def __init__(self, graph: Graph, sources: list[Any] | None) -> None:
        self.graph = graph
        # Alive, so that no other tensor gets their addresses.
        self._sources = sources


@contextmanager
def made_on_host() -> Iterator[None]:
    """Make tensors that name no device on the CPU, whatever the caller's default is."""
    if torch.get_default_device().type == "cpu":
        yield
    else:
        with torch.device("cpu"):
            yield


def batch_device(device: torch.device | str | int | None) -> torch.device:
    """Return where batches go: as asked, else the current GPU, else the CPU.

    Raises
    ------
    UnsupportedError
        A GPU is asked for and there is none, this build has no kernels, or this is a forked child.
    """
    if device is None:
        if not can_use_cuda():
            return torch.device("cpu")
        if not _native.has_cuda:
            say_once(
                "kernels",
                "this build of pytorch_direct has no CUDA kernels, so loaders make their batches "
                "on the CPU",
            )
            return torch.device("cpu")
        device = "cuda"
    where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if where.type == "cpu":
        return torch.device("cpu")
    if where.type != "cuda":
        raise UnsupportedError(f"a loader serves the CPU or CUDA devices, not {where}")
    if torch.cuda._is_in_bad_fork():
        raise UnsupportedError(
            "a forked process cannot use CUDA once its parent has: give device='cpu', or start the "
            "process with the spawn method"
        )
    if not torch.cuda.is_available():
        raise UnsupportedError(
            f"device={str(where)!r}, but torch {torch.__version__} sees no GPU: leave device= out "
            "or give 'cpu'"
        )
    if not _native.has_cuda:
        raise UnsupportedError(
            f"device={str(where)!r}, but this build of pytorch_direct has no CUDA kernels, since "
            "no nvcc was found when it was built: put nvcc on PATH or set CUDACXX to its path and "
            "install it again; or give device='cpu'"
        )
    return as_device(where)


def placed_graph(
    source: Source,
    device: torch.device,
    graph_device: torch.device | str | int | None,
    weight_attr: str | None,
    time_attr: str | None,
) -> PlacedGraph:
    """Return the graph where `device` can sample it; that of another loader if it is the same.

    Parameters
    ----------
    source : Source
        Where it comes from.
    device : torch.device
        Where it is sampled.
    graph_device : torch.device, str, int or None
        "cpu": in host memory, registered if a GPU samples; the GPU: in its memory. None: there if
        it takes an eighth of what is free or less.
    weight_attr, time_attr : str or None
        Names in PyG's objects.
    """
    sources = source.sources(weight_attr, time_attr)
    key = _key(sources, device, graph_device, weight_attr, time_attr)
    if key is not None:
        with _known_lock:
            found = _known.get(key)
        if found is not None:
            return found
    graph = _placed(source.graph(weight_attr, time_attr), device, graph_device)
    made = PlacedGraph(graph, sources)
    if key is not None:
        with _known_lock:
            made = _known.setdefault(key, made)
    return made


def _placed(
    graph: Graph, device: torch.device, graph_device: torch.device | str | int | None
) -> Graph:
    if device.type == "cpu":
        if graph.device.type != "cpu":
            raise UnsupportedError(
                f"the graph is on {graph.device}, so it is sampled there: leave device= out or "
                "move it with graph.to('cpu')"
            )
        if graph_device is not None and as_device(graph_device).type != "cpu":
            raise ValueError("graph_device= is where the structure lies that a GPU samples")
        return graph
    if graph_device is None:
        if graph.device.type == "cuda":
            return graph.to(device)
        if graph.is_unified:
            return graph
        free, _ = torch.cuda.mem_get_info(device)
        graph_device = device if graph.nbytes * _SHARE <= free else "cpu"
    where = as_device(graph_device)
    if where.type == "cpu":
        with torch.cuda.device(device):
            return (graph if graph.device.type == "cpu" else graph.to("cpu")).unified()
    if where != device:
        raise ValueError(f"graph_device={where} must be 'cpu' or the batches' device, {device}")
    return graph.to(device)


def _key(sources: list[Any] | None, *more: Any) -> tuple[Any, ...] | None:
    if sources is None:
        return None
    parts: list[Any] = [str(item) for item in more]
    for item in sources:
        if isinstance(item, Graph):
            parts.append(id(item))
        elif isinstance(item, tuple) and isinstance(item[1], torch.Tensor):
            tensor = item[1]
            if tensor.is_inference() or tensor.layout is not torch.strided:
                # Their changes are not counted, or their memory is not one.
                return None
            where = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
            parts.append((item[0], *where, tensor._version))
        elif isinstance(item, tuple) and (item[1] is None or isinstance(item[1], (int, float))):
            parts.append(item)
        else:
            return None
    return tuple(parts)
