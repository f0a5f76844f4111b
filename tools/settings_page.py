# SPDX-License-Identifier: Apache-2.0
"""Writes docs/settings.md from the settings table of the installed core; holds no setting itself.

``python tools/settings_page.py`` writes the page, ``--check`` fails where it is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from datapath_core import settings

TARGET = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HEAD = """\
<!-- Written by tools/settings_page.py from the settings table of core: do not edit. -->
# Settings

A value is taken from the first of these that gives one:

1. an argument of the object that is made, or `datapath_core.settings.set(name, value)`,
2. the environment variable,
3. the tuned file, `datapath/tuned.conf` in the user's cache folder (`XDG_CACHE_HOME`, else
   `~/.cache`), written by `datapath tune`, one `name = value` a line,
4. the default.

A value out of its domain is an error that names where it stands, and is never ignored. Objects
read settings when they are made. `datapath_core.settings.table()` and `datapath describe` show the
values that hold now and where they come from.

Sizes are whole numbers of bytes or texts such as `8GiB`; every unit is binary. Times are seconds.
"""
TAIL = """\
## Of the packages above core

| variable | default | meaning |
|---|---|---|
| `DATAPATH_GATHER_MODEL` | built-in constants | file with the constants of the model by which pytorch-direct decides whether ordering a batch by address pays |
"""  # noqa: E501  (a row of a table cannot be wrapped)
TITLES = {
    "io": "Files",
    "memory": "Memory",
    "streams": "Scheduler",
    "volume": "Volumes",
    "wait": "Waiting",
    "log": "Logging",
}


def page() -> str:
    """Return the whole page."""
    groups: dict[str, list[settings.Setting]] = {}
    for setting in settings.table():
        groups.setdefault(setting.name.partition(".")[0], []).append(setting)
    parts = [HEAD]
    for group, members in groups.items():
        parts += [
            f"## {TITLES[group]}\n",
            "| name | variable | default | values | meaning |",
            "|---|---|---|---|---|",
        ]
        parts += [_line(member) for member in members]
        parts.append("")
    parts.append(TAIL)
    return "\n".join(parts)


def _line(setting: settings.Setting) -> str:
    values = setting.domain.replace("|", ", ").replace("..", " to ")
    if setting.kind == "flag":
        values = "0, 1"
    default = f"`{setting.default}`" if setting.default else "empty"
    meaning = setting.help.replace("|", "\\|")
    return f"| `{setting.name}` | `{setting.environment}` | {default} | {values} | {meaning} |"


def main() -> int:
    """Write or check the page; 1 where ``--check`` finds it out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = page()
    if not options.check:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print(f"{TARGET} is out of date: run python tools/settings_page.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
