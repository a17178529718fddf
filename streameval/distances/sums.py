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
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError

from streameval.compilation import compiled
from streameval.distances import llvm
from streameval.typing import AnyArray, FloatArray, FloatingArray, IntArray

LANES = 32
FLOAT_LANES = 64  # of sums that are not canonical

_DOUBLES = llvm.vector(llvm.DOUBLE, LANES)

PRODUCT, SQUARED_DIFFERENCE, ABSOLUTE_DIFFERENCE = 0, 1, 2
FLOAT_PRODUCT = None  # not canonical
NEAR_BYTES = 1 << 22  # of rows that are used again, with columns as they come, while in a cache
L2_BYTES = 1 << 20  # of columns that are used again, in any order
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


def _square(builder: Any, value: Any) -> Any:
    return builder.fmul(value, value)


def _absolute(builder: Any, value: Any) -> Any:
    return llvm.call(builder, f"llvm.fabs.v{LANES}f64", value, returns=_DOUBLES)


def _lane_sum(term: Callable[[Any, Any, Any], Any], lanes: Any = _DOUBLES) -> Any:
    """Return an intrinsic that sums a term over the elements of rows a[i] and b[k].

    Rows become what lanes hold: float64, or float32 of sums that are not canonical.
    """
    change = ir.IRBuilder.fpext if lanes.element == llvm.DOUBLE else ir.IRBuilder.fptrunc

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        first, width = _row(context, builder, kinds[0], *args[:2])
        second, _ = _row(context, builder, kinds[2], *args[2:])
        total = llvm.alloca(builder, llvm.vector(lanes.element, lanes.count, 0.0))

        def add(start: Any, mask: Any) -> None:
            sides = [llvm.load(builder, lanes.count, row, start, mask) for row in (first, second)]
            numbers = [
                side if side.type == lanes else change(builder, side, lanes) for side in sides
            ]
            builder.store(builder.fadd(builder.load(total), term(builder, *numbers)), total)

        llvm.for_blocks(builder, width, lanes.count, add)
        return llvm.halved(builder, builder.load(total))

    @llvm.intrinsic
    def lane_sum(typing_context, a, i, b, k):  # type: ignore[no-untyped-def]
        for rows in (a, b):
            if not isinstance(rows, types.Array) or rows.ndim != 2 or rows.layout != "C":
                raise TypingError(f"rows are {rows}; a matrix in C order is needed")
            if rows.dtype not in (types.float32, types.float64):
                raise TypingError(f"rows are of {rows.dtype}; float32 or float64 is needed")
        returns = types.float64 if lanes.element == llvm.DOUBLE else types.float32
        return returns(a, types.intp, b, types.intp), generate

    return lane_sum


def _product(builder: Any, a: Any, b: Any) -> Any:
    return builder.fmul(a, b)


inner_product = _lane_sum(_product)
squared_difference = _lane_sum(lambda builder, a, b: _square(builder, builder.fsub(a, b)))
absolute_difference = _lane_sum(lambda builder, a, b: _absolute(builder, builder.fsub(a, b)))


_float_product = _lane_sum(_product, llvm.vector(llvm.FLOAT, FLOAT_LANES))


@llvm.intrinsic
def greatest(typing_context, rows, i):  # type: ignore[no-untyped-def]
    """Return the greatest magnitude in row i of a matrix of finite float32; rows contiguous."""
    if not isinstance(rows, types.Array) or (rows.dtype, rows.ndim) != (types.float32, 2):
        raise TypingError(f"rows are {rows}; a matrix of float32 is needed")
    count, kind = FLOAT_LANES, llvm.vector(llvm.FLOAT, FLOAT_LANES)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row, width = _row(context, builder, signature.args[0], *args)
        most = llvm.alloca(builder, llvm.vector(llvm.FLOAT, count, 0.0))

        def look(start: Any, mask: Any) -> None:
            value = llvm.load(builder, count, row, start, mask)
            size = llvm.call(builder, f"llvm.fabs.v{count}f32", value, returns=kind)
            known = builder.load(most)
            more = builder.fcmp_ordered(">", size, known)
            builder.store(builder.select(more, size, known), most)

        llvm.for_blocks(builder, width, count, look)
        name = f"llvm.vector.reduce.fmax.v{count}f32"
        return llvm.call(builder, name, builder.load(most), returns=llvm.FLOAT)

    return types.float32(rows, types.intp), generate


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
def _together(a, i, first, columns):  # type: ignore[no-untyped-def]
    """Return up to which pair, from one on, rows of a stay in the cache.

    Of four pairs a column at least, so that it pays to sort them.
    """
    rows = max(NEAR_BYTES // max(a.shape[1] * a.itemsize, 1), 1)
    t = min(first + 4 * columns, len(i))
    while t < len(i) and i[t] - i[first] < rows:
        t += 1
    return t


@compiled
def _by_column(i, k, first, stop, columns):  # type: ignore[no-untyped-def]
    """Return the order of some pairs by column, their rows in that order, and where columns end."""
    start = np.zeros(columns + 1, np.int64)
    for t in range(first, stop):
        start[k[t] + 1] += 1
    for column in range(columns):
        start[column + 1] += start[column]
    order, row = np.empty(stop - first, np.int32), np.empty(stop - first, np.int32)
    for t in range(first, stop):
        place = start[k[t]]
        order[place], row[place] = t, i[t]
        start[k[t]] = place + 1
    return order, row, start


@compiled
def pair_sums(term, a, b, i, k, out):  # type: ignore[no-untyped-def]
    """Write the sums of listed pairs: as they are listed, where all columns stay in L2.

    Else column by column: each b[k] is fetched once. Where pairs are listed row by row, it is
    fetched once for as many rows as a cache holds.

    Parameters
    ----------
    term : int or None
        PRODUCT, SQUARED_DIFFERENCE or ABSOLUTE_DIFFERENCE; or FLOAT_PRODUCT, of float32 rows in
        float32, which passes D / 64 + 8 roundings.
    a, b : [m, D], [n, D] float32 or float64
    i, k : [p] integers
        Pair t is a[i[t]] with b[k[t]].
    out : [p] float64, or float32 of FLOAT_PRODUCT; written
    """
    if term is not None and b.shape[0] * b.shape[1] * b.itemsize <= L2_BYTES:
        for t in range(len(k)):
            out[t] = _sum(term, a, i[t], b, k[t])
        return
    first = 0
    while first < len(k):
        stop = _together(a, i, first, b.shape[0])
        order, row, end = _by_column(i, k, first, stop, b.shape[0])
        first, place = stop, 0
        for column in range(b.shape[0]):
            while place < end[column]:
                if term is None:
                    out[order[place]] = _float_product(a, row[place], b, column)
                else:
                    out[order[place]] = _sum(term, a, row[place], b, column)
                place += 1


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
