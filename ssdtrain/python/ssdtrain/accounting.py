# SPDX-License-Identifier: Apache-2.0
"""Counts what happened to saved bytes, a step at a time; decides nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

__all__ = ["ALIVE_ANYWAY", "StepCounts"]

# Reasons for which a tensor stays that something other than the graph keeps alive.
ALIVE_ANYWAY = frozenset({"parameter", "buffer", "model input", "alive elsewhere"})


@dataclass
class StepCounts:
    """One step's counts; bytes are those of stored ranges, each range once."""

    step: int
    saved_tensors: int = 0
    moved: Counter[str] = field(default_factory=Counter)  # tier -> bytes
    kept: Counter[str] = field(default_factory=Counter)  # reason -> bytes
    kept_tensors: Counter[str] = field(default_factory=Counter)  # reason -> tensors
    shared_tensors: int = 0  # saved tensors that needed no copy of their own
    forwarded_bytes: int = 0  # asked for while the original was still alive
    loaded_bytes: int = 0
    waits: int = 0  # times that the training thread waited for a transfer
    wait_seconds: float = 0.0

    def keep(self, reason: str, nbytes: int) -> None:
        """Count a tensor that stays."""
        self.kept[reason] += nbytes
        self.kept_tensors[reason] += 1

    @property
    def kept_bytes(self) -> int:
        """Saved bytes that stayed, without those that are alive for another reason."""
        return sum(n for reason, n in self.kept.items() if reason not in ALIVE_ANYWAY)

    def copy(self) -> StepCounts:
        """Counts that can be added to."""
        return replace(
            self,
            moved=self.moved.copy(),
            kept=self.kept.copy(),
            kept_tensors=self.kept_tensors.copy(),
        )

    def as_dict(self) -> dict[str, object]:
        """For ``Offloader.report()``."""
        return {
            "step": self.step,
            "bytes": {
                "host": self.moved["host"],
                "disk": self.moved["disk"],
                "recompute": self.moved["recompute"],
                "kept": self.kept_bytes,
            },
            "kept_by_reason": {
                reason: {"bytes": nbytes, "tensors": self.kept_tensors[reason]}
                for reason, nbytes in self.kept.items()
            },
            "saved_tensors": self.saved_tensors,
            "shared_tensors": self.shared_tensors,
            "forwarded_bytes": self.forwarded_bytes,
            "loaded_bytes": self.loaded_bytes,
            "waits": self.waits,
            "wait_seconds": self.wait_seconds,
        }
