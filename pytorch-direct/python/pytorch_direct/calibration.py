# SPDX-License-Identifier: Apache-2.0
"""Measures the constants of the gather model on this machine, once, and keeps them in a file.

``python -m pytorch_direct.calibration`` measures, saves and prints them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial

import torch
import torch.utils.dlpack

from datapath_core import PinnedPool
from datapath_core.errors import UnsupportedError
from pytorch_direct.ops.gather import gather
from pytorch_direct.ops.gather_model import (
    GatherModel,
    built_in_model,
    gather_model,
    save_model,
    set_gather_model,
)
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, unified
from pytorch_direct.timing import seconds

__all__ = ["Measured", "calibrate", "fit"]

BLOCKS = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_NARROW = 64
_IDS = 1 << 20
_BYTES = 256 << 20


@dataclass(frozen=True)
class Measured:
    """What `calibrate` measures, in seconds and bytes; what `fit` makes a model of.

    Parameters
    ----------
    gpu : str
        Its name.
    wide_rates, row_rates : dict
        Bytes a second of an ordered gather of rows of 4096 and of 256 bytes, by number of blocks.
    narrow_seconds : dict
        Seconds of a gather of 64-byte rows in random order, by bytes of table.
    narrow_ids : int
        How many rows that were.
    sorts : dict
        Seconds that ordering a batch takes, by number of ids.
    """

    gpu: str
    wide_rates: dict[int, float]
    row_rates: dict[int, float]
    narrow_seconds: dict[int, float]
    narrow_ids: int
    sorts: dict[int, float]


def calibrate(
    device: torch.device | str | int | None = None, *, table_gib: int = 4, save: bool = True
) -> GatherModel:
    """Measure how this machine's GPU reads host memory, and use what was found from now on.

    Takes some seconds and pins `table_gib` GiB meanwhile.

    Parameters
    ----------
    device : torch.device, str, int or None
        The GPU; None is the current one.
    table_gib : int
        Size of the table to read from; it must be larger than what the GPU's translation reaches
        (1 GiB on an H200).
    save : bool
        Write the constants to the user's cache folder, where every later process of this machine
        finds them.

    Returns
    -------
    GatherModel
        The model now in use; its text is its constants.

    Raises
    ------
    UnsupportedError
        There is no GPU, or it cannot read the memory.
    """
    if not torch.cuda.is_available():
        raise UnsupportedError("calibrate() measures a GPU, and this process sees none")
    with torch.cuda.device(device):
        found = fit(_measure(table_gib << 30), built_in_model())
    if save:
        save_model(found)
    set_gather_model(found)
    return found


def fit(measured: Measured, start: GatherModel) -> GatherModel:
    """Return the model that explains what was measured; `start` gives what was not."""
    best = max(measured.wide_rates.values())
    # Fewer blocks leave more of the GPU to others, and more read hardly faster; narrower rows need
    # more of them.
    enough = 0.95 * max(measured.row_rates.values())
    blocks = min(n for n, rate in measured.row_rates.items() if rate >= enough)
    sizes = sorted(measured.narrow_seconds)
    fast = measured.narrow_seconds[sizes[0]]
    within = [size for size in sizes if measured.narrow_seconds[size] <= 1.5 * fast]
    reach = max(within) // start.region_bytes
    regions = sizes[-1] // start.region_bytes
    missed = measured.narrow_ids * max(0.0, 1 - reach / regions)
    rate = missed / measured.narrow_seconds[sizes[-1]]
    (few, short), (many, long) = sorted(measured.sorts.items())
    slope = max(0.0, (long - short) / (many - few))
    return dataclasses.replace(
        start,
        measured_on=measured.gpu,
        link_bytes_per_second=best,
        # A table within reach shows no limit.
        regions_per_second=rate if rate > 0 else start.regions_per_second,
        reach_regions=reach,
        sort_seconds=max(0.0, short - slope * few),
        sort_seconds_per_id=slope,
        host_blocks=blocks,
    )


def _measure(nbytes: int) -> Measured:
    table = unified(
        torch.utils.dlpack.from_dlpack(PinnedPool(nbytes, device="cuda").allocate(nbytes))
    )
    if not table.is_registered:
        raise UnsupportedError(f"calibrate(): no pinned memory: {table._registration.reason}")
    before = gather_model()
    try:
        return _measure_table(table)
    finally:
        set_gather_model(before)


def _measure_table(table: UnifiedTensor) -> Measured:
    rates: dict[int, dict[int, float]] = {}
    for width in (256, 4096):
        rows = table.view(-1, width)
        ids = torch.randint(0, rows.shape[0], (_BYTES // width,), device="cuda").sort().values
        out = torch.empty(ids.numel(), width, dtype=torch.uint8, device="cuda")
        rates[width] = {}
        for blocks in BLOCKS:
            set_gather_model(dataclasses.replace(built_in_model(), host_blocks=blocks))
            took = seconds(partial(gather, rows, ids, out=out, order="none"), ids.device)
            rates[width][blocks] = out.numel() / took
    narrow = {}
    set_gather_model(built_in_model())
    size = 64 << 20
    while size <= table.numel():
        part = table[:size].view(-1, _NARROW)
        some = torch.randint(0, part.shape[0], (_IDS,), device="cuda")
        taken = torch.empty(_IDS, _NARROW, dtype=torch.uint8, device="cuda")
        narrow[size] = seconds(partial(gather, part, some, out=taken, order="none"), some.device)
        size *= 2
    sorts = {}
    # From the GPU's own memory, so that the gather itself is next to nothing.
    near = torch.zeros(1 << 24, 16, dtype=torch.uint8, device="cuda")
    for count in (_IDS >> 4, _IDS):
        some = torch.randint(0, near.shape[0], (count,), device="cuda")
        rows = torch.empty(count, 16, dtype=torch.uint8, device="cuda")
        ordered = seconds(partial(gather, near, some, out=rows, order="address"), near.device)
        given = seconds(partial(gather, near, some, out=rows, order="none"), near.device)
        sorts[count] = max(0.0, ordered - given)
    return Measured(torch.cuda.get_device_name(), rates[4096], rates[256], narrow, _IDS, sorts)


def main() -> None:
    """Measure, save, print."""
    print(calibrate())  # noqa: T201  (a command line)


if __name__ == "__main__":
    main()
