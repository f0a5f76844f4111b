# SPDX-License-Identifier: Apache-2.0
"""``LinkNeighborLoader``: batches of links, with negatives, and what was sampled around them."""

from __future__ import annotations

from typing import Any, Literal

import torch

from pytorch_direct.loader.base import Loader
from pytorch_direct.loader.links import link_seeds, negatives_of
from pytorch_direct.loader.placement import made_on_host
from pytorch_direct.sampling.neighbor_sampler import NeighborSampler, SubgraphType

__all__ = ["LinkNeighborLoader"]


class LinkNeighborLoader(Loader):
    """PyG's ``LinkNeighborLoader``, whose batches are sampled and fetched by the GPU.

    Parameters
    ----------
    data, num_neighbors
        See :class:`NeighborLoader`.
    edge_label_index : links, edge type or (edge type, links); optional
        Ids of shape ``[2, links]``. None: all edges.
    edge_label : array, optional
        Labels of the links. With binary negatives those have label 0; if a given label is 0, all
        given ones are raised by one.
    edge_label_time : array of integers, optional
        Times of the links; needed where the graph has times.
    replace, subgraph_type, disjoint, temporal_strategy
        See :class:`pytorch_direct.NeighborSampler`.
    neg_sampling : NegativeSampling, str, dict or PyG's; optional
        How negatives are drawn.
    neg_sampling_ratio : float, optional
        PyG's older word for binary negatives.
    time_attr, weight_attr, transform, transform_sampler_output, is_sorted, filter_per_worker
        See :class:`NeighborLoader`.
    neighbor_sampler, directed, device, graph_device, return_edge_ids, threads, custom_cls
        See :class:`NeighborLoader`.
    **options
        See :class:`NeighborLoader`.

    Raises
    ------
    IndexError, TypeError, ValueError
        An argument is out of its domain.
    UnsupportedError
        Something cannot be done; the text says what to do instead.

    Notes
    -----
    Batches have ``edge_label_index``, ``edge_label`` and ``edge_label_time``, or with triplets
    ``src_index``, ``dst_pos_index`` and ``dst_neg_index``: places among the batch's nodes. All else
    is as with :class:`NeighborLoader`.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        replace: bool = False,
        subgraph_type: SubgraphType = "directional",
        disjoint: bool = False,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: NeighborSampler | None = None,
        directed: bool = True,
        *,
        device: torch.device | str | int | None = None,
        graph_device: torch.device | str | int | None = None,
        return_edge_ids: bool = True,
        threads: int | None = None,
        custom_cls: Any = None,
        input_id: Any = None,
        **options: Any,
    ) -> None:
        del is_sorted
        super().__init__(
            data,
            num_neighbors,
            replace=replace,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            temporal_strategy=temporal_strategy,
            time_attr=time_attr,
            weight_attr=weight_attr,
            neighbor_sampler=neighbor_sampler,
            directed=directed,
            device=device,
            graph_device=graph_device,
            return_edge_ids=return_edge_ids,
            threads=threads,
            custom_cls=custom_cls,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **options,
        )
        if (edge_label_time is not None) != self._sampler.is_temporal:
            raise ValueError(
                "edge_label_time and the graph's times (time_attr) go together: "
                f"{'the graph has none' if edge_label_time is not None else 'give both'}"
            )
        with made_on_host():
            self._task = link_seeds(
                self._source,
                self.graph,
                edge_label_index,
                edge_label,
                edge_label_time,
                input_id,
                negatives_of(neg_sampling, neg_sampling_ratio),
            )
