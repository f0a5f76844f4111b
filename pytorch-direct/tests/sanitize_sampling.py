# SPDX-License-Identifier: Apache-2.0
"""Every sampling kernel on small graphs: ``compute-sanitizer python sanitize_sampling.py``.

Good under memcheck, racecheck, initcheck and synccheck. Not collected by pytest.
"""

from __future__ import annotations

import torch
from sampling_reference import assert_equal

from pytorch_direct import Graph, NeighborSampler, rmat
from pytorch_direct.sampling import device


def main() -> None:
    """Run each rule over both places of the structure; compare with the CPU."""
    edges = rmat(2000, 20_000, seed=1)
    extras = (
        {},
        {"edge_weight": torch.rand(20_000)},
        {"edge_time": torch.randint(0, 50, (20_000,))},
        {"node_time": torch.randint(0, 50, (2000,))},
    )
    seeds = torch.randint(0, 2000, (60,))
    time = torch.full((60,), 25)
    for extra in extras:
        graph = Graph.from_edge_index(edges, 2000, **extra)
        for place in (graph.unified(), graph.to("cuda")):
            for replace in (False, True):
                for last in ("uniform", "last"):
                    options = {"replace": replace, "temporal_strategy": last}
                    for unread in (1 << 22, 0):
                        device.MOST_UNREAD = unread
                        asked = {"seed_time": time if graph.has_times else None}
                        out = NeighborSampler(place, [5, -1, 3], **options).sample(
                            seeds, device="cuda", **asked
                        )
                        assert_equal(
                            out,
                            NeighborSampler(graph, [5, -1, 3], **options).sample(seeds, **asked),
                        )
    torch.cuda.synchronize()
    print("clean")


if __name__ == "__main__":
    main()
