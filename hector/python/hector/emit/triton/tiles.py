# SPDX-License-Identifier: Apache-2.0
"""What can be computed on tiles of rows, and the text of it; knows no template."""

from __future__ import annotations

import math

from hector.ir.function import Value
from hector.ir.types import Space

__all__ = [
    "BLOCK",
    "HELPERS",
    "MAX_WIDTH",
    "elementwise",
    "literal",
    "padded",
    "padded_width",
    "row_local",
    "same_but_for_ones",
    "single_block",
    "supported",
]

MAX_WIDTH = 16384
"""Elements of a row, padded, up to which a value fits into one tile."""

BLOCK = 256
"""Columns of a product up to which one program may hold all of them, so that more can be fused."""

_MATRIX = 128 * 128
"""Elements of a matrix that a program may hold."""

_TEXT = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "equal": "({0} == {1}).to(tl.float32)",
    "neg": "-{0}",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "tl.rsqrt({0})",
    "reciprocal": "1.0 / {0}",
    "abs": "tl.abs({0})",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0}))",
    "relu": "tl.where({0} < 0, 0.0, {0})",
    "leaky_relu": "tl.where({0} > 0, {0}, {0} * {slope})",
    "leaky_step": "tl.where({0} > 0, 1.0, {slope})",
    "elu": "tl.where({0} > 0, {0}, {alpha} * expm1({0}))",
    "elu_slope": "tl.where({0} > 0, 1.0, {alpha} * tl.exp({0}))",
    "sigmoid": "tl.sigmoid({0})",
    "tanh": "tanh({0})",
    "silu": "{0} * tl.sigmoid({0})",
    "gelu": "0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))",
    "gelu_slope": "0.5 * (1.0 + tl.erf({0} * 0.7071067811865476)) "
    "+ {0} * tl.exp(-0.5 * {0} * {0}) * 0.3989422804014327",
    "softplus": "softplus({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "maximum": "larger({0}, {1})",
    "minimum": "-larger(-({0}), -({1}))",
    "gate": "tl.where({1} <= 0, 0.0, {0})",
    "clamp": "tl.where(tl.where({0} < {low}, {low}, {0}) > {high}, {high}, "
    "tl.where({0} < {low}, {low}, {0}))",
    "clamp_step": "(({0} >= {low}) & ({0} <= {high})).to(tl.float32)",
    "detach": "{0}",
}

HELPERS = {
    "tanh": '''
@triton.jit
def tanh(x):
    """The difference of exponentials cancels near zero, where the series holds."""
    square = x * x
    series = x * (1.0 - square * (0.3333333333333333 - square * 0.13333333333333333))
    return tl.where(square < 4e-4, series, 2.0 * tl.sigmoid(2.0 * x) - 1.0)
''',
    "expm1": '''
@triton.jit
def expm1(x):
    """exp(x) - 1, by its series where the difference cancels."""
    series = x * (1.0 + x * (0.5 + x * (0.16666666666666666 + x * 0.041666666666666664)))
    return tl.where(tl.abs(x) < 0.03, series, tl.exp(x) - 1.0)
''',
    "softplus": '''
@triton.jit
def softplus(x):
    """log(1 + exp(x)), x itself where exp would only add rounding."""
    raised = tl.exp(tl.where(x > 20.0, 0.0, x))
    small = raised * (1.0 - raised * (0.5 - raised * 0.3333333333333333))
    return tl.where(x > 20.0, x, tl.where(raised < 1e-3, small, tl.log(1.0 + raised)))
''',
    "larger": '''
@triton.jit
def larger(a, b):
    """Maximum that keeps NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "multiplicand": '''
@triton.jit
def multiplicand(x, PRECISION: tl.constexpr):
    """What matrix units are given of fp32: they cut it off to tf32, which loses half a unit of the
    last place on average. The factor adds that half, so errors have no direction, and one operation
    is all that can be afforded for each number; tf32 itself comes through as it is."""
    if PRECISION == "tf32":
        x = x * 1.000337
    return x
''',
}
"""Device functions that expressions and products may call, by name."""

_POWERS = (-2, -1, 1, 2, 3, 4)


def padded(extent: int) -> int:
    """The next power of two."""
    return 1 << max(extent - 1, 0).bit_length()


def padded_width(shape: tuple[int, ...]) -> int:
    """Elements of a tile's row."""
    width = 1
    for extent in shape:
        width *= padded(extent)
    return width


def same_but_for_ones(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes differ in extents of one only."""
    return [n for n in a if n != 1] == [n for n in b if n != 1]


def single_block(op: Value) -> bool:
    """Whether a product's operands and result have one block of columns, and no heads."""
    shapes = [op.operands[0].type.shape, op.operands[1].type.shape if op.op == "outer" else ()]
    if any(len(shape) > 1 for shape in shapes):
        return False
    extents = (*op.type.shape, *(extent for shape in shapes for extent in shape))
    ends = max(padded(shapes[0][-1]), 16), max(padded(op.type.shape[-1]), 16)
    return all(padded(extent) <= BLOCK for extent in extents) and ends[0] * ends[1] <= _MATRIX


def _fits(value: Value) -> bool:
    shape = value.type.shape
    return len(shape) <= 3 and padded_width(shape) <= MAX_WIDTH and value.type.dtype != "f64"


def row_local(op: Value) -> bool:
    """Whether the operator's text exists: row i of the result needs row i of its operands."""
    if op.op == "reshape":
        return same_but_for_ones(op.type.shape, op.operands[0].type.shape)
    if op.op == "power":
        return op.number("exponent") in _POWERS
    return op.op in _TEXT or op.op in ("gather", "sum", "broadcast")


def supported(op: Value) -> bool:
    """Whether a tile kernel may compute the operator."""
    if op.type.space is Space.WEIGHT or not row_local(op):
        return False
    if all(operand.op == "const" for operand in op.operands):
        return False
    return all(_fits(value) for value in (op, *op.operands))


def literal(number: float) -> str:
    """A number as kernels write it; they know no name of infinity."""
    return repr(float(number)) if math.isfinite(number) else f"float('{number}')"


def elementwise(op: Value, args: list[str]) -> str:
    """The text of an elementwise operator on named tiles."""
    if op.op == "power":
        exponent = int(op.number("exponent"))
        product = " * ".join([args[0]] * abs(exponent))
        return product if exponent > 0 else f"1.0 / ({product})"
    numbers = {key: literal(op.number(key)) for key in op.attrs}
    return _TEXT[op.op].format(*args, **numbers)
