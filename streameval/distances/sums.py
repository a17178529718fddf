"""Canonical sums over pairs of rows: float64 arithmetic in one fixed order.

Element d of the vectors goes to lane ``d % 32``; each lane is summed in ascending d; the lanes
are summed in halves (lane i with lane i + 16, then + 8, 4, 2, 1). The order is part of the
promise: the same pair has the same bits in any tile, on any machine. A distance is one of these
sums, followed by a few operations on whole arrays, which round alike everywhere.

Lanes are held in registers: LLVM vectors, called as numba compiles. Written as a loop over an
array of lanes, the same sum goes through memory once for every 32 elements, and takes two to
three times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.errors import TypingError

from streameval.compilation import compiled
from streameval.distances import llvm
from streameval.typing import AnyArray, FloatArray, FloatingArray, IntArray

LANES = 32

_DOUBLES = llvm.vector(llvm.DOUBLE, LANES)

PRODUCT, SQUARED_DIFFERENCE, ABSOLUTE_DIFFERENCE = 0, 1, 2
L1_ELEMENTS = 1 << 12  # float64 that are used again while they are in L1


class Vectors(NamedTuple):
    """Rows of features and their norms.

    Attributes
    ----------
    rows : [n, D] float32 or float64
    norms : [n] float64
        Canonical Euclidean norms.
    """

    rows: FloatingArray
    norms: FloatArray

    @classmethod
    def of(cls, rows: FloatingArray) -> Vectors:
        """Return rows with their norms."""
        return cls(rows, row_norms(rows))

    def chosen(self, index: AnyArray | slice) -> Vectors:
        """Return chosen rows; a copy, but of a slice."""
        return Vectors(self.rows[index], self.norms[index])

    def take(self, index: IntArray | slice) -> Vectors:
        """Return a copy of chosen rows, in float64: long sums are faster without conversion."""
        return Vectors(self.rows[index].astype(np.float64), self.norms[index])


def _row(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> tuple[Any, Any]:
    """Return the address of a row, and how many elements it has."""
    parts = context.make_array(kind)(context, builder, array)
    start = builder.bitcast(parts.data, llvm.I8.as_pointer())
    offset = builder.mul(row, builder.extract_value(parts.strides, 0))
    address = builder.bitcast(builder.gep(start, [offset]), parts.data.type)
    return address, builder.extract_value(parts.shape, 1)


def _halved(builder: Any, values: Any) -> Any:
    """Return the sum of all lanes: lane i and lane i + 16, then + 8, 4, 2, 1."""
    half = LANES // 2
    while half:
        sides = [
            builder.shuffle_vector(
                values, values, llvm.vector(llvm.I32, half, list(range(start, start + half)))
            )
            for start in (0, half)
        ]
        values = builder.fadd(*sides)
        half //= 2
    return builder.extract_element(values, llvm.I32(0))


def _square(builder: Any, value: Any) -> Any:
    return builder.fmul(value, value)


def _absolute(builder: Any, value: Any) -> Any:
    return llvm.call(builder, f"llvm.fabs.v{LANES}f64", value, returns=_DOUBLES)


def _lane_sum(term: Callable[[Any, Any, Any], Any]) -> Any:
    """Return an intrinsic that sums a term over the elements of rows a[i] and b[k]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        first, width = _row(context, builder, kinds[0], *args[:2])
        second, _ = _row(context, builder, kinds[2], *args[2:])
        total = llvm.alloca(builder, llvm.vector(llvm.DOUBLE, LANES, 0.0))

        def add(start: Any, mask: Any) -> None:
            sides = [llvm.load(builder, LANES, row, start, mask) for row in (first, second)]
            doubles = [
                side if side.type == _DOUBLES else builder.fpext(side, _DOUBLES) for side in sides
            ]
            builder.store(builder.fadd(builder.load(total), term(builder, *doubles)), total)

        llvm.for_blocks(builder, width, LANES, add)
        return _halved(builder, builder.load(total))

    @llvm.intrinsic
    def lane_sum(typing_context, a, i, b, k):  # type: ignore[no-untyped-def]
        for rows in (a, b):
            if not isinstance(rows, types.Array) or rows.ndim != 2 or rows.layout != "C":
                raise TypingError(f"rows are {rows}; a matrix in C order is needed")
            if rows.dtype not in (types.float32, types.float64):
                raise TypingError(f"rows are of {rows.dtype}; float32 or float64 is needed")
        return types.float64(a, types.intp, b, types.intp), generate

    return lane_sum


inner_product = _lane_sum(lambda builder, a, b: builder.fmul(a, b))
squared_difference = _lane_sum(lambda builder, a, b: _square(builder, builder.fsub(a, b)))
absolute_difference = _lane_sum(lambda builder, a, b: _absolute(builder, builder.fsub(a, b)))


@compiled(inline="always")
def _sum(term, a, i, b, k):  # type: ignore[no-untyped-def]
    """Return the sum of a term over rows a[i] and b[k].

    Whole matrices and row numbers, no slices: each slice would count references, one at a time
    across all threads.
    """
    if term == PRODUCT:
        return inner_product(a, i, b, k)
    if term == SQUARED_DIFFERENCE:
        return squared_difference(a, i, b, k)
    return absolute_difference(a, i, b, k)


@compiled
def pair_sums(term, a, b, i, k, out):  # type: ignore[no-untyped-def]
    """Write the sums of listed pairs, column by column: each b[k] is fetched once.

    Parameters
    ----------
    term : int
        PRODUCT, SQUARED_DIFFERENCE or ABSOLUTE_DIFFERENCE.
    a, b : [m, D], [n, D] float32 or float64
    i, k : [p] integers
        Pair t is a[i[t]] with b[k[t]].
    out : [p] float64, written
    """
    start = np.zeros(b.shape[0] + 1, np.int64)
    start[1:] = np.cumsum(np.bincount(k, minlength=b.shape[0]))
    order = np.empty(len(k), np.int32)
    for t in range(len(k)):
        order[start[k[t]]] = t
        start[k[t]] += 1
    for t in order:  # type: ignore[assignment]
        out[t] = _sum(term, a, i[t], b, k[t])


@compiled
def block_sums(term, a, b, out):  # type: ignore[no-untyped-def]
    """Write the sums of all rows of a with all rows of b, [m, n] float64."""
    block = max(L1_ELEMENTS // max(b.shape[1], 1), 1)
    for left in range(0, b.shape[0], block):
        for i in range(a.shape[0]):
            for k in range(left, min(left + block, b.shape[0])):
                out[i, k] = _sum(term, a, i, b, k)


@compiled
def row_norms(rows):  # type: ignore[no-untyped-def]
    """Return the Euclidean norm of each row, [n] float64; not finite where the row is not."""
    out = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        out[i] = math.sqrt(inner_product(rows, i, rows, i))
    return out
