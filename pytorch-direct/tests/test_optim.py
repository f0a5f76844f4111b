# SPDX-License-Identifier: Apache-2.0
"""Optimisers of rows against torch's, gradients of unified leaves, two processes and one table."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch

import pytorch_direct as ptd
from pytorch_direct.ops.gather_gradient import _is_accumulated
from pytorch_direct.ops.row_gradients import RowGradient
from pytorch_direct.ops.update import State, change_rows
from pytorch_direct.optim import SparseAdagrad, SparseAdam, SparseSGD

PAIRS = [
    (SparseSGD, torch.optim.SGD, {"lr": 0.1}),
    (SparseAdagrad, torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01,
                                          "initial_accumulator_value": 0.1}),
    (SparseAdam, torch.optim.SparseAdam, {"lr": 0.1, "betas": (0.8, 0.99)}),
]  # fmt: skip
IDS = ["sgd", "adagrad", "adam"]


def leaf(values: torch.Tensor) -> ptd.UnifiedTensor:
    return torch.nn.Parameter(ptd.unified(values.clone()))


def train(table, optimiser, gather, steps=5, rows=30):
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        ids = torch.randint(0, rows, (40,), generator=generator)
        target = torch.randn(40, table.shape[1], generator=generator, dtype=table.dtype)
        optimiser.zero_grad()
        (gather(table, ids) - target).square().sum().backward()
        optimiser.step()


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_to_torch_on_sparse_gradients(ours, theirs, options, dtype):
    values = torch.randn(50, 9, dtype=dtype)
    table, peer = leaf(values), torch.nn.Parameter(values.clone())
    train(table, ours([table], **options), ptd.gather)
    train(peer, theirs([peer], **options),
          lambda t, i: torch.nn.functional.embedding(i, t, sparse=True))  # fmt: skip
    # torch adds up equal ids in the same order, but may fuse a product into a sum.
    bound = 4e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(table.detach(), peer.detach(), rtol=bound, atol=bound)
    assert torch.equal(table[30:].detach(), values[30:])  # never touched


def test_sgd_equals_the_dense_optimiser():
    values = torch.randn(30, 4)
    table, peer = leaf(values), torch.nn.Parameter(values.clone())
    train(table, SparseSGD([table], lr=0.1), ptd.gather)
    train(peer, torch.optim.SGD([peer], lr=0.1), lambda t, i: t[i])
    torch.testing.assert_close(table.detach(), peer.detach(), rtol=4e-6, atol=4e-6)


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS, ids=IDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_tables_have_wide_state_and_are_rounded_once_a_step(ours, theirs, options, dtype):
    values = torch.randn(50, 8).to(dtype)
    table = leaf(values)
    optimiser = ours([table], **options)
    assert all(one.dtype == torch.float32 for one in optimiser._state_tables(table))
    ids = torch.tensor([3, 3, 7])
    ptd.gather(table, ids).float().square().sum().backward()
    optimiser.step()
    peer = torch.nn.Parameter(values.float())
    torch.nn.functional.embedding(ids, peer, sparse=True).square().sum().backward()
    theirs([peer], **options).step()
    torch.testing.assert_close(table.detach().float(), peer.detach(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_gradients_are_added_up_in_float32_and_not_rounded(dtype):
    values = torch.randn(6, 40).to(dtype)
    table = leaf(values)
    ids = torch.tensor([2, 4, 2, 2, 4])
    weights = torch.randn(5, 40).to(dtype)
    (ptd.gather(table, ids) * weights).sum().backward()
    SparseSGD([table], lr=0.25).step()
    sums = torch.zeros(6, 40).index_add_(0, ids, weights.float())
    assert torch.equal(table.detach(), (values.float() - 0.25 * sums).to(dtype))


def test_steps_without_zero_grad_add_up_as_torchs_do():
    table, peer = leaf(torch.zeros(9, 2)), torch.nn.Parameter(torch.zeros(9, 2))
    ours, theirs = SparseSGD([table], lr=1.0), torch.optim.SGD([peer], lr=1.0)
    for step in range(3):
        ids = torch.tensor([step, step + 1, step])
        ptd.gather(table, ids).sum().backward()
        peer[ids].sum().backward()
        ours.step()
        theirs.step()
    assert torch.equal(table.detach(), peer.detach())
    assert torch.equal(table.grad.to_dense(), peer.grad)


def test_rows_stay_unseen_only_where_the_pass_adds_them_to_the_leaf():
    table, other = leaf(torch.zeros(4, 2)), torch.ones(2, requires_grad=True)
    answers = []

    def run(*, grad_of=None, inputs=None):
        out = (table * other).sum()
        out.grad_fn.register_prehook(lambda g: answers.append(_is_accumulated(table)))
        if grad_of is not None:
            torch.autograd.grad(out, grad_of)
        else:
            out.backward(inputs=inputs)
        return answers.pop()

    assert run()
    assert run(inputs=[table])
    assert run(inputs=table)
    assert not run(inputs=[other])
    assert not run(grad_of=[table])
    assert not run(grad_of=[other])
    handle = table.register_hook(lambda g: g)
    assert not run()
    handle.remove()
    assert run()
    table.register_post_accumulate_grad_hook(lambda t: None)
    assert not run()


def test_expanded_gradients_are_laid_out_for_kernels():
    ones = torch.ones(1).expand(4, 3)
    gradient = RowGradient(torch.arange(8)[::2], ones)
    assert gradient.rows.is_contiguous()
    assert gradient.ids.is_contiguous()
    table = torch.zeros(9, 3)
    with pytest.raises(ValueError, match="contiguous"):
        change_rows(table, torch.arange(4), ones, State("add"))
    change_rows(table, gradient.ids, gradient.rows, State("add"))
    assert torch.equal(table[:, 0], torch.tensor([1.0, 0, 1, 0, 1, 0, 1, 0, 0]))


@pytest.mark.parametrize("kind", [SparseAdagrad, SparseAdam])
def test_state_of_narrow_tables_is_loaded_without_rounding(kind):
    values = torch.randn(20, 5).bfloat16()
    table, other = leaf(values), leaf(values)
    first, second = kind([table], lr=0.1), kind([other], lr=0.1)
    train(table, first, ptd.gather, rows=20)
    memory = [state.data_ptr() for state in second._state_tables(other)]
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert [state.data_ptr() for state in second._state_tables(other)] == memory
    for a, b in zip(first._state_tables(table), second._state_tables(other), strict=True):
        assert torch.equal(a, b)
    other.data.copy_(table.detach())
    train(table, first, ptd.gather, rows=20)
    train(other, second, ptd.gather, rows=20)
    assert torch.equal(table.detach(), other.detach())
    narrow = kind([leaf(torch.zeros(20, 1))])
    before = second._state_tables(other)[0].clone()
    with pytest.raises(ValueError, match="shape"):
        second.load_state_dict(narrow.state_dict())
    assert torch.equal(second._state_tables(other)[0], before)


def test_state_of_torchs_optimisers_is_taken():
    values = torch.randn(12, 4)
    table, peer = leaf(values), torch.nn.Parameter(values.clone())
    theirs = torch.optim.SparseAdam([peer], lr=0.1)
    ours = SparseAdam([table], lr=0.1)
    ours.load_state_dict(theirs.state_dict())  # nothing yet
    assert ours.state[table]["step"] == 0
    train(peer, theirs, lambda t, i: torch.nn.functional.embedding(i, t, sparse=True), rows=12)
    ours.load_state_dict(theirs.state_dict())
    assert ours.state[table]["step"] == 5
    assert torch.equal(ours.state[table]["exp_avg"], theirs.state[peer]["exp_avg"])


def test_groups_are_added_with_their_state():
    first, second = leaf(torch.zeros(4, 2)), leaf(torch.zeros(5, 2))
    optimiser = SparseAdam([first])
    optimiser.add_param_group({"params": [second], "lr": 0.5})
    with pytest.raises(TypeError, match="unified"):
        optimiser.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3, 2))]})
    assert len(optimiser.param_groups) == 2
    second[torch.tensor([1])].sum().backward()
    optimiser.step()
    torch.testing.assert_close(second.detach()[1], torch.full((2,), -0.5))


def test_copies_of_leaves_and_their_optimisers_train():
    table = leaf(torch.zeros(4, 2))
    optimiser = SparseSGD([table], lr=1.0)
    table[torch.tensor([2])].sum().backward()
    twin_table, twin = copy.deepcopy((table, optimiser))
    assert twin_table.is_leaf
    assert twin_table is twin.param_groups[0]["params"][0]
    assert torch.equal(twin_table.grad.to_dense(), table.grad.to_dense())
    twin.step()
    assert twin_table[2].tolist() == [-1.0, -1.0]
    assert table.sum() == 0
    module = copy.deepcopy(torch.nn.ParameterList([table]))
    module[0].pow(2).sum().backward()
    assert module[0].grad is not None
    with pytest.raises(TypeError, match="load_state_dict"):
        pickle.loads(pickle.dumps(optimiser)).step()


def test_gradient_is_sparse_sorted_and_added_up():
    table = leaf(torch.zeros(20, 3))
    ids = torch.tensor([[7, -1], [7, 2]])
    weights = torch.randn(2, 2, 3)
    (table[ids] * weights).sum().backward()
    gradient = table.grad
    assert gradient.layout is torch.sparse_coo
    assert gradient._indices()[0].tolist() == [2, 7, 19]
    expected = torch.zeros(20, 3).index_add_(0, (ids % 20).reshape(-1), weights.reshape(-1, 3))
    assert torch.equal(gradient.to_dense(), expected)
    (table[ids[0]] * 2).sum().backward()
    expected[[7, 19]] += 2
    assert torch.equal(table.grad.to_dense(), expected)
    table.grad = None
    assert table.grad is None


def test_gradient_of_a_gradient_is_that_of_a_dense_table():
    table = leaf(torch.randn(5, 2, dtype=torch.float64))
    ids = torch.tensor([1, 1, 4])
    (first,) = torch.autograd.grad(table[ids].pow(3).sum(), table, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), table)
    counts = torch.bincount(ids, minlength=5)[:, None]
    torch.testing.assert_close(second.to_dense(), 6 * table.detach() * counts)


def test_same_bits_whatever_the_threads():
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            table = leaf(torch.linspace(0, 1, 400 * 64).view(400, 64))
            generator = torch.Generator().manual_seed(0)
            ids = torch.randint(0, 400, (5000,), generator=generator)
            optimiser = SparseAdam([table])
            (table[ids] * torch.randn(5000, 64, generator=generator)).sum().backward()
            optimiser.step()
            results.append(table.detach().clone())
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


def test_state_goes_on_after_saving():
    values = torch.randn(30, 4)
    whole, half = leaf(values), leaf(values)
    train(whole, SparseAdam([whole]), ptd.gather, steps=3)
    first = SparseAdam([half])
    generator = torch.Generator().manual_seed(3)
    for turn in range(3):
        ids = torch.randint(0, 30, (40,), generator=generator)
        target = torch.randn(40, 4, generator=generator)
        if turn == 2:
            state = first.state_dict()
            first = SparseAdam([half])
            kept = first.state[half]["exp_avg"]
            first.load_state_dict(state)
            assert first.state[half]["exp_avg"] is kept
        first.zero_grad()
        (half[ids] - target).square().sum().backward()
        first.step()
    assert torch.equal(whole.detach(), half.detach())


def test_closures_groups_and_tables_without_gradient():
    one, other = leaf(torch.ones(4, 2)), leaf(torch.ones(4, 2))
    optimiser = SparseSGD([{"params": [one], "lr": 1.0}, {"params": [other]}], lr=0.5)

    def closure():
        optimiser.zero_grad()
        loss = one[torch.tensor([1])].sum()
        loss.backward()
        return loss

    assert optimiser.step(closure).item() == 2
    assert one[1].tolist() == [0, 0]
    assert torch.equal(other.detach(), torch.ones(4, 2))


def test_what_cannot_be_trained():
    with pytest.raises(TypeError, match="unified"):
        SparseSGD([torch.zeros(3, 2, requires_grad=True)])
    with pytest.raises(TypeError, match="contiguous rows"):
        SparseSGD([ptd.unified(torch.zeros(3, 4)).t().requires_grad_()])
    for wrong in ({"lr": -1.0}, {"betas": (1.0, 0.9)}, {"eps": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SparseAdam([leaf(torch.zeros(3, 2))], **wrong)
    table = leaf(torch.zeros(3, 2))
    (table * 2).sum().backward()
    with pytest.raises(RuntimeError, match="dense gradient"):
        SparseSGD([table]).step()
    with pytest.raises(RuntimeError, match="init_process_group"):
        SparseSGD([table]).distribute(shared=False)


@pytest.mark.parametrize("shared", [True, False])
def test_two_processes_train_as_one_does(tmp_path, shared):
    script = tmp_path / "ranks.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import torch, torch.distributed as dist, torch.multiprocessing as mp
            import pytorch_direct as ptd
            from pytorch_direct.optim import SparseAdam

            def batches(rank):
                generator = torch.Generator().manual_seed(rank)
                for step in range(4):
                    # One rank has nothing in a step: it takes part all the same.
                    count = 0 if (rank, step) == (1, 2) else 50
                    yield torch.randint(0, 25, (count,), generator=generator)

            def worker(rank, table, optimiser, store, queue):
                dist.init_process_group("gloo", init_method="file://" + store, rank=rank,
                                        world_size=2)
                assert optimiser.param_groups[0]["params"][0] is table
                optimiser.distribute(shared={shared}, average=False)
                for ids in batches(rank):
                    optimiser.zero_grad()
                    if len(ids):
                        table[ids].square().sum().backward()
                    optimiser.step()
                queue.put(table.detach().clone().tolist())
                dist.barrier()
                dist.destroy_process_group()

            def start():
                return torch.nn.Parameter(ptd.unified(torch.linspace(0, 1, 120).view(30, 4)))

            def own(rank, store, queue):
                table = start()
                worker(rank, table, SparseAdam([table]), store, queue)

            if __name__ == "__main__":
                torch.set_num_threads(1)
                context = mp.get_context("spawn")
                queue, store = context.Queue(), {str(tmp_path / "store")!r}
                if {shared}:
                    table = start()
                    optimiser = SparseAdam([table])
                    processes = [context.Process(target=worker, args=(r, table, optimiser, store,
                                                                      queue)) for r in range(2)]
                else:
                    processes = [context.Process(target=own, args=(r, store, queue))
                                 for r in range(2)]
                for process in processes:
                    process.start()
                results = [queue.get(timeout=200) for _ in range(2)]
                for process in processes:
                    process.join(60)
                    assert process.exitcode == 0
                alone = start()
                optimiser = SparseAdam([alone])
                for pair in zip(batches(0), batches(1)):
                    optimiser.zero_grad()
                    for ids in pair:
                        if len(ids):
                            alone[ids].square().sum().backward()
                    optimiser.step()
                assert results[0] == results[1]
                torch.testing.assert_close(torch.tensor(results[0]), alone.detach(), rtol=1e-6,
                                           atol=1e-6)
                if {shared}:
                    assert table.tolist() == results[0]
                print("trained")
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout.strip() == "trained", done.stderr


def test_gradients_seen_as_many_of_one_number_are_made_whole():
    # The gradient of a sum is one number with strides of 0; a GPU's kernels read by address.
    found = RowGradient(torch.arange(6)[::2], torch.ones(1, 1).expand(3, 4))
    assert found.rows.is_contiguous()
    assert found.ids.is_contiguous()
    assert found.rows.tolist() == [[1.0] * 4] * 3
    table = ptd.unified(torch.zeros(5, 4))
    with pytest.raises(ValueError, match="contiguous"):
        change_rows(table, torch.arange(3), torch.ones(1, 1).expand(3, 4), State("add"))
    with pytest.raises(ValueError, match="contiguous"):
        change_rows(table, torch.arange(6)[::2], torch.ones(3, 4), State("add"))
    assert table.sum() == 0


def test_gradient_of_a_sum_trains_each_row():
    table = leaf(torch.zeros(50, 7))
    optimiser = SparseSGD([table], lr=0.5)
    table[torch.tensor([3, 3, 9])].sum().backward()
    optimiser.step()
    assert table[3].tolist() == [-1.0] * 7
    assert table[9].tolist() == [-0.5] * 7
