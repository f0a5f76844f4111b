# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

has_cuda: bool
cuda_architectures: str
block_threads: int

class Cast:
    none: Cast

def gather_cpu(
    table: int,
    rows: int,
    stride: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    element_bytes: int,
    ids: int,
    ids_are_64_bit: bool,
    count: int,
    wrap: bool,
    out: int,
    threads: int,
    /,
) -> int: ...
def emulate_gather(
    table: int,
    rows: int,
    stride: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    element_bytes: int,
    ids: int,
    id_kind: str,
    count: int,
    wrap: bool,
    positions: int,
    out: int,
    threads: int,
    /,
) -> tuple[str, int, int]: ...
def scatter_add_cpu(
    table: int,
    rows: int,
    row_numbers: int,
    ids: int,
    ids_are_64_bit: bool,
    count: int,
    added: int,
    number: str,
    threads: int,
    /,
) -> int: ...
def rmat_edges(
    nodes: int,
    first: int,
    count: int,
    seed: int,
    a: float,
    b: float,
    c: float,
    scramble: bool,
    sources: int,
    destinations: int,
    threads: int,
    /,
) -> None: ...
def uniform_features(first: int, count: int, seed: int, out: int, threads: int, /) -> None: ...
def gather_cuda(
    device: int,
    stream: int,
    table: int,
    rows: int,
    stride: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    element_bytes: int,
    ids: int,
    ids_are_64_bit: bool,
    count: int,
    wrap: bool,
    out: int,
    out_element_bytes: int,
    cast_from: Cast,
    cast_to: Cast,
    region_bytes: int,
    workspace: int,
    workspace_bytes: int,
    max_blocks: int,
    /,
) -> Any: ...
def order_workspace_bytes(device: int, count: int, /) -> int: ...
def uses_bad_ids(device: int, /) -> bool: ...
def take_bad_ids(device: int, /) -> tuple[int, int, int, int, bool] | None: ...
def multiprocessors(device: int, /) -> int: ...
