# SPDX-License-Identifier: Apache-2.0
"""The command ``pytorch-direct``: how fast rows arrive, sampling goes and an epoch runs here."""

from pytorch_direct.cli.command import main

__all__ = ["main"]
