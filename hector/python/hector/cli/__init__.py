# SPDX-License-Identifier: Apache-2.0
"""The command ``hector``: what was compiled and why, and how fast it is beside the machine."""

from hector.cli.command import main

__all__ = ["main"]
