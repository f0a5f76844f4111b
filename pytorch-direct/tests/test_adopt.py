# SPDX-License-Identifier: Apache-2.0
"""Unified tensors over arrays, memory maps and safetensors files."""

from __future__ import annotations

import gc
import logging
import mmap
import pickle
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest
import torch

from datapath_core import UnsupportedError
from pytorch_direct import UnifiedTensor, gather, scatter_add_, unified

NUMBERS = ["u1", "i2", "u2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "?"]
IDS = torch.tensor([3, 0, 3])


@pytest.mark.parametrize("dtype", NUMBERS)
def test_arrays_are_taken_in_place(dtype):
    array = np.arange(40).reshape(5, 8).astype(dtype)
    u = unified(array)
    assert type(u) is UnifiedTensor
    assert u.data_ptr() == array.ctypes.data
    assert not u.copied
    assert np.array_equal(u[IDS].numpy(), array[IDS.numpy()])
    array[0] = 1
    assert np.array_equal(u[torch.tensor([0])].numpy()[0], array[0])
    view = array[1::2, ::3]
    strided = unified(view)
    assert strided.data_ptr() == view.ctypes.data
    assert np.array_equal(gather(strided, torch.tensor([1, 0])).numpy(), view[[1, 0]])


@pytest.mark.parametrize("make", [lambda a: a[::-1], lambda a: a[:, ::-1],
                                  lambda a: a.astype(">f4")])  # fmt: skip
def test_what_torch_cannot_address_is_copied_and_said_so(make, caplog):
    array = make(np.arange(40, dtype="f4").reshape(5, 8))
    with caplog.at_level(logging.WARNING, "pytorch_direct"):
        u = unified(array)
    assert u.copied
    assert "copied 160 bytes" in caplog.text
    assert np.array_equal(u[IDS].numpy(), array[IDS.numpy()])


def test_arrays_that_are_no_numbers():
    with pytest.raises(TypeError, match="numbers"):
        unified(np.array([{}]))
    with pytest.raises(TypeError, match="numbers"):
        unified(np.zeros(3, dtype=[("a", "i4"), ("b", "f4")]))
    for dtype in ("V0", "V4", "M8[s]", "U3"):
        with pytest.raises(TypeError, match="numbers"):
            unified(np.zeros(3, dtype=dtype))
    # Numbers under the mask would come back as if they were valid.
    with pytest.raises(TypeError, match="filled"):
        unified(np.ma.array([1.0, 2.0], mask=[False, True]))
    with pytest.raises(ValueError, match="none"):
        unified(np.array(1.0))
    for wrong in ([1, 2], "text", None):
        with pytest.raises(TypeError, match="memory map"):
            unified(wrong)


@pytest.fixture
def feature_file(tmp_path):
    path = tmp_path / "features.bin"
    np.arange(4000, dtype="f4").tofile(path)
    return path


def test_a_map_is_read_in_place_and_writes_reach_the_file(feature_file):
    table = np.memmap(feature_file, dtype="f4", mode="r+", shape=(500, 8))
    u = unified(table)
    assert u.data_ptr() == table.ctypes.data
    assert np.array_equal(u[IDS].numpy(), np.asarray(table)[IDS.numpy()])
    if not u.copied:
        u[3] = -1
        table.flush()
        assert (np.fromfile(feature_file, dtype="f4").reshape(500, 8)[3] == -1).all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there the driver decides whether it copies")
def test_nothing_writes_to_a_read_only_map(feature_file):
    u = unified(np.memmap(feature_file, dtype="f4", mode="r", shape=(500, 8)))
    before = u[IDS].clone()
    for write in (
        lambda: u.add_(1),
        lambda: u.__iadd__(1),
        lambda: u[1:].zero_(),
        lambda: u.__setitem__(0, 1.0),
        lambda: torch.add(u, 1, out=u),
    ):
        with pytest.raises(RuntimeError, match="read-only"):
            write()
    with pytest.raises(UnsupportedError, match="reading only"):
        scatter_add_(u, IDS, torch.ones(3, 8))
    assert torch.equal(u[IDS], before)
    assert torch.equal((u * 2)[3], before[0] * 2)


def test_a_plain_map_is_bytes(feature_file):
    with feature_file.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    u = unified(mapped)
    assert u.dtype == torch.uint8
    floats = u.view(torch.float32).view(500, 8)
    assert isinstance(floats, UnifiedTensor)
    assert floats[IDS][0, 0] == 24


def test_the_map_lives_as_long_as_the_tensor_and_no_longer(feature_file):
    table = np.memmap(feature_file, dtype="f4", mode="r", shape=(500, 8))
    gone = weakref.ref(table)
    u = unified(table)
    view = u[100:]
    del table, u
    gc.collect()
    assert view[IDS][0, 0] == 824
    del view
    gc.collect()
    assert gone() is None


def test_slices_of_safetensors_files(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    from safetensors.torch import save_file

    features, other = torch.randn(50, 7), torch.arange(30)
    path = tmp_path / "graph.safetensors"
    save_file({"features": features, "other": other}, path)
    with safetensors.safe_open(path, "pt") as file:
        whole, tensor = unified(file.get_slice("features")), unified(file.get_tensor("features"))
        assert whole._registration.nbytes == features.nbytes  # not the whole file
        if not whole.copied:
            assert whole.data_ptr() == tensor.data_ptr()
        array = unified(file.get_slice("other"))
    gc.collect()
    for table in (whole, tensor):
        assert torch.equal(table[IDS], features[IDS])
    assert torch.equal(array, other)
    with safetensors.safe_open(path, "np") as file:
        assert torch.equal(unified(file.get_slice("features"))[IDS], features[IDS])


def test_arrays_are_saved_and_sent_as_tensors_are(tmp_path):
    array = np.arange(40, dtype="f4").reshape(5, 8)
    assert torch.equal(pickle.loads(pickle.dumps(unified(array))), torch.from_numpy(array))
    script = tmp_path / "send.py"
    script.write_text(
        textwrap.dedent(
            """
            import numpy as np, torch, torch.multiprocessing as mp
            from pytorch_direct import unified

            def worker(u, queue):
                queue.put(u[torch.tensor([4])].sum().item())
                u[0] = 7

            if __name__ == "__main__":
                context = mp.get_context("spawn")
                u, queue = unified(np.ones((5, 8), dtype="f4")), context.Queue()
                process = context.Process(target=worker, args=(u, queue))
                process.start()
                assert queue.get(timeout=120) == 8
                process.join(120)
                assert (u[0] == 7).all()
                print("sent")
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout.strip() == "sent", done.stderr


@pytest.mark.gpu
def test_a_gpu_reads_arrays_and_maps(cuda, feature_file):
    array = np.arange(4000, dtype="f4").reshape(500, 8)
    ids = IDS.to(cuda)
    assert np.array_equal(unified(array)[ids].cpu().numpy(), array[IDS.numpy()])
    for mode in ("r", "r+", "c"):
        u = unified(np.memmap(feature_file, dtype="f4", mode=mode, shape=(500, 8)))
        assert u.is_registered
        assert np.array_equal(u[ids].cpu().numpy(), array[IDS.numpy()])
        print(mode, "copied" if u.copied else "in place")
        if mode == "r" and not u.copied:
            with pytest.raises(UnsupportedError, match="reading only"):
                scatter_add_(u, ids, torch.ones(3, 8, device=cuda))


@pytest.mark.gpu
def test_what_another_library_pinned_stays_pinned(cuda):
    pinned = torch.randn(1000, 8).pin_memory()
    ids = IDS.to(cuda)
    for _ in range(2):
        u = unified(pinned)
        assert torch.equal(u[ids].cpu(), pinned[IDS])
        del u
        gc.collect()
        torch.cuda.synchronize()
        assert pinned.is_pinned()
        assert torch.equal(pinned.to(cuda, non_blocking=True).cpu(), pinned)
