# SPDX-License-Identifier: Apache-2.0
"""The pinned host memory of an offloader, under one ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datapath_core import BudgetError, PinnedPool

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

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
        self._passing: list[Ticket] = []

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

    def passes(self, ticket: Ticket) -> None:
        """Take note of a transfer at whose end memory to pass through comes free."""
        passing, ended = self._passing, 0
        while ended < len(passing) and passing[ended].done():
            ended += 1
        del passing[:ended]
        passing.append(ticket)

    def oldest_passage(self) -> Ticket | None:
        """The first transfer under way at whose end memory to pass through comes free."""
        return next((ticket for ticket in tuple(self._passing) if not ticket.done()), None)

    @property
    def resident(self) -> int:
        """Bytes that stay for the time being."""
        return sum(self.residents.values())

    def stats(self) -> dict[str, int]:
        """What the pool says."""
        return {} if self._pool is None else self._pool.stats()

    def close(self) -> None:
        """Give it back."""
        self._passing.clear()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
