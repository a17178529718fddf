"""Sieve: which pairs may be within reach, told by one digit of 8 bits.

A row x is taken as c X, with X whole numbers from −127 to 127, the greatest of them 127 (or 63,
where vectors add up in 16 bits), and c float32. Of a product, X·Y is known without rounding, and
(Cauchy and Schwarz)

    |x·y − c d X·Y|  ≤  |x − c X| |y|  +  |c X| |y − d Y|

The lengths of what is left out, |x − c X|, are measured as rows are packed. The share of a
gallery row is taken off its offset, that of a query is added to its limits: what is not marked is
further than a limit of nearness, for certain. (Of limits of distance twice the share of a gallery
row is taken off.) Some per cent are marked; they are decided by their canonical distances.

Queries are kept as X + 128 (or 64), bytes without a sign; as many times the sum of Y are taken off
their sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.distances.sums import greatest
from streameval.kernels.limits import Limits
from streameval.kernels.matrix_unit import LINE_BYTES, STEP, configuration, configure, release
from streameval.kernels.sieve_units import (
    HEAD,
    QUERIES,
    RECORD,
    SUMS,
    WIDE,
    compare_sums,
    mark_narrow,
    mark_plainly,
    mark_wide,
    multiply_and_compare,
    write_digits,
)
from streameval.kernels.tiles import as_matrix
from streameval.kernels.vector_unit import FOURS, ITEMS
from streameval.typing import AnyArray, ByteArray, Float32Array, FloatArray, IntArray

MARKED_ROWS = 1024  # queries of a tile
LEAST = 1e-30  # a row whose greatest number is less is taken for zeros
LOST = 3e-5  # per root of the width, in units of c: what float32 loses in packing a number


class Way(NamedTuple):
    """What marks pairs.

    Attributes
    ----------
    text : str
        For people.
    most : int
        The greatest whole number of a row.
    seconds : float
        Of a pair of rows of 512 columns. Measured, like the next, and nothing that is counted
        depends on them.
    listed : (float, float)
        Seconds of a pair that is marked, and of each of its columns.
    """

    text: str
    most: int
    seconds: float
    listed: tuple[float, float] = (8e-9, 8e-11)


UNIT = Way("the processor's matrix unit (AMX)", 127, 0.5e-9)
VECTORS = Way("vector instructions (AVX-512 VNNI)", 127, 1.7e-9)
NARROW_VECTORS = Way("vector instructions (AVX2)", 63, 4.8e-9, (20e-9, 12e-11))
LOOPS = Way("plain loops (slow, for tests)", 127, 0.5e-9)


class Digits(NamedTuple):
    """Queries in one digit.

    Attributes
    ----------
    rows : [m, stride] uint8
        X + `way.most` + 1.
    scale : [m] float32
        c.
    error : [m] float64
        A bound on |x − c X|.
    length : [m] float64
        A bound on |c X|.
    way : Way
        What they are made for.
    """

    rows: ByteArray
    scale: Float32Array
    error: FloatArray
    length: FloatArray
    way: Way

    @classmethod
    def of(cls, rows: Float32Array, way: Way) -> Digits:
        """Return the digits of finite rows, [m, D]."""
        count, width = rows.shape
        out = np.full((count, _padded(width) + LINE_BYTES), way.most + 1, np.uint8)
        scale, error = np.empty(count, np.float32), np.empty(count)
        length = np.empty(count)
        _pack_queries(rows, way.most, out, scale, error, length)
        return cls(out, scale, error, length, way)


class Panels(NamedTuple):
    """Gallery rows in one digit.

    Attributes
    ----------
    digits : [bytes] uint8
        Panels: see `sieve_units`; weights are c times the weight of the row's column.
    error : [n] float64
        A bound on |y − d Y|, times the weight.
    """

    digits: ByteArray
    error: FloatArray

    @classmethod
    def of(cls, rows: Float32Array, weight: Float32Array, memory: ByteArray, way: Way) -> Panels:
        """Return the digits of finite rows, [n, D], whose columns have these weights, [n]."""
        digits = memory[-memory.ctypes.data % LINE_BYTES :]
        error = np.empty(len(rows))
        _pack_items(rows, way.most, weight, digits, _padded(rows.shape[1]), error)
        return cls(digits, error)


def _padded(width: int) -> int:
    return -(-width // STEP) * STEP


def digit_bytes(rows: int, width: int) -> int:
    """Return how much memory the digits of queries take, and those of a tile beside them."""
    return (rows + MARKED_ROWS + QUERIES) * (_padded(width) + LINE_BYTES + RECORD)


def panel_bytes(rows: int, width: int) -> int:
    """Return how much memory the panels of gallery rows take."""
    return -(-rows // ITEMS) * (HEAD + _padded(width) * ITEMS) + LINE_BYTES


def mark(
    queries: Digits,
    chosen: IntArray,
    items: Panels,
    offset: Float32Array,
    offset_row: IntArray,
    limits: Limits,
    out: AnyArray,
    every: int = 1,
) -> None:
    """Mark the pairs whose value may be within limits.

    Parameters
    ----------
    queries : Digits
    chosen : [m] int64
        Queries to compare.
    items : Panels
        Made for the same way.
    offset : [C, n] float32
        n of whole panels: NaN beyond the rows that there are, and for those that take no part.
    offset_row : [m] int64
    limits : Limits
        Of float32. Those of columns are looked at where some high limit is less than +inf.
    out : [m, n / 32 / every] uint32, written
    every : int
        One of so many panels is marked: the first, and so on.
    """
    count = len(chosen)
    padded = count + max(QUERIES, WIDE.queries)  # to whole groups of queries, which mark nothing
    stride = queries.rows.shape[1]
    memory = np.empty(padded * stride + LINE_BYTES, np.uint8)  # rows in whole lines load faster
    rows = as_matrix(memory[-memory.ctypes.data % LINE_BYTES :], np.uint8, padded, stride)
    rows[count:] = 0
    np.take(queries.rows, chosen, axis=0, out=rows[:count], mode="clip")  # "raise" copies
    records = np.zeros((padded, RECORD // 8), np.int64)
    records[:, 0] = offset.ctypes.data
    records[:count, 0] += offset_row * offset.strides[0]
    numbers = records.view(np.float32)
    numbers[:, 6], numbers[:, 7] = -np.inf, np.inf
    numbers[:count, 2], numbers[:count, 3:] = queries.scale[chosen], limits.lines[:, :5]
    if (limits.lines[:, 4] < np.inf).any():
        _write_limits(items.digits, stride - LINE_BYTES, limits.near, limits.far)
    marks = np.empty((out.shape[1], padded), np.uint32)  # written in order
    given = rows, count, every, items.digits, records, marks
    if queries.way == UNIT:
        _mark_by_unit(configuration(), *given)
    else:
        _BY_VECTORS[queries.way](*given)
    out[:] = marks[:, :count].T


@compiled
def _digits_of(rows, i, largest, out, numbers):  # type: ignore[no-untyped-def]
    """Write the digits of a row x; return c, the sum of X, and bounds on |x − c X| and |c X|.

    `numbers` [4] float32 are scratch.
    """
    width, most = rows.shape[1], greatest(rows, i)
    numbers[3] = 0 if most < LEAST else np.float32(largest) / most
    row, at = rows.ctypes.data + i * rows.strides[0], numbers.ctypes.data
    write_digits(row, width, at + 12, out.ctypes.data, at)
    total, kept, left = np.int32(numbers[0]), np.float64(numbers[1]), np.float64(numbers[2])
    if most < LEAST:
        return np.float32(0), total, np.sqrt(width) * LEAST, 0.0
    c, more = np.float64(most) / largest, 1 + width * 2.0**-23  # float32 sums of so many terms
    error = c * (np.sqrt(left * more) + LOST * np.sqrt(width))
    return np.float32(c), total, error, c * np.sqrt(kept * more) * (1 + 2.0**-22)


@compiled
def _pack_queries(rows, largest, out, scale, error, length):  # type: ignore[no-untyped-def]
    digits, scratch = np.zeros(rows.shape[1], np.int8), np.empty(4, np.float32)
    for i in range(rows.shape[0]):
        scale[i], _, error[i], length[i] = _digits_of(rows, i, largest, digits, scratch)
        for d in range(rows.shape[1]):
            out[i, d] = np.uint8(np.int16(digits[d]) + largest + 1)


@compiled
def _pack_items(rows, largest, weight, out, padded, error):  # type: ignore[no-untyped-def]
    """Write panels, of zeros beyond the rows and columns that there are."""
    digits, size = np.zeros(padded, np.int8), HEAD + padded * ITEMS
    scratch = np.empty(4, np.float32)
    fours = digits.view(np.int32)
    for panel in range((rows.shape[0] + ITEMS - 1) // ITEMS):
        whole = out[panel * size : (panel + 1) * size]
        numbers, floats = whole.view(np.int32), whole.view(np.float32)
        for item in range(ITEMS):
            k = panel * ITEMS + item
            numbers[item], floats[ITEMS + item] = 0, 0
            if k < rows.shape[0]:
                scale, total, lost, _ = _digits_of(rows, k, largest, digits, scratch)
                numbers[item], floats[ITEMS + item] = (largest + 1) * total, scale * weight[k]
                error[k] = lost * weight[k]
            elif k == rows.shape[0]:
                digits[:] = 0
            place = HEAD // 4 + item
            for four in range(len(fours)):
                numbers[np.uint64(place)] = fours[four]
                place += ITEMS


@compiled
def _write_limits(out, padded, near, far):  # type: ignore[no-untyped-def]
    """Write the limits of columns to the heads of their panels."""
    size = HEAD + padded * ITEMS
    for panel in range((len(near) + ITEMS - 1) // ITEMS):
        head = out[panel * size : panel * size + HEAD].view(np.float32)
        for item in range(min(len(near) - panel * ITEMS, ITEMS)):
            k = panel * ITEMS + item
            head[2 * ITEMS + item], head[3 * ITEMS + item] = near[k], far[k]


@compiled
def _panel(number, rows, every, items, records, marks):  # type: ignore[no-untyped-def]
    """Return what marks a panel is given: see `sieve_units`."""
    stride, panel = rows.strides[0], number * every
    padded = stride - LINE_BYTES
    digits = items.ctypes.data + panel * (HEAD + padded * ITEMS)
    to = marks.ctypes.data + number * marks.strides[0]
    own, shift = records.ctypes.data, panel * FOURS
    return rows.ctypes.data, stride, digits, padded // 4, own, shift, to, marks.strides[1]


@compiled
def _mark_by_unit(unit, rows, count, every, items, records, marks):  # type: ignore[no-untyped-def]
    """Mark pairs, each panel with all queries, which stay in L2."""
    sums = np.empty(2 * SUMS + LINE_BYTES, np.uint8)
    left, stride, before, fours, own, _, out, apart = _panel(0, rows, every, items, records, marks)
    start = sums.ctypes.data + (-sums.ctypes.data) % LINE_BYTES
    this, other, steps = start, start + SUMS, 4 * fours // STEP
    shift, to, of = 0, out, own  # nothing: written over by the first
    configure(unit.ctypes.data)
    for panel in range(marks.shape[0]):
        _, _, digits, _, _, offset, target, _ = _panel(panel, rows, every, items, records, marks)
        for first in range(0, count, QUERIES):
            query = left + first * stride
            multiply_and_compare(
                query, stride, digits, steps, this, other, before, of, shift, to, apart
            )
            this, other = other, this
            before, shift = digits, offset
            to, of = target + first * apart, own + first * RECORD
    compare_sums(other, before, of, shift, to, apart)
    release()


@compiled
def _mark_widely(rows, count, every, items, records, marks):  # type: ignore[no-untyped-def]
    for panel in range(marks.shape[0]):
        mark_wide(*_panel(panel, rows, every, items, records, marks), count)


@compiled
def _mark_narrowly(rows, count, every, items, records, marks):  # type: ignore[no-untyped-def]
    for panel in range(marks.shape[0]):
        mark_narrow(*_panel(panel, rows, every, items, records, marks), count)


@compiled
def _mark_plainly(rows, count, every, items, records, marks):  # type: ignore[no-untyped-def]
    for panel in range(marks.shape[0]):
        mark_plainly(*_panel(panel, rows, every, items, records, marks), count)


# Compiled apart: no processor has the instructions of all.
_BY_VECTORS = {VECTORS: _mark_widely, NARROW_VECTORS: _mark_narrowly, LOOPS: _mark_plainly}
