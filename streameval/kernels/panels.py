"""Panels: float32 rows in three digits of 8 bits, for products by the matrix unit.

A row x is taken as w X, with w a power of two and X whole numbers of three digits, the greatest
of them between 2²² and 2²³ (`_exponent`). A digit is −128 … 127; those of X make three rows, so
that X = 256² A + 256 B + C. Of the nine products of these with another row's, six are needed:

    x·y  =  w w' 256² (256² A·A' + 256 (A·B' + B·A') + (A·C' + B·B' + C·A'))  +  error

and the unit has each of them without rounding. The error is known from the rows (`Panels`), and
in ordinary ones hardly depends on how long they are: ‖X‖ is large beside the half that rounding
to whole numbers may cost in each column, and B and C are small beside A.

*Panels* hold rows in the order that the unit asks for: for every step of 64 columns, a tile a
digit, of 16 rows, 1,024 bytes. Those of queries are of 32 rows, two tiles a digit; those of
gallery rows of 16, transposed by fours.

The unit is given by its configuration. Without one, None, `plain_unit` does what it would do.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.distances.sums import greatest
from streameval.kernels import plain_unit
from streameval.kernels.matrix_unit import (
    AHEAD_BYTES,
    DIGITS,
    ITEM_STEP_BYTES,
    ITEMS,
    LINE_BYTES,
    QUERIES,
    QUERY_STEP_BYTES,
    STEP,
    SUMS_BYTES,
    TILE_BYTES,
    TILE_ROWS,
    configure,
    multiply_panels,
    pack_step,
    release,
    write_rows,
)
from streameval.typing import ByteArray, Float32Array, FloatArray, IntArray

Unit = ByteArray | None
"""The unit's `configuration`; None where there is no unit, or it is not to be used."""

MOST_COLUMNS = 1 << 15  # the unit's sums of 3 · 2¹⁴ a column fit in 32 bits
MOST_DIGITS = 127 * 0x10101  # what three digits hold
LEAST_SQUARED = 1e-24  # of norms that float32 can tell


class Panels(NamedTuple):
    """Rows in digits, and what they leave out.

    Attributes
    ----------
    digits : [bytes] uint8
        Of the rows and the steps.
    scale : [rows] float32
        256 w; of whole panels, 0 beyond the rows that there are.
    lost : [3, n] float64
        Bounds on the norms of x − w X, 256 w B and w C of each row, by the norm of x; +inf where
        a norm is too small to tell.
    """

    digits: ByteArray
    scale: Float32Array
    lost: FloatArray

    def take(self, query: IntArray, width: int) -> Panels:
        """Return panels of some of the queries whose panels these are."""
        steps, tiles = -(-width // STEP), QUERIES // TILE_ROWS
        shape = -1, steps, DIGITS, tiles, TILE_ROWS, STEP
        count = -(-len(query) // QUERIES)
        taken = np.zeros(count * steps * QUERY_STEP_BYTES + LINE_BYTES, np.uint8)
        digits = taken[-taken.ctypes.data % LINE_BYTES :][: count * steps * QUERY_STEP_BYTES]
        size = len(self.scale) // QUERIES * steps * QUERY_STEP_BYTES
        source, target = (each.reshape(shape) for each in (self.digits[:size], digits))
        (panel, row), (new, place) = (divmod(n, QUERIES) for n in (query, np.arange(len(query))))
        (tile, row), (new_tile, place) = (divmod(n, TILE_ROWS) for n in (row, place))
        target[new, :, :, new_tile, place] = source[panel, :, :, tile, row]
        scale = np.zeros(count * QUERIES, np.float32)
        scale[: len(query)] = self.scale[query]
        return self._replace(digits=digits, scale=scale)


def panels_of(rows: Float32Array, memory: ByteArray, panel: int, unit: Unit) -> Panels:
    """Return the panels of the rows on one side of a product.

    Parameters
    ----------
    rows : [n, D] float32
        Finite; each row contiguous.
    memory : [`multiplier.item_bytes`] uint8
        To write them into.
    panel : {QUERIES, ITEMS}
        Rows of a panel: of queries, which are on the left, or of gallery rows.
    unit : Unit
    """
    digits = memory[-memory.ctypes.data % LINE_BYTES :]  # panels begin with a cache line
    scale = np.zeros(-(-len(rows) // panel) * panel, np.float32)
    lost = np.zeros((3, len(rows)))
    if len(rows):
        _pack(rows, digits, scale, lost, panel, unit)
    return Panels(digits, scale, lost)


def roundings(queries: Panels, gallery: Panels) -> FloatArray:
    """Return n of each query: its products differ by at most n u |x| |y| from the exact ones.

    u is 2⁻²⁴. With X, A, B, C as in the module's overview, and e, b, c the norms of x − w X,
    256 w B and w C by that of x, these add up:

    - what rounding to X costs, e + e' + e e';
    - the products that are left out, b c' + c b' + c c' (Cauchy and Schwarz);
    - three roundings of the sum of the others, where 256² w A is at most 1 + e + b + c.
    """
    (e, b, c), (f, h, k) = queries.lost, gallery.lost.max(axis=1, initial=0.0)
    with np.errstate(invalid="ignore"):  # +inf and 0
        rounded = e + f + e * f
    left_out = b * k + c * h + c * k
    summed = 3.1 * 2.0**-24 * (1 + e + 2 * b + 2 * c) * (1 + f + 2 * h + 2 * k)
    bounds: FloatArray = (rounded + left_out + summed) * 2.0**24
    return bounds


def multiply(
    queries: Panels, gallery: Panels, unit: Unit, width: int, start: int, out: Float32Array
) -> None:
    """Write the products of some queries and gallery rows.

    Parameters
    ----------
    queries, gallery : Panels
    unit : Unit
    width : int
        D.
    start : int
        The query that the first row of `out` belongs to.
    out : [m, n] float32, written
        In C order.
    """
    memory = np.empty(2 * SUMS_BYTES + LINE_BYTES, np.uint8)
    sums = memory[-memory.ctypes.data % LINE_BYTES :]
    part = np.empty((QUERIES, ITEMS), np.float32)
    steps = -(-width // STEP)
    _multiply(queries, start, gallery, steps, unit, sums, part, out)


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _squares(row):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for d in range(row.shape[0]):
        total += row[d] * row[d]
    return total


@compiled
def _exponent(rows, i):  # type: ignore[no-untyped-def]
    """Return k: 2ᵏ times the greatest magnitude is what three digits hold, and twice that is not.

    0 of zeros; 120 of magnitudes below what is normal in float32.
    """
    most = greatest(rows, i)
    share, above = math.frexp(most)  # the power of two that it is below
    full = share * 2.0**24 > 2 * MOST_DIGITS
    return min(23 - above - full, 120) if most > 0 else 0


@compiled
def _fill(rows, first, column, out):  # type: ignore[no-untyped-def]
    """Copy what there is of 16 rows × 64 columns; zeros beyond."""
    part = rows[first : first + TILE_ROWS, column : column + STEP]
    out[:] = 0
    out[: part.shape[0], : part.shape[1]] = part


@compiled
def _sum(values):  # type: ignore[no-untyped-def]
    total = 0
    for value in values:
        total += value
    return total


@compiled
def _pack(rows, digits, scale, lost, panel, unit):  # type: ignore[no-untyped-def]
    """Write the attributes of `Panels`; `lost` is zeros before."""
    n, width = rows.shape
    steps = -(-width // STEP)
    part = np.empty((TILE_ROWS, STEP), np.float32)
    by, squares = np.empty(TILE_ROWS, np.float32), np.empty((2, TILE_ROWS, 16), np.int32)
    tiles = panel // TILE_ROWS
    apart = tiles * TILE_BYTES
    source, stride, target = rows.ctypes.data, rows.strides[0], digits.ctypes.data
    for first in range(0, len(scale), TILE_ROWS):
        count = max(min(n - first, TILE_ROWS), 0)
        by[:], squares[:] = 1, 0
        for r in range(count):
            exponent = _exponent(rows, first + r)
            by[r] = np.float32(2.0**exponent)
            scale[first + r] = np.float32(2.0 ** (8 - exponent))
        start = target + first // panel * steps * DIGITS * apart + first // 16 % tiles * TILE_BYTES
        for step in range(steps):
            if count == TILE_ROWS and (step + 1) * STEP <= width:
                at, distance = source + first * stride + step * STEP * 4, stride
            else:
                _fill(rows, first, step * STEP, part)
                at, distance = part.ctypes.data, STEP * 4
            to = start + step * DIGITS * apart
            across = panel == ITEMS
            by_row, added = by.ctypes.data, squares.ctypes.data
            if unit is None:
                plain_unit.pack_step(at, distance, by_row, to, apart, across, added)
            else:
                pack_step(at, distance, by_row, to, apart, across, added)
        for r in range(count):
            b, c = _sum(squares[0, r]), _sum(squares[1, r])
            squared = np.float64(_squares(rows[first + r]))
            if squared < LEAST_SQUARED:
                if by[r] != 1 or squared > 0.0:  # not a row of zeros
                    lost[0, first + r] = np.inf
                continue
            # float32 lost at most this share of the sum, and what lies below 1e-38.
            norm = np.sqrt(squared * (1 - width * 2.0**-23)) * by[r]
            lost[0, first + r] = np.sqrt(width) / 2 / norm
            lost[1, first + r] = 256 * np.sqrt(b) / norm
            lost[2, first + r] = np.sqrt(c) / norm


@compiled
def _multiply(queries, start, gallery, steps, unit, sums, part, out):  # type: ignore[no-untyped-def]
    """As `multiply`: the queries stay in L2, and each panel of the gallery comes once.

    While one is multiplied with all queries, the next is brought closer, bit by bit.
    """
    m, n = out.shape
    if m == 0 or n == 0:
        return
    left, right = queries.digits.ctypes.data, gallery.digits.ctypes.data
    by_query, by_item = queries.scale.ctypes.data, gallery.scale.ctypes.data
    target, stride, size = out.ctypes.data, out.strides[0], steps * ITEM_STEP_BYTES
    own, other = sums.ctypes.data, sums.ctypes.data + SUMS_BYTES
    first, last = start // QUERIES, -(-(start + m) // QUERIES)
    # The panels before: none at first, and what is written of them comes to nothing.
    at, distance, row, column = part.ctypes.data, ITEMS * 4, 0, n
    query_scale, item_scale = by_query, by_item
    if unit is not None:
        configure(unit.ctypes.data)
    for left_column in range(0, n + ITEMS, ITEMS):
        panels = last if left_column < n else first + 1  # after the last, nothing but writing
        items = right + left_column // ITEMS * size
        for panel in range(first, panels):
            before = other, at, distance, query_scale, item_scale
            if left_column < n:
                ahead = items + size + (panel - first) * steps * AHEAD_BYTES
                added = left + panel * steps * QUERY_STEP_BYTES, items, steps, own, ahead
                if unit is None:
                    plain_unit.multiply_panels(*added, *before)
                else:
                    multiply_panels(*added, *before)
            elif unit is None:
                plain_unit.write_rows(*before)
            else:
                write_rows(*before)
            if at == part.ctypes.data:
                top = max(row, 0)
                inside = part[top - row : m - row, : n - column]
                out[top : row + QUERIES, column : column + ITEMS] = inside
            own, other = other, own
            row, column = panel * QUERIES - start, left_column
            query_scale, item_scale = by_query + panel * QUERIES * 4, by_item + column * 4
            if row >= 0 and row + QUERIES <= m and column + ITEMS <= n:
                at, distance = target + row * stride + column * 4, stride
            else:
                at, distance = part.ctypes.data, ITEMS * 4
    if unit is not None:
        release()
