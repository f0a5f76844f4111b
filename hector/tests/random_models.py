# SPDX-License-Identifier: Apache-2.0
"""Draws models whose values have any shape: what they compute is nothing in particular."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import hector

Shape = tuple[int, ...]

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "leaky_relu": lambda v: F.leaky_relu(v, 0.3),
    "elu": F.elu,
    "selu": F.selu,
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "abs": torch.abs,
    "neg": lambda v: -v,
    "square": lambda v: v**2,
    "cube": lambda v: v**3,
    "exp": lambda v: torch.exp(torch.tanh(v)),
    "log": lambda v: torch.log(v * v + 1),
    "sqrt": lambda v: torch.sqrt(v * v + 0.5),
    "rsqrt": lambda v: torch.rsqrt(v * v + 1),
    "reciprocal": lambda v: torch.reciprocal(v * v + 1),
    "sin": torch.sin,
    "clamp": lambda v: v.clamp(-0.5, 0.7),
    "scaled": lambda v: v * 0.5,
    "shifted": lambda v: 1 - v,
    "detached": lambda v: v.detach() * 1.5,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b * b + 1),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
KINDS = (
    "unary unary binary binary binary gather gather gather aggregate aggregate softmax reduce "
    "reduce view view view typed typed typed shared concat dropout unwatched inner"
).split()


@dataclass(frozen=True)
class Sizes:
    """What shapes a model's values have.

    Attributes
    ----------
    shapes : tuple of tuple of int
        Of arguments.
    common : int
        The width of arguments that are meant to meet.
    widths : tuple of int
        Columns of products.
    most : int
        Elements of a row of which further values are made.
    """

    shapes: tuple[Shape, ...]
    common: int
    widths: tuple[int, ...]
    most: int


SMALL = Sizes(((4,), (4,), (1,), (), (2, 2), (2, 3), (3, 1), (2, 1, 2), (6,)), 4, (1, 2, 3, 4), 40)
WIDE = Sizes(((64,), (64,), (1,), (), (8, 8), (3, 40), (1, 64), (130,)), 64, (1, 33, 64), 200)
"""Rows of several blocks, and of a length for which kernels have other schedules."""


def unwatched(v: Tensor) -> Tensor:
    with torch.no_grad():
        still = torch.sin(v)
    return still + v


@dataclass
class Model:
    """A drawn model, built step by step.

    Attributes
    ----------
    spaces, shapes : list
        Of each value; rows are no part of a shape.
    inputs : list of int
        The values that are arguments, in their order.
    steps : list of (int, callable, tuple of int)
        Value, how it is made from the graph and its operands, the operands.
    text : list of str
    """

    random: Random
    sizes: Sizes = SMALL
    spaces: list[str] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    steps: list[tuple[int, Callable[..., Tensor], tuple[int, ...]]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    results: tuple[int, ...] = ()

    def of(self, space: str, recent: int = 0) -> list[int]:
        """The values of a space, or its last few."""
        found = [i for i, each in enumerate(self.spaces) if each == space]
        return found[-recent:] if recent else found

    def value(self, space: str, shape: Shape) -> int:
        self.spaces.append(space)
        self.shapes.append(shape)
        return len(self.spaces) - 1

    def input(self, space: str, shape: Shape) -> int:
        self.inputs.append(self.value(space, shape))
        return self.inputs[-1]

    def step(
        self, note: str, space: str, shape: Shape, make: Callable[..., Tensor], *operands: int
    ) -> None:
        number = self.value(space, shape)
        self.steps.append((number, make, operands))
        self.text.append(f"v{number}: {space}{shape} = {note} of {operands}")

    def __call__(self, g: Any, *tensors: Any) -> Any:
        values = dict(zip(self.inputs, tensors, strict=True))
        for number, make, operands in self.steps:
            values[number] = make(g, *(values[operand] for operand in operands))
        return tuple(values[result] for result in self.results)

    def keep_what_is_needed(self) -> None:
        """Drop the steps and arguments that no result depends on."""
        needed = set(self.results)
        for number, _, operands in reversed(self.steps):
            if number in needed:
                needed.update(operands)
        self.steps = [step for step in self.steps if step[0] in needed]
        self.inputs = [number for number in self.inputs if number in needed]

    def function(self) -> Callable[..., Any]:
        """The model with its arguments by name, as ``hector.compile`` wants them."""
        names = ", ".join(f"t{number}" for number in self.inputs)
        scope: dict[str, Any] = {"model": self}
        exec(f"def drawn(g, {names}):\n    return model(g, {names})", scope)
        found: Callable[..., Any] = scope["drawn"]
        return found

    def tensors(self, g: hector.Graph, dtype: torch.dtype, seed: int) -> list[Tensor]:
        """Arguments for a graph."""
        rows = {
            "node": (g.num_nodes,), "edge": (g.num_edges,), "relation": (g.num_relations,),
            "type": (g.num_node_types,), "weight": (),
        }  # fmt: skip
        generator = torch.Generator().manual_seed(seed)
        return [
            torch.randn(
                (*rows[self.spaces[i]], *self.shapes[i]), generator=generator, dtype=torch.float64
            )
            .to(dtype)
            .requires_grad_()
            for i in self.inputs
        ]


def draw_model(
    random: Random, steps: int, reductions: tuple[str, ...], sizes: Sizes = SMALL
) -> Model:
    """A model of up to so many steps that aggregates by some of the reductions."""
    m = Model(random, sizes)
    common: Shape = (sizes.common,)
    m.input("node", random.choice([shape for shape in sizes.shapes if shape]))
    m.input("edge", random.choice(sizes.shapes))
    m.input("relation", random.choice([common, (), sizes.shapes[5], (1,)]))
    m.input("type", common)
    m.input("weight", random.choice([common, (1,), ()]))
    for _ in range(steps):
        kind = random.choice(KINDS)
        space = random.choice(["node", "edge", "edge", "relation", "type"])
        x = random.choice(m.of(space, 4))
        if math.prod(m.shapes[x]) <= sizes.most:
            _DRAW[kind](m, space, x) if kind != "aggregate" else _aggregate(m, reductions)
    m.results = (m.of("node")[-1], m.of("edge")[-1], random.choice(m.of("edge")))
    m.keep_what_is_needed()
    return m


def _unary(m: Model, space: str, x: int) -> None:
    name = m.random.choice(sorted(UNARY))
    m.step(name, space, m.shapes[x], lambda g, v: UNARY[name](v), x)


def _binary(m: Model, space: str, x: int) -> None:
    shape = m.shapes[x]
    other = space if m.random.random() < 0.7 else "weight"
    fitting = []
    for y in m.of(other):
        theirs = m.shapes[y]
        aligned = (1,) * (len(shape) - len(theirs)) + theirs
        ranks = len(theirs) == len(shape) or (other == "weight" and len(theirs) < len(shape))
        if ranks and all(a == b or 1 in (a, b) for a, b in zip(shape, aligned, strict=True)):
            joined = tuple(b if a == 1 else a for a, b in zip(shape, aligned, strict=True))
            fitting.append((y, joined))
    if fitting:
        y, joined = m.random.choice(fitting)
        name, pair = m.random.choice(sorted(BINARY)), [x, y]
        m.random.shuffle(pair)
        m.step(name, space, joined, lambda g, a, b: torch.tanh(BINARY[name](a, b)), *pair)


def _gather(m: Model, space: str, x: int) -> None:
    ends = [("node", "edge", "src"), ("node", "edge", "dst")] * 2 + [
        ("relation", "edge", "rel"), ("type", "edge", "src_type"), ("type", "edge", "dst_type"),
        ("type", "node", "node_type"),
    ]  # fmt: skip
    of, to, name = m.random.choice(ends)
    x = m.random.choice(m.of(of, 4))
    m.step(name, to, m.shapes[x], lambda g, v: v[getattr(g, name)], x)


def _aggregate(m: Model, reductions: tuple[str, ...]) -> None:
    x, reduce = m.random.choice(m.of("edge", 4)), m.random.choice(reductions)
    m.step(
        reduce, "node", m.shapes[x],
        lambda g, v: torch.tanh(hector.aggregate(v, g, reduce=reduce)), x,
    )  # fmt: skip


def _softmax(m: Model, space: str, x: int) -> None:
    scores = [y for y in m.of("edge") if len(m.shapes[y]) <= 1]
    if scores:
        x, by = m.random.choice(scores), m.random.choice(["dst", "dst_rel"])
        m.step(by, "edge", m.shapes[x], lambda g, v: hector.edge_softmax(v, g, by=by), x)


def _reduce(m: Model, space: str, x: int) -> None:
    shape = m.shapes[x]
    if not shape:
        return
    axes = sorted(m.random.sample(range(len(shape)), m.random.randint(1, len(shape))))
    keep = m.random.random() < 0.5
    dims = tuple(i + 1 if m.random.random() < 0.5 else i - len(shape) for i in axes)
    left = [1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes]
    name = m.random.choice(["sum", "mean", "amax", "amin", "logsumexp", "softmax", "layer_norm"])
    if name == "softmax":
        m.step(name, space, shape, lambda g, v: torch.softmax(v, dims[0]), x)
    elif name == "layer_norm" and shape[-1] > 1:  # Of one element it is rounding only.
        m.step(name, space, shape, lambda g, v: F.layer_norm(v, shape[-1:]), x)
    elif name != "layer_norm":
        reduced = getattr(torch, name)
        m.step(name, space, tuple(left), lambda g, v: torch.tanh(reduced(v, dims, keepdim=keep)), x)


def _view(m: Model, space: str, x: int) -> None:
    shape, random = m.shapes[x], m.random
    rank = len(shape)
    name = random.choice(
        ["flatten", "unsqueeze", "permute", "slice", "select", "expand", "squeeze"]
    )
    if name == "flatten" and rank > 1:
        m.step(name, space, (math.prod(shape),), lambda g, v: v.flatten(1), x)
    elif name == "unsqueeze" and rank < 3:
        at = random.randint(0, rank)
        m.step(name, space, (*shape[:at], 1, *shape[at:]), lambda g, v: v.unsqueeze(at + 1), x)
    elif name == "permute" and rank > 1:
        order = random.sample(range(rank), rank)
        dims = (0, *(i + 1 for i in order))
        m.step(name, space, tuple(shape[i] for i in order), lambda g, v: v.permute(dims), x)
    elif name == "slice" and rank:
        at = random.randrange(rank)
        start = random.randint(0, shape[at] - 1)
        stop = random.randint(start + 1, shape[at])
        key = (*(slice(None),) * (at + 1), slice(start, stop))
        left = (*shape[:at], stop - start, *shape[at + 1 :])
        m.step(f"{start}:{stop} of {at}", space, left, lambda g, v: v[key], x)
    elif name == "select" and rank:
        at = random.randrange(rank)
        index = random.randint(-shape[at], shape[at] - 1)
        left = shape[:at] + shape[at + 1 :]
        m.step(f"{index} of {at}", space, left, lambda g, v: v.select(at + 1, index), x)
    elif name == "expand" and 1 in shape:
        wide = tuple(3 if n == 1 else n for n in shape)
        m.step(name, space, wide, lambda g, v: v.expand(-1, *wide), x)
    elif name == "squeeze" and 1 in shape:
        at = shape.index(1)
        left = shape[:at] + shape[at + 1 :]
        m.step(name, space, left, lambda g, v: v.squeeze(at + 1), x)


def _typed(m: Model, space: str, x: int) -> None:
    shape, random = m.shapes[x], m.random
    if len(shape) not in (1, 2) or space not in ("edge", "node"):
        return
    kinds = [("rel", "relation")] * 2 + [("src_type", "type"), ("dst_type", "type")]
    index, types = random.choice(kinds) if space == "edge" else ("node_type", "type")
    k, n = shape[-1], random.choice(m.sizes.widths)
    lead = shape[:-1] if len(shape) == 2 else ()
    heads = random.random() < 0.3
    if heads:
        lead = lead or (3,)
    turned = not heads and random.random() < 0.2
    matrix = (n, k) if turned else (k, n)
    w = m.input(types, (*lead, *matrix) if heads else matrix)

    def product(g: Any, v: Tensor, weight: Tensor) -> Tensor:
        chosen = (weight.mT if turned else weight)[getattr(g, index)]
        return torch.tanh(hector.linear(v, chosen))

    m.step(f"{index} {turned}", space, (*lead, n), product, x, w)


def _shared(m: Model, space: str, x: int) -> None:
    if m.shapes[x]:
        n = m.random.choice(m.sizes.widths)
        w = m.input("weight", (m.shapes[x][-1], n))
        m.step("@", space, (*m.shapes[x][:-1], n), lambda g, v, w: torch.tanh(v @ w), x, w)


def _concat(m: Model, space: str, x: int) -> None:
    shape = m.shapes[x]
    alike = [
        y for y in m.of(space)
        if shape and len(m.shapes[y]) == len(shape) and m.shapes[y][:-1] == shape[:-1]
    ]  # fmt: skip
    if alike:
        y = m.random.choice(alike)
        width = shape[-1] + m.shapes[y][-1]
        m.step("cat", space, (*shape[:-1], width), lambda g, a, b: torch.cat([a, b], -1), x, y)


def _dropout(m: Model, space: str, x: int) -> None:
    p, seed = m.random.choice([0.2, 0.5]), m.random.randrange(9)
    m.step("dropout", space, m.shapes[x], lambda g, v: hector.dropout(v, p, seed), x)


def _unwatched(m: Model, space: str, x: int) -> None:
    m.step("no_grad", space, m.shapes[x], lambda g, v: unwatched(v), x)


def _inner(m: Model, space: str, x: int) -> None:
    shape = m.shapes[x]
    alike = [y for y in m.of(space) if shape and m.shapes[y] == shape]
    if alike:
        y = m.random.choice(alike)
        m.step("inner", space, shape[:-1], lambda g, a, b: (a * b).sum(-1), x, y)


_DRAW: dict[str, Callable[[Model, str, int], None]] = {
    "unary": _unary, "binary": _binary, "gather": _gather, "softmax": _softmax, "reduce": _reduce,
    "view": _view, "typed": _typed, "shared": _shared, "concat": _concat, "dropout": _dropout,
    "unwatched": _unwatched, "inner": _inner,
}  # fmt: skip
