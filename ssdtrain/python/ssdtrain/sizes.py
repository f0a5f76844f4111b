# SPDX-License-Identifier: Apache-2.0
"""Numbers of bytes as people read them; reading what people write is core's ``parse_bytes``."""

from __future__ import annotations

__all__ = ["size"]


def size(nbytes: float) -> str:
    """Return bytes as text in binary units: ``"1.50 GiB"``, ``"12 B"``.

    Parameters
    ----------
    nbytes : float
        Also negative.

    Returns
    -------
    str
    """
    sign, nbytes = ("-", -nbytes) if nbytes < 0 else ("", nbytes)
    if nbytes < 1024:
        return f"{sign}{nbytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        nbytes /= 1024
        # Below what would be printed as 1024.
        if nbytes < 1023.95 or unit == "TiB":
            break
    return f"{sign}{nbytes:.{2 if nbytes < 100 else 1}f} {unit}"
