# SPDX-License-Identifier: Apache-2.0
"""Where the rows of a table stand: hot ones together, so that a batch touches few regions."""

from pytorch_direct.layout.reorder import ReorderedTable, reorder_rows, row_heat

__all__ = ["ReorderedTable", "reorder_rows", "row_heat"]
