"""Products of float32 rows: by BLAS, or by the matrix unit in three parts of bfloat16.

A float32 number is the sum of three bfloat16 numbers, x = a + b + c, each of 8 of its 24 bits.
Of the nine products of parts, six are needed:

    x y  =  b b' + b a' + c a' + a a' + a b' + a c'  +  at most 2.01 u |x| |y|,   u = 2⁻²⁴

*Panels* hold 32 rows in the order that the unit asks for: for every step of 32 columns, three
parts of two tiles of 16 rows, each tile 1,024 bytes; those of gallery rows are transposed.
"""

from __future__ import annotations

import os

import numba
import numpy as np
import numpy.typing as npt

from streameval.counting.matrix_unit import (
    AHEAD_BYTES,
    PANEL,
    STEP,
    STEP_BYTES,
    TILE_BYTES,
    aligned,
    configuration,
    configure,
    multiply_panels,
    pack_step,
    release,
    supported,
)
from streameval.errors import OptionError

Float32Matrix = npt.NDArray[np.float32]
Panels = npt.NDArray[np.uint8]

GALLERY_PANELS_BYTES = 768 << 10  # packed at a time: they stay in L2
VARIABLE = "STREAMEVAL_PRODUCT"


def use_matrix_unit() -> bool:
    """Tell whether products are the matrix unit's: where there is one, and nobody forbids it.

    Raises
    ------
    OptionError
        If the environment variable ``STREAMEVAL_PRODUCT`` is neither ``auto`` nor ``blas``.
    """
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in ("auto", "blas"):
        raise OptionError(f"{VARIABLE} is {wanted!r}; expected auto or blas")
    return wanted == "auto" and supported()


def panel_bytes(rows: int, width: int) -> int:
    """Return the size of the panels of some rows."""
    return -(-rows // PANEL) * -(-width // STEP) * STEP_BYTES


def query_panels(rows: Float32Matrix) -> Panels:
    """Return the panels of the rows on the left of a product; none where BLAS multiplies.

    Parameters
    ----------
    rows : [m, D] float32
        Finite.
    """
    panels = aligned(panel_bytes(*rows.shape) if use_matrix_unit() else 0)
    if panels.size:
        _pack(rows, panels, False)
    return panels


def roundings(width: int, panels: Panels) -> float:
    """Return n: a product differs from the exact one by at most γₙ |x| |y| (Higham, §3.1).

    Of BLAS, which may add up in any order, n is D. In the matrix unit a term meets 16 roundings
    in its lane (a step's 32 columns are 16 pairs), one where the two lanes are added, and one
    for each time that six products of a step are added to the sum. The parts' magnitudes add
    up to 1.01 |x| |y|, and what they leave out is 2.01 u |x| |y|.
    """
    if not panels.size:
        return float(width)
    return 1.01 * (17 + 6 * -(-width // STEP)) + 2.1


def multiply(
    queries: Float32Matrix, panels: Panels, start: int, gallery: Float32Matrix, out: Float32Matrix
) -> None:
    """Write the products of some queries and gallery rows.

    Parameters
    ----------
    queries : [Q, D] float32
    panels : panels
        Of the queries.
    start : int
        The query that the first row of `out` belongs to.
    gallery : [n, D] float32
        Finite; each row contiguous.
    out : [m, n] float32, written
        In C order.
    """
    if not panels.size:
        np.matmul(queries[start : start + len(out)], gallery.T, out=out)
        return
    columns = max(GALLERY_PANELS_BYTES // panel_bytes(PANEL, gallery.shape[1]), 1) * PANEL
    columns = max(min(columns, -(-len(gallery) // PANEL) * PANEL), PANEL)
    packed = aligned(panel_bytes(columns, gallery.shape[1]))
    scratch = np.empty((PANEL, PANEL), np.float32)
    _multiply(panels, start, gallery, packed, columns, configuration(), scratch, out)


@numba.njit(nogil=True, cache=True)
def _fill(rows, first, column, scratch):  # type: ignore[no-untyped-def]
    """Copy what there is of 16 rows × 32 columns; zeros beyond."""
    scratch[:] = 0
    for r in range(first, min(first + 16, rows.shape[0])):
        for d in range(column, min(column + STEP, rows.shape[1])):
            scratch[r - first, d - column] = rows[r, d]


@numba.njit(nogil=True, cache=True)
def _pack(rows, panels, transposed):  # type: ignore[no-untyped-def]
    """Write the panels of some rows; of gallery rows they are transposed."""
    n, width = rows.shape
    steps = -(-width // STEP)
    scratch = np.empty((16, STEP), np.float32)
    source, stride, target = rows.ctypes.data, rows.strides[0], panels.ctypes.data
    for first in range(0, -(-n // PANEL) * PANEL, 16):
        start = target + (first // PANEL) * steps * STEP_BYTES + (first // 16 % 2) * TILE_BYTES
        for step in range(steps):
            if first + 16 <= n and (step + 1) * STEP <= width:
                at, distance = source + first * stride + step * STEP * 4, stride
            else:
                _fill(rows, first, step * STEP, scratch)
                at, distance = scratch.ctypes.data, STEP * 4
            pack_step(at, distance, start + step * STEP_BYTES, transposed)


@numba.njit(nogil=True, cache=True)
def _multiply(queries, start, gallery, panels, columns, configuration, scratch, out):  # type: ignore[no-untyped-def]
    """As `multiply`; gallery rows are packed `columns` at a time, into `panels`.

    While two panels are multiplied, the next of the queries is brought closer, bit by bit.
    """
    m, n = out.shape
    steps = -(-gallery.shape[1] // STEP)
    size = steps * STEP_BYTES
    left, right = queries.ctypes.data, panels.ctypes.data
    target, stride = out.ctypes.data, out.strides[0]
    configure(configuration.ctypes.data)
    for begin in range(0, n, columns):
        end = min(begin + columns, n)
        _pack(gallery[begin:end], panels, True)
        for panel in range(start // PANEL, -(-(start + m) // PANEL)):
            row = panel * PANEL - start
            for column in range(begin, end, PANEL):
                done = (column - begin) // PANEL
                ahead = left + (panel + 1) * size + done * steps * AHEAD_BYTES
                other = right + done * size
                if row >= 0 and row + PANEL <= m and column + PANEL <= end:
                    at = target + row * stride + column * 4
                    multiply_panels(left + panel * size, other, steps, at, stride, ahead)
                    continue
                at = scratch.ctypes.data
                multiply_panels(left + panel * size, other, steps, at, PANEL * 4, ahead)
                for r in range(max(row, 0), min(row + PANEL, m)):
                    for c in range(column, min(column + PANEL, end)):
                        out[r, c] = scratch[r - row, c - column]
    release()
