# SPDX-License-Identifier: Apache-2.0
"""Uses each installed package once, in an environment made of wheels; says what it saw.

``--without-torch`` uses core and loads pytorch-direct's native library, and needs no PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def core() -> None:
    """Write a file and read it back, and run the command line."""
    from datapath_core import io

    data = np.arange(100_003, dtype=np.uint8)
    back = np.zeros_like(data)
    with (
        tempfile.TemporaryDirectory() as folder,
        io.Engine() as engine,
        engine.open(str(Path(folder) / "file"), "w+") as file,
    ):
        if file.write(data, 1).result() != data.nbytes:
            raise SystemExit("core: a write was short")
        file.read(back, 1).result()
    if not np.array_equal(data, back):
        raise SystemExit("core: what was read is not what was written")
    command = Path(sys.executable).with_name("datapath")
    described = subprocess.run([str(command), "describe"], check=True, capture_output=True)
    if not described.stdout:
        raise SystemExit("core: datapath describe said nothing")


def native() -> None:
    """Load pytorch-direct's native library without importing the package, which needs PyTorch."""
    import datapath_core  # noqa: F401  (its library must be loaded first)

    package = importlib.util.find_spec("pytorch_direct")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("pytorch_direct is not installed")
    libraries = sorted(Path(package.submodule_search_locations[0]).glob("_native*.so"))
    if len(libraries) != 1:
        raise SystemExit(f"pytorch_direct: expected one native library, found {libraries}")
    spec = importlib.util.spec_from_file_location("pytorch_direct._native", libraries[0])
    if spec is None or spec.loader is None:
        raise SystemExit(f"pytorch_direct: Python cannot load {libraries[0]}")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    if "torch" in sys.modules:
        raise SystemExit("the native library or core imported torch")


def gather() -> None:
    """Gather rows of a unified tensor."""
    import torch

    import pytorch_direct

    table = torch.randn(1000, 17)
    ids = torch.randint(0, len(table), (333,))
    rows = pytorch_direct.unified(table)[ids]
    if not torch.equal(rows.cpu(), table[ids]):
        raise SystemExit("pytorch_direct: gathered rows differ from indexing")


def compile_layer() -> None:
    """Compile a relational layer and compare it with itself run eagerly."""
    import torch

    import hector

    def layer(g: hector.Graph, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        message = hector.linear(x[g.src], weight[g.rel])
        return hector.aggregate(message, g, reduce="mean_rel")

    edges, relations = torch.randint(0, 50, (2, 400)), torch.randint(0, 3, (400,))
    graph = hector.Graph(edges, relations, 50, 3)
    x, weight = torch.randn(50, 8), torch.randn(3, 8, 4)
    compiled = hector.compile(layer)
    torch.testing.assert_close(compiled(graph, x, weight), layer(graph, x, weight))


def offload() -> None:
    """Train one step with activations on disk and compare the gradients with plain training."""
    import torch

    import ssdtrain

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    batch = torch.randn(32, 64)
    model(batch).square().sum().backward()
    plain = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    with tempfile.TemporaryDirectory() as folder:
        with ssdtrain.Offloader(
            spill=folder, host=0, ssd="64MiB", min_bytes=0, plan="all"
        ) as offloader:
            loss = model(batch).square().sum()
        loss.backward()
        offloader.close()
    for before, parameter in zip(plain, model.parameters(), strict=True):
        if before is None or parameter.grad is None or not torch.equal(before, parameter.grad):
            raise SystemExit("ssdtrain: gradients differ from plain training")


def main() -> None:
    """Run every check of what is installed; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-torch", action="store_true")
    options = parser.parse_args()
    checks = [core, native] if options.without_torch else [core, gather, compile_layer, offload]
    for check in checks:
        check()
        print(f"smoke: {check.__name__} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
