# SPDX-License-Identifier: Apache-2.0
"""Transfers between memory, devices and disk, queued by lane; tickets for work in flight."""

from __future__ import annotations

from typing import Any

from datapath_core import _core, _json, _log
from datapath_core._context import ClosesAtExit
from datapath_core._core import Ticket
from datapath_core._device import DeviceLike, open_device
from datapath_core.errors import UnsupportedError

__all__ = ["Scheduler", "Ticket"]


class Scheduler(_core.Scheduler, ClosesAtExit):
    """Moves bytes to and from one device and disk, on lanes that work side by side.

    The lanes are ``h2d`` and ``d2h`` (copies), ``read`` and ``write`` (disk) and ``kernel`` (low
    priority). Transfers over several hops are cut into chunks and pipelined. Without CUDA the
    lanes are worker threads, and all else is the same.

    Parameters
    ----------
    device : str, int, torch.device or Device, optional
        ``"cuda:0"``, ``"cpu"``, ...; by default the current CUDA device, else the CPU.
    chunks : int, optional
        Staging chunks of a transfer over several hops; by default ``streams.chunks``.
    chunk_bytes : int or str, optional
        Size of one; by default ``streams.chunk_bytes``.
    credits : int or str, optional
        Bytes in flight for each lane; by default ``streams.credits``.

    Raises
    ------
    UnsupportedError
        If a CUDA device is named and there is none.
    """

    def __init__(
        self,
        device: DeviceLike | None = None,
        *,
        chunks: int | None = None,
        chunk_bytes: int | str | None = None,
        credits: int | str | None = None,
    ) -> None:
        super().__init__(
            _default_device() if device is None else open_device(device),
            chunks,
            chunk_bytes,
            credits,
        )
        _log.flush()

    def torch_stream(self, lane: str) -> Any:
        """Return a lane's own stream for torch.

        Parameters
        ----------
        lane : {"h2d", "d2h", "kernel"}
            Which one.

        Returns
        -------
        torch.cuda.ExternalStream
            It does not own the stream, which lives until the process ends.

        Raises
        ------
        UnsupportedError
            If the device is not CUDA.
        """
        if not self.device.is_cuda:
            raise UnsupportedError(
                f"the lanes of {self.device.name} are worker threads, not CUDA streams; without "
                "CUDA wait for tickets instead"
            )
        import torch

        make: Any = torch.cuda.ExternalStream
        return make(self.stream(lane), device=f"cuda:{self.device.ordinal}")

    def describe(self) -> dict[str, Any]:
        """Return the lanes, staging memory and device as a JSON-like dict."""
        return _json.described(self.describe_json())


def _default_device() -> _core.Device:
    try:
        return _core.Device("cuda")
    except UnsupportedError:
        return _core.Device("null")
