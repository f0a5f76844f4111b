# SPDX-License-Identifier: Apache-2.0
"""Real text without a download: the standard library's own source; not a tokenizer (bytes are)."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

__all__ = ["VOCABULARY", "Corpus", "source_files"]

VOCABULARY = 256
"""Tokens are bytes."""

_SKIPPED = {"__pycache__", "idle_test", "site-packages", "dist-packages", "test", "tests"}


def source_files(root: Path | None = None) -> list[Path]:
    """Return the `.py` files below the standard library's folder, sorted by relative path.

    Folders of tests and installed packages are left out.

    Raises
    ------
    FileNotFoundError
        There is no such file (a Python without its sources, or zipped).
    """
    if root is None:
        root = Path(sysconfig.get_path("stdlib"))
    found = [
        path
        for path in root.rglob("*.py")
        if not _SKIPPED & set(path.relative_to(root).parts) and path.is_file()
    ]
    if not found:
        raise FileNotFoundError(f"{root}: no .py files of the standard library; pass a folder")
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


class Corpus:
    """The bytes of the standard library, cut into a part to train on and a part held out.

    Parameters
    ----------
    max_bytes : int
        How much text to read at most.
    held_out : float
        Share at the end that training never sees.
    root : Path or None
        Folder to read; None is the standard library.

    Attributes
    ----------
    train, held_out : torch.Tensor
        uint8, one dimension.
    """

    def __init__(
        self, max_bytes: int = 4 << 20, held_out: float = 0.1, root: Path | None = None
    ) -> None:
        if max_bytes < 2 or not 0 < held_out < 1:
            raise ValueError(
                f"max_bytes is {max_bytes} and held_out {held_out}; "
                "2 or more, and a share between 0 and 1 wanted"
            )
        pieces: list[bytes] = []
        size = 0
        for path in source_files(root):
            pieces.append(path.read_bytes()[: max_bytes - size])
            size += len(pieces[-1])
            if size >= max_bytes:
                break
        text = torch.from_numpy(np.frombuffer(b"".join(pieces), dtype=np.uint8).copy())
        boundary = len(text) - max(1, int(len(text) * held_out))
        self.train, self.held_out = text[:boundary], text[boundary:]

    def batches(
        self, count: int, batch_size: int, length: int, seed: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield `count` pairs of inputs and targets drawn from the training part.

        Both are int64 [batch_size, length]; a target is the byte after its input. The same seed
        gives the same batches on the same text.

        Raises
        ------
        ValueError
            The text is too short for `length`.
        """
        last = len(self.train) - length
        if last < 1:
            raise ValueError(f"length is {length}; the text has {len(self.train)} bytes only")
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            start = torch.randint(last, (batch_size,), generator=generator)
            window = self.train[start[:, None] + torch.arange(length + 1)].long()
            yield window[:, :-1], window[:, 1:]
