# SPDX-License-Identifier: Apache-2.0
"""The language model's text: real, the same every time, split without overlap."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from stdlib_corpus import Corpus, source_files


def test_it_is_the_standard_library() -> None:
    files = source_files()
    names = {path.name for path in files}
    assert {"argparse.py", "typing.py", "shutil.py"} <= names
    assert not {"test", "tests", "site-packages"} & {part for path in files for part in path.parts}
    assert len(Corpus().train) > 3_000_000


def test_parts_join_to_the_sorted_text(tmp_path: Path) -> None:
    for name, text in [("b.py", "bbbb"), ("a.py", "aaaa"), ("test/c.py", "cc"), ("d.txt", "dd")]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    corpus = Corpus(root=tmp_path, held_out=0.25)
    assert bytes(corpus.train.tolist()) == b"aaaabb"
    assert bytes(corpus.held_out.tolist()) == b"bb"
    capped = Corpus(root=tmp_path, max_bytes=5)
    assert len(capped.train) + len(capped.held_out) == 5


def test_batches_depend_on_the_seed_only() -> None:
    corpus = Corpus(max_bytes=10_000)
    one, same, other = (list(corpus.batches(3, 4, 16, seed)) for seed in (1, 1, 2))
    for (x, y), (x_same, y_same), (x_other, _) in zip(one, same, other, strict=True):
        assert torch.equal(x, x_same)
        assert torch.equal(y, y_same)
        assert not torch.equal(x, x_other)
        assert x.shape == y.shape == (4, 16)
        assert torch.equal(x[:, 1:], y[:, :-1])


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no \.py files"):
        source_files(tmp_path)
    with pytest.raises(ValueError, match="max_bytes is 1"):
        Corpus(max_bytes=1)
    with pytest.raises(ValueError, match="length is 10000"):
        next(Corpus(max_bytes=5_000).batches(1, 1, 10_000, 0))
