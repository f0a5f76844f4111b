# SPDX-License-Identifier: Apache-2.0
"""JSON files of this package: what they are, which version, and errors that name the place."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Fields", "read_document", "write_document"]

_VERSION = 1
_REQUIRED: Any = object()


def write_document(path: str | os.PathLike[str], kind: str, content: dict[str, Any]) -> None:
    """Write content with its kind and version; an entry of a list takes a line of its own."""
    lines = [f'"format": {json.dumps(kind)}', f'"version": {_VERSION}']
    for name, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            entries = ",\n    ".join(json.dumps(entry, ensure_ascii=False) for entry in value)
            lines.append(f"{json.dumps(name)}: [\n    {entries}\n  ]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    Path(path).write_text("{\n  " + ",\n  ".join(lines) + "\n}\n", encoding="utf-8")


def read_document(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read what ``write_document`` wrote.

    Raises
    ------
    ValueError
        If it is no JSON, of another kind, or of a version that this release does not know.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # Numbers of thousands of digits, deep nesting.
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != kind:
        raise ValueError(f'{path} is not a file of this kind: its "format" must be "{kind}"')
    if data.get("version") != _VERSION:
        raise ValueError(
            f"{path} has version {data.get('version')!r}; this release knows {_VERSION}; make it"
            " again"
        )
    return {name: value for name, value in data.items() if name not in ("format", "version")}


class Fields:
    """The fields of one JSON object, taken out one by one.

    Parameters
    ----------
    data : dict
    name : str
        Where it stands, for errors.
    """

    def __init__(self, data: object, name: str) -> None:
        if not isinstance(data, dict):
            raise ValueError(f"{name}: {data!r} is not an object of fields")
        self._data = dict(data)
        self.name = name

    def _take(self, field: str, default: Any) -> Any:
        if field not in self._data:
            if default is _REQUIRED:
                raise ValueError(f"{self.name}: {field!r} is missing")
            return default
        return self._data.pop(field)

    def _fail(self, field: str, value: object, wanted: str) -> ValueError:
        return ValueError(f"{self.name}: {field!r} is {value!r}, not {wanted}")

    def whole(self, field: str, default: Any = _REQUIRED) -> int:
        """Return a whole number of at least 0."""
        value = self._take(field, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._fail(field, value, "a whole number of at least 0")
        return value

    def optional_whole(self, field: str) -> int | None:
        """Return a whole number of at least 0, or None."""
        value = self._data.get(field)
        if value is None:
            self._data.pop(field, None)
            return None
        return self.whole(field)

    def number(self, field: str, default: Any = _REQUIRED) -> float:
        """Return a finite number of at least 0."""
        value = self._take(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._fail(field, value, "a number")
        if not math.isfinite(value) or value < 0:
            raise self._fail(field, value, "a finite number of at least 0")
        return float(value)

    def text(self, field: str, default: Any = _REQUIRED) -> str:
        """Return a string."""
        value = self._take(field, default)
        if not isinstance(value, str):
            raise self._fail(field, value, "a text")
        return value

    def optional_text(self, field: str) -> str | None:
        """Return a string or None."""
        value = self._take(field, None)
        if value is not None and not isinstance(value, str):
            raise self._fail(field, value, "a text")
        return value

    def flag(self, field: str, default: Any = _REQUIRED) -> bool:
        """Return true or false."""
        value = self._take(field, default)
        if not isinstance(value, bool):
            raise self._fail(field, value, "true or false")
        return value

    def texts(self, field: str) -> list[str]:
        """Return a list of strings, empty where it is missing."""
        return [Fields({field: v}, self.name).text(field) for v in self._list(field)]

    def wholes(self, field: str) -> list[int]:
        """Return a list of whole numbers, empty where it is missing."""
        return [Fields({field: v}, self.name).whole(field) for v in self._list(field)]

    def dicts(self, field: str) -> Iterator[Fields]:
        """Return the objects of a list."""
        if field not in self._data:
            raise ValueError(f"{self.name}: {field!r} is missing")
        entries = self._list(field)
        return (Fields(entry, f"{self.name}: {field}[{i}]") for i, entry in enumerate(entries))

    def optional_dict(self, field: str) -> Fields | None:
        """Return an object, or None."""
        value = self._take(field, None)
        return None if value is None else Fields(value, f"{self.name}: {field}")

    def _list(self, field: str) -> list[Any]:
        value = self._take(field, [])
        if not isinstance(value, list | tuple):
            raise self._fail(field, value, "a list")
        return list(value)

    def nothing_else(self) -> None:
        """Raise ``ValueError`` if a field is left: a misspelt one must not pass in silence."""
        if self._data:
            raise ValueError(f"{self.name}: unknown fields {sorted(self._data)}")
