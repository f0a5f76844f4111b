# SPDX-License-Identifier: Apache-2.0
"""Late word of ids out of range on a GPU, whose kernels nobody waits for."""

from __future__ import annotations

import torch

from pytorch_direct import _native
from pytorch_direct.ops.arguments import bad_id_message

__all__ = ["check", "check_now", "late_error", "raise_pending"]


def check(device: torch.device | str | int | None = None) -> None:
    """Wait for a GPU's work and raise if a gather on it met an id out of range.

    Without this call the same error comes from the next call into the package on that device after
    the kernel ended. Does nothing where there is no CUDA: on the CPU bad ids raise at once.

    Parameters
    ----------
    device : torch.device, str, int or None
        The GPU; None checks all that this process uses.

    Raises
    ------
    IndexError
        A gather met a bad id; the text names the first. It is raised once.
    """
    if not _native.has_cuda:
        return
    if device is None:
        indices = list(range(torch.cuda.device_count()))
    else:
        where = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if where.type != "cuda":
            return
        indices = [torch.cuda.current_device() if where.index is None else where.index]
    for index in indices:
        if _native.uses_bad_ids(index):
            torch.cuda.synchronize(index)
            raise_pending(index)


def check_now(device: torch.device, stream: torch.cuda.Stream | None = None) -> None:
    """Wait for one stream of a GPU, by default the current one, and raise for bad ids."""
    (torch.cuda.current_stream(device) if stream is None else stream).synchronize()
    raise_pending(torch.cuda.current_device() if device.index is None else device.index)


def raise_pending(device: int) -> None:
    """Raise the error that a kernel which has ended left behind, if any; waits for nothing."""
    if _native.has_cuda:
        report = _native.take_bad_ids(device)
        if report is not None:
            raise late_error(device, report)


def late_error(device: int, report: tuple[int, int, int, int, bool, bool]) -> IndexError:
    """Return the error for (position, id, rows, count, wrap, scatter) of an earlier kernel."""
    position, ident, rows, count, wrap, scatter = report
    what = "scatter_add_" if scatter else "gather"
    text = bad_id_message(what, ident, position, count, rows, wrap)
    done = "rows for bad ids were left out" if scatter else "its bad rows were filled with 0xFF"
    return IndexError(
        f"{text} (an earlier {what.rstrip('_')} on cuda:{device}; {done} and this call did nothing)"
    )
