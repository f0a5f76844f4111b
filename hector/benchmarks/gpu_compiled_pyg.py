# SPDX-License-Identifier: Apache-2.0
"""Compiles one layer of PyG with ``torch.compile``, waits for a line on stdin, then measures it.

``gpu_compiled_pyg.py GRAPH LAYER KIND``; a step of ``bench_gpu_layers.py``, which limits its time.
Prints JSON: an empty object when the graph is there, one when compiled, one with the times.
"""

from __future__ import annotations

import json
import sys

import torch
from gpu_cells import DEVICE, cell
from pyg_layers import make_pyg

from hector.measure.timing import milliseconds, runner


def main(graph: str, layer: str, kind: str) -> None:
    """Do it."""
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 1024
    function, arguments, wrt = make_pyg(kind, cell(layer, graph).graph)
    print("{}", flush=True)
    try:
        # An object with a call is not what torch.compile takes; a function is.
        compiled = torch.compile(lambda *rest: function(*rest), dynamic=False)
        runs = [runner(compiled, arguments, wrt, training) for training in (False, True)]
        for run in runs:
            run()
            run()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - the compiler's kinds are many
        print(json.dumps({"failure": (str(error).splitlines() or [""])[0][:80]}), flush=True)
        return
    torch.cuda.empty_cache()
    print("{}", flush=True)
    sys.stdin.readline()
    times = [milliseconds(run, DEVICE, budget=0.4, most=10) for run in runs]
    print(json.dumps({"forward": times[0], "training": times[1]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
