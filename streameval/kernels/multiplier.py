"""Multipliers: what writes the float32 products of a block of queries with gallery rows.

A multiplier is made of the rows of a block of queries, once. With the rows of some columns, [n, D]
float32, finite and each contiguous, and with memory, [`item_bytes`] uint8, in use until the last
product is written, it gives a `Product`, which writes tiles. `chosen_way` is the one place that
says which: the processor's matrix unit, or its vectors of 16-bit words, where there are such, else
BLAS; or, where it is asked for, the matrix unit's digits in plain loops.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import llvmlite.binding
import numpy as np
import threadpoolctl

from streameval.errors import OptionError, warn
from streameval.kernels.few import LANES, multiply_few, roundings_of_few
from streameval.kernels.matrix_unit import (
    ITEMS,
    LINE_BYTES,
    QUERIES,
    QUERY_STEP_BYTES,
    STEP,
    configuration,
    is_native,
    supported,
)
from streameval.kernels.panels import MOST_COLUMNS, Panels, Unit, multiply, panels_of, roundings
from streameval.kernels.processor import AVX512, CORETYPE
from streameval.kernels.sieve import (
    LOOPS,
    NARROW_VECTORS,
    UNIT,
    VECTORS,
    Way,
    digit_bytes,
    panel_bytes,
)
from streameval.kernels.words import (
    NARROW_WORDS,
    PLAIN_WORDS,
    WIDE_WORDS,
    Instructions,
    Words,
    multiply_words_of,
    word_bytes,
)
from streameval.typing import ByteArray, Float32Array, FloatArray, IntArray

BEST_ROWS = {"blas": 1024, "words": 1024, "unit": 256, "digits": 256}  # queries of a tile
COUNTED_ROWS = {**BEST_ROWS, "words": 512}  # that is counted: of words it stays in L3 until then
FEW_ROWS = 16  # packing gallery rows for so few queries would take longer than multiplying
SLICE = 1024  # columns that BLAS adds up at most: each adds to the error that is to be assumed
SLICE_ITEMS = 2048  # gallery rows whose products are held beside those of the slices before
VARIABLE = "STREAMEVAL_PRODUCT"
HASWELL_FLOPS = 50e9  # a second of a thread, with OpenBLAS's kernels for Haswell: assumed
SHARE_LOST = 3 / 8  # of that time: with those for SkylakeX it is 1.6 times as fast (AMD Zen 5)
PACKED, COUNTED = 400e-9, 1.5e-9  # seconds of a row of 512 columns for the sieve, and of a pair
LEAST_LOST = 5.0  # seconds that are worth a warning


class Product(NamedTuple):
    """The products of a block of queries with the gallery rows of some columns.

    Attributes
    ----------
    roundings : [m] float64
        n of each query: its products differ from the exact ones by at most n u |x| |y|, with
        u = 2⁻²⁴. More exactly by γₙ |x| |y| of BLAS, which may add up in any order, where n is D
        (Higham, Accuracy and Stability of Numerical Algorithms, §3.1); of s slices of the columns,
        which are added up one after the other, those of a slice and s − 1.
    write : callable
        ``write(query, out)`` writes the products of m queries, ascending, [m, n] float32 in C
        order.
    coarse : bool
        Whether products by BLAS are closer.
    """

    roundings: FloatArray
    write: Callable[[IntArray, Float32Array], None]
    coarse: bool = False


def in_sequence(query: IntArray) -> IntArray | slice:
    """Return ascending numbers as a slice, where none is left out."""
    if len(query) and query[-1] - query[0] == len(query) - 1:
        return slice(int(query[0]), int(query[-1]) + 1)
    return query


Multiplier = Callable[[Float32Array, ByteArray], Product]


def blas_product(queries: Float32Array, items: Float32Array, memory: ByteArray) -> Product:
    """Return products in float32, by BLAS as NumPy calls it, or of a few queries by a loop."""
    width, some = queries.shape[1], len(queries) <= FEW_ROWS
    widest = _step(width, few=some)
    roundings = roundings_of_few(widest) if some else widest
    roundings += max(-(-width // widest), 1) - 1  # of slices that are added

    def write(query: IntArray, out: Float32Array) -> None:
        rows = queries[in_sequence(query)]
        few = len(rows) <= FEW_ROWS
        step = _step(width, few=few)
        together = SLICE_ITEMS if step < width else max(len(items), 1)
        multiplied = multiply_few if few else _by_blas
        for left in range(0, len(items), together):
            part = slice(left, left + together)
            _add_up(rows, items[part], step, multiplied, out[:, part])

    return Product(np.full(len(queries), float(roundings)), write)


def _step(width: int, *, few: bool) -> int:
    """Return the columns of a slice, of as many as each other; of few queries there are fewer.

    Then no product differs more from the exact one than BLAS's of slices of its own.
    """
    slices = -(-width // (LANES * SLICE if few else SLICE))
    return max(-(-width // max(slices, 1)), 1)


def _add_up(
    left: Float32Array,
    right: Float32Array,
    step: int,
    multiplied: Callable[[Float32Array, Float32Array, Float32Array], None],
    out: Float32Array,
) -> None:
    """Write the products of rows, slices of their columns added up."""
    multiplied(left[:, :step], right[:, :step], out)
    more = np.empty(out.shape, np.float32) if step < left.shape[1] else out
    for start in range(step, left.shape[1], step):
        part = slice(start, start + step)
        multiplied(left[:, part], right[:, part], more)
        out += more


def _by_blas(left: Float32Array, right: Float32Array, out: Float32Array) -> None:
    np.matmul(left, right.T, out=out)


def digit_product(queries: Panels, unit: Unit, items: Float32Array, memory: ByteArray) -> Product:
    """Return products of digits; panels of gallery rows are written to `memory`."""
    panels, width = panels_of(items, memory, ITEMS, unit), items.shape[1]

    def write(query: IntArray, out: Float32Array) -> None:
        own, start = in_sequence(query), 0
        left = queries
        if isinstance(own, slice):
            start = own.start
        else:
            left = queries.take(query, width)
        multiply(left, panels, unit, width, start, out)

    return Product(roundings(queries, panels), write)


def word_product(
    queries: Float32Array, words: Words, by: Instructions, items: Float32Array, memory: ByteArray
) -> Product:
    """Return products of words; of rows whose norm is too small to tell, those by BLAS."""
    panels, width = Words.of_items(items, memory, by), items.shape[1]
    lost = words.roundings(panels, width)
    if not np.isfinite(lost).all():
        return blas_product(queries, items, memory)

    def write(query: IntArray, out: Float32Array) -> None:
        multiply_words_of(words, query, panels, width, by, out)

    return Product(lost, write, coarse=True)


def choose_multiplier(queries: Float32Array) -> Multiplier:
    """Return what multiplies a block of queries, [m, D] float32; all of them finite."""
    rows, width = queries.shape
    if rows > FEW_ROWS and product_bytes(rows, width):
        if chosen_way() == "words":
            by = chosen_instructions()
            words = Words.of_queries(queries, by)
            if not words.told:
                return partial(blas_product, queries)
            return partial(word_product, queries, words, by)
        memory, unit = np.empty(product_bytes(rows, width), np.uint8), chosen_unit()
        return partial(digit_product, panels_of(queries, memory, QUERIES, unit), unit)
    return partial(blas_product, queries)


def chosen_way() -> str:
    """Return what multiplies: the matrix unit, or words, where there are the instructions; or BLAS.

    ``digits`` are the matrix unit's products in plain loops: the same bits, slowly, anywhere.
    ``words`` are multiplied in plain loops where there are no instructions for them.
    """
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted == "auto":
        wider = has_avx512() and not has_vnni()  # BLAS has wider vectors than words then
        return "unit" if supported() else "words" if has_avx2() and not wider else "blas"
    if wanted not in ("words", "blas", "digits"):
        raise OptionError(f"{VARIABLE} is {wanted!r}; expected auto, words, blas or digits")
    return wanted


def chosen_unit() -> Unit:
    """Return the matrix unit that multiplies digits; None of plain loops."""
    return configuration() if chosen_way() == "unit" else None


def chosen_instructions() -> Instructions:
    """Return what multiplies words."""
    return WIDE_WORDS if has_vnni() else NARROW_WORDS if has_avx2() else PLAIN_WORDS


def is_coarse() -> bool:
    """Tell whether products by BLAS may be closer than those of the multiplier that is chosen."""
    return chosen_way() == "words"


def chosen_sieve() -> Way | None:
    """Return what marks pairs: the matrix unit, vectors where BLAS multiplies, or plain loops.

    None where there are no instructions to multiply bytes.
    """
    vectors = VECTORS if has_vnni() else NARROW_VECTORS if has_avx2() else None
    return {"unit": UNIT, "words": vectors, "blas": vectors, "digits": LOOPS}[chosen_way()]


def sieve_of(width: int) -> Way | None:
    """Return what marks pairs of rows of a width; None where nothing does."""
    return chosen_sieve() if width <= MOST_COLUMNS else None


def item_bytes(rows: int, width: int) -> int:
    """Return how much memory gallery rows take for the multiplier, or for the sieve."""
    return max(product_bytes(rows, width), panel_bytes(rows, width) if sieve_of(width) else 0)


def gallery_row_seconds(count: IntArray, width: int) -> FloatArray:
    """Return about how long products of a gallery row with so many queries take, [n].

    Measured with one thread of a Sapphire Rapids, and of a Zen 3 where there is no AVX-512; what is
    counted doesn't depend on it.
    """
    start, each = 300e-9, 7e-9 if has_avx512() else 11e-9
    if chosen_way() == "unit":
        start, each = 450e-9, 2e-9
    elif chosen_way() == "words":
        start, each = 350e-9, chosen_instructions().share * each
    few = np.where(count > 0, 40e-9 + 18e-9 * count, 0)
    seconds = np.where(count > FEW_ROWS, start + each * count, few)
    scaled: FloatArray = seconds * (width / 512)
    return scaled


def worth_marking(count: int, others: int, width: int) -> bool:
    """Tell whether marks of so many queries are faster than products, counted beside others."""
    way = sieve_of(width)
    if way is None:
        return False
    marks = (PACKED + way.seconds * count) * (width / 512)
    products = gallery_row_seconds(np.array([others, others + count]), width)
    return bool(marks < products[1] - products[0] + COUNTED * count)


def slice_bytes(rows: int, items: int, width: int) -> int:
    """Return how much memory products of a slice of the columns take, for a tile."""
    sliced = _step(width, few=rows <= FEW_ROWS) < width
    return 4 * rows * min(items, SLICE_ITEMS) if sliced else 0


def query_bytes(rows: int, width: int) -> int:
    """Return how much memory queries take for the multiplier and for the sieve."""
    return product_bytes(rows, width) + (digit_bytes(rows, width) if sieve_of(width) else 0)


def product_bytes(rows: int, width: int) -> int:
    """Return how much memory rows take as the multiplier needs them; none of BLAS."""
    if chosen_way() == "blas" or width > MOST_COLUMNS:
        return 0
    if chosen_way() == "words":
        return word_bytes(rows, width)
    return -(-rows // QUERIES) * -(-width // STEP) * QUERY_STEP_BYTES + LINE_BYTES


def taken_bytes(rows: int, width: int) -> int:
    """Return how much memory copies of queries of a tile take, of which some are multiplied apart.

    Those by words, and those by BLAS.
    """
    return word_bytes(rows, width) + 4 * rows * width if chosen_way() == "words" else 0


def best_rows(*, counted: bool = False) -> int:
    """Return how many queries a tile is best of, or one that is counted next.

    BLAS packs gallery rows anew for each tile. The matrix unit keeps the queries' panels in L2.
    """
    return (COUNTED_ROWS if counted else BEST_ROWS)[chosen_way()]


@cache
def blas_kernels() -> str:
    """Return the processor that NumPy's OpenBLAS has its kernels for; "" of another BLAS."""
    for library in threadpoolctl.threadpool_info():
        if library["internal_api"] == "openblas" and "numpy" in library["filepath"]:
            return str(library.get("architecture", ""))
    return ""


@cache
def has_vnni() -> bool:
    """Tell whether this processor multiplies bytes by vectors of 512 bits."""
    features = llvmlite.binding.get_host_cpu_features()
    return is_native() and has_avx512() and bool(features.get("avx512vnni"))


@cache
def has_avx2() -> bool:
    """Tell whether this processor multiplies bytes by vectors of 256 bits."""
    return is_native() and bool(llvmlite.binding.get_host_cpu_features().get("avx2"))


@cache
def has_avx512() -> bool:
    """Tell whether this processor runs OpenBLAS's kernels for SkylakeX."""
    features = llvmlite.binding.get_host_cpu_features()
    return all(features.get(group) for group in AVX512)


def description() -> str:
    """Return what multiplies, for people."""
    blas = f"OpenBLAS, kernels for {blas_kernels()}" if blas_kernels() else "BLAS"
    return {
        "unit": "the processor's matrix unit (AMX), in three digits of 8 bits",
        "words": f"{chosen_instructions().text}, in words of 16 bits",
        "blas": blas,
        "digits": "plain loops, in three digits of 8 bits as by a matrix unit (slow, for tests)",
    }[chosen_way()]


def sieve_description(width: int) -> str:
    """Return what marks pairs, for people; "" where nothing does."""
    way = sieve_of(width)
    return f"one digit of {way.most.bit_length() + 1} bits, with {way.text}" if way else ""


def warn_of_slow_kernels(flops: float) -> None:
    """Warn, once a process, where a thread loses time by OpenBLAS's kernels for Haswell.

    OpenBLAS takes them for some processors with AVX-512, where those for SkylakeX run, too: see
    `processor.better_kernels`. Kernels that the user has chosen are left alone.

    Parameters
    ----------
    flops : float
        Floating-point operations of the matrix products of a thread.
    """
    slow = chosen_way() == "blas" and blas_kernels() in ("Haswell", "Zen") and has_avx512()
    lost = SHARE_LOST * flops / HASWELL_FLOPS
    if slow and lost > LEAST_LOST and CORETYPE not in os.environ:
        _warn_once()


@cache
def _warn_once() -> None:
    warn(
        f"OpenBLAS multiplies with kernels for {blas_kernels()}, and this processor has AVX-512: "
        f"with {CORETYPE}=SkylakeX in the environment, before Python starts, products are about "
        "1.6 times as fast"
    )
