# SPDX-License-Identifier: Apache-2.0
"""Accumulators of reductions along one map: how rows, pieces and lanes are taken into them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from hector.emit.triton.expand import REDUCTIONS, root
from hector.emit.triton.writer import Scope, Writer
from hector.ir.function import Value

__all__ = [
    "SOFTMAX",
    "Reductions",
    "Register",
    "finish",
    "fold_lanes",
    "merge",
    "step",
]

SOFTMAX = ("segment_lse", "attend")


@dataclass(frozen=True)
class Register:
    """One accumulator: what it is called, its shape, where it starts, how two are joined."""

    name: str
    shape: tuple[int, ...]
    start: str


class Reductions:
    """The accumulators of all reductions of a kernel; softmax reductions of a score share two."""

    def __init__(self, ops: list[Value]) -> None:
        self.ops = [op for op in ops if op.op in REDUCTIONS]
        self.registers: list[Register] = []
        self.softmax: dict[Value, tuple[str, str]] = {}
        self.named: dict[Value, str] = {}
        for number, op in enumerate(self.ops):
            if op.op in SOFTMAX:
                self._score(op.operands[0])
            if op.op != "segment_lse":
                start = "-float('inf')" if op.op == "segment_max" else "0.0"
                self.named[op] = f"acc{number}"
                self.registers.append(Register(f"acc{number}", op.type.shape, start))

    def _score(self, score: Value) -> None:
        score = root(score)
        if score not in self.softmax:
            number = len(self.softmax)
            names = f"high{number}", f"total{number}"
            self.softmax[score] = names
            self.registers.append(Register(names[0], score.type.shape, "-float('inf')"))
            self.registers.append(Register(names[1], score.type.shape, "0.0"))

    @property
    def width(self) -> int:
        """Elements of a piece's partial results."""
        return sum(math.prod(register.shape) for register in self.registers)

    def places(self) -> list[tuple[Register, int]]:
        """The accumulators with the first element of each in a piece's partial results."""
        widths = [math.prod(register.shape) for register in self.registers]
        return list(zip(self.registers, itertools.accumulate(widths, initial=0), strict=False))

    def names(self, op: Value) -> tuple[str, str]:
        """The running maximum and total of a softmax reduction's score."""
        return self.softmax[root(op.operands[0])]

    def start(self, writer: Writer, lanes: int) -> None:
        """Append what the accumulators hold before any row."""
        for register in self.registers:
            shape = writer.tile_shape(lanes, register.shape)
            writer.line(f"{register.name} = tl.full({shape}, {register.start}, tl.float32)")


def _spread(tile: str, shape: tuple[int, ...]) -> str:
    """A mask of lanes for a tile with features."""
    return f"{tile}[:, {', '.join(['None'] * len(shape))}]" if shape else tile


def _join_softmax(
    writer: Writer, names: tuple[str, str], new: list[str], totals: list[str], suffix: str
) -> tuple[str, list[str]]:
    """Take scores (or partial maxima) into a running maximum and total.

    Gives what the accumulators so far are multiplied by, and the weight of each new one.
    """
    high, running = names
    top = high
    for tile in new:
        top = f"larger({top}, {tile})"
    top = writer.let(f"top{suffix}", top)
    # Nothing seen yet: any finite number keeps the differences from being NaN.
    base = writer.let(f"base{suffix}", f"tl.where({top} == -float('inf'), 0.0, {top})")
    keep = writer.let(f"keep{suffix}", f"tl.exp({high} - {base})")
    weights = [writer.let(f"weight{suffix}", f"tl.exp({tile} - {base})") for tile in new]
    more = [
        weight if total == "1.0" else f"{total} * {weight}"
        for weight, total in zip(weights, totals, strict=True)
    ]
    writer.line(f"{running} = {running} * {keep} + {_summed(more)}")
    writer.line(f"{high} = {top}")
    writer.helpers.add("larger")
    return keep, weights


def _summed(terms: list[str]) -> str:
    """Terms added in pairs, so that the chain is short."""
    while len(terms) > 1:
        terms = [f"({' + '.join(terms[i : i + 2])})" for i in range(0, len(terms), 2)]
    return terms[0]


def _weights(writer: Writer, op: Value, tile: str, scope: Scope) -> str:
    """A tile of the score's shape, in the shape that multiplies the value."""
    score = root(op.operands[0])
    return writer.reshape(tile, score.type.shape, op.integers("shape"), scope)


def _zero_beyond(value: Value, name: str | None) -> bool:
    """Whether a tile is 0 where a lane has no row: loads of the step are, and their products."""
    if value.op in ("reshape", "broadcast"):
        return _zero_beyond(value.operands[0], name)
    if value.op == "mul":
        return all(_zero_beyond(operand, name) for operand in value.operands)
    return value.op == "gather" and value.map() != name


def step(writer: Writer, reductions: Reductions, scopes: list[Scope]) -> None:
    """Take the rows of some scopes into the accumulators."""
    scaled: dict[Value, tuple[str, list[str]]] = {}
    for number, (score, names) in enumerate(reductions.softmax.items()):
        tiles = []
        for scope in scopes:
            tile = writer.rounded(writer.value(score, scope), score.type.dtype)
            mask = _spread(scope.live, score.type.shape)
            tiles.append(writer.let("score", f"tl.where({mask}, {tile}, -float('inf'))"))
        ones = ["1.0"] * len(tiles)
        scaled[score] = _join_softmax(writer, names, tiles, ones, f"_s{number}")
    for op in reductions.ops:
        if op.op == "segment_lse":
            continue
        name, terms = reductions.named[op], []
        for i, scope in enumerate(scopes):
            tile = writer.value(op.operands[-1], scope)
            mask = _spread(scope.live, op.type.shape)
            if op.op == "segment_max":
                tile = writer.rounded(tile, op.type.dtype)
                terms.append(f"tl.where({mask}, {tile}, -float('inf'))")
                continue
            term = (
                tile
                if _zero_beyond(op.operands[-1], op.map())
                else f"tl.where({mask}, {tile}, 0.0)"
            )
            if op.op == "attend":
                weight = scaled[root(op.operands[0])][1][i]
                term = f"{_weights(writer, op, weight, scope)} * {term}"
            terms.append(term)
        if op.op == "segment_sum":
            writer.line(f"{name} += {_summed(terms)}")
        elif op.op == "segment_max":
            for term in terms:
                writer.line(f"{name} = larger({name}, {term})")
            writer.helpers.add("larger")
        else:
            keep = _weights(writer, op, scaled[root(op.operands[0])][0], scopes[0])
            writer.line(f"{name} = {name} * {keep} + {_summed(terms)}")


def merge(writer: Writer, reductions: Reductions, scope: Scope, partial: dict[str, str]) -> None:
    """Take partial accumulators of pieces into the accumulators."""
    scaled: dict[Value, tuple[str, list[str]]] = {}
    for number, (score, names) in enumerate(reductions.softmax.items()):
        high, total = names
        mask = _spread(scope.live, score.type.shape)
        tile = writer.let("score", f"tl.where({mask}, {partial[high]}, -float('inf'))")
        scaled[score] = _join_softmax(writer, names, [tile], [partial[total]], f"_s{number}")
    for op in reductions.ops:
        if op.op == "segment_lse":
            continue
        name = reductions.named[op]
        mask = _spread(scope.live, op.type.shape)
        if op.op == "segment_sum":
            writer.line(f"{name} += {partial[name]}")
        elif op.op == "segment_max":
            tile = f"tl.where({mask}, {partial[name]}, -float('inf'))"
            writer.line(f"{name} = larger({name}, {tile})")
            writer.helpers.add("larger")
        else:
            keep, (weight,) = scaled[root(op.operands[0])]
            keep, weight = (_weights(writer, op, each, scope) for each in (keep, weight))
            writer.line(f"{name} = {name} * {keep} + {weight} * {partial[name]}")


def fold_lanes(writer: Writer, reductions: Reductions, scope: Scope) -> None:
    """Join the lanes of one target; leaves accumulators of a single lane."""
    shares: dict[Value, str] = {}
    for number, (score, (high, total)) in enumerate(reductions.softmax.items()):
        rank = len(score.type.shape)
        writer.line(f"top = tl.reduce({high}, 0, larger)[None{', :' * rank}]")
        writer.line("base = tl.where(top == -float('inf'), 0.0, top)")
        shares[score] = writer.let(f"share{number}", f"tl.exp({high} - base)")
        writer.line(f"{high} = top")
        rows = f"tl.sum({total} * {shares[score]}, 0)[None{', :' * rank}]"
        writer.line(f"{total} = {rows}")
        writer.helpers.add("larger")
    for op in reductions.ops:
        if op.op == "segment_lse":
            continue
        name, rank = reductions.named[op], len(op.type.shape)
        text = f"tl.sum({name}, 0)"
        if op.op == "segment_max":
            text = f"tl.reduce({name}, 0, larger)"
            writer.helpers.add("larger")
        elif op.op == "attend":
            share = _weights(writer, op, shares[root(op.operands[0])], scope)
            text = f"tl.sum({name} * {share}, 0)"
        writer.line(f"{name} = {text}[None{', :' * rank}]")


def finish(writer: Writer, reductions: Reductions, scope: Scope, empty: str) -> None:
    """Results of the reductions; ``empty`` masks the targets without rows."""
    for op in reductions.ops:
        if op.op == "segment_lse":
            high, total = reductions.names(op)
            tile = writer.let("lse", f"{high} + tl.log({total})")
            scope.known[op] = writer.reshape(
                tile, root(op.operands[0]).type.shape, op.type.shape, scope
            )
            continue
        name, none = reductions.named[op], _spread(empty, op.type.shape)
        if op.op == "segment_sum":
            scope.known[op] = name
        elif op.op == "segment_max":
            scope.known[op] = writer.let("largest", f"tl.where({none}, 0.0, {name})")
        else:
            total = _weights(writer, op, reductions.names(op)[1], scope)
            scope.known[op] = writer.let("mean", f"tl.where({none}, 0.0, {name} / {total})")
