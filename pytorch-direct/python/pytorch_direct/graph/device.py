# SPDX-License-Identifier: Apache-2.0
"""Devices as users name them, with their index."""

from __future__ import annotations

import torch

__all__ = ["as_device", "sent"]


def as_device(device: torch.device | str | int) -> torch.device:
    """Return a device with its index: an int is a GPU, ``cuda`` the current one."""
    where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if where == torch.device("cuda"):
        return torch.device("cuda", torch.cuda.current_device())
    return where


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device, without waiting for what that device is busy with."""
    if tensor.device.type == "cpu" and device.type == "cuda":
        # A copy from memory that is not pinned waits for the stream.
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device, non_blocking=device.type == "cuda")
