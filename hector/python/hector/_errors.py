# SPDX-License-Identifier: Apache-2.0
"""Makes the errors of the shared tree; datapath_core is imported only when one is raised."""

from __future__ import annotations

__all__ = ["unsupported"]


def unsupported(message: str) -> Exception:
    """An ``UnsupportedError`` of ``datapath_core`` with this text."""
    from datapath_core.errors import UnsupportedError

    return UnsupportedError(message)
