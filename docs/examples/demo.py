# SPDX-License-Identifier: Apache-2.0
"""Runs the whole thing on real data and compares it with plain PyTorch.

Trains a relational GNN on the Debian package graph and a small transformer on the standard
library's source, each once in plain PyTorch and once on the data path, and writes a report with
pictures. Ends with status 1 if a promise does not hold. `python demo.py --out demo-report`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "integration-tests" / "data")]

# Threads that wait by spinning make a busy machine many times slower; read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import debian_graph  # noqa: E402
import demo_report  # noqa: E402
import lane_rates  # noqa: E402
import language_model  # noqa: E402
import relational_gnn  # noqa: E402
import torch  # noqa: E402
from stdlib_corpus import Corpus  # noqa: E402
from tqdm import tqdm  # noqa: E402

__all__ = ["checks", "main"]

MODES = ("plain", "datapath")
ACCURACY_TOLERANCE = 0.005
"""How far the two runs' accuracies may be apart: float32 sums in another order differ a little."""

ABOVE_MAJORITY = 0.2
"""What "clearly above the majority class" means."""


@contextmanager
def _bar(title: str, steps: int) -> Iterator[Callable[[float], None]]:
    with tqdm(total=steps, desc=f"{title:<34}", unit="step", mininterval=0.5) as bar:

        def advance(loss: float) -> None:
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            bar.update()

        yield advance


def _require_packages() -> None:
    for name in ("datapath_core", "pytorch_direct", "hector", "ssdtrain"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise SystemExit(
                f"demo: cannot import {name}: {error}. Install the four packages first "
                "(`nox -s demo` does), or see docs/install."
            ) from error


def checks(gnn: dict[str, Any], majority: float, lm: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what was promised, what came out, and whether it holds.

    Parameters
    ----------
    gnn, lm : dict
        The :class:`History` of each mode.
    majority : float
        Test accuracy of always answering the most common section.
    """
    plain, other = (gnn[mode].accuracies[-1] for mode in MODES)
    losses = [[*lm[mode].losses, lm[mode].held_out_loss] for mode in MODES]
    equal = sum(a == b for a, b in zip(*losses, strict=True))
    return [
        {
            "promise": f"GNN accuracy at least {100 * ABOVE_MAJORITY:.0f} points above the "
            "majority class",
            "found": f"{100 * min(plain, other):.2f} % against {100 * majority:.2f} %",
            "holds": min(plain, other) >= majority + ABOVE_MAJORITY,
        },
        {
            "promise": f"GNN accuracy within {100 * ACCURACY_TOLERANCE} points of the plain run's",
            "found": f"{100 * (other - plain):+.2f} points",
            "holds": abs(other - plain) <= ACCURACY_TOLERANCE,
        },
        {
            "promise": "language model's losses equal the plain run's to the last bit",
            "found": f"{equal} of {len(losses[0])} equal",
            "holds": equal == len(losses[0]),
        },
        {
            "promise": "activations really left memory, and the peak is lower",
            "found": f"{lm['datapath'].peak_bytes / 2**20:.1f} MiB against "
            f"{lm['plain'].peak_bytes / 2**20:.1f} MiB",
            "holds": lm["datapath"].peak_bytes < lm["plain"].peak_bytes,
        },
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; see ``--help``. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-report"), help="report's folder")
    parser.add_argument("--spill", type=Path, help="folder for activations (default: in --out)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=relational_gnn.Settings.epochs)
    parser.add_argument("--steps", type=int, default=language_model.Settings.steps)
    options = parser.parse_args(arguments)
    if options.epochs < 1 or options.steps < 1:
        parser.error(f"--epochs {options.epochs} --steps {options.steps}: 1 or more wanted")
    _require_packages()
    options.out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    device = torch.device(options.device)

    graph = debian_graph.load()
    gnn_settings = relational_gnn.Settings(epochs=options.epochs)
    gnn = {}
    for mode in MODES:
        with _bar(
            f"relational GNN, {mode}", relational_gnn.count_steps(graph, gnn_settings)
        ) as bar:
            _, gnn[mode] = relational_gnn.train(
                graph, gnn_settings, mode=mode, device=device, on_step=bar
            )

    corpus = Corpus()
    lm_settings = language_model.Settings(steps=options.steps)
    lm = {}
    with tempfile.TemporaryDirectory(dir=options.spill or options.out, prefix="spill-") as spill:
        for mode in MODES:
            with _bar(f"language model, {mode}", options.steps) as bar:
                _, lm[mode] = language_model.train(
                    corpus, lm_settings, mode=mode, device=device, spill=Path(spill), on_step=bar
                )
        lanes = lane_rates.measure(Path(spill), device)

    majority = graph.majority_accuracy(graph.test_mask)
    report = demo_report.collect(
        graph, gnn_settings, gnn, majority, lm_settings, lm, checks(gnn, majority, lm), device
    )
    report["lanes"] = lanes
    report["seconds"] = time.perf_counter() - begin
    demo_report.write(report, options.out)
    return 0 if all(check["holds"] for check in report["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
