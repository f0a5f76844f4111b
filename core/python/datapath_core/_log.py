# SPDX-License-Identifier: Apache-2.0
"""Hands the native library's messages to Python's logging.

Threads of the library never enter Python, so their messages wait until a call into the package
takes them out.
"""

from __future__ import annotations

from datapath_core import _core

__all__ = ["flush"]


def flush() -> None:
    """Log what the native library has said since the last call."""
    while (message := _core.take_log_message()) is not None:
        # Imported here, since most programs of an import alone have nothing to say.
        import logging

        level, source, text = message
        logging.getLogger(f"datapath_core.{source}").log(level, "%s", text)
