# SPDX-License-Identifier: Apache-2.0
"""The pinned host memory of an offloader, under one ceiling."""

from __future__ import annotations

from typing import Any

from datapath_core import BudgetError, PinnedPool

__all__ = ["PinnedMemory"]


class PinnedMemory:
    """The pinned host memory of an offloader: for the host tier, and to pass through to disk.

    Parameters
    ----------
    budget : int
        Ceiling in bytes.
    staging : int
        Part of it that only the way to and from disk may use.
    checks : bool
        Overwrite what is given back.
    """

    def __init__(self, budget: int, staging: int, *, checks: bool = False) -> None:
        self.checks = checks
        self.budget = budget
        self.staging = staging
        self.residents: dict[int, int] = {}
        self._pool: PinnedPool | None = None

    def allocate(self, nbytes: int, *, resident: bool) -> Any:
        """A buffer.

        Raises
        ------
        BudgetError
            If the budget, less what is for staging where the bytes are to stay, is used up.
        """
        taken = self.staging + self.resident if resident else 0
        if nbytes > self.budget - taken:
            raise BudgetError(f"{nbytes} bytes do not fit into what is left of {self.budget}")
        if self._pool is None:
            self._pool = PinnedPool(self.budget)
        return self._pool.allocate(nbytes)

    @property
    def resident(self) -> int:
        """Bytes that stay for the time being."""
        return sum(self.residents.values())

    def stats(self) -> dict[str, int]:
        """What the pool says."""
        return {} if self._pool is None else self._pool.stats()

    def close(self) -> None:
        """Give it back."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
