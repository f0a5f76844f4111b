# SPDX-License-Identifier: Apache-2.0
"""Hands the native library's messages to Python's logging.

Threads of the library never enter Python, so their messages wait until a call into the package
takes them out.
"""

from __future__ import annotations

import logging

from datapath_core import _core

__all__ = ["flush"]

_logger = logging.getLogger("datapath_core")


def flush() -> None:
    """Log what the native library has said since the last call."""
    while (message := _core.take_log_message()) is not None:
        level, source, text = message
        _logger.getChild(source).log(level, "%s", text)
