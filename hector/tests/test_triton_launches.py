# SPDX-License-Identifier: Apache-2.0
"""Launches with kept kernels: which calls take them, and what they pass; no kernel runs."""

import types

import pytest
import torch

from hector.emit.triton import launching
from hector.emit.triton.launching import Launch, precision

triton = pytest.importorskip("triton")
if not triton.__version__.startswith("3.6."):
    pytest.skip("the launcher of Triton 3.6", allow_module_level=True)


class OnGpu:
    """Stands for a tensor on a GPU."""

    is_cuda = True

    def __init__(self, at, dtype=torch.float32):
        self.at, self.dtype = at, dtype

    def data_ptr(self):
        return self.at

    def get_device(self):
        return 3


class CudaLauncher:
    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid = launch_pdl = False

    def __init__(self, log):
        self.launch = lambda *args: log.append(args)


class Kernel:
    """Stands for a kernel of ``triton.jit``; compiles nothing."""

    def __init__(self, log, names=("x", "out", "n", "PRECISION", "ids")):
        self.params = [
            types.SimpleNamespace(
                name=name, do_not_specialize=name == "n", is_constexpr=name.isupper()
            )
            for name in names
        ]
        self.plain, self.log = [], log

    def __getitem__(self, grid):
        def launch(*args, num_warps):
            self.plain.append((grid, args, num_warps))
            compiled = object.__new__(triton.compiler.CompiledKernel)
            compiled._run, compiled.module = CudaLauncher(self.log), True
            compiled.function, compiled.packed_metadata = 77, (4, 1, 0)
            return compiled

        return launch


@pytest.fixture
def log(monkeypatch):
    driver = types.SimpleNamespace(
        active=types.SimpleNamespace(get_current_stream=lambda device: 1000 + device)
    )
    monkeypatch.setattr(triton.runtime, "driver", driver)
    return []


def test_kept_after_the_first(log):
    ids = torch.zeros(8, dtype=torch.int32)
    kernel = Kernel(log)
    launch = Launch(kernel, (5, 2), (..., ..., 9, precision, ids), num_warps=4)
    x, out = OnGpu(64), OnGpu(160)
    launch(x, out)
    assert kernel.plain == [((5, 2), (x, out, 9, "ieee", ids), 4)]
    assert log == []
    launch(OnGpu(320), out)
    head = (5, 2, 1, 1003, 77, False, False, None, None, (4, 1, 0), None, None, None)
    assert log == [(*head, 320, 160, 9, "ieee", ids.data_ptr())]
    launch(OnGpu(324), out)  # not aligned
    assert len(kernel.plain) == 2
    # Another graph of the same kind: other numbers, the same kernel.
    other = Launch(kernel, (7,), (..., ..., 11, precision, ids.clone()), num_warps=4)
    other(x, out)
    assert len(kernel.plain) == 2
    assert log[-1][:3] == (7, 1, 1)
    assert log[-1][15] == 11
    for args in ((..., ..., 1 << 31, precision, ids), (..., ..., 9, precision, None)):
        count = len(kernel.plain)
        Launch(kernel, (7,), args, num_warps=4)(x, out)
        assert len(kernel.plain) == count + 1
    Launch(kernel, (0,), (..., ..., 9, precision, ids), num_warps=4)(x, out)
    assert len(kernel.plain) == 4


def test_precision_is_that_of_the_call(log, monkeypatch):
    kernel = Kernel(log)
    launch = Launch(kernel, (1,), (..., ..., 9, precision, None), num_warps=4)
    x = OnGpu(64)
    launch(x, x)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    launch(x, x)
    assert [args[3] for _, args, _ in kernel.plain] == ["ieee", "tf32"]
    launch(x, x)
    assert log[-1][16] == "tf32"


def test_profilers_see_every_launch(log, monkeypatch):
    kernel = Kernel(log)
    launch = Launch(kernel, (1,), (..., ..., 9, precision, None), num_warps=4)
    x = OnGpu(64)
    launch(x, x)
    monkeypatch.setattr(triton.knobs.runtime.launch_enter_hook, "calls", [print])
    launch(x, x)
    assert len(kernel.plain) == 2
    assert log == []


def test_other_versions_are_launched_as_everyone_does(log, monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.7.0")
    kernel = Kernel(log)
    launch = Launch(kernel, (1,), (..., ..., 9, precision, None), num_warps=4)
    x = OnGpu(64)
    for _ in range(3):
        launch(x, x)
    assert len(kernel.plain) == 3
    assert log == []


def test_room_is_made_at_each_call_where_any_is_needed():
    made = launching.room(3, 4, torch.device("cpu"))
    assert made().shape == (3, 4)
    assert made() is not made()
    none = launching.room(0, 4, torch.device("cpu"))
    assert none() is none()
