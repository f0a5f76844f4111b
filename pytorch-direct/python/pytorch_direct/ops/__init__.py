# SPDX-License-Identifier: Apache-2.0
"""Operators: their checks are shared, their kernels are native, for the CPU and for CUDA."""
