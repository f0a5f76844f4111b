# SPDX-License-Identifier: Apache-2.0
"""R-MAT graphs: determinism, law, sizes."""

from __future__ import annotations

import pytest
import torch

from pytorch_direct import rmat, rmat_features


@pytest.fixture
def thread_counts():
    before = torch.get_num_threads()
    yield (1, 2, 5)
    torch.set_num_threads(before)


def test_same_for_the_same_seed_whatever_the_threads(thread_counts):
    graphs, features = [], []
    for threads in thread_counts:
        torch.set_num_threads(threads)
        graphs.append(rmat(1000, 100_000, seed=3, scramble=True))
        features.append(rmat_features(1000, 77, seed=3))
    assert all(torch.equal(graph, graphs[0]) for graph in graphs)
    assert all(torch.equal(feature, features[0]) for feature in features)
    assert not torch.equal(rmat(1000, 100_000, seed=4, scramble=True), graphs[0])
    assert not torch.equal(rmat_features(1000, 77, seed=4), features[0])


def test_known_values_never_change():
    # Written down once: a change of these is a change of every benchmark's data.
    assert rmat(100, 4, seed=0).tolist() == [[9, 50, 22, 10], [2, 59, 0, 19]]
    assert rmat_features(1, 3, seed=0).mul(2**23).long().tolist() == [
        [-4608378, -6325324, -3345511]
    ]


def test_longer_graph_begins_with_the_shorter_one():
    assert torch.equal(rmat(77, 50_000, seed=1)[:, :1000], rmat(77, 1000, seed=1))


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 64, 1000, 1023, 1025])
def test_every_node_is_in_range_and_can_be_reached(nodes):
    edges = rmat(nodes, 200 * nodes, seed=7, a=0.25, b=0.25, c=0.25)
    assert edges.shape == (2, 200 * nodes)
    assert edges.dtype == torch.int64
    assert int(edges.min()) >= 0
    assert int(edges.max()) < nodes
    assert edges[0].unique().numel() == nodes
    assert edges[1].unique().numel() == nodes


def test_quadrants_have_their_probabilities():
    a, b, c = 0.5, 0.2, 0.1
    count = 400_000
    source, destination = rmat(1 << 10, count, seed=5, a=a, b=b, c=c) >= 512
    seen = [
        int((~source & ~destination).sum()),
        int((~source & destination).sum()),
        int((source & ~destination).sum()),
        int((source & destination).sum()),
    ]
    expected = [count * p for p in (a, b, c, 1 - a - b - c)]
    chi_square = sum((s - e) ** 2 / e for s, e in zip(seen, expected, strict=True))
    assert chi_square < 16.3  # 3 degrees of freedom, p = 0.001


def test_degrees_are_skewed_and_scrambling_keeps_them():
    nodes, count = 1 << 12, 200_000
    degrees = torch.bincount(rmat(nodes, count, seed=2)[1], minlength=nodes)
    top = degrees.sort(descending=True).values[: nodes // 100].sum()
    assert top > 0.1 * count  # one node in a hundred has far more than a hundredth of the edges
    assert degrees[: nodes // 16].sum() > 3 * count / 16
    scrambled = torch.bincount(rmat(nodes, count, seed=2, scramble=True)[1], minlength=nodes)
    assert torch.equal(scrambled.sort().values, degrees.sort().values)
    assert scrambled[: nodes // 16].sum() < 2 * count / 16


def test_numbers_of_nodes_beyond_32_bits():
    nodes = 2**40 + 12345
    edges = rmat(nodes, 10_000, seed=1, a=0.25, b=0.25, c=0.25)
    assert int(edges.max()) < nodes
    assert int(edges.max()) > 2**39
    assert int(rmat(nodes, 10_000, seed=1, scramble=True).max()) < nodes


def test_features_are_uniform_and_convert():
    features = rmat_features(1000, 100, seed=9)
    assert features.shape == (1000, 100)
    assert float(features.min()) >= -1
    assert float(features.max()) < 1
    assert abs(float(features.mean())) < 0.01
    assert float(features.var()) == pytest.approx(1 / 3, rel=0.02)
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2):
        assert torch.equal(rmat_features(1000, 100, seed=9, dtype=dtype).float(),
                           features.to(dtype).float())  # fmt: skip


def test_empty_sizes():
    assert rmat(0, 0, seed=1).shape == (2, 0)
    assert rmat(5, 0, seed=1).shape == (2, 0)
    assert rmat_features(0, 5, seed=1).shape == (0, 5)
    assert rmat_features(5, 0, seed=1, dtype=torch.float16).shape == (5, 0)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: rmat(0, 1, seed=0), ValueError),
        (lambda: rmat(-1, 1, seed=0), ValueError),
        (lambda: rmat(5, 1, seed=-1), ValueError),
        (lambda: rmat(5, 1, seed=2**64), ValueError),
        (lambda: rmat(5, 1, seed=0, a=0.9, b=0.2), ValueError),
        (lambda: rmat(5, 1, seed=0, a=float("nan")), ValueError),
        (lambda: rmat(5.5, 1, seed=0), TypeError),
        (lambda: rmat_features(5, 1, seed=0, dtype=torch.int32), TypeError),
    ],
)
def test_arguments_out_of_their_domain(call, error):
    with pytest.raises(error):
        call()
