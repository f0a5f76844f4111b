# SPDX-License-Identifier: Apache-2.0
"""A process that ends while its threads are inside native code."""

import subprocess
import sys

import pytest

CALLS = {
    "edges": "_native.rmat_edges(1 << 20, 0, 500, 7, .57, .19, .19, True, ids, ids + 4000, 1)",
    "features": "_native.uniform_features(0, 500, 7, values, 1)",
    "gather_cpu": "_native.gather_cpu(values, 10, 16, [4], [4], 4, rows, True, 100, False, out, 1)",
}
PROGRAM = """
import threading
import numpy
from pytorch_direct import _native
memory = [numpy.zeros(2000, numpy.int64) for _ in range(4)]
ids, values, rows, out = (each.ctypes.data for each in memory)
running = threading.Semaphore(0)
def work():
    for _ in range(3):
        {call}
    running.release()
    while True:
        {call}
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for _ in range(4):
    running.acquire()
"""


@pytest.mark.parametrize("call", CALLS)
def test_threads_may_be_inside_native_code_when_the_interpreter_ends(call):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=CALLS[call])], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
