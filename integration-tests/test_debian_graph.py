# SPDX-License-Identifier: Apache-2.0
"""The stored graph is whole, says what its README says, and refuses damage."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path

import debian_graph
import pytest
import section_tags
import torch
from debian_graph import DebianGraph
from torch import nn
from torch.nn import functional


def test_sizes_are_those_of_the_readme(debian: DebianGraph) -> None:
    assert debian.num_packages == 63_679
    assert torch.bincount(debian.node_type).tolist() == [63_679, 2_115, 34_171, 222]
    assert debian.num_classes == 58
    assert debian.num_relations == 24
    per_relation = torch.bincount(debian.edge_type, minlength=24)
    assert int(per_relation[:9].sum()) == 313_658
    assert per_relation[9:12].tolist() == [63_679, 63_679, 44_100]
    assert [int(mask.sum()) for mask in (debian.train_mask, debian.val_mask, debian.test_mask)] == [
        38_199,
        12_621,
        12_859,
    ]


def test_types_and_ranges(debian: DebianGraph) -> None:
    assert debian.features.shape == (debian.num_packages, 256)
    assert debian.features.dtype == torch.float32
    assert debian.edge_index.dtype == debian.edge_type.dtype == debian.labels.dtype == torch.int64
    assert bool(torch.isfinite(debian.features).all())
    assert bool((debian.features >= 0).all())
    norm = debian.features.norm(dim=1)
    assert bool((((norm - 1).abs() < 1e-5) | (norm == 0)).all())
    assert int((norm == 0).sum()) < 10
    assert int(debian.edge_index.min()) >= 0
    assert int(debian.edge_index.max()) < debian.num_nodes
    assert bool((debian.edge_type.diff() >= 0).all())
    assert bool((debian.node_type.diff() >= 0).all())
    assert torch.bincount(debian.labels, minlength=58).min() > 0


def test_every_package_is_in_one_part(debian: DebianGraph) -> None:
    parts = torch.stack([debian.train_mask, debian.val_mask, debian.test_mask]).int().sum(0)
    assert bool((parts == 1).all())


def test_second_half_reverses_the_first(debian: DebianGraph) -> None:
    half = debian.edge_index.shape[1] // 2
    assert torch.equal(debian.edge_index[:, :half], debian.edge_index[:, half:].flip(0))
    assert torch.equal(debian.edge_type[:half] + 12, debian.edge_type[half:])
    one_way = debian_graph.load(reverse=False)
    assert torch.equal(one_way.edge_index, debian.edge_index[:, :half])
    assert one_way.relation_names == debian.relation_names[:12]


def test_edges_join_the_types_that_they_should(debian: DebianGraph) -> None:
    ends = debian.node_type[debian.edge_index]
    for relation in range(12):
        source, destination = ends[:, debian.edge_type == relation]
        assert bool((source == 0).all())
        expected = max(0, relation - 8)
        assert bool((destination == expected).all()), debian.relation_names[relation]
    dependency = debian.edge_index[:, debian.edge_type < 9]
    assert bool((dependency[0] != dependency[1]).all())


def test_no_edge_is_stored_twice(debian: DebianGraph) -> None:
    key = (debian.edge_type * debian.num_nodes + debian.edge_index[0]) * debian.num_nodes
    assert len(torch.unique(key + debian.edge_index[1])) == debian.edge_index.shape[1]


def test_section_is_the_label_only(debian: DebianGraph) -> None:
    assert debian_graph.NODE_TYPES == ("package", "maintainer", "source", "tag")
    assert not any("section" in name.lower() for name in debian.relation_names)
    for tag in debian.tag_names:
        assert not set(tag.replace("::", ":").split(":")) & set(debian.class_names), tag
    # No tag has half of its packages in one section: recomputed from what is stored.
    tagged = debian.edge_index[:, debian.edge_type == 11]
    table = torch.zeros(len(debian.tag_names), debian.num_classes)
    first_tag = debian.num_nodes - len(debian.tag_names)
    table.index_put_(
        (tagged[1] - first_tag, debian.labels[tagged[0]]),
        torch.ones(tagged.shape[1]),
        accumulate=True,
    )
    assert float((table.max(1).values / table.sum(1)).max()) < section_tags.MAX_PURITY
    assert float(table.sum(1).min()) >= section_tags.MIN_PACKAGES


def test_no_address_is_stored() -> None:
    description = debian_graph.DATA.with_suffix(".json").read_text(encoding="utf-8")
    assert "@" not in description
    raw = lzma.decompress(debian_graph.DATA.read_bytes())
    assert b"@lists." not in raw
    assert b"debian.org" not in raw


def test_narrower_features_are_folds_of_wider_ones() -> None:
    wide, narrow = debian_graph.load(width=128), debian_graph.load(width=64)
    folded = (wide.features > 0)[:, :64] | (wide.features > 0)[:, 64:]
    # A bucket that every package holds weighs nothing; there is none at these widths.
    assert torch.equal(folded, narrow.features > 0)


@pytest.mark.parametrize("width", [0, -256, 100, 8192])
def test_impossible_width(width: int) -> None:
    with pytest.raises(ValueError, match=f"width is {width}; a power of two"):
        debian_graph.load(width=width)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _no_checksum(path: Path) -> None:
    description = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    del description["sha256"]
    path.with_suffix(".json").write_text(json.dumps(description), encoding="utf-8")


def _shorter_array(path: Path) -> None:
    description = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    description["arrays"][-1]["length"] -= 1
    path.with_suffix(".json").write_text(json.dumps(description), encoding="utf-8")


def _fewer_sections(path: Path) -> None:
    description = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    description["notes"]["sections"].pop()
    path.with_suffix(".json").write_text(json.dumps(description), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_flip, "damaged: sha256 is"),
        (_truncate, "damaged: sha256 is"),
        (_empty, "damaged: sha256 is"),
        (_no_checksum, "damaged: KeyError"),
        (_shorter_array, "bytes more than described"),
        (_fewer_sections, "section holds 57, the bound is 57"),
    ],
)
def test_damage_is_refused(tmp_path: Path, damage: Callable[[Path], None], text: str) -> None:
    path = tmp_path / debian_graph.DATA.name
    shutil.copy(debian_graph.DATA, path)
    shutil.copy(debian_graph.DATA.with_suffix(".json"), path.with_suffix(".json"))
    damage(path)
    with pytest.raises(ValueError, match=text):
        debian_graph.load(path)


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        debian_graph.load(tmp_path / "absent.xz")


def test_relations_beat_words_alone_and_the_majority(debian: DebianGraph) -> None:
    import relational_gnn

    torch.manual_seed(0)
    words = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, debian.num_classes))
    optimizer = torch.optim.AdamW(words.parameters(), lr=0.01)
    ids = debian.train_mask.nonzero()[:, 0]
    for _ in range(4):
        for batch in torch.split(ids[torch.randperm(len(ids))], 1024):
            loss = functional.cross_entropy(words(debian.features[batch]), debian.labels[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    guess = words(debian.features).argmax(1)
    from_words = float((guess == debian.labels)[debian.test_mask].double().mean())
    settings = relational_gnn.Settings(epochs=2, hidden=32, fanouts=(8, 4), learning_rate=0.03)
    _, history = relational_gnn.train(debian, settings)
    majority = debian.majority_accuracy(debian.test_mask)
    assert majority == pytest.approx(0.105, abs=0.001)
    assert from_words > majority + 0.4
    assert history.accuracies[-1] > from_words + 0.04
