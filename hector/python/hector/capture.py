# SPDX-License-Identifier: Apache-2.0
"""What ``torch.compile`` sees of a compiled call: one operator on the call's tensors.

While Dynamo traces, ``recipe`` does the work of an eager call up to its execution (it traces the
user's function, chooses forms, emits) and leaves constants behind; the code around it is what
Dynamo follows, so that every tensor and number becomes an input of the graph or a guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._dynamo.comptime import comptime
from torch._dynamo.variables import TensorVariable

from hector.frontend.graph import is_plain
from hector.frontend.trace import computed_dtype
from hector.graph import Graph

__all__ = ["Preparing", "Recipe", "captured", "watched"]

Path = tuple[str, ...]


@dataclass(frozen=True)
class Recipe:
    """What Dynamo needs of a prepared call.

    Attributes
    ----------
    program : str
        Name in library.
    inputs : tuple of (path, affine, dtype, extents)
        Of each tensor: where it is, how a seed is made from an int, what it is cast to, and its
        last extents, which the program has fixed.
    guards : tuple of (path, value)
        Plain values that the program depends on.
    functions : tuple of path
        Functions that it depends on; Dynamo guards the identity of those that it looks at.
    graph : str
        Name of the graph's argument.
    degenerate : tuple of bool
        Which of the graph's counts are one.
    active : tuple of bool
        Which outputs may require gradients.
    sequence : bool
    """

    program: str
    inputs: tuple[tuple[Path, tuple[int, int] | None, torch.dtype | None, tuple[int, ...]], ...]
    guards: tuple[tuple[Path, Any], ...]
    functions: tuple[Path, ...]
    graph: str
    degenerate: tuple[bool, ...]
    active: tuple[bool, ...]
    sequence: bool


_PENDING: list[Recipe] = []


def _seen(variable: Any) -> object:
    """What Dynamo knows of a value, as an object that tracing takes: tensors without memory."""
    variable = variable.realize()
    if hasattr(variable, "sym_num"):
        return int(variable.sym_num.node.hint)
    if isinstance(getattr(variable, "value", None), Graph | nn.Module):
        return variable.value
    if not isinstance(variable, TensorVariable):
        return variable.as_python_constant()
    example = variable.as_proxy().node.meta["example_value"]
    shape = [n if isinstance(n, int) else n.node.hint for n in example.shape]
    made = torch.empty(shape, dtype=computed_dtype(example), device="meta")
    return made.requires_grad_(example.requires_grad and made.is_floating_point())


def _prepare(context: Any) -> None:
    local = context.get_local("arguments")._i_will_not_complain_if_bc_breaks_VariableTracker()
    owner = context.get_local("compiled")._i_will_not_complain_if_bc_breaks_VariableTracker()
    arguments = {key.vt.as_python_constant(): _seen(v) for key, v in local.items.items()}
    _PENDING.append(owner.realize().value.prepare(arguments))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _recipe() -> Any:
    return tuple(vars(_PENDING.pop()).values())


def _fetch(arguments: Mapping[str, Any], path: Path) -> Any:
    value = arguments[path[0]]
    for name in path[1:]:
        value = getattr(value, name, None)
    return value


def watched(path: Path, value: object) -> bool:
    """Whether Dynamo is to compare a value; it guards types and lengths of modules by itself."""
    plain = is_plain(value) and not callable(value)
    return plain and path[-1] not in ("__len__", "__class__")


class Preparing(Protocol):
    """What ``captured`` needs of a compiled function."""

    def prepare(self, arguments: Mapping[str, object]) -> Recipe:
        """Trace, choose and emit for a call's arguments by name; tensors may be on meta."""
        ...


def captured(compiled: Preparing, arguments: dict[str, Any]) -> Any:
    """The results of a call under Dynamo.

    Parameters
    ----------
    compiled : Preparing
    arguments : dict of str to object

    Returns
    -------
    Tensor or tuple of Tensor
    """
    comptime(_prepare)
    program, inputs, guards, functions, name, degenerate, active, sequence = _recipe()
    g = arguments[name]
    counts = (g.num_nodes, g.num_edges, g.num_relations, g.num_node_types)
    # Comparisons are how Dynamo learns what the program depends on: they become its guards.
    pairs = zip(counts, degenerate, strict=False)
    fits = all((count == 1) if one else (count != 1) for count, one in pairs)
    fits = fits and all(_fetch(arguments, path) == expected for path, expected in guards)
    fits = fits and all(callable(_fetch(arguments, path)) for path in functions)
    tensors = []
    for path, affine, dtype, extents in inputs:
        value = _fetch(arguments, path)
        if affine is not None:
            value = torch.tensor(value * affine[0] + affine[1], dtype=torch.int64, device="cpu")
        elif dtype is not None:
            fits = fits and tuple(value.shape)[value.dim() - len(extents) :] == extents
            value = value.to(dtype)
        tensors.append(value)
    if not fits:
        raise ValueError("hector.compile: an argument changed while torch.compile traced")
    rows = [
        g.num_nodes, g.num_edges, g.num_src_pairs, g.num_dst_pairs, g.num_relations,
        g.num_node_types,
    ]  # fmt: skip
    made = torch.ops.hector.forward(tensors, g.handle, rows, program)
    outputs: list[Tensor] = []
    for number, differentiable in enumerate(active):
        outputs.append(made[number] if differentiable else made[number].detach())
    return tuple(outputs) if sequence else outputs[0]
