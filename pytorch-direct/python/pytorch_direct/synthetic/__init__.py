# SPDX-License-Identifier: Apache-2.0
"""Made-up graphs and features of any size, the same for the same seed everywhere."""
