# SPDX-License-Identifier: Apache-2.0
"""The tensor subclass over registered host memory; the kernels that read it are in `ops`."""
