# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

has_cuda: bool
cuda_architectures: str
block_threads: int

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
    merge: bool,
    positions: int,
    out: int,
    threads: int,
    /,
) -> tuple[str, int, int]: ...
def emulate_cast(
    table: int,
    rows: int,
    stride: int,
    elements: int,
    ids: int,
    id_kind: str,
    count: int,
    merge: bool,
    out: int,
    out_element_bytes: int,
    cast_from: str,
    cast_to: str,
    factor: float | None,
    row_factor: int,
    threads: int,
    /,
) -> None: ...

class Change:
    table: int
    rows: int
    stride: int
    width: int
    ids: int
    order: int
    count: int
    given: int
    first: int
    second: int
    rate: float
    epsilon: float
    first_decay: float
    second_decay: float
    number: str
    rule: str

def update_cpu(change: Change, threads: int, /) -> None: ...
def emulate_update(change: Change, threads: int, /) -> None: ...
def update_cuda(
    change: Change,
    device: int,
    stream: int,
    max_blocks: int,
    more_blocks: int,
    cap: int,
    unsorted_ids: int,
    ids_are_64_bit: bool,
    /,
) -> None: ...
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
    cast_from: str,
    cast_to: str,
    factor: float | None,
    row_factor: int,
    region_bytes: int,
    merge: bool,
    workspace: int,
    workspace_bytes: int,
    max_blocks: int,
    more_blocks: int,
    cap: int,
    /,
) -> Any: ...
def order_workspace_bytes(device: int, count: int, /) -> int: ...
def uses_bad_ids(device: int, /) -> bool: ...
def wait_for_event(device: int, event: int, /) -> None: ...
def take_bad_ids(device: int, /) -> tuple[int, int, int, int, bool, bool] | None: ...
def multiprocessors(device: int, /) -> int: ...

class Relation:
    def __init__(
        self,
        indptr: int,
        indices: int,
        indices_are_64_bit: bool,
        destinations: int,
        sources: int,
        edge_ids: int,
        weights: int,
        drawable: int,
        edge_time: int,
        source_time: int,
        /,
    ) -> None: ...

class SamplingRule:
    def __init__(
        self,
        fanout: int,
        replace: bool,
        last: bool,
        seed: int,
        batch: int,
        hop: int,
        relation: int,
        /,
    ) -> None: ...

class CpuBatch:
    def __init__(
        self, node_types: int, relations: int, disjoint: bool, threads: int, /
    ) -> None: ...
    def add_seeds(
        self, type: int, seeds: int, count: int, first_batch: int, nodes: int, /
    ) -> int: ...
    def take(
        self,
        index: int,
        relation: Relation,
        source_type: int,
        destination_type: int,
        rule: SamplingRule,
        times: int,
        names: bool,
        /,
    ) -> None: ...
    def end_hop(self) -> None: ...
    def counts(self, node_types: int, relations: int, /) -> tuple[list[int], list[int]]: ...
    def nodes(self, type: int, /) -> tuple[Any, Any]: ...
    def edges(self, index: int, /) -> tuple[Any, Any, Any]: ...

def insert_seeds_emulated(
    table: Sequence[int], numbers: Sequence[int], threads: int, order: int, /
) -> None: ...
def hop_emulated(
    take: bool,
    relation: Relation,
    rule: SamplingRule,
    frontier: Sequence[int],
    sources: Sequence[int],
    edges: Sequence[int],
    scratch: Sequence[int],
    threads: int,
    order: int,
    /,
) -> None: ...
def csc_build(
    sources: int,
    destinations: int,
    is_64_bit: bool,
    count: int,
    nodes: int,
    indptr: int,
    indices: int,
    indices_are_64_bit: bool,
    edge_ids: int,
    threads: int,
    /,
) -> None: ...

many_choices: int
slots_a_choice: int

def first_bad_offset(indptr: int, nodes: int, edges: int, /) -> int: ...
def weight_sums(
    indptr: int, nodes: int, weights: int, sums: int, drawable: int, threads: int, /
) -> None: ...
def random_below(
    seed: int, batch: int, purpose: int, count: int, first: int, bound: int, out: int, /
) -> None: ...
def sum_workspace_bytes(device: int, count: int, /) -> int: ...
def insert_seeds_cuda(
    table: Sequence[int], numbers: Sequence[int], where: Sequence[int], /
) -> None: ...
def hop_cuda(
    take: bool,
    relation: Relation,
    rule: SamplingRule,
    frontier: Sequence[int],
    sources: Sequence[int],
    edges: Sequence[int],
    scratch: Sequence[int],
    where: Sequence[int],
    /,
) -> None: ...
