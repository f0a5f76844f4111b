# SPDX-License-Identifier: Apache-2.0
"""What the optimisers of rows share: whose gradients, whose rows, where state lies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from pytorch_direct.ops.row_gradients import RowGradient, from_sparse, joined
from pytorch_direct.ops.update import FLOATS, State, change_rows
from pytorch_direct.optim.exchange import exchanged
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, unified

__all__ = ["RowOptimizer"]

_NOT_UNIFIED = (
    "these optimisers train unified tables; use torch.optim for others, or "
    "torch.nn.Parameter(pytorch_direct.unified(table)); of what was pickled, make an optimiser and "
    "load_state_dict()"
)
Tables = Iterable[torch.Tensor] | Iterable[dict[str, Any]]


class RowOptimizer(torch.optim.Optimizer):
    """The base of :class:`SparseSGD`, :class:`SparseAdagrad` and :class:`SparseAdam`.

    Notes
    -----
    *Tables* are unified leaves with ``requires_grad``, of float32, float64, float16 or bfloat16,
    with contiguous rows. Their state is unified too, of the table's shape, float32 for the narrow
    types, and made with the optimiser, so that one process can send it to others.

    *Waiting.* With CUDA ids a step waits for nothing. Gathers on the same stream see the new rows;
    the CPU's next use of the table waits by itself.

    *Several processes* (:meth:`distribute`). Gradient rows are exchanged first: each rank adds up
    its own by id and all ranks get all rows, in the order of the ranks, so that every rank knows
    the same sums. With tables of their own all ranks then make the same change. A table (and
    state) in memory that the ranks share is changed by owners: row i by rank ``i % ranks``, and
    the step ends with a barrier after the writes. So between the end of backward and the end of
    ``step()`` no rank may read the table: gather the next batch after the step.
    """

    # Of the class, since a pickled optimiser keeps its groups and its state only.
    _group: torch.distributed.ProcessGroup | None = None
    _is_distributed = False
    _shared = False
    _average = True

    def __init__(self, tables: Tables, defaults: dict[str, Any]) -> None:
        if not defaults["lr"] >= 0:
            raise ValueError(f"lr must not be negative, but it is {defaults['lr']}")
        super().__init__(tables, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train more tables; their state is made at once."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            for table in group["params"]:
                _check_table(table)
        except TypeError:
            self.param_groups.pop()
            raise
        for table in group["params"]:
            self._make_state(table, group)

    def distribute(
        self,
        group: torch.distributed.ProcessGroup | None = None,
        *,
        shared: bool,
        average: bool = True,
    ) -> None:
        """Exchange gradient rows among the ranks of a process group in each step.

        To be called by all ranks. Keep the tables out of ``DistributedDataParallel``.

        Parameters
        ----------
        group : torch.distributed.ProcessGroup, optional
            The ranks; by default all.
        shared : bool
            Whether the ranks share the memory of the tables and of their state (sent from one
            process, or made by ``share_memory_()`` before). Otherwise each has its own, with the
            same numbers.
        average : bool
            Divide the sums by the number of ranks, as ``DistributedDataParallel`` does.
        """
        if not torch.distributed.is_initialized():
            raise RuntimeError("call torch.distributed.init_process_group() before distribute()")
        if shared:
            for table in self._tables():
                for one in (table, *self._state_tables(table)):
                    with torch._C.DisableTorchFunctionSubclass():
                        is_shared = one.is_shared()  # type: ignore[no-untyped-call]
                    if not is_shared:
                        raise ValueError(
                            "shared=True, but a table or its state is in memory of this process "
                            "alone: send the optimiser from one process to the others, or call "
                            "share_memory() before"
                        )
        self._group, self._shared, self._average = group, shared, average
        self._is_distributed = True

    def share_memory(self) -> None:
        """Move tables and state into shared memory, to send the optimiser to other processes."""
        for table in self._tables():
            for one in (table, *self._state_tables(table)):
                one.share_memory_()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the rows whose gradients the backward passes since `zero_grad` gave.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss again and returns it.

        Returns
        -------
        Any
            What `closure` returned, else None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        devices = set()
        for group in self.param_groups:
            for table in group["params"]:
                gradient = _gradient_of(table)
                if self._is_distributed:
                    gradient = exchanged(
                        gradient, table, self._group, average=self._average, owned=self._shared
                    )
                if gradient is None:
                    continue
                devices.add(gradient.ids.device)
                change_rows(
                    table,
                    gradient.ids,
                    gradient.rows,
                    self._rule(table, group),
                    is_sorted=gradient.is_reduced,
                )
        if self._is_distributed and self._shared:
            for device in devices:
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
            torch.distributed.barrier(self._group)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients; zeros are not kept, since rows without gradient do not change."""
        for table in self._tables():
            table.grad = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load state; its numbers go, as they are, into the memory of the state there is.

        Raises
        ------
        ValueError
            It is of other groups, or of tables of another shape; nothing was loaded then.
        """
        # torch would copy all tables, and round those of narrow ones to the table's dtype.
        saved = [name for group in state_dict["param_groups"] for name in group["params"]]
        given = [state_dict["state"].get(name, {}) for name in saved]
        kept = [self._state_tables(table) for table in self._tables()]
        for values, tensors in zip(given, kept, strict=False):
            for name, tensor in zip(self._state_names, tensors, strict=True):
                if name in values and values[name].shape != tensor.shape:
                    raise ValueError(
                        f"the state {name!r} has shape {list(values[name].shape)}, but the table "
                        f"{list(tensor.shape)}"
                    )
        small = {
            key: {n: v for n, v in values.items() if n not in self._state_names}
            for key, values in state_dict["state"].items()
        }
        super().load_state_dict({**state_dict, "state": small})
        groups = [group for group in self.param_groups for _ in group["params"]]
        for table, group, values, tensors in zip(self._tables(), groups, given, kept, strict=True):
            loaded, fresh = self.state[table], values
            if any(name not in values for name in ("step", *self._state_names)):
                # Of an optimiser that had not made a step, as torch's have none then.
                self._make_state(table, group)
                fresh = {**self.state[table], **values}
            for name, tensor in zip(self._state_names, tensors, strict=True):
                tensor.copy_(fresh[name])
                loaded[name] = tensor
            if "step" in fresh:
                loaded["step"] = int(fresh["step"])
            self.state[table] = loaded

    # What a kind of optimiser says.

    #: Names of the tables of state.
    _state_names: tuple[str, ...] = ()

    def _make_state(self, table: torch.Tensor, group: dict[str, Any]) -> None:
        """Make the tables of state and counters."""

    def _rule(self, table: torch.Tensor, group: dict[str, Any]) -> State:
        """Count the step and return what it does."""
        raise NotImplementedError

    def _tables(self) -> list[torch.Tensor]:
        return [table for group in self.param_groups for table in group["params"]]

    def _state_tables(self, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.state[table][name] for name in self._state_names)

    def _new_state(self, table: torch.Tensor, value: float = 0.0) -> UnifiedTensor:
        wide = torch.float64 if table.dtype == torch.float64 else torch.float32
        return unified(torch.full(tuple(table.shape), value, dtype=wide))


def _check_table(table: torch.Tensor) -> None:
    if not isinstance(table, UnifiedTensor):
        raise TypeError(_NOT_UNIFIED)
    with torch._C.DisableTorchFunctionSubclass():
        whole = table[:1].is_contiguous() and table.stride(0) >= table[:1].numel()
    if table.dtype not in FLOATS or not whole:
        raise TypeError(
            f"a table to train has contiguous rows of float32, float64, float16 or bfloat16, not "
            f"of {table.dtype} with strides {table.stride()}"
        )


def _gradient_of(table: torch.Tensor) -> RowGradient | None:
    if not isinstance(table, UnifiedTensor):
        raise TypeError(_NOT_UNIFIED)
    on_cpu = table._autograds_gradient()
    if on_cpu is not None and on_cpu.layout is not torch.sparse_coo:
        raise RuntimeError(
            "the table has a dense gradient, which these optimisers do not take: it is used by "
            "something else than gathers by id; use torch.optim for it"
        )
    # They stay, as gradients do until zero_grad().
    on_gpu = table._known_row_gradients()
    if on_cpu is None or on_gpu is None:
        return on_gpu if on_cpu is None else from_sparse(on_cpu)
    gradient, device = from_sparse(on_cpu), on_gpu.ids.device
    return joined([RowGradient(gradient.ids.to(device), gradient.rows.to(device)), on_gpu])
