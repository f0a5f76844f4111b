# SPDX-License-Identifier: Apache-2.0
"""What command lines share: exit statuses, threads that sleep, functions by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from datapath_core import OutOfSpaceError, commands


@pytest.mark.parametrize(
    "error",
    [
        OutOfSpaceError("the disk is full"),
        ImportError("no scipy"),
        MemoryError("no room"),
        OSError("no such folder"),
        RuntimeError("out of memory"),
        TypeError("no tensor"),
        ValueError("-1 rows"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_said_in_one_line(error, capsys):
    def fail():
        raise error

    assert commands.exit_status("tool do", fail) == 1
    assert capsys.readouterr() == ("", f"tool do: {error}\n")


def test_an_error_without_words_is_named(capsys):
    def fail():
        raise NotImplementedError

    assert commands.exit_status("tool do", fail) == 1
    assert capsys.readouterr().err == "tool do: NotImplementedError\n"


def test_a_fault_of_the_program_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        commands.exit_status("tool do", lambda: 1 // 0)


def test_what_is_returned_is_the_status(capsys):
    assert commands.exit_status("tool", lambda: None) == 0
    assert commands.exit_status("tool", lambda: 0) == 0
    assert commands.exit_status("tool", lambda: 3) == 3
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_is_status_130(capsys):
    def interrupt():
        raise KeyboardInterrupt

    assert commands.exit_status("tool", interrupt) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("lines", [1, 100_000], ids=["in the buffer", "past the buffer"])
def test_a_reader_that_stops_is_no_error_to_talk_about(lines):
    """Nobody reads from the start, so that the first flush fails, the last one or an early one."""
    text = (
        "import sys; from datapath_core import commands\n"
        f"sys.exit(commands.exit_status('tool', lambda: print('line\\n' * {lines})))"
    )
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", text], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    assert done.returncode == 1
    assert done.stderr == b""


@pytest.mark.parametrize(("given", "found"), [(None, "passive"), ("active", "active")])
def test_threads_sleep_unless_a_policy_is_given(given, found):
    text = (
        "import os, sys; from datapath_core import commands\n"
        "commands.with_threads_that_sleep()\n"
        "print(os.environ['OMP_WAIT_POLICY'], *sys.argv[1:])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    if given is not None:
        environment["OMP_WAIT_POLICY"] = given
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text, "an argument"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{found} an argument\n"


def test_functions_are_found_by_name(folder, monkeypatch):
    script = folder / "script_under_test.py"
    script.write_text(
        "from dataclasses import dataclass\n"
        "import beside_the_script\n"
        "@dataclass\n"
        "class Made:\n"
        "    number: int\n"
        "make = lambda: Made(beside_the_script.THREE)\n"
    )
    (folder / "beside_the_script.py").write_text("THREE = 3\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert commands.load_factory(f"{script}:make")().number == 3
    assert commands.load_factory("json:dumps") is json.dumps


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("make", "names no function"),
        (":make", "names no function"),
        ("json:", "names no function"),
        ("json:nothing", "json has no function 'nothing'"),
        ("json:__name__", "json has no function '__name__'"),
        ("no_such_module:f", "no module 'no_such_module'"),
        ("no.py:f", "no file no.py"),
    ],
)
def test_a_name_of_no_function_is_refused(name, said):
    with pytest.raises(ValueError, match=said):
        commands.load_factory(name)
