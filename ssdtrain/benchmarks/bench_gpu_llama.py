# SPDX-License-Identifier: Apache-2.0
"""A Llama of Transformers with random weights, the 8B's layers, at long sequences on one GPU."""

from __future__ import annotations

import argparse
import gc
import math
from dataclasses import dataclass

import torch
from bench_schema import Row, arguments, write
from strategies import Measured, Strategy, measure, offloader
from transformers import LlamaConfig, LlamaForCausalLM

# A smaller vocabulary than the 8B's 128,256: its logits are no saved activation of a layer.
SHAPE = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 32000}  # fmt: skip
SMALL = {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": 1000}  # fmt: skip


@dataclass
class Outcome:
    """What a strategy gave, or that it ran out of memory."""

    name: str
    found: Measured | None


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
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            self.model = LlamaForCausalLM(config)
        torch.set_default_dtype(before)
        self.model.train()
        self.vocabulary = config.vocab_size
        self.resize(1024)

    def resize(self, tokens: int) -> None:
        """Another length."""
        self.tokens = tokens
        self.ids = torch.randint(0, self.vocabulary, (1, tokens), device="cuda")

    def forward(self, recompute: bool) -> torch.Tensor:
        """The language model's loss."""
        if recompute != self.model.is_gradient_checkpointing:
            if recompute:
                self.model.gradient_checkpointing_enable({"use_reentrant": False})
            else:
                self.model.gradient_checkpointing_disable()
        loss: torch.Tensor = self.model(input_ids=self.ids, labels=self.ids).loss
        return loss

    def run(self, strategy: Strategy) -> Outcome:
        """Measure a strategy; out of memory is an outcome too."""
        found = None
        try:
            found = measure(strategy, self.model, self.forward)
            text = f"{found.ms:.0f} ms, peak {found.gib:.1f} GiB, loss {found.loss:.6g}"
        except torch.cuda.OutOfMemoryError:
            text = "out of memory"
        print(f"{self.tokens} tokens, {strategy.name}: {text}", flush=True)
        self.model.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()
        return Outcome(strategy.name, found)


def main(options: argparse.Namespace) -> None:
    """Run it."""
    layers = 2 if options.quick else 32
    work = Workload(layers, options.quick)
    rows = []
    for tokens in (1024, 2048) if options.quick else (8192, 24576):
        work.resize(tokens)
        keep = work.run(Strategy("keep", settle=1, steps=2))
        recompute = work.run(Strategy("gradient checkpointing", recompute=True, settle=1, steps=2))
        # Beside the weights: gradients, and room for the caching allocator's fragments.
        ceiling = int(0.9 * torch.cuda.get_device_properties(0).total_memory)
        planned = work.run(
            offloader(
                "planned",
                work.model,
                settle=4,
                steps=2,
                host="80GiB",
                **({"max_memory": ceiling} if keep.found is None else {"max_slowdown": 0.03}),
            )
        )
        for outcome in (keep, recompute, planned):
            if outcome.found is None:
                continue
            found = outcome.found
            peer = recompute.found if keep.found is None else keep.found
            name = "gradient checkpointing" if keep.found is None else "keep"
            if peer is None:
                continue
            if not math.isclose(found.loss, peer.loss, rel_tol=1e-6):
                raise SystemExit(f"{found.name}: loss {found.loss!r}, {name} {peer.loss!r}")
            rows.append(
                Row(
                    work=f"Llama, {layers} layers, {tokens} tokens: {found.name}",
                    ours=found.ms,
                    unit="ms",
                    peer=peer.ms,
                    peer_name=name,
                    ratio=found.ms / peer.ms,
                    note=f"peak {found.gib:.1f} GiB over what is resident, {name}"
                    f" {peer.gib:.1f}" + ("" if keep.found else "; keep runs out of memory"),
                )
            )
    write(options.json, "A Llama of Transformers at long sequences", rows)


if __name__ == "__main__":
    main(arguments(__doc__))
