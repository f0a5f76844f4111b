# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from datapath_core import settings


def test_an_unknown_name_is_refused_and_the_nearest_is_named() -> None:
    with pytest.raises(ValueError, match=r"'io\.dept'.*'io\.depth'"):
        settings.get("io.dept")


@pytest.mark.parametrize("value", [0, -1, 40000, "many", 1.5])
def test_a_value_out_of_its_domain_is_refused(value) -> None:
    with pytest.raises(ValueError, match=r"io\.depth"):
        settings.set("io.depth", value)


def test_a_wrong_environment_value_names_the_variable(monkeypatch) -> None:
    monkeypatch.setenv("DATAPATH_IO_BACKEND", "aio")
    with pytest.raises(ValueError, match=r"DATAPATH_IO_BACKEND.*auto|uring|threads|cufile"):
        settings.get("io.backend")
    row = next(row for row in settings.table() if row.name == "io.backend")
    assert row.value is None
    assert row.source == "error"
    assert "DATAPATH_IO_BACKEND" in row.error


def test_argument_over_environment_over_file_over_default(monkeypatch, folder) -> None:
    assert (settings.get("io.depth"), settings.source("io.depth")) == (128, "default")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    (folder / "datapath").mkdir()
    (folder / "datapath" / "tuned.conf").write_text("# measured\nio.depth = 64\n")
    assert (settings.get("io.depth"), settings.source("io.depth")) == (64, "file")
    monkeypatch.setenv("DATAPATH_IO_DEPTH", "32")
    assert (settings.get("io.depth"), settings.source("io.depth")) == (32, "environment")
    with settings.override("io.depth", 16):
        assert (settings.get("io.depth"), settings.source("io.depth")) == (16, "argument")
        with settings.override("io.depth", 8):
            assert settings.get("io.depth") == 8
        assert settings.get("io.depth") == 16
    assert settings.source("io.depth") == "environment"


def test_a_wrong_line_in_the_tuned_file_names_file_and_line(monkeypatch, folder) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    (folder / "datapath").mkdir()
    (folder / "datapath" / "tuned.conf").write_text("io.depth = 64\nio.threads 4\n")
    with pytest.raises(ValueError, match=r"tuned\.conf' line 2"):
        settings.get("io.threads")


def test_values_have_the_type_of_their_kind() -> None:
    assert settings.get("streams.chunk_bytes") == 4 << 20
    assert settings.get("wait.deadline") == 600.0
    assert settings.get("memory.huge_pages") is True
    assert settings.get("io.backend") == "auto"
    with settings.override("memory.huge_pages", False):
        assert settings.get("memory.huge_pages") is False


def test_every_setting_has_a_help_text_and_reads_back() -> None:
    for row in settings.table():
        assert row.help
        assert settings.get(row.name) == row.value
        assert row.environment == "DATAPATH_" + row.name.replace(".", "_").upper()


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("8GiB", 8 << 30), ("1.5 MB", 3 << 19), ("4096", 4096), ("2k", 2048), (7, 7), ("0", 0)],
)
def test_sizes_are_read_in_binary_units(text, nbytes) -> None:
    assert settings.parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 2", "1XB", "17EiB"])
def test_text_that_is_no_size_is_refused(text) -> None:
    with pytest.raises(ValueError, match="number of bytes"):
        settings.parse_bytes(text)


def test_a_size_must_be_a_whole_number() -> None:
    with pytest.raises(TypeError, match="float"):
        settings.parse_bytes(1.5)
    with pytest.raises(ValueError, match="-1"):
        settings.parse_bytes(-1)
