# SPDX-License-Identifier: Apache-2.0
"""The graph's builder on an index of a few lines, where every number can be counted by hand."""

from __future__ import annotations

from pathlib import Path

import build_debian_graph
import debian_graph
import package_index
import pytest
import section_tags

INDEX = """\
Package: alpha
Source: tools (1.2)
Maintainer: Ann Example <Ann@Example.org>
Depends: beta (>= 1.0) | gamma, absent, alpha
Recommends: gamma:any [amd64], beta <!nocheck>
Tag: role::program, game::arcade,
 interface::graphical
Section: contrib/net
Description: Small network network tool
Filename: pool/a.deb

Package: gamma
Maintainer: Somebody Else <other@example.org>
Provides: alpha, virtual-name (= 2)
Conflicts: beta
Section: net
Description: Third 3rd thing
Filename: pool/g.deb

Package: beta
Source: tools
Maintainer: A. Example <ann@example.org>
Section: games
Description: Game
 of two lines
Filename: pool/b.deb

Package: installed-only
Maintainer: Nobody <nobody@example.org>
Section: games
Description: not in the archive
"""


def test_numbers_of_a_small_index() -> None:
    arrays, notes = build_debian_graph.build(INDEX)
    # Sorted: alpha 0, beta 1, gamma 2; the installed package is not of the archive.
    assert notes["sections"] == ["games", "net"]
    assert arrays["section"].tolist() == [1, 0, 1]
    assert arrays["Depends_lengths"].tolist() == [2, 0, 0]
    assert arrays["Depends_targets"].tolist() == [1, 2]
    assert arrays["Recommends_targets"].tolist() == [1, 2]
    assert arrays["Provides_lengths"].tolist() == [0, 0, 1]
    assert arrays["Provides_targets"].tolist() == [0]
    assert arrays["Conflicts_targets"].tolist() == [1]
    assert arrays["maintainer"].tolist() == [0, 0, 1]
    assert arrays["source"].tolist() == [0, 0, 1]
    assert notes["counts"]["packages"] == 3
    assert notes["counts"]["dependency_edges"] == 6


def test_words_are_counted_apart_in_name_and_description() -> None:
    stanza = {"Package": "net-tool2", "Description": "A net net tool, v2"}
    counts = build_debian_graph.word_counts(stanza)
    # CRC-32 is fixed by its standard, so these buckets are the same on every machine.
    assert counts == {2592: 1, 3227: 1, 1535: 2, 3793: 1}


def test_same_index_same_file(tmp_path: Path) -> None:
    saved = tmp_path / "dump"
    saved.write_text(INDEX, encoding="utf-8")
    paths = [tmp_path / "one.xz", tmp_path / "two.xz"]
    for path in paths:
        build_debian_graph.main(
            ["--input", str(saved), "--release", "a test", "--output", str(path)]
        )
    assert paths[0].read_bytes() == paths[1].read_bytes()
    graph = debian_graph.load(paths[0])
    assert graph.num_packages == 3
    stored = paths[0].with_suffix(".json").read_text(encoding="utf-8").lower()
    for word in ("ann", "example", "alpha"):
        assert word not in stored


def test_tags_that_give_the_section_away_go() -> None:
    sections = ["games"] * 10 + ["net"] * 10
    tags = [
        frozenset(
            ["use::playing"] * (row < 10)  # only in games
            + ["interface::graphical"] * (row % 2 == 0)  # half of each: at the bound, so dropped
            + ["role::program"] * (row % 3 == 0)  # 4 of 7 in games
            + ["game::arcade"] * (row % 5 == 0)  # means a section
            + ["works-with::net"] * (row % 4 == 0)  # names a section
        )
        for row in range(20)
    ]
    assert section_tags.honest_tags(tags, sections) == []
    spread = [frozenset(["role::program"])] * 9
    assert section_tags.honest_tags(spread, ["a", "b", "c"] * 3) == ["role::program"]
    assert section_tags.honest_tags(spread[:3], ["a", "b", "c"]) == []


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("a2 (>= 1) | b2:any, c2 [amd64], d2 <!nocheck>", ["a2", "b2", "c2", "d2"]),
        ("", []),
        ("libstdc++6, g++", ["libstdc++6", "g++"]),
        ("${misc:Depends}, x", []),
    ],
)
def test_relationship_fields(value: str, names: list[str]) -> None:
    assert package_index.related_names(value) == names


def test_garbage_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2: not a field"):
        list(package_index.parse_stanzas("Package: a\nno colon here\n"))
    with pytest.raises(ValueError, match="line 1: continuation"):
        list(package_index.parse_stanzas(" lost\n"))
    with pytest.raises(ValueError, match="0 packages"):
        build_debian_graph.build("")
