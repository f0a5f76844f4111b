# SPDX-License-Identifier: Apache-2.0
"""Rows of a table changed by id, each read and written once by one owner; checks no arguments."""

from __future__ import annotations

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct import _native
from pytorch_direct.memory.registration import Registration, registration_of_view
from pytorch_direct.ops.arguments import note_write
from pytorch_direct.ops.gather_cuda import launch_blocks, require_kernels
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, current_registration

__all__ = ["FLOATS", "NUMBERS", "State", "change_rows"]

FLOATS = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
NUMBERS = {
    **FLOATS,
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
}


_READ_ONLY = "the table's memory is for reading only, so that no row of it can change"


class State:
    """The rule of a change: its name, its numbers, its tables of state."""

    def __init__(
        self,
        rule: str,
        *,
        rate: float = 0.0,
        epsilon: float = 0.0,
        decays: tuple[float, float] = (0.0, 0.0),
        tables: tuple[torch.Tensor, ...] = (),
    ) -> None:
        self.rule = rule
        self.rate = rate
        self.epsilon = epsilon
        self.decays = decays
        self.tables = tables


def change_rows(
    table: torch.Tensor,
    ids: torch.Tensor,
    rows: torch.Tensor,
    state: State,
    *,
    is_sorted: bool = False,
    report: bool = False,
) -> None:
    """Change row ``ids[i]`` of `table` by ``rows[i]``, in place, where the ids are.

    Parameters
    ----------
    table : torch.Tensor
        Shape ``[n, ...]`` with contiguous rows, of a dtype in `NUMBERS`; unified, or where the ids
        are.
    ids : torch.Tensor
        Shape ``[m]``, contiguous, int32 or int64. Those out of range change nothing.
    rows : torch.Tensor
        Shape ``[m, ...]``, contiguous, with the table's dtype, where the ids are.
    state : State
        What is done; its tables are contiguous with the table's shape.
    is_sorted : bool
        The ids ascend.
    report : bool
        On a GPU: check the ids and leave word of bad ones, as a gather does.

    Raises
    ------
    ValueError
        The ids or the rows are not contiguous.
    UnsupportedError
        The table's memory is for reading only.
    """
    if ids.numel() == 0:
        return
    if not (ids.is_contiguous() and rows.is_contiguous()):
        raise ValueError(
            f"ids of strides {ids.stride()} and rows of strides {rows.stride()}: both have to be "
            "contiguous, since kernels read them by address; call contiguous()"
        )
    by_id, order = ids, None
    if not is_sorted:
        by_id, order = torch.sort(ids.to(torch.int64), stable=True)
    change = _native.Change()
    change.rows, change.stride = table.shape[0], table.stride(0)
    change.width = rows.numel() // ids.numel()
    change.ids, change.count = by_id.data_ptr(), ids.numel()
    change.order = 0 if order is None else order.data_ptr()
    change.given = rows.data_ptr()
    change.rate, change.epsilon = state.rate, state.epsilon
    change.first_decay, change.second_decay = state.decays
    change.number, change.rule = NUMBERS[table.dtype], state.rule
    tables = (table, *state.tables)
    for one in tables:
        note_write(one)
    if not ids.is_cuda:
        _settle(tables)
        addresses = [one.data_ptr() for one in tables]
        change.table, change.first, change.second = (*addresses, 0, 0)[:3]
        _native.update_cpu(change, torch.get_num_threads())
        return
    require_kernels()
    device = ids.device.index
    places = [_on_gpu(one, device) for one in tables]
    change.table, change.first, change.second = (*(address for address, _ in places), 0, 0)[:3]
    stream = torch.cuda.current_stream(device).cuda_stream
    _native.update_cuda(
        change,
        device,
        stream,
        *launch_blocks(device, places[0][1] is not None),
        ids.data_ptr() if report else 0,
        ids.dtype == torch.int64,
    )
    if not torch.cuda.is_current_stream_capturing():
        for _, registration in places:
            if registration is not None:
                registration.record_use(device, stream, writes=True)


def _settle(tables: tuple[torch.Tensor, ...]) -> None:
    for table in tables:
        if isinstance(table, UnifiedTensor):
            current_registration(table).settle(to_write=True)
            if table._registration.read_only:
                raise UnsupportedError(_READ_ONLY)


def _on_gpu(table: torch.Tensor, device: int) -> tuple[int, Registration | None]:
    """Return where a GPU finds a table, and the registration if that is host memory."""
    if isinstance(table, UnifiedTensor):
        registration = current_registration(table)
        if registration.is_read_only(device):
            raise UnsupportedError(_READ_ONLY)
        offset = int(table.storage_offset()) * table.element_size()
        return registration.device_address(device) + offset, registration
    return table.data_ptr(), registration_of_view(table)
