# SPDX-License-Identifier: Apache-2.0
"""Text to IR; the exact inverse of printer. Types are checked, not trusted."""

from __future__ import annotations

import re

from hector.ir.function import Builder, Function, Value
from hector.ir.ops import Attr
from hector.ir.types import Space, Type

__all__ = ["parse"]

_HEADER = re.compile(r"func ([A-Za-z_][\w.]*)\((.*)\) \{")
_PARAM = re.compile(r"%([A-Za-z_][\w.]*): (\w+)\[([\d, ]*)\] (\w+)")
_LINE = re.compile(r"(%\d+) = (\w+)\(([^)]*)\)(?: \{(.*)\})? : (\w+)\[([\d, ]*)\] (\w+)")
_ATTR = re.compile(r"(\w+) = (\([^)]*\)|[^,]+)")
_WORD = re.compile(r"[A-Za-z_][\w.]*")


def _type(space: str, shape: str, dtype: str) -> Type:
    extents = tuple(int(part) for part in shape.split(",") if part.strip())
    return Type(Space(space), extents, dtype)


def _attr(text: str) -> Attr:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("("):
        return tuple(int(part) for part in text[1:-1].split(",") if part.strip())
    if _WORD.fullmatch(text) and text not in ("inf", "nan"):
        return text
    try:
        return int(text)
    except ValueError:
        return float(text)


def _lookup(names: dict[str, Value], text: str, where: str) -> tuple[Value, ...]:
    found = []
    for name in (part.strip() for part in text.split(",") if part.strip()):
        if name not in names:
            raise ValueError(f"{where}: {name} is not defined above")
        found.append(names[name])
    return tuple(found)


def parse(text: str) -> Function:
    """Read one function.

    Parameters
    ----------
    text : str
        As ``print_function`` writes it.

    Returns
    -------
    Function

    Raises
    ------
    ValueError
        If the text is malformed, names an unknown value, or states a type that the operator does
        not have; the message names the line.
    """
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    header = _HEADER.fullmatch(lines[0]) if lines else None
    if header is None or len(lines) < 3 or lines[-1] != "}" or not lines[-2].startswith("return "):
        raise ValueError("an IR function is 'func name(..) {', operators, 'return ..' and '}'")
    builder = Builder(header[1])
    names: dict[str, Value] = {}
    params = list(_PARAM.finditer(header[2]))
    if ", ".join(match[0] for match in params) != header[2]:
        raise ValueError(f"line 1: malformed parameters: {header[2]}")
    for match in params:
        if f"%{match[1]}" in names:
            raise ValueError(f"line 1: parameter %{match[1]} is defined twice")
        names[f"%{match[1]}"] = builder.param(match[1], _type(match[2], match[3], match[4]))
    for number, line in enumerate(lines[1:-2], start=2):
        where = f"line {number}"
        op = _LINE.fullmatch(line)
        if op is None:
            raise ValueError(f"{where}: malformed operator: {line}")
        if op[1] in names:
            raise ValueError(f"{where}: {op[1]} is defined twice")
        attrs = {key: _attr(value) for key, value in _ATTR.findall(op[4] or "")}
        operands = _lookup(names, op[3], where)
        try:
            value = builder.emit(op[2], *operands, **attrs)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        stated = _type(op[5], op[6], op[7])
        if value.type != stated:
            raise ValueError(f"{where}: stated type {stated}, but {op[2]} gives {value.type}")
        names[op[1]] = value
    results = _lookup(names, lines[-2].removeprefix("return "), f"line {len(lines) - 1}")
    return builder.finish(results)
