# SPDX-License-Identifier: Apache-2.0
"""Settings of the library: argument over environment over tuned file over default.

The table of all settings is in the documentation, and :func:`table` gives it with the values that
hold now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from datapath_core import _core, _json
from datapath_core._core import parse_bytes

__all__ = ["Setting", "get", "override", "parse_bytes", "reset", "set", "source", "table"]

Value = int | float | bool | str


@dataclass(frozen=True)
class Setting:
    """One setting and where its value comes from.

    Attributes
    ----------
    name, environment : str
        ``"io.depth"`` and the variable that sets it, ``"DATAPATH_IO_DEPTH"``.
    kind : str
        ``"integer"``, ``"bytes"``, ``"seconds"``, ``"flag"``, ``"choice"`` or ``"text"``.
    domain : str
        What values may be; empty for anything of the kind.
    value : int or float or bool or str or None
        The value that holds now; ``None`` where what was given is wrong, see `error`.
    source : str
        ``"argument"``, ``"environment"``, ``"file"``, ``"default"``, or ``"error"``.
    default, help : str
        The default as text, and what the setting does.
    error : str
        What is wrong with the value that was given; empty if nothing is.
    """

    name: str
    environment: str
    kind: str
    domain: str
    value: Value | None
    source: str
    default: str
    help: str
    error: str = ""


def table() -> list[Setting]:
    """Return all settings with the values that hold now."""
    return [
        Setting(
            name=row["name"],
            environment=row["environment"],
            kind=row["kind"],
            domain=row["domain"],
            value=None if row["value"] is None else _typed(row["kind"], row["value"]),
            source=row["source"],
            default=row["default"],
            help=row["help"],
            error=row.get("error", ""),
        )
        for row in _json.loads(_core.settings_json())
    ]


def get(name: str) -> Value:
    """Return the value of a setting.

    Parameters
    ----------
    name : str
        For example ``"io.depth"``.

    Returns
    -------
    int or float or bool or str
        Bytes and whole numbers as int, seconds as float, flags as bool.

    Raises
    ------
    ValueError
        If there is no such setting, or if its value, wherever it stands, is out of its domain.
    """
    value, _ = _core.get_setting(name)
    return _typed(_kinds()[name], value)


def source(name: str) -> str:
    """Return where a setting's value comes from: argument, environment, file or default."""
    return _core.get_setting(name)[1]


def set(name: str, value: Value) -> None:
    """Set a value for this process, over environment and tuned file.

    Objects read the settings when they are made; those that exist do not change.

    Raises
    ------
    ValueError
        If there is no such setting or the value is out of its domain.
    """
    _core.set_setting(name, _text(value))


def reset(name: str) -> None:
    """Go back to environment, tuned file and default."""
    _core.reset_setting(name)


@contextmanager
def override(name: str, value: Value) -> Iterator[None]:
    """Set a value inside a ``with`` block; the value before comes back after it."""
    before, came_from = _core.get_setting(name)
    set(name, value)
    try:
        yield
    finally:
        if came_from == "argument":
            _core.set_setting(name, before)
        else:
            _core.reset_setting(name)


def _kinds() -> dict[str, str]:
    if not _KINDS:
        _KINDS.update({row["name"]: row["kind"] for row in _json.loads(_core.settings_json())})
    return _KINDS


_KINDS: dict[str, str] = {}


def _typed(kind: str, text: str) -> Value:
    if kind == "integer":
        return int(text)
    if kind == "bytes":
        return parse_bytes(text)
    if kind == "seconds":
        return float(text)
    if kind == "flag":
        return text in ("1", "true", "on", "yes")
    return text


def _text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
