# SPDX-License-Identifier: Apache-2.0
"""Turns what the demo measured into a table, report.md and report.json; measures nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from pathlib import Path
from typing import Any

import demo_pictures
import lane_rates
import torch
from rich.console import Console
from rich.table import Table

__all__ = ["collect", "rows", "write"]

MIB = 2**20
MEMORY_METHOD = {
    "cpu": "live bytes of the storages that operators returned (ssdtrain.live_bytes), highest sum "
    "during one training step",
    "cuda": "torch.cuda.max_memory_allocated during one training step less what was allocated "
    "before it",
}


def collect(
    graph: Any,
    gnn_settings: Any,
    gnn: dict[str, Any],
    majority: float,
    lm_settings: Any,
    lm: dict[str, Any],
    checks: list[dict[str, Any]],
    device: torch.device,
) -> dict[str, Any]:
    """Return everything as one JSON value; see report.json for its shape."""
    on_gpu = device.type == "cuda"
    return {
        "machine": {
            "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
            "processors": len(os.sched_getaffinity(0)),
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "gnn": {
            "graph": {
                "packages": graph.num_packages,
                "nodes": graph.num_nodes,
                "edges": graph.edge_index.shape[1],
                "relations": graph.num_relations,
                "classes": graph.num_classes,
            },
            "settings": dataclasses.asdict(gnn_settings),
            "majority_accuracy": majority,
            **{mode: dataclasses.asdict(history) for mode, history in gnn.items()},
        },
        "language_model": {
            "settings": dataclasses.asdict(lm_settings),
            "memory_method": MEMORY_METHOD[device.type],
            **{mode: dataclasses.asdict(history) for mode, history in lm.items()},
        },
        "checks": checks,
    }


def _share(history: dict[str, Any]) -> str:
    waited, seconds = history["fetch_seconds"], max(history["seconds"], 1e-9)
    return f"{waited:.2f} s, {100 * waited / seconds:.0f} %"


def rows(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the table: what, plain PyTorch, data path."""
    gnn, lm = report["gnn"], report["language_model"]
    a, b = gnn["plain"], gnn["datapath"]
    c, d = lm["plain"], lm["datapath"]
    table = [
        (
            f"GNN test accuracy (majority class {100 * gnn['majority_accuracy']:.2f} %)",
            f"{100 * a['accuracies'][-1]:.2f} %",
            f"{100 * b['accuracies'][-1]:.2f} %",
        ),
        ("GNN last training loss", f"{a['losses'][-1]:.4f}", f"{b['losses'][-1]:.4f}"),
        ("GNN training time", f"{a['seconds']:.1f} s", f"{b['seconds']:.1f} s"),
        ("GNN training waits for batches", _share(a), _share(b)),
        ("LM last training loss", repr(c["losses"][-1]), repr(d["losses"][-1])),
        ("LM held-out loss", repr(c["held_out_loss"]), repr(d["held_out_loss"])),
        ("LM training time", f"{c['seconds']:.1f} s", f"{d['seconds']:.1f} s"),
        (
            "LM peak memory of a step",
            f"{c['peak_bytes'] / MIB:.1f} MiB",
            f"{d['peak_bytes'] / MIB:.1f} MiB",
        ),
    ]
    for tier, size in tiers(report).items():
        table.append((f"LM activation bytes a step: {tier}", "", f"{size / MIB:.1f} MiB"))
    for lane, rate in report["lanes"].items():
        table.append((f"core's lane {lane}, caches included", "", f"{rate:.2f} GB/s"))
    return table


def tiers(report: dict[str, Any]) -> dict[str, int]:
    """Return tier -> activation bytes of the last training step, as ssdtrain counts them."""
    return {
        name: int(size)
        for name, size in report["language_model"]["datapath"]["offload"].get("bytes", {}).items()
    }


def _method(report: dict[str, Any]) -> list[str]:
    graph, lm = report["gnn"]["graph"], report["language_model"]
    gnn = (
        f"- The GNN predicts the section of {graph['packages']:,} Debian packages "
        f"({graph['classes']} classes) in a graph of {graph['nodes']:,} nodes and "
        f"{graph['edges']:,} edges of {graph['relations']} types. Both runs see the same "
        "mini-batches and start from the same parameters; accuracy is on the test packages, over "
        "the whole graph."
    )
    features = (
        "- `pytorch_direct.NeighborLoader` draws the batches of both runs. On the data path it "
        "also fetches the rows, ahead of training and from unified memory, and layers are compiled "
        "by hector; the plain run draws a batch when it wants one, uses `index_select` and loops "
        "over the relations. Waiting is the time until a batch with its rows is where the model "
        "computes."
    )
    language_model = (
        "- The language model is a byte-level transformer on the standard library's source. On "
        "the data path `ssdtrain.Offloader` moves its activations away; losses are compared as "
        "numbers, without a tolerance."
    )
    too_small = (
        "- The language model is too small to hide transfers behind compute, so offloading makes "
        "it slower here: it shows the memory and the equality, not the speed."
    )
    peak = f"- Peak memory: {lm['memory_method']}."
    lanes = f"- Rates of core's lanes: {lane_rates.METHOD}."
    return [gnn, features, language_model, too_small, peak, lanes]


def _markdown(report: dict[str, Any], pictures: list[str]) -> str:
    machine = report["machine"]
    lines = ["# Demo report", ""]
    lines.append(
        f"{machine['device']}, {machine['processors']} processors, {machine['system']}, Python "
        f"{machine['python']}, torch {machine['torch']}; {report['seconds']:.0f} s in all."
    )
    lines += ["", "| | plain PyTorch | data path |", "|---|---:|---:|"]
    lines += [f"| {' | '.join(row)} |" for row in rows(report)]
    lines += ["", "## Promises", "", "| promise | found | holds |", "|---|---|---|"]
    lines += [
        f"| {check['promise']} | {check['found']} | {'yes' if check['holds'] else '**no**'} |"
        for check in report["checks"]
    ]
    lines += [
        "",
        "## How it was measured",
        "",
        *_method(report),
        "",
        *[f"![{name}]({name})" for name in pictures],
        "",
    ]
    return "\n".join(lines)


def write(report: dict[str, Any], folder: Path) -> None:
    """Print the table and write report.md, report.json and the pictures into `folder`."""
    pictures = demo_pictures.draw(report, tiers(report), folder)
    text = json.dumps(report, indent=1, default=str)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")
    (folder / "report.md").write_text(_markdown(report, pictures), encoding="utf-8")
    console = Console()
    table = Table(title=f"Plain PyTorch and the data path, {report['machine']['device']}")
    table.add_column("what")
    table.add_column("plain PyTorch", justify="right")
    table.add_column("data path", justify="right")
    for row in rows(report):
        table.add_row(*row)
    console.print(table)
    for check in report["checks"]:
        mark = "[green]holds[/]" if check["holds"] else "[red]BROKEN[/]"
        console.print(f"{mark}  {check['promise']}: {check['found']}")
    console.print(f"{report['seconds']:.0f} s; open {folder / 'report.md'}")
