# SPDX-License-Identifier: Apache-2.0
"""Neighbour sampling, the same on the CPU and on GPUs; the graphs are in `graph`."""
