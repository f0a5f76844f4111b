# SPDX-License-Identifier: Apache-2.0
"""A random relational graph for tests that train; not real data (see data/)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["SmallGraph", "small_graph"]


@dataclass
class SmallGraph:
    """A random graph that satisfies ``relational_gnn.Graph``."""

    features: torch.Tensor
    labels: torch.Tensor
    train_mask: torch.Tensor
    test_mask: torch.Tensor
    edge_index: torch.Tensor
    edge_type: torch.Tensor
    num_nodes: int = 80
    num_relations: int = 5
    num_classes: int = 3
    num_packages: int = 60


def small_graph(seed: int = 0) -> SmallGraph:
    generator = torch.Generator().manual_seed(seed)
    train = torch.rand(60, generator=generator) < 0.7
    return SmallGraph(
        features=torch.randn(60, 16, generator=generator),
        labels=torch.randint(3, (60,), generator=generator),
        train_mask=train,
        test_mask=~train,
        edge_index=torch.randint(80, (2, 300), generator=generator),
        edge_type=torch.randint(5, (300,), generator=generator).sort().values,
    )
