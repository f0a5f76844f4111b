# SPDX-License-Identifier: Apache-2.0
"""Against PyG's own loaders: equal with full fan-out, of one law below it, as good to train with.

PyG sorts edges by destination with a sort that is not stable, so edges are given to both in order.
"""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import pytest
import torch
from scipy import stats

from datapath_core import UnsupportedError
from pytorch_direct import Graph, LinkNeighborLoader, NeighborLoader, rmat, unified

pytest.importorskip("torch_geometric")

from torch_geometric import loader as pyg_loader
from torch_geometric import sampler as pyg_sampler
from torch_geometric.data import Data, HeteroData

from pytorch_direct.stores import HostGraphStore, UnifiedFeatureStore

needs_sampler = pytest.mark.skipif(
    not any(importlib.util.find_spec(name) for name in ("torch_sparse", "pyg_lib")),
    reason="PyG samples with torch-sparse or pyg-lib",
)
NODES, EDGES = 300, 1500


@pytest.fixture(autouse=True)
def _torch_sparse_is_said_to_be_old():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*pyg-lib.*")
        yield


def in_order(edges: torch.Tensor) -> torch.Tensor:
    return edges[:, torch.argsort(edges[1], stable=True)]


@pytest.fixture
def data() -> Data:
    generator = torch.Generator().manual_seed(0)
    data = Data(
        x=torch.randn(NODES, 5, generator=generator),
        edge_index=in_order(rmat(NODES, EDGES, seed=3)),
        edge_attr=torch.randn(EDGES, 2, generator=generator),
        y=torch.randint(0, 4, (NODES,), generator=generator),
        train_mask=torch.rand(NODES, generator=generator) < 0.5,
        # Rows along the last dimension, by PyG's rule for this name.
        some_index=torch.arange(2 * NODES).view(2, NODES),
        half=torch.randn(NODES, 3, generator=generator).bfloat16(),
        array=np.arange(NODES * 2.0).reshape(NODES, 2),
        constant=torch.ones(7),
        text="of the graph",
    )
    data.num_nodes = NODES
    return data


@pytest.fixture
def hetero() -> HeteroData:
    generator = torch.Generator().manual_seed(2)
    data = HeteroData()
    data["u"].x = torch.randn(40, 3, generator=generator)
    data["i"].x = torch.randn(60, 2, generator=generator)
    data["i"].y = torch.randint(0, 3, (60,), generator=generator)
    data["alone"].num_nodes = 5
    for kind, nodes in (
        (("u", "likes", "i"), (40, 60)),
        (("i", "liked", "u"), (60, 40)),
        (("i", "near", "i"), (60, 60)),
    ):
        ends = [torch.randint(0, n, (150,), generator=generator) for n in nodes]
        data[kind].edge_index = in_order(torch.stack(ends))
    data["u", "likes", "i"].edge_attr = torch.randn(150, 2, generator=generator)
    data.note = "of the graph"
    return data


def assert_same(ours, theirs, absent=("num_sampled_nodes", "num_sampled_edges")):
    """torch-sparse counts no nodes and edges by hop, so PyG's batch may lack those numbers."""
    assert type(ours) is type(theirs)
    stores = [(ours, theirs)]
    if isinstance(theirs, HeteroData):
        assert ours.node_types == theirs.node_types
        assert ours.edge_types == theirs.edge_types
        assert ours.note == theirs.note
        stores = [(ours[k], theirs[k]) for k in (*theirs.node_types, *theirs.edge_types)]
    for mine, other in stores:
        assert set(mine.keys()) - set(absent) == set(other.keys()) - set(absent)
        for name in set(other.keys()) - set(absent):
            value = other[name]
            if isinstance(value, torch.Tensor):
                assert mine[name].dtype == value.dtype, name
                assert torch.equal(mine[name], value), name
            else:
                assert mine[name] == value, name


@needs_sampler
@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("seeds", ["all", "mask", "ids", "twice"])
def test_full_fanout_is_equal(data, hops, seeds):
    given = {
        "all": None,
        "mask": data.train_mask,
        "ids": torch.tensor([5, 1, 77, 200, 13]),
        "twice": torch.tensor([5, 1, 5, 5, 1]),
    }[seeds]
    arguments = {"num_neighbors": [-1] * hops, "input_nodes": given, "batch_size": 4}
    theirs = pyg_loader.NeighborLoader(data, is_sorted=True, **arguments)
    ours = NeighborLoader(data, device="cpu", **arguments)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same(mine, other)


@needs_sampler
@pytest.mark.parametrize("name", ["batch", "n_id", "e_id", "batch_size", "input_id", "seed_time"])
def test_attributes_with_names_of_the_loader(data, name):
    data[name] = torch.arange(EDGES if name == "e_id" else NODES) + 5
    arguments = {"num_neighbors": [-1], "input_nodes": torch.tensor([5, 1]), "batch_size": 2}
    theirs = pyg_loader.NeighborLoader(data, is_sorted=True, **arguments)
    (mine,), (other,) = NeighborLoader(data, device="cpu", **arguments), theirs
    assert_same(mine, other)


@needs_sampler
@pytest.mark.parametrize("fanouts", [[-1, -1], {("u", "likes", "i"): [-1, 0]}])
@pytest.mark.parametrize("seeds", ["i", ("u", None), ("i", "mask")])
def test_full_fanout_of_types_is_equal(hetero, fanouts, seeds):
    if isinstance(fanouts, dict):
        fanouts = {kind: fanouts.get(kind, [0, -1]) for kind in hetero.edge_types}
    if seeds[-1] == "mask":
        seeds = ("i", hetero["i"].y == 1)
    arguments = {"num_neighbors": fanouts, "input_nodes": seeds, "batch_size": 7}
    theirs = pyg_loader.NeighborLoader(hetero, is_sorted=True, **arguments)
    ours = NeighborLoader(hetero, device="cpu", **arguments)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same(mine, other)
        nodes = mine["i"].num_sampled_nodes
        assert sum(nodes) == mine["i"].x.shape[0]


@needs_sampler
def test_induced_is_equal(data):
    arguments = {
        "num_neighbors": [-1, -1], "input_nodes": torch.tensor([5, 1, 77]), "batch_size": 3,
    }  # fmt: skip
    for option in ({"subgraph_type": "induced"}, {"directed": False}):
        theirs = pyg_loader.NeighborLoader(data, is_sorted=True, **arguments, **option)
        (mine,), (other,) = NeighborLoader(data, device="cpu", **arguments, **option), theirs
        assert_same(mine, other)


@needs_sampler
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("negatives", [False, True])
def test_links_are_equal(data, labels, negatives):
    arguments = {
        "num_neighbors": [-1, -1],
        "edge_label_index": data.edge_index[:, ::7],
        "edge_label": torch.arange(data.edge_index[:, ::7].shape[1]) % 3 if labels else None,
        "batch_size": 16,
    }
    if negatives:
        # Both ends are chosen where one node alone has a weight, so there is nothing to draw.
        weight = torch.zeros(NODES).index_fill(0, torch.tensor([9]), 1.0)
        arguments["neg_sampling"] = pyg_sampler.NegativeSampling(
            "binary", 2, src_weight=weight, dst_weight=weight
        )
    theirs = pyg_loader.LinkNeighborLoader(data, is_sorted=True, **arguments)
    ours = LinkNeighborLoader(data, device="cpu", **arguments)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same(mine, other)


@needs_sampler
def test_links_of_types_are_equal(hetero):
    arguments = {
        "num_neighbors": [-1, -1], "edge_label_index": ("u", "likes", "i"), "batch_size": 16,
    }  # fmt: skip
    weight = torch.zeros(60).index_fill(0, torch.tensor([9]), 1.0)
    for negatives in (None, pyg_sampler.NegativeSampling("triplet", 2, dst_weight=weight)):
        theirs = pyg_loader.LinkNeighborLoader(
            hetero, is_sorted=True, neg_sampling=negatives, **arguments
        )
        ours = LinkNeighborLoader(hetero, neg_sampling=negatives, device="cpu", **arguments)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)


@needs_sampler
@pytest.mark.parametrize("replace", [False, True])
def test_samples_are_of_one_law(replace):
    """Each in-edge of a hub, and each number of nodes of a batch, as often from both."""
    edges = in_order(rmat(200, 4000, seed=5))
    data = Data(edge_index=edges, num_nodes=200)
    hub = int(edges[1].bincount().argmax())
    arguments = {
        "num_neighbors": [4, 3], "input_nodes": torch.full((1500,), hub), "batch_size": 1,
        "replace": replace,
    }  # fmt: skip
    first, nodes = [], []
    loaders = [
        NeighborLoader(data, device="cpu", seed=1, **arguments),
        pyg_loader.NeighborLoader(data, is_sorted=True, **arguments),
    ]
    for loader in loaders:
        ids, counts = [], []
        for batch in loader:
            into_hub = batch.edge_index[1] == 0
            ids.append(batch.e_id[into_hub][:4])
            counts.append(batch.num_nodes)
        first.append(torch.cat(ids))
        nodes.append(counts)
    begin = int((edges[1] < hub).sum())
    degree = int((edges[1] == hub).sum())
    tables = [(part - begin).bincount(minlength=degree) for part in first]
    assert stats.chisquare(tables[0]).pvalue > 1e-6
    assert stats.chi2_contingency(torch.stack(tables).numpy()).pvalue > 1e-6
    assert stats.ks_2samp(*nodes).pvalue > 1e-6


def block_model(nodes: int, classes: int, degree: int) -> Data:
    """Return nodes whose neighbours are mostly of their class, with features that say little."""
    generator = torch.Generator().manual_seed(7)
    y = torch.randint(0, classes, (nodes,), generator=generator)
    source = torch.arange(nodes).repeat_interleave(degree)
    target = torch.randint(0, nodes, (source.numel(),), generator=generator)
    alike = torch.rand(source.numel(), generator=generator) < 0.6
    order = torch.argsort(y, stable=True)
    begins = torch.cat([torch.zeros(1, dtype=torch.int64), y.bincount().cumsum(0)])
    own = y[source]
    width = begins[own + 1] - begins[own]
    pick = (torch.rand(source.numel(), generator=generator) * width).long().clamp(max=width - 1)
    target = torch.where(alike, order[begins[own] + pick], target)
    x = torch.nn.functional.one_hot(y, classes) + torch.randn(nodes, classes, generator=generator)
    return Data(x=x.float(), y=y, edge_index=in_order(torch.stack([target, source])))


class Sage(torch.nn.Module):
    """Two layers that average neighbours."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.own = torch.nn.ModuleList([torch.nn.Linear(width, 32), torch.nn.Linear(32, classes)])
        self.near = torch.nn.ModuleList([torch.nn.Linear(width, 32), torch.nn.Linear(32, classes)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for layer, (own, near) in enumerate(zip(self.own, self.near, strict=True)):
            source, target = edge_index
            total = torch.zeros_like(x).index_add_(0, target, x[source])
            degree = torch.zeros(len(x)).index_add_(0, target, torch.ones(len(target)))
            x = own(x) + near(total / degree.clamp(min=1).unsqueeze(1))
            x = x.relu() if layer == 0 else x
        return x


def accuracy(loader, data: Data) -> float:
    torch.manual_seed(0)
    model = Sage(data.x.shape[1], int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        for batch in loader:
            optimizer.zero_grad()
            found = model(batch.x, batch.edge_index)[: batch.batch_size]
            torch.nn.functional.cross_entropy(found, batch.y[: batch.batch_size]).backward()
            optimizer.step()
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(1) == data.y
    return float(right[data.test_mask].float().mean())


@pytest.fixture
def _one_thread():
    """Threads of torch that wait by spinning make a busy machine slower still."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@needs_sampler
@pytest.mark.usefixtures("_one_thread")
def test_training_is_as_accurate():
    """Accuracies of one law have a standard deviation of 0.008 here."""
    data = block_model(4000, 5, 8)
    data.test_mask = torch.arange(4000) >= 2000
    arguments = {
        "num_neighbors": [5, 5], "input_nodes": ~data.test_mask, "batch_size": 64, "shuffle": True,
    }  # fmt: skip
    theirs = accuracy(pyg_loader.NeighborLoader(data, is_sorted=True, **arguments), data)
    ours = accuracy(NeighborLoader(data, device="cpu", seed=1, **arguments), data)
    assert theirs > 0.75
    assert abs(ours - theirs) < 0.05


def test_data_stays_as_it_was(data):
    before = {name: id(value) for name, value in data.to_dict().items()}
    loader = NeighborLoader(data, [2], batch_size=100, device="cpu")
    for batch in loader:
        assert batch.text == "of the graph"
        assert batch.constant is data.constant
        assert batch.num_nodes == batch.n_id.numel()
        assert batch.some_index.shape == (2, batch.num_nodes)
        batch.x.zero_()
    assert {name: id(value) for name, value in data.to_dict().items()} == before
    assert data.num_nodes == NODES
    assert data.x.abs().sum() > 0


def test_the_caller_may_change_data_meanwhile(data, hetero):
    for given, seeds in ((data, None), (hetero, "i")):
        loader = NeighborLoader(given, [2], seeds, batch_size=1, device="cpu", depth=3)
        store = given if seeds is None else given[seeds]
        for index, batch in enumerate(loader):
            store[f"more_{index}"] = store.x
            own = batch if seeds is None else batch[seeds]
            assert not any(name in own for name in ("more_0", f"more_{index}"))
        later = next(iter(loader))
        own = later if seeds is None else later[seeds]
        assert torch.equal(own["more_0"], own.x)


def test_a_subclass_of_data_stays_one(data):
    class Mine(Data):
        pass

    mine = Mine.from_dict(data.to_dict())
    (batch,) = NeighborLoader(mine, [2], [1], device="cpu")
    assert type(batch) is Mine


def test_loaders_over_the_same_data_share_their_graph(data):
    loaders = [NeighborLoader(data, [n], batch_size=9, device="cpu") for n in (1, 2)]
    assert loaders[0].graph is loaders[1].graph
    links = LinkNeighborLoader(data, [1], device="cpu")
    assert links.graph is loaders[0].graph
    data.edge_index[0, 0] = 7
    assert NeighborLoader(data, [1], device="cpu").graph is not loaders[0].graph
    data.weight = torch.rand(EDGES)
    weighted = NeighborLoader(data, [1], weight_attr="weight", device="cpu")
    assert weighted.graph.has_weights
    assert not NeighborLoader(data, [1], device="cpu").graph.has_weights


def test_numbers_of_neighbours_in_pygs_words(hetero):
    likes = ("u", "likes", "i")
    expected = {kind: [2 if kind == likes else 0] for kind in hetero.edge_types}
    numbers = [
        expected,
        {"__".join(kind): hops for kind, hops in expected.items()},
        pyg_sampler.NumNeighbors({likes: [2]}, default=[0]),
    ]
    batches = [
        next(iter(NeighborLoader(hetero, given, "i", batch_size=60, seed=1, device="cpu")))
        for given in numbers
    ]
    for batch in batches:
        assert torch.equal(batch[likes].e_id, batches[0][likes].e_id)
        assert batch["i", "near", "i"].edge_index.shape[1] == 0
    data = Data(edge_index=rmat(NODES, EDGES, seed=3), num_nodes=NODES)
    (batch,) = NeighborLoader(data, pyg_sampler.NumNeighbors([3, 2]), [1], device="cpu")
    assert len(batch.num_sampled_edges) == 2


def test_an_edge_index_of_pygs_class(data):
    from torch_geometric import EdgeIndex

    plain = NeighborLoader(data, [3], batch_size=100, seed=2, device="cpu")
    other = data.clone()
    other.edge_index = EdgeIndex(data.edge_index, sparse_size=(NODES, NODES), sort_order="col")
    loader = NeighborLoader(other, [3], batch_size=100, seed=2, device="cpu")
    for ours, theirs in zip(loader, plain, strict=True):
        assert torch.equal(ours.edge_index, theirs.edge_index)
        assert type(ours.edge_index) is torch.Tensor


def test_times_of_nodes_and_of_edges(data):
    data.time = torch.randint(0, 50, (NODES,))
    data.when = torch.randint(0, 50, (EDGES,))
    seeds = torch.arange(0, NODES, 11)
    limit = torch.randint(0, 50, (seeds.numel(),))
    loader = NeighborLoader(data, [4, 4], seeds, limit, time_attr="time", device="cpu")
    for batch in loader:
        later = batch.time > batch.seed_time[batch.batch]
        assert not later[batch.batch_size :].any()
    loader = NeighborLoader(data, [4, 4], seeds, limit, time_attr="when", device="cpu")
    for batch in loader:
        assert (batch.when <= batch.seed_time[batch.batch[batch.edge_index[0]]]).all()
    links = LinkNeighborLoader(
        data, [4], data.edge_index, None, data.when, time_attr="when", batch_size=50, device="cpu"
    )
    assert torch.equal(next(iter(links)).edge_label_time, data.when[:50])
    with pytest.raises(ValueError, match="no times"):
        NeighborLoader(data, [4], seeds, limit, device="cpu")


def test_unified_attributes(data):
    data.x = unified(data.x)
    (batch,) = NeighborLoader(data, [2], [3, 5], batch_size=2, device="cpu")
    assert type(batch.x) is torch.Tensor
    assert torch.equal(batch.x, data.x[batch.n_id])


def test_what_cannot_be_done_is_refused(data):
    with pytest.raises(ValueError, match="no edge_index"):
        NeighborLoader(Data(x=torch.ones(3, 1)), [2], device="cpu")
    with pytest.raises(UnsupportedError, match="adj_t is not read"):
        NeighborLoader(Data(x=torch.ones(3, 1), adj_t=torch.eye(3).to_sparse_csr()), [2])
    data.names = ["a"] * NODES
    with pytest.raises(TypeError, match="'names' of nodes 'node' is a list"):
        list(NeighborLoader(data, [2], device="cpu"))


def stores(data: HeteroData, layout: str = "coo") -> tuple[UnifiedFeatureStore, HostGraphStore]:
    features, graph = UnifiedFeatureStore(), HostGraphStore()
    for kind in ("u", "i"):
        features[kind, "x", None] = data[kind].x
    for kind in data.edge_types:
        size = (data[kind[0]].num_nodes, data[kind[2]].num_nodes)
        graph[kind, layout, False, size] = tuple(data[kind].edge_index)
    return features, graph


@needs_sampler
@pytest.mark.parametrize("remote", [False, True])
def test_stores_are_equal(hetero, remote):
    del hetero["alone"]
    features, graph = stores(hetero)
    if remote:
        # Without `table` rows are asked for one batch at a time.
        asked = hetero
        ours = NeighborLoader((asked, graph), [-1, -1], "i", batch_size=7, device="cpu")
    else:
        ours = NeighborLoader((features, graph), [-1, -1], "i", batch_size=7, device="cpu")
    theirs = pyg_loader.NeighborLoader((features, graph), [-1, -1], input_nodes="i", batch_size=7)
    for mine, other in zip(ours, theirs, strict=True):
        for kind in ("u", "i"):
            assert torch.equal(mine[kind].n_id.sort().values, other[kind].n_id.sort().values)
            assert torch.equal(mine[kind].x, hetero[kind].x[mine[kind].n_id])
        for kind in hetero.edge_types:
            ends = hetero[kind].edge_index[:, mine[kind].e_id]
            local = mine[kind].edge_index
            assert torch.equal(mine[kind[0]].n_id[local[0]], ends[0])
            assert torch.equal(mine[kind[2]].n_id[local[1]], ends[1])


def test_a_feature_store_beside_a_graph(hetero):
    features, store = stores(hetero)
    graph = Graph.from_pyg(hetero)
    for structure in (graph, store):
        links = LinkNeighborLoader(
            (features, structure), [2], (("u", "likes", "i"), torch.tensor([[1, 2], [3, 4]])),
            device="cpu", batch_size=2,
        )  # fmt: skip
        (batch,) = links
        assert torch.equal(batch["u"].x, hetero["u"].x[batch["u"].n_id])
    whole = LinkNeighborLoader((features, store), [2], ("u", "likes", "i"), device="cpu")
    assert len(whole) == 150
    with pytest.raises(TypeError, match=r"a GraphStore or a pytorch_direct\.Graph"):
        NeighborLoader((features, 3), [2], "i", device="cpu")


def test_homogeneous_stores(data):
    features, graph = UnifiedFeatureStore(), HostGraphStore()
    features[None, "x", None] = data.x
    graph[None, "coo", False, (NODES, NODES)] = tuple(data.edge_index)
    (batch,) = NeighborLoader((features, graph), [3, 3], [7], device="cpu")
    assert type(batch) is Data
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
