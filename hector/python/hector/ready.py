# SPDX-License-Identifier: Apache-2.0
"""Calls that were checked before, and what a later call must have in common with one of them.

A call of the same function on the same graph, with tensors of the same shapes, dtypes and gradient
flags and with the same plain values, needs no tracing, choice or lookup. Everything that a call may
get wrong is compared; a call that differs in anything takes the long way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from hector.execute import Executable
from hector.frontend.trace import Input, Trace, fetch
from hector.graph import Graph

__all__ = ["Ready"]


def _autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype of autocast on a device, None where it is off."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


class Ready:
    """One checked call.

    Parameters
    ----------
    trace : Trace
    executable : Executable
    graph : Graph
        Whose plan the call ran on; not kept.
    arguments : mapping of str to object
        Of the call.
    tensors : sequence of Tensor
        The inputs, as the program takes them.
    """

    def __init__(
        self,
        trace: Trace,
        executable: Executable,
        graph: Graph,
        arguments: Mapping[str, object],
        tensors: Sequence[Tensor],
    ) -> None:
        self.executable = executable
        self.sequence = trace.sequence
        self._guards = trace.guards
        self._autocast = _autocast_dtype(graph.device)
        self._device = graph.device
        self._training = torch.is_grad_enabled()
        self._seeds: list[tuple[int, Input]] = []
        self._inputs: list[tuple[str, tuple[str, ...], torch.Size, torch.dtype, bool]] = []
        self._casts: list[tuple[int, torch.dtype]] = []
        for i, (item, taken) in enumerate(zip(trace.inputs, tensors, strict=True)):
            given = fetch(arguments, item.path)
            if (
                item.affine is not None
                or not isinstance(given, Tensor)
                or not given.is_floating_point()
            ):
                self._seeds.append((i, item))
                continue
            first, *rest = item.path
            self._inputs.append((first, tuple(rest), given.shape, given.dtype, given.requires_grad))
            if given.dtype is not taken.dtype:
                self._casts.append((len(self._inputs) - 1, taken.dtype))

    def take(self, arguments: Mapping[str, object]) -> list[Tensor] | None:
        """The inputs of a call that is like this one; None for any other.

        Parameters
        ----------
        arguments : mapping of str to object
            On the same graph.
        """
        if torch.is_grad_enabled() is not self._training:
            return None
        for path, expected in self._guards:
            value = fetch(arguments, path)
            if type(value) is not type(expected) or value != expected:
                return None
        device, tensors = self._device, []
        for name, attributes, shape, dtype, wanted in self._inputs:
            value = arguments[name]
            for attribute in attributes:
                value = getattr(value, attribute, None)
            if (
                not isinstance(value, Tensor)
                or value.shape != shape
                or value.dtype is not dtype
                or value.requires_grad is not wanted
                or value.device != device
                or value.layout is not torch.strided
            ):
                return None
            tensors.append(value)
        if _autocast_dtype(device) is not self._autocast:
            return None
        for i, dtype in self._casts:
            tensors[i] = tensors[i].to(dtype)
        for i, item in self._seeds:
            seed = fetch(arguments, item.path)
            if type(seed) is not int if item.affine is not None else not item.fits(seed):
                return None
            tensors.insert(i, item.read(arguments))  # type: ignore[arg-type]
        return tensors
