"""Products of float32 rows: by BLAS, or by the matrix unit in three parts of bfloat16.

A float32 number is the sum of three bfloat16 numbers, x = a + b + c, each of 8 of its 24 bits.
Of the nine products of parts, six are needed:

    x y  =  b b' + b a' + c a' + a a' + a b' + a c'  +  at most 2.01 u |x| |y|,   u = 2⁻²⁴

*Panels* hold 32 rows in the order that the unit asks for: for every step of 32 columns, three
parts of two tiles of 16 rows, each tile 1,024 bytes; those of gallery rows are transposed.
"""

from __future__ import annotations

import os
from functools import cache

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt
import threadpoolctl

from streameval.counting.matrix_unit import (
    AHEAD_BYTES,
    LINE_BYTES,
    PANEL,
    STEP,
    STEP_BYTES,
    TILE_BYTES,
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

BLAS_ROWS, UNIT_ROWS = 1024, 256
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


@cache
def blas_kernels() -> str:
    """Return the processor that NumPy's OpenBLAS has its kernels for; "" of another BLAS."""
    for library in threadpoolctl.threadpool_info():
        if library["internal_api"] == "openblas" and "numpy" in library["filepath"]:
            return str(library.get("architecture", ""))
    return ""


def description() -> str:
    """Return what multiplies, for people."""
    if use_matrix_unit():
        return "the processor's matrix unit (AMX), in three parts of bfloat16"
    return f"OpenBLAS, kernels for {blas_kernels()}" if blas_kernels() else "BLAS"


def advice() -> str:
    """Return how products would be faster; "" where nothing is known to be wrong.

    OpenBLAS takes kernels for Haswell on processors that it doesn't know, though those for
    SkylakeX run wherever their instructions do.
    """
    if use_matrix_unit() or blas_kernels() not in ("Haswell", "Zen"):
        return ""
    features = llvmlite.binding.get_host_cpu_features()
    if not all(features.get(f"avx512{group}") for group in ("f", "cd", "bw", "dq", "vl")):
        return ""
    return (
        f"OpenBLAS multiplies with kernels for {blas_kernels()}, and this processor has AVX-512: "
        "with OPENBLAS_CORETYPE=SkylakeX in the environment, before Python starts, products take "
        "about half the time"
    )


def best_rows() -> int:
    """Return of how many queries a tile is best.

    BLAS packs gallery rows anew for each tile; the matrix unit keeps the queries' panels in L2.
    """
    return UNIT_ROWS if use_matrix_unit() else BLAS_ROWS


def panel_bytes(rows: int, width: int) -> int:
    """Return how much memory the panels of some rows take; none where BLAS multiplies."""
    if not use_matrix_unit():
        return 0
    return -(-rows // PANEL) * -(-width // STEP) * STEP_BYTES + LINE_BYTES


def query_panels(rows: Float32Matrix) -> Panels:
    """Return the panels of the rows on the left of a product; none where BLAS multiplies.

    Parameters
    ----------
    rows : [m, D] float32
        Finite.
    """
    panels = np.empty(panel_bytes(*rows.shape), np.uint8)
    return _packed(rows, panels, False) if panels.size else panels


def gallery_panels(rows: Float32Matrix, memory: Panels) -> Panels:
    """Return the panels of the rows on the right of a product.

    Parameters
    ----------
    rows : [n, D] float32
        Finite; each row contiguous.
    memory : [`panel_bytes`] uint8
        To write them into.
    """
    return _packed(rows, memory, True)


def _packed(rows: Float32Matrix, memory: Panels, transposed: bool) -> Panels:
    panels = memory[-memory.ctypes.data % LINE_BYTES :]  # panels begin with a cache line
    _pack(rows, panels, transposed)
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


def multiply(queries: Panels, start: int, gallery: Panels, width: int, out: Float32Matrix) -> None:
    """Write the products of some queries and gallery rows, by the matrix unit.

    Parameters
    ----------
    queries, gallery : panels
    start : int
        The query that the first row of `out` belongs to.
    width : int
        D.
    out : [m, n] float32, written
        In C order.
    """
    scratch = np.empty((PANEL, PANEL), np.float32)
    _multiply(queries, start, gallery, -(-width // STEP), configuration(), scratch, out)


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
def _multiply(queries, start, gallery, steps, configuration, scratch, out):  # type: ignore[no-untyped-def]
    """As `multiply`: the queries stay in L2, and each panel of the gallery comes once.

    While one is multiplied with all queries, the next is brought closer, bit by bit.
    """
    m, n = out.shape
    size = steps * STEP_BYTES
    left, target, stride = queries.ctypes.data, out.ctypes.data, out.strides[0]
    first, last = start // PANEL, -(-(start + m) // PANEL)
    configure(configuration.ctypes.data)
    for column in range(0, n, PANEL):
        right = gallery.ctypes.data + column // PANEL * size
        for panel in range(first, last):
            row = panel * PANEL - start
            ahead = right + size + (panel - first) * steps * AHEAD_BYTES
            if row >= 0 and row + PANEL <= m and column + PANEL <= n:
                at = target + row * stride + column * 4
                multiply_panels(left + panel * size, right, steps, at, stride, ahead)
                continue
            at = scratch.ctypes.data
            multiply_panels(left + panel * size, right, steps, at, PANEL * 4, ahead)
            for r in range(max(row, 0), min(row + PANEL, m)):
                for c in range(column, min(column + PANEL, n)):
                    out[r, c] = scratch[r - row, c - column]
    release()
