# SPDX-License-Identifier: Apache-2.0
"""UnifiedTensor as a CPU tensor: identity, views, operands, lifetime, persistence."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import weakref

import pytest
import torch
from torch.nn import functional

from datapath_core import UnsupportedError
from pytorch_direct import UnifiedTensor, gather, scatter_add_, unified


def test_takes_the_memory_in_place():
    table = torch.randn(10, 4)
    u = unified(table)
    assert type(u) is UnifiedTensor
    assert u.data_ptr() == table.data_ptr()
    assert (u.shape, u.dtype, u.device) == (table.shape, table.dtype, table.device)
    table[3] = 7
    assert (u[3] == 7).all()
    u[4] = 8
    assert (table[4] == 8).all()


def test_is_idempotent():
    u = unified(torch.randn(3))
    assert unified(u) is u


def test_takes_every_dtype_and_any_strides(dtype):
    table = torch.zeros(6, 8, dtype=torch.uint8).repeat(1, 16).view(dtype)
    for strided in (table, table[1:], table[:, 1::2], table.t(), table[:0], table[0]):
        u = unified(strided)
        assert u.stride() == strided.stride()
        assert u.data_ptr() == strided.data_ptr()


@pytest.mark.parametrize(
    ("tensor", "error"),
    [
        ([1.0], TypeError),
        (torch.tensor(1.0), ValueError),
        (torch.zeros(3).to_sparse(), TypeError),
        (torch.zeros(3, device="meta"), TypeError),
    ],
)
def test_refuses_what_has_no_rows_in_host_memory(tensor, error):
    with pytest.raises(error):
        unified(tensor)


def test_storage_lives_as_long_as_the_unified_tensor():
    table = torch.arange(1000.0)
    u = unified(table)
    alive = weakref.ref(u)
    del table
    gc.collect()
    assert torch.equal(u, torch.arange(1000.0))
    view = u[10:20]
    del u
    gc.collect()
    assert alive() is None
    assert torch.equal(view, torch.arange(10.0, 20.0))


def test_unregistered_when_the_last_name_is_gone():
    u = unified(torch.randn(100))
    registration = weakref.ref(u._registration)
    twin = unified(u.detach()[:50])
    assert twin._registration is registration()
    del u
    assert registration() is not None
    del twin
    gc.collect()
    assert registration() is None


def test_views_stay_unified_and_results_are_plain():
    u = unified(torch.randn(6, 4))
    for view in (u[1:3], u[2], u.view(-1), u.t(), u.detach(), u[:, None], u.unflatten(1, (2, 2)),
                 u.narrow(0, 1, 2), *u.chunk(2), *u.split(3), *u.unbind(0)):  # fmt: skip
        assert type(view) is UnifiedTensor
        assert view._registration is u._registration
    for result in (u + 1, u @ u.t(), u.clone(), u.sum(), u.float() * 2, torch.cat([u, u]), -u,
                   u > 0, u[u > 0], u[[1, 2]], u[0, 0], torch.zeros(6, 4) + u):  # fmt: skip
        assert type(result) is torch.Tensor
    assert type(u.max(0)).__name__ == "max"
    assert type(torch.stack([u, u])) is torch.Tensor


def test_operators_give_what_they_give_for_plain_tensors():
    table = torch.randn(6, 4)
    u = unified(table.clone())
    assert torch.allclose(torch.einsum("ij,kj->ik", u, u), table @ table.t())
    assert torch.equal(functional.linear(u, table), functional.linear(table, table))
    assert torch.equal(torch.where(u > 0, u, 0), table.relu())
    assert torch.equal(u.max(0).values, table.max(0).values)
    assert u.tolist() == table.tolist()
    assert u.numpy().tolist() == table.tolist()
    assert [row.tolist() for row in u] == table.tolist()
    assert len(u) == 6
    assert u.mul_(2) is u
    assert torch.equal(u, table * 2)
    assert torch.add(u, 1, out=u) is u
    assert torch.equal(u, table * 2 + 1)
    assert "UnifiedTensor" in repr(u)


@pytest.mark.parametrize(
    "index",
    [
        2, -1, slice(1, 4), [0, 2], (slice(None), 1), (torch.tensor([1, 0]), 2), None, ...,
        torch.tensor([True, False, True, False, True]), torch.tensor(3), (torch.tensor([-1, 2]),),
        torch.tensor([[0, 4], [-5, 2]]), torch.zeros(0, dtype=torch.int64),
        torch.tensor([3, -2], dtype=torch.int32),
    ],
    ids=str,
)  # fmt: skip
def test_indexing_gives_what_it_gives_for_plain_tensors(index):
    table = torch.randn(5, 3)
    assert torch.equal(unified(table)[index], table[index])


def test_other_spellings_of_a_gather():
    table = torch.randn(9, 3)
    u, ids = unified(table), torch.tensor([[1, 8], [0, 0]])
    assert torch.equal(functional.embedding(ids, u), table[ids])
    assert torch.equal(functional.embedding(ids, u, padding_idx=0), table[ids])
    assert torch.equal(u.index_select(0, ids[0]), table[ids[0]])
    assert torch.equal(torch.index_select(u, -2, ids[0]), table[ids[0]])
    assert torch.equal(torch.index_select(u, 1, torch.tensor([2, 0])), table[:, [2, 0]])
    out = torch.zeros(2, 3)
    assert torch.index_select(u, 0, ids[0], out=out) is out
    assert torch.equal(out, table[ids[0]])
    empty = torch.empty(0)
    torch.index_select(u, 0, ids[0], out=empty)
    assert torch.equal(empty, table[ids[0]])
    with pytest.raises((IndexError, RuntimeError)):
        u.index_select(0, ids)
    with pytest.raises(IndexError, match="id 9 at position 0"):
        functional.embedding(torch.tensor([9]), u)
    renormed = unified(table.clone())
    assert torch.equal(
        functional.embedding(ids, renormed, max_norm=1.0),
        functional.embedding(ids, table.clone(), max_norm=1.0),
    )


def test_a_unified_tensor_serves_as_ids():
    table, ids = torch.randn(9, 3), torch.tensor([4, 4, 8])
    assert torch.equal(gather(table, unified(ids)), table[ids])
    assert torch.equal(table[unified(ids)], table[ids])
    assert torch.equal(unified(table)[unified(ids)], table[ids])


def test_without_a_gpu_there_is_no_device_view():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    u = unified(torch.randn(3))
    assert u.is_registered is False
    with pytest.raises(UnsupportedError, match="sees no GPU"):
        u.device_view()


def test_parameters_train():
    values = torch.randn(8, 3)
    weight = torch.nn.Parameter(unified(values.clone()))
    assert type(weight) is UnifiedTensor
    assert isinstance(weight, torch.nn.Parameter)
    plain = torch.nn.Parameter(values.clone())
    ids = torch.tensor([1, 1, 7])
    for parameter in (weight, plain):
        optimiser = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
        for _ in range(3):
            optimiser.zero_grad()
            parameter[ids].square().sum().backward()
            optimiser.step()
    assert torch.equal(weight, plain)


def test_modules_keep_it_in_their_state():
    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(unified(torch.randn(4, 2)))
            self.register_buffer("features", unified(torch.randn(5, 2)))

    first, second = Table(), Table()
    state = first.state_dict()
    assert all(type(tensor) is UnifiedTensor for tensor in state.values())
    memory = io.BytesIO()
    torch.save(state, memory)
    memory.seek(0)
    second.load_state_dict(torch.load(memory))
    assert torch.equal(first.features, second.features)
    assert torch.equal(first.weight, second.weight)
    assert type(second.features) is UnifiedTensor
    twin = copy.deepcopy(first)
    assert type(twin.weight) is UnifiedTensor
    assert isinstance(twin.weight, torch.nn.Parameter)
    assert twin.weight.requires_grad
    assert twin.weight.data_ptr() != first.weight.data_ptr()


def test_saved_files_hold_plain_tensors():
    u = unified(torch.randn(4, 2))
    memory = io.BytesIO()
    torch.save({"features": u, "view": u[1:]}, memory)
    memory.seek(0)
    loaded = torch.load(memory)
    assert type(loaded["features"]) is torch.Tensor
    assert torch.equal(loaded["features"], u)
    assert torch.equal(loaded["view"], u[1:])
    assert torch.equal(pickle.loads(pickle.dumps(u)), u)


def test_deepcopy_has_memory_of_its_own():
    u = unified(torch.randn(4, 2))
    pair = copy.deepcopy([u, u])
    assert pair[0] is pair[1]
    assert type(pair[0]) is UnifiedTensor
    assert torch.equal(pair[0], u)
    pair[0].zero_()
    assert not torch.equal(pair[0], u)


def test_a_replaced_storage_is_noticed():
    u = unified(torch.randn(4, 2))
    u.resize_(4000, 2)
    with pytest.raises(UnsupportedError, match="call unified"):
        u.share_memory_()


def test_a_forked_child_goes_on_with_the_cpu():
    u = unified(torch.arange(100_000.0).view(-1, 10))
    ids = torch.arange(0, 10_000, 3)
    expected = u[ids]  # threads exist before the fork
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(2)
            rows = gather(u, ids)
            torch.set_num_threads(1)  # torch's own threads do not survive a fork
            same = torch.equal(rows, expected) and torch.equal(u + 0, u)
            os._exit(0 if same else 1)
        except BaseException:  # noqa: BLE001  (whatever it is, it must not go on as the parent)
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(u[ids], expected)


def test_works_in_inference_mode_and_beyond():
    with torch.inference_mode():
        u = unified(torch.arange(12.0).view(4, 3))
        ids = torch.tensor([3, 0])
        assert torch.equal(u[ids], torch.tensor([[9.0, 10, 11], [0, 1, 2]]))
        out = torch.zeros(2, 3)
        gather(u, ids, out=out)
        scatter_add_(u, ids, out)
    assert torch.equal(gather(u, ids)[1], torch.tensor([0.0, 2, 4]))


def test_replaced_memory_is_registered_anew_by_unified():
    module = torch.nn.Embedding(4, 2)
    module.weight = torch.nn.Parameter(unified(torch.randn(4, 2)))
    before = module.weight._registration
    weight = module.double().weight
    with pytest.raises(UnsupportedError, match="call unified"):
        gather(weight, torch.tensor([1]))
    assert unified(weight) is weight
    assert weight._registration is not before
    assert torch.equal(gather(weight, torch.tensor([1])), weight[1:2])
    assert weight.is_leaf
    weight.share_memory_()
    assert weight.is_shared()


def test_unified_parameters_are_not_carried_off_the_host():
    weight = torch.nn.Parameter(unified(torch.randn(4, 2)))
    with pytest.raises(UnsupportedError, match="stays in host memory"):
        weight.data = torch.empty(4, 2, device="meta")  # as module.to() does
    assert weight.device.type == "cpu"
