# SPDX-License-Identifier: Apache-2.0
"""Epochs of three-layer GraphSAGE: our loader, PyG's, and everything in the GPU's memory.

Features lie in host memory. An epoch is not run to its end: some hundred batches are, in turns, and
the epoch's time is worked out from theirs. PyG's loader needs the sampler that sampling_work.py
tells of; its number of workers is chosen first. It samples on the CPU, so it begins before our
features are registered: forked processes would copy registered memory.

Sections: ``peer``, ``epoch`` (our loader beside it) and ``trimmed``.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import resource
import time
from collections.abc import Iterator
from typing import Any

import measured_rows
import torch
from bench_schema import Row
from epoch_work import (
    BATCH,
    CLASSES,
    FANOUTS,
    Contender,
    Sage,
    Work,
    make_work,
    our_loader,
    pyg_loader,
)
from sampling_work import Peer

SECTIONS = ("peer", "epoch", "trimmed")
TURNS = 3


class Bench:
    """The work and who does it."""

    def __init__(self, options: Any, results: measured_rows.Results) -> None:
        self.results = results
        self.device: torch.device = options.device
        self.quick: bool = options.quick
        sizes = (20_000, 200_000, 32) if self.quick else (
            int(options.nodes * 1e6), int(options.edges * 1e6), 256,
        )  # fmt: skip
        fanouts, batch = ([4, 3, 2], 128) if self.quick else (FANOUTS, BATCH)
        self.work: Work = make_work(*sizes, fanouts, batch)
        self.hidden = 32 if self.quick else 256
        self.count = 3 if self.quick else options.batches
        torch.manual_seed(0)
        self.model = Sage(sizes[2], self.hidden, 3)
        self.workers: dict[int, float] = {}
        self.peer: Contender | None = None
        self.resident: Any = None
        self.loaders: dict[str, Any] = {}

    def fresh(self, *, trim: bool = False) -> Sage:
        """Return the model as it was made, the same for everybody."""
        model = copy.deepcopy(self.model).to(self.device)
        model.trim = trim
        return model

    def choose_workers(self) -> Iterator[Row]:
        """PyG's loader with several numbers of workers; the best is kept for the turns."""
        if not Peer.is_here():
            print("no sampler for PyG's loader: see sampling_work.py", flush=True)
            return
        cores = len(os.sched_getaffinity(0))
        first = pyg_loader(self.work, 0)
        sampler = first.node_sampler

        def loader(workers: int) -> Any:
            pin = self.device.type == "cuda"
            return pyg_loader(self.work, workers, sampler, pin_memory=pin)

        for workers in (1, 2) if self.quick else [n for n in (4, 8, 16) if n <= cores]:
            one = Contender("PyG", loader(workers), self.fresh(), self.device, 2 * workers)
            # Workers' batches come in rounds: whole ones are timed.
            self.workers[workers] = one.turn((2 if self.quick else 4) * workers)
            print(f"PyG, {workers} workers: {self.workers[workers] * 1e3:.1f} ms", flush=True)
            yield Row(
                work=f"a batch of PyG's NeighborLoader and training, {workers} workers, "
                f"{self.work.what}",
                ours=self.workers[workers] * 1e3, unit="ms",
                note=f"{one.nodes} nodes, {one.edges} edges in a batch",
            )  # fmt: skip
            one.close()
        best = min(self.workers, key=lambda n: self.workers[n])
        self.peer = Contender(
            f"PyG's NeighborLoader, {best} workers, pinned", loader(best), self.fresh(),
            self.device, 2 * best, seconds=[self.workers[best]],
        )  # fmt: skip
        # Its processes begin here, before the memory that they share is registered.
        self.peer.train(1)

    def ours(self, *, trim: bool = False) -> Contender:
        """Our loader over PyG's data as it is: features in host memory, registered in place."""
        name = "ours, features in host memory"
        return self._contender(name, self.work.data, trim, graph_device=self.device)

    def far(self) -> Contender:
        """The same with the graph in host memory, too."""
        name = "ours, features and graph in host memory"
        return self._contender(name, self.work.data, False, graph_device="cpu")

    def on_gpu(self, *, trim: bool = False) -> Contender:
        """Our loader with everything in the GPU's memory."""
        if self.resident is None:
            self.resident = copy.copy(self.work.data)
            self.resident.x = self.resident.x.to(self.device)
            self.resident.y = self.resident.y.to(self.device)
        return self._contender("ours, GPU memory", self.resident, trim, graph_device=self.device)

    def _contender(self, name: str, data: Any, trim: bool, **options: Any) -> Contender:
        if name not in self.loaders:
            start = time.perf_counter()
            self.loaders[name] = our_loader(self.work, data, self.device, **options)
            print(f"{name}: loader made in {time.perf_counter() - start:.1f} s", flush=True)
        return Contender(name, self.loaders[name], self.fresh(trim=trim), self.device, 4)

    def epoch(self) -> Iterator[Row]:
        """Turns of the three."""
        ours, resident, peer = self.ours(), self.on_gpu(), self.peer
        far = self.far()
        everyone = [one for one in (peer, ours, far, resident) if one is not None]
        used = 0.0
        for turn in range(TURNS):
            for one in everyone:
                if one is peer and turn == 1:
                    continue
                # The slow peer's turns are fewer, of whole rounds of its workers.
                count = 2 * one.ahead if one is peer else self.count
                before = cpu_seconds()
                took = one.turn(count)
                if one is ours:
                    used = (cpu_seconds() - before) / (count + one.ahead)
                print(f"turn {turn}, {one.name}: {took * 1e3:.2f} ms a batch", flush=True)
                self.results.extra[f"{one.name}: ms of a batch, by turn"] = [
                    seconds * 1e3 for seconds in one.seconds
                ]
                self.results.write()
        yield from self._rows(ours, resident, peer, used, "")
        yield from self._rows(far, resident, peer, None, ", graph in host memory too")
        yield from self._equal(ours, resident, peer)
        if peer is not None:
            peer.close()
        self.peer = None

    def trimmed(self) -> Iterator[Row]:
        """Turns of a model that computes only what later layers need, so the GPU has less to do."""
        ours, resident = self.ours(trim=True), self.on_gpu(trim=True)
        for _ in range(TURNS):
            ours.turn(self.count)
            resident.turn(self.count)
        yield from self._rows(ours, resident, None, None, ", layers trimmed to what seeds need")

    def _rows(
        self, ours: Contender, resident: Contender, peer: Contender | None, used: float | None,
        what: str,
    ) -> Iterator[Row]:  # fmt: skip
        batches = self.work.batches
        gib = ours.nodes * self.work.data.x.shape[1] * 4 / 2**30
        note = (
            f"the fastest of {TURNS} turns of {self.count} batches of {batches}; a batch has "
            f"{ours.nodes} nodes ({gib:.2f} GiB), {ours.edges} edges"
        )
        if used is not None:
            note += f"; {used * 1e3:.2f} ms of CPU time a batch"
        work = f"epoch of GraphSAGE, 3 layers of {self.hidden}, {self.work.what}{what}"
        judged = not self.quick
        if peer is not None:
            ratio = peer.best / ours.best
            table = ", ".join(f"{n}: {t * batches:.0f} s" for n, t in self.workers.items())
            yield Row(
                work=f"{work}, against PyG's loader", ours=ours.best * batches, unit="s",
                peer=peer.best * batches, peer_name=peer.name, ratio=ratio,
                target=">= 4x the peer" if judged else "", met=ratio >= 4 if judged else None,
                note=f"{note}; the peer by number of workers: {table}",
            )  # fmt: skip
        ratio = ours.best / resident.best
        yield Row(
            work=f"{work}, against the GPU's memory", ours=ours.best * batches, unit="s",
            limit=resident.best * batches, limit_name="features and graph in the GPU's memory",
            ratio=ratio, target="<= 1.5x the time" if judged else "",
            met=ratio <= 1.5 if judged else None, note=note,
        )  # fmt: skip

    def _equal(self, ours: Contender, resident: Contender, peer: Contender | None) -> Iterator[Row]:
        """Losses after as many steps, and what share of new seeds is told right by then."""
        steps = min(len(one.losses) for one in (ours, resident, peer) if one is not None)
        last = max(1, steps // 5)
        pairs = zip(ours.losses, resident.losses, strict=False)
        same = sum(float(a) == float(b) for a, b in pairs)
        notes = {
            "losses": f"{same} of {min(len(ours.losses), len(resident.losses))} losses equal those "
            "of the GPU's memory to the last bit (its sums by atomics differ by themselves); the "
            "peer draws other samples",
            "right": f"of seeds not trained on before; by chance {1 / CLASSES:.3f}",
        }
        for what, name, unit in (("losses", "loss", "nats"), ("right", "accuracy", "of seeds")):
            values = [
                None if one is None
                else float(torch.stack(getattr(one, what)[steps - last : steps]).mean())
                for one in (ours, peer, resident)
            ]  # fmt: skip
            yield Row(
                work=f"{name} after {steps} steps, mean of the last {last}", ours=values[0],
                unit=unit, peer=values[1], peer_name="" if peer is None else peer.name,
                limit=values[2], limit_name="features and graph in the GPU's memory",
                ratio=values[0] / (values[2] if values[1] is None else values[1]),
                note=notes[what],
            )  # fmt: skip


def cpu_seconds() -> float:
    """Return the CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the sections asked for."""
    options = measured_rows.options(
        __doc__, SECTIONS, nodes=(float, 10), edges=(float, 200), batches=(int, 100)
    )
    if importlib.util.find_spec("torch_geometric") is None:
        raise SystemExit("its layers are PyG's: pip install torch-geometric")
    results = measured_rows.Results(options.json, "pytorch-direct: epochs")
    bench = Bench(options, results)
    for name, run in zip(SECTIONS, (bench.choose_workers, bench.epoch, bench.trimmed), strict=True):
        if name in options.sections:
            results.section(name, run)
    results.finish()


if __name__ == "__main__":
    main()
