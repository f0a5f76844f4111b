# SPDX-License-Identifier: Apache-2.0
"""What measuring needs: graphs of known sizes, the usual layers, clocks, bounds; no results."""
