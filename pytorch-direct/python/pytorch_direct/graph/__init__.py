# SPDX-License-Identifier: Apache-2.0
"""Graphs compressed by destination; what draws from them is in `sampling`."""
