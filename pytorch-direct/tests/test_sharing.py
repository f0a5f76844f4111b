# SPDX-License-Identifier: Apache-2.0
"""Unified tensors among processes."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap

import pytest
import torch

from pytorch_direct import UnifiedTensor, unified


def test_moves_once_into_shared_memory_and_says_so(caplog):
    u = unified(torch.arange(12.0).view(3, 4))
    view = u[1:]
    with caplog.at_level(logging.WARNING, "pytorch_direct"):
        assert u.share_memory_() is u
        address = u.data_ptr()
        u.share_memory_()
        view.share_memory_()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "shared memory" in caplog.text
    assert u.is_shared()
    assert u.data_ptr() == address
    assert torch.equal(u, torch.arange(12.0).view(3, 4))


def test_views_move_along_and_plain_tensors_stay():
    plain = torch.zeros(3, 4)
    u = unified(plain)
    view, again = u[1:], unified(plain)
    u.share_memory_()
    u[2] = 5
    assert (view[1] == 5).all()
    assert (again[2] == 5).all()
    assert view._registration is u._registration
    assert (plain == 0).all()


def test_shared_parameters_stay_leaves():
    weight = torch.nn.Parameter(unified(torch.zeros(3, 4)))
    weight.share_memory_()
    assert weight.is_leaf
    weight[torch.tensor([1])].sum().backward()
    assert weight.grad[1].tolist() == [1.0] * 4


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_see_the_same_memory(tmp_path, method):
    # A script of its own, so that spawning finds importable code and nothing of pytest.
    script = tmp_path / "share.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import torch, torch.multiprocessing as mp
            from pytorch_direct import UnifiedTensor, unified

            def worker(u, queue, received):
                assert type(u) is UnifiedTensor and u.is_shared()
                u[torch.tensor([0])]
                u[1] = 42
                queue.put(u[torch.tensor([1, 0])].sum().item())
                queue.put(u[2:])
                assert received.wait(120)  # a sender must live until its tensor has arrived

            if __name__ == "__main__":
                context = mp.get_context({method!r})
                u = unified(torch.ones(4, 8))
                u.share_memory_()
                queue, received = context.Queue(), context.Event()
                process = context.Process(target=worker, args=(u, queue, received))
                process.start()
                assert queue.get(timeout=120) == 8 * 43
                back = queue.get(timeout=120)
                received.set()
                assert type(back) is UnifiedTensor, type(back)
                assert (u[1] == 42).all()
                back[0] = 9
                assert (u[2] == 9).all()
                process.join(120)
                assert process.exitcode == 0
                print("shared")
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout.strip() == "shared", done.stderr


def test_results_of_autograd_are_not_sent():
    from multiprocessing.reduction import ForkingPickler

    leaf = torch.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="detach"):
        ForkingPickler.dumps(unified(leaf * 2))
    assert isinstance(unified(leaf * 2), UnifiedTensor)
