# SPDX-License-Identifier: Apache-2.0
"""A Llama of Transformers with random weights, the 8B's layers, at long sequences on one GPU."""

from __future__ import annotations

import argparse
import cProfile
import io
import math
import pstats
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from bench_schema import Row, arguments
from beside_keep import prediction
from sections import Results, chosen
from strategies import DEVICE, DTYPE, Measured, Strategy, empty_device, measure, offloader
from transformers import LlamaConfig, LlamaForCausalLM

# A smaller vocabulary than the 8B's 128,256: its logits are no saved activation of a layer.
SHAPE = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 32000}  # fmt: skip
SMALL = {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": 1000}  # fmt: skip


# Seconds to wait for a planner that plans again and again.
PATIENCE = 30.0


class Workload:
    """One sequence at a time."""

    def __init__(self, layers: int, quick: bool) -> None:
        torch.manual_seed(0)
        config = LlamaConfig(
            **(SMALL if quick else SHAPE),
            num_hidden_layers=layers,
            max_position_embeddings=65536,
            use_cache=False,
            attn_implementation="sdpa",
        )
        before = torch.get_default_dtype()
        torch.set_default_dtype(DTYPE)
        with DEVICE:
            self.model = LlamaForCausalLM(config)
        torch.set_default_dtype(before)
        self.model.train()
        self.layers = layers
        self.vocabulary = config.vocab_size
        self.resize(1024)

    def __str__(self) -> str:
        return f"{self.layers} layers"

    def resize(self, tokens: int) -> None:
        """Another length."""
        self.tokens = tokens
        self.ids = torch.randint(0, self.vocabulary, (1, tokens), device=DEVICE)

    def forward(self, recompute: bool) -> torch.Tensor:
        """The language model's loss."""
        if recompute != self.model.is_gradient_checkpointing:
            if recompute:
                self.model.gradient_checkpointing_enable({"use_reentrant": False})
            else:
                self.model.gradient_checkpointing_disable()
        loss: torch.Tensor = self.model(input_ids=self.ids, labels=self.ids).loss
        return loss

    def run(self, strategy: Strategy) -> Measured | None:
        """Measure a strategy; None if it ran out of memory."""
        found = None
        try:
            found = measure(strategy, self.model, self.forward)
            text = (
                f"{found.ms:.0f} ms, peak {found.gib:.1f} GiB, loss {found.loss:.6g},"
                f" steps {' '.join(f'{ms:.0f}' for ms in found.times)}\n{_history(found)}"
            )
        except torch.OutOfMemoryError:
            text = "out of memory"
        print(f"{self.tokens} tokens, {strategy.name}: {text}", flush=True)
        self.model.zero_grad(set_to_none=True)
        empty_device()
        return found


def _history(found: Measured) -> str:
    """All steps, a line each: on the device, the host's share, what was expected."""
    lines = []
    for number, step in enumerate(found.history):
        line = (
            f"  step {number}: {step['ms']:.0f} ms; the host took {step['host_forward_ms']:.0f} +"
            f" {step['host_backward_ms']:.0f}, of it {step['garbage_ms']:.0f} for garbage"
        )
        if "mode" in step:
            line += (
                f"; {step['mode']}, now expected {step['predicted_ms']:.0f} with"
                f" {step['predicted_wait_ms']:.0f} of waits, measured lately"
                f" {step['wait_ms']:.0f}; replans {step['replans']} ({step['why']})"
            )
        lines.append(line)
    return "\n".join(lines)


def _look(off: Any, step: Callable[[], object], folder: Path | None, tokens: int) -> None:
    """Write where the host's time goes, the timeline and the plan, to simulate with elsewhere."""
    profile = cProfile.Profile()
    profile.runcall(step)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(40)
    if folder is not None:
        (folder / f"llama-{tokens}-host.txt").write_text(text.getvalue())
    timeline, plan = off._engine.steps.steering.current_timeline, off.plan
    if folder is not None and timeline is not None and plan is not None:
        timeline.save(folder / f"llama-{tokens}-timeline.json")
        plan.save(folder / f"llama-{tokens}-plan.json")


def at_length(results: Results, work: Workload, tokens: int, folder: Path | None) -> None:
    """Keep, checkpoint and plan at one length; ratios are to keep, or to checkpointing without."""
    work.resize(tokens)
    keep = work.run(Strategy("keep", settle=2, steps=3))
    recompute = work.run(Strategy("gradient checkpointing", recompute=True, settle=1, steps=2))
    wishes: dict[str, Any] = {"max_slowdown": 0.03}
    if keep is None:
        # Beside the weights: gradients, and room for the caching allocator's fragments.
        wishes = {"max_memory": int(0.9 * torch.cuda.get_device_properties(0).total_memory)}
    if DEVICE.type == "cuda":
        wishes["host"] = "80GiB"
    else:
        wishes |= {"min_bytes": "64KiB", "spill": tempfile.gettempdir(), "ssd": "2GiB"}
    settled = 9 if keep is not None else 3
    planned = work.run(
        offloader(
            "planned",
            work.model,
            settle=4,
            settled=settled,
            patience=PATIENCE,
            steps=7 if keep is not None else 2,
            watch=lambda off, step: _look(off, step, folder, tokens),
            **wishes,
        )
    )
    peer = recompute if keep is None else keep
    if peer is None:
        raise ValueError(f"{tokens} tokens: neither keep nor checkpointing runs")
    name = "gradient checkpointing" if keep is None else "keep"
    for found in (keep, recompute, planned):
        if found is None:
            continue
        if not math.isclose(found.loss, peer.loss, rel_tol=1e-6):
            raise ValueError(f"{found.name}: loss {found.loss!r}, {name} {peer.loss!r}")
        note = f"peak {found.gib:.1f} GiB over what is resident, {name} {peer.gib:.1f}"
        if keep is None:
            note += "; keep runs out of memory"
        note += prediction(found)
        results.remember(f"{tokens} tokens", found)
        results.add(
            Row(
                work=f"Llama, {work.layers} layers, {tokens} tokens: {found.name}",
                ours=found.ms,
                unit="ms",
                peer=peer.ms,
                peer_name=name,
                ratio=found.ms / peer.ms,
                note=note,
            )
        )


def main(options: argparse.Namespace, lengths: Sequence[str]) -> None:
    """Run it."""
    quick = options.quick or DEVICE.type == "cpu"
    results = Results(options.json, "A Llama of Transformers at long sequences")
    work = Workload(2 if quick else 32, quick)
    folder = options.json.parent if DEVICE.type == "cuda" else None
    for tokens in (128, 256) if quick else map(int, lengths):
        results.section(at_length, work, tokens, folder)
    results.finish()


if __name__ == "__main__":
    LENGTHS = chosen("--tokens", ["8192", "24576", "16384"])
    main(arguments(__doc__), LENGTHS)
