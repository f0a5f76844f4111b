# SPDX-License-Identifier: Apache-2.0
"""Recording of einsum of one or two tensors: turned into products, or into a product and a sum."""

from __future__ import annotations

import math
from typing import Any

from hector.frontend.elementwise import binary
from hector.frontend.products import matmul as shared
from hector.frontend.products import row_product, shared_heads
from hector.frontend.record import Call, Recorder
from hector.frontend.reductions import reduce_sum
from hector.frontend.shapes import permute, reshape
from hector.ir.types import Space

__all__ = ["einsum"]

_REMEDY = (
    "write one or two tensors with plain letters and an explicit result, rows first, as in "
    "'ek,ekn->en' or 'ehd,hd->eh'"
)


def _parsed(r: Recorder, equation: Any, operands: tuple[Any, ...]) -> tuple[list[str], str]:
    if not isinstance(equation, str) or not all(isinstance(x, Call) for x in operands):
        raise r.refuse("this form of einsum", _REMEDY)
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    plain = arrow and (left.replace(",", "") + out).isalpha()
    if not plain or len(terms) != len(operands) or len(terms) not in (1, 2):
        raise r.refuse(f"einsum {equation!r}", _REMEDY)
    extents: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        if len(term) != len(x.shape) or len(set(term)) != len(term):
            raise r.refuse(f"einsum {equation!r} of shape {x.shape}", _REMEDY)
        for letter, extent in zip(term, x.shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                raise ValueError(f"einsum {equation!r}: {letter} is {extents[letter]} and {extent}")
    if not set(out) <= set(left) or len(set(out)) != len(out):
        raise ValueError(f"einsum {equation!r}: the result's letters must be those of the terms")
    return terms, out


def _arranged(r: Recorder, x: Call, term: str, wanted: str) -> Call:
    """``x`` with its letters in this order."""
    perm = tuple(term.index(letter) for letter in wanted)
    return x if perm == tuple(range(len(term))) else permute(r, x, perm)


def _summed(r: Recorder, x: Call, term: str, gone: str) -> tuple[Call, str]:
    if not gone:
        return x, term
    dims = tuple(term.index(letter) for letter in gone)
    return reduce_sum(r, x, dims), "".join(c for c in term if c not in gone)


def einsum(r: Recorder, equation: Any, *operands: Any) -> Call:
    """Record an einsum; the rows' letter comes first wherever it stands."""
    terms, out = _parsed(r, equation, operands)
    if len(terms) == 1:
        x, term = _summed(r, operands[0], terms[0], "".join(c for c in terms[0] if c not in out))
        return _arranged(r, x, term, out)
    (x, y), (a, b) = operands, terms
    x, a = _summed(r, x, a, "".join(c for c in a if c not in out + b))
    y, b = _summed(r, y, b, "".join(c for c in b if c not in out + a))
    # The tensor of rows stands left, so that a shared matrix may stand right.
    if out and b[:1] == out[0] and out[0] not in a:
        x, y, a, b = y, x, b, a
    product = _matrices(r, x, y, a, b, out)
    if product is None and _shares_rows(out, a, b):
        product = _matrices(r, y, x, b, a, out)
    if product is not None:
        return product
    order = out + "".join(c for c in a if c not in out)
    both = binary("mul")(r, _spread(r, x, a, order), _spread(r, y, b, order))
    total, term = _summed(r, both, order, order[len(out) :])
    return _arranged(r, total, term, out)


def _shares_rows(out: str, a: str, b: str) -> bool:
    return bool(out) and a[:1] == b[:1] == out[0]


def _spread(r: Recorder, x: Call, term: str, order: str) -> Call:
    """``x`` with an extent of 1 for every letter that it lacks."""
    present = "".join(c for c in order if c in term)
    x = _arranged(r, x, term, present)
    first = order[:1] in term
    if not first:
        r.require(x, Space.WEIGHT, "a term of einsum without the rows' letter")
    extents = dict(zip(present, x.shape, strict=True))
    rest = order if first else order.lstrip(order[:1])
    shape = tuple(extents.get(c, 1) for c in rest)
    return x if shape == x.shape else reshape(r, x, shape)


def _matrices(r: Recorder, x: Call, w: Call, a: str, b: str, out: str) -> Call | None:
    """The product of rows ``x`` and matrices ``w``, or None where there is no matrix in it."""
    summed = "".join(c for c in a if c in b and c not in out)
    columns = "".join(c for c in b if c not in a)
    if not summed or not columns or not out or a[:1] != out[0]:
        return None
    typed = b[:1] == a[0]
    shared_letters = "".join(c for c in a[1:] if c in b and c in out)  # heads
    lead = "".join(c for c in a[1:] if c not in b)
    if (shared_letters and lead) or (not typed and a[0] in b):
        return None
    extents = dict(zip(a, x.shape, strict=True)) | dict(zip(b, w.shape, strict=True))

    def count(letters: str) -> int:
        return math.prod(extents[c] for c in letters)

    x = _arranged(r, x, a, a[0] + shared_letters + lead + summed)
    w = _arranged(r, w, b, (a[0] if typed else "") + shared_letters + summed + columns)
    k, n, rows = count(summed), count(columns), x.shape[0]
    matrix = (count(shared_letters), k, n) if shared_letters else (k, n)
    w = reshape(r, w, (w.shape[0], *matrix) if typed else matrix)
    middle = shared_letters or lead
    x = reshape(r, x, (rows, count(middle), k) if middle else (rows, k))
    if typed:
        product = row_product(r, x, w, einsum=True)
    else:
        product = shared_heads(r, x, w) if shared_letters else shared(r, x, w)
    letters = a[0] + middle + columns
    return _arranged(r, reshape(r, product, tuple(extents[c] for c in letters)), letters, out)
