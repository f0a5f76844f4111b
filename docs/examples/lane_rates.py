# SPDX-License-Identifier: Apache-2.0
"""Measures how fast each lane of core's scheduler moves bytes here; a probe, not a benchmark."""

from __future__ import annotations

from pathlib import Path

import torch

__all__ = ["METHOD", "measure"]

METHOD = (
    "a probe after the runs: tensors written to a volume in the spill folder and read back through "
    "one scheduler, all transfers submitted at once; a lane's bytes over the time in which it had "
    "work in flight. The volume goes past the page cache where the file system allows (O_DIRECT), "
    "but what was just written may come back from a cache below it, the drive's or that of a "
    "virtual machine's host: not the drive's own rate, which `datapath bench` measures"
)


def measure(
    spill: Path, device: torch.device, *, count: int = 16, nbytes: int = 8 << 20
) -> dict[str, float]:
    """Return lane -> GB/s (decimal) of the lanes that carried bytes.

    Parameters
    ----------
    spill : Path
        Folder of the volume.
    device : torch.device
        Where the tensors are: on CUDA the host-to-device and device-to-host lanes carry, too.
    count, nbytes : int
        Tensors, and bytes of each.

    Raises
    ------
    RuntimeError
        What came back is not what was written.
    """
    from datapath_core import io
    from datapath_core.streams import Scheduler

    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (count, nbytes), dtype=torch.uint8, generator=generator)
    there = noise.to(device)
    back = torch.zeros_like(there)
    name = f"cuda:{device.index or 0}" if device.type == "cuda" else "cpu"
    scheduler = Scheduler(name)
    try:
        with io.Volume([str(spill)], capacity=2 * count * nbytes) as volume:
            extents = [volume.allocate(nbytes) for _ in range(count)]
            for ticket in [scheduler.transfer(*ends) for ends in zip(extents, there, strict=True)]:
                ticket.result()
            for ticket in [scheduler.transfer(*ends) for ends in zip(back, extents, strict=True)]:
                ticket.result()
            if not torch.equal(back.cpu(), noise):
                raise RuntimeError(f"{spill}: what the volume gave back is not what was written")
            stats = scheduler.stats()
            for extent in extents:
                extent.free()
    finally:
        scheduler.close()
    return {
        lane: moved["bytes"] / moved["busy_seconds"] / 1e9
        for lane, moved in stats.items()
        if moved["bytes"] and moved["busy_seconds"]
    }
