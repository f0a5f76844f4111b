# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import pytest

from datapath_core.cache_folder import cache_folder, write_whole


def test_the_folder_is_in_the_users_cache(monkeypatch, folder) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    assert cache_folder() == folder / "datapath"
    monkeypatch.setenv("HOME", str(folder))
    for relative in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert cache_folder() == folder / ".cache" / "datapath"


def test_a_file_is_written_whole_with_its_folder(folder) -> None:
    path = folder / "a" / "b" / "file"
    for text in ("first, ä", "second"):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
        assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_the_file_before_and_nothing_else(folder) -> None:
    path = folder / "file"
    write_whole(path, "before")
    with pytest.raises(OSError, match="No space left"):
        _write_on_a_full_drive(path)
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\udcff")
    assert path.read_text() == "before"
    assert list(folder.iterdir()) == [path]
    (folder / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(folder / "directory", "text")
    assert {each.name for each in folder.iterdir()} == {"file", "directory"}


def _write_on_a_full_drive(path: Path) -> None:
    def full(descriptor: int, *_: object, **__: object) -> IO[str]:
        os.close(descriptor)
        return Path("/dev/full").open("w")

    with pytest.MonkeyPatch.context() as patch:
        # The file takes its text, and closing it finds no room.
        patch.setattr(os, "fdopen", full)
        write_whole(path, "after")
