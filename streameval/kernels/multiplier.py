"""Multipliers: what writes the float32 products of a block of queries with gallery rows.

A multiplier is made of the rows of a block of queries, once. With the rows of some columns, [n, D]
float32, finite and each contiguous, and with memory, [`item_bytes`] uint8, in use until the last
product is written, it gives a `Product`, which writes tiles. `choose_multiplier` is the one place
that says which: the processor's matrix unit where there is one, else BLAS.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import llvmlite.binding
import numpy as np
import threadpoolctl

from streameval.errors import OptionError
from streameval.kernels.matrix_unit import (
    ITEMS,
    LINE_BYTES,
    QUERIES,
    QUERY_STEP_BYTES,
    STEP,
    supported,
)
from streameval.kernels.panels import MOST_COLUMNS, Panels, multiply, panels_of, roundings
from streameval.typing import ByteArray, Float32Array

BLAS_ROWS, UNIT_ROWS = 1024, 256
FEW_ROWS = 16  # packing gallery rows for so few queries would take longer than multiplying
VARIABLE = "STREAMEVAL_PRODUCT"


class Product(NamedTuple):
    """The products of a block of queries with the gallery rows of some columns.

    Attributes
    ----------
    roundings : float
        n: a product differs from the exact one by at most n u |x| |y|, u = 2⁻²⁴. More exactly
        by γₙ |x| |y| of BLAS, which may add up in any order, where n is D (Higham, Accuracy and
        Stability of Numerical Algorithms, §3.1).
    write : callable
        ``write(start, out)`` writes the products of m queries, from a query on, [m, n] float32 in C
        order.
    """

    roundings: float
    write: Callable[[int, Float32Array], None]


Multiplier = Callable[[Float32Array, ByteArray], Product]


def blas_product(queries: Float32Array, items: Float32Array, memory: ByteArray) -> Product:
    """Return products by BLAS, as NumPy calls it; gallery rows are taken as they are.

    OpenBLAS is twice as fast where few are on the right, and as many as its kernel is wide.
    """

    def write(start: int, out: Float32Array) -> None:
        rows = queries[start : start + len(out)]
        if len(queries) > FEW_ROWS:
            np.matmul(rows, items.T, out=out)
            return
        padded = np.zeros((FEW_ROWS, queries.shape[1]), np.float32)
        padded[: len(out)] = rows
        out[...] = np.matmul(items, padded.T)[:, : len(out)].T

    return Product(float(queries.shape[1]), write)


def unit_product(queries: Panels, items: Float32Array, memory: ByteArray) -> Product:
    """Return products by the matrix unit; panels of gallery rows are written to `memory`."""
    panels = panels_of(items, memory, ITEMS)
    write = partial(multiply, queries, panels, items.shape[1])
    return Product(roundings(queries, panels), write)


def choose_multiplier(queries: Float32Array) -> Multiplier:
    """Return what multiplies a block of queries, [m, D] float32; all of them finite."""
    rows, width = queries.shape
    if rows > FEW_ROWS and item_bytes(rows, width):
        memory = np.empty(item_bytes(rows, width), np.uint8)
        return partial(unit_product, panels_of(queries, memory, QUERIES))
    return partial(blas_product, queries)


def use_matrix_unit() -> bool:
    """Tell whether products are the matrix unit's: where there is one, and nobody forbids it."""
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in ("auto", "blas"):
        raise OptionError(f"{VARIABLE} is {wanted!r}; expected auto or blas")
    return wanted == "auto" and supported()


def item_bytes(rows: int, width: int) -> int:
    """Return how much memory rows take as the multiplier needs them; none of BLAS."""
    if not use_matrix_unit() or width > MOST_COLUMNS:
        return 0
    return -(-rows // QUERIES) * -(-width // STEP) * QUERY_STEP_BYTES + LINE_BYTES


def best_rows() -> int:
    """Return how many queries a tile is best of.

    BLAS packs gallery rows anew for each tile; the matrix unit keeps the queries' panels in L2.
    """
    return UNIT_ROWS if use_matrix_unit() else BLAS_ROWS


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
        return "the processor's matrix unit (AMX), in three digits of 8 bits"
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
