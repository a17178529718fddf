"""Words: float32 rows in whole numbers of 16 bits, for products by vectors (AVX-512 VNNI, AVX2).

With VNNI, an instruction adds up the products of 32 pairs of words in 16 sums of 32 bits, in the
time of 16 products of float32; with AVX2, two instructions do so for half as many. A row x is taken
as c X, with X whole numbers that are so small that the sum of any *slice* of 32 columns fits in 32
bits: no slice of X is longer than 46,303 (Cauchy and Schwarz). So the sum of a slice is without
error; sums of slices are added up in float32.

    x·y  =  c d Σ X_s·Y_s  +  error

The longest slice decides how fine c is, so rows are *mixed* first, which makes slices about as
long as each other whatever the columns are: numbers get signs, and pairs of slices become their
sum and difference, over √2, until each has a share of all. That is one orthogonal matrix, so that
products stay what they are but for roundings (a randomised Hadamard transform; Ailon and Chazelle,
2009). Of 512 columns in order of their size, as of principal components, the first of 16 slices is
0.6 as long as the row; mixed, the longest is 0.25 to 0.37 of it, as of any other columns.

The error is known from the rows, as of `panels`. It is some three times that of a float32 sum of
512 columns, and depends little on the width; a product takes half as long, or three quarters.

*Panels* hold 32 gallery rows, two columns of each and two more: [D / 2, 32, 2] int16. Queries are
rows. Both are of whole slices; rows are zeros beyond their columns before they are mixed.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.kernels.matrix_unit import LINE_BYTES
from streameval.kernels.panels import LEAST_SQUARED
from streameval.kernels.vector_unit import FOURS, ITEMS, LANES
from streameval.kernels.word_unit import (
    COLUMNS,
    NARROW,
    SLICE,
    WIDE,
    give_signs,
    measure,
    measure_plainly,
    mix_slices,
    multiply_narrowly,
    multiply_plainly,
    multiply_widely,
    pack_plainly,
    pack_words,
)
from streameval.typing import ByteArray, Float32Array, FloatArray, IntArray

LONGEST = 46_300.0  # of a slice of whole numbers, before rounding adds half of a root of 32
MOST = 32_767.0
MIXED = 2.0**-18  # of a row's length: more than mixing changes, 2.3 u a step of 10 at most
BEHIND = max(WIDE.queries, NARROW.queries)  # rows of zeros, that are multiplied with the last


class Instructions(NamedTuple):
    """What multiplies words.

    Attributes
    ----------
    text : str
        For people.
    together : int
        Queries that are multiplied at a time.
    near : int
        Bytes of panels that are multiplied with all queries before the next: they stay in L2.
    share : float
        Of the time of a product by BLAS on such a processor. Measured; nothing that is counted
        depends on it.
    vectors, wide : True or None
        Whether there are vectors, and of 512 bits: kernels are compiled for one of them.
    """

    text: str
    together: int
    near: int
    share: float
    vectors: bool | None = None
    wide: bool | None = None


WIDE_WORDS = Instructions("vectors (AVX-512 VNNI)", WIDE.queries, 3 << 17, 0.55, True, True)
NARROW_WORDS = Instructions("vectors (AVX2)", NARROW.queries, 3 << 16, 0.75, True)
PLAIN_WORDS = Instructions("plain loops (slow)", WIDE.queries, 3 << 17, 0.55)


class Words(NamedTuple):
    """Rows in words, and what they leave out.

    Attributes
    ----------
    words : [bytes] uint8
        Of panels; or of queries, with `BEHIND` rows of zeros behind them.
    scale : [n] float32
        c; of whole panels, 0 beyond the rows that there are.
    lost : [n] float64
        Bounds on the norm of x − c X by that of the row, x being what mixing has written; +inf
        where the norm is too small to tell.
    """

    words: ByteArray
    scale: Float32Array
    lost: FloatArray

    @property
    def told(self) -> bool:
        """Whether all bounds are finite."""
        return bool(np.isfinite(self.lost).all())

    @classmethod
    def of_queries(cls, rows: Float32Array, by: Instructions) -> Words:
        """Return the words of finite rows, [m, D]."""
        memory = np.zeros(word_bytes(*rows.shape), np.uint8)
        words = memory[-memory.ctypes.data % LINE_BYTES :]
        return cls(words, *_packed(rows, words, by, panel=1))

    @classmethod
    def of_items(cls, rows: Float32Array, memory: ByteArray, by: Instructions) -> Words:
        """Return the panels of finite rows, [n, D], written to memory."""
        words = memory[-memory.ctypes.data % LINE_BYTES :]
        return cls(words, *_packed(rows, words, by, panel=ITEMS))

    def roundings(self, items: Words, width: int) -> FloatArray:
        """Return n of each query: products differ by at most n u |x| |y| from the exact ones.

        u is 2⁻²⁴. With e and f the bounds of both rows, what the words leave out is at most
        e + f + e f; and each sum of a slice is rounded once, added to others, and scaled twice.
        A step of mixing rounds each row twice, and takes 1/2 as ROOT², 0.6 u off: 5 u of a product.
        +inf of all where a norm is too small to tell.
        """
        e, f = self.lost, float(items.lost.max(initial=0.0))
        if not (self.told and items.told):
            return np.full(len(e), np.inf)
        slices = padded(width) // SLICE
        rounded = 1.01 * (slices + 3 + 5 * steps_of(slices)) * (1 + e) * (1 + f)
        bounds: FloatArray = (e + f + e * f) * 2.0**24 + rounded
        return bounds


def row_bytes(width: int) -> int:
    """Return how far rows of queries are apart: never a power of two, as lines of L1 would be."""
    return 2 * padded(width) + LINE_BYTES


def padded(width: int) -> int:
    """Return the columns of whole slices."""
    return max(-(-width // SLICE), 1) * SLICE


def steps_of(slices: int) -> int:
    """Return how many steps mix so many slices."""
    return (slices - 1).bit_length()


@cache
def signs_of(width: int) -> Float32Array:
    """Return the sign of each column, [D]: 1 or −1, as random ones are."""
    return np.random.default_rng(0).choice(np.array([-1, 1], np.float32), width)


def word_bytes(rows: int, width: int) -> int:
    """Return how much memory rows take in words, on either side of a product."""
    return (rows + ITEMS) * row_bytes(width) + LINE_BYTES


def multiply_words_of(
    queries: Words,
    query: IntArray,
    items: Words,
    width: int,
    by: Instructions,
    out: Float32Array,
) -> None:
    """Write the products of some queries, ascending, with gallery rows, [m, n] in C order."""
    stride, start = row_bytes(width), int(query[0]) if len(query) else 0
    words, scale = queries.words[start * stride :], queries.scale[start:]
    if len(query) and query[-1] - start != len(query) - 1:
        rows = queries.words[: len(queries.scale) * stride].reshape(-1, stride)
        memory = np.zeros((len(query) + BEHIND) * stride + LINE_BYTES, np.uint8)
        words = memory[-memory.ctypes.data % LINE_BYTES :]
        taken = words[: len(query) * stride].reshape(-1, stride)
        np.take(rows, query, axis=0, out=taken, mode="clip")
        scale = queries.scale[query]
    blocks = by.together, by.near
    _multiply(words, scale, items, stride, blocks, by.vectors, by.wide, out)


def _packed(
    rows: Float32Array, words: ByteArray, by: Instructions, panel: int
) -> tuple[Float32Array, FloatArray]:
    """Write rows in words; return what each is to be multiplied by, and what it has lost."""
    scale = np.zeros(-(-len(rows) // panel) * panel, np.float32)
    lost = np.zeros(len(rows))
    signs = signs_of(rows.shape[1])
    _pack(rows, signs, words, padded(rows.shape[1]), scale, lost, panel > 1, by.vectors)
    return scale, lost


@compiled
def mix(row, width, signs, slices, out):  # type: ignore[no-untyped-def]
    """Write a row, mixed, in so many slices; all but numbers are addresses."""
    give_signs(row, signs, width, out)
    apart = 1
    while apart < slices:
        for first in range(slices - apart):
            if first & apart == 0:
                mix_slices(out + 4 * SLICE * first, out + 4 * SLICE * (first + apart))
        apart *= 2


@compiled
def _pack(rows, signs, words, size, scale, lost, across, vectors):  # type: ignore[no-untyped-def]
    """Write words; `size` is the columns of a row, in whole slices."""
    n, mixed = len(rows), np.zeros((LANES, size), np.float32)
    by, squares = np.empty(LANES, np.float32), np.empty((LANES, COLUMNS), np.float32)
    three = np.empty(3, np.float32)
    source, stride, target = mixed.ctypes.data, mixed.strides[0], words.ctypes.data
    given, given_stride, by_sign = rows.ctypes.data, rows.strides[0], signs.ctypes.data
    out, to_scale, added = three.ctypes.data, by.ctypes.data, squares.ctypes.data
    whole = len(scale) if across else -(-n // LANES) * LANES
    for first in range(0, whole, LANES):
        count = max(min(n - first, LANES), 0)
        by[:], squares[:], mixed[count:] = 0, 0, 0
        for r in range(count):
            at = source + r * stride
            mix(given + (first + r) * given_stride, rows.shape[1], by_sign, size // SLICE, at)
            if vectors is None:
                measure_plainly(at, size, out)
            else:
                measure(at, size, out)
            longest = np.sqrt(np.float64(three[0]) * (1 + SLICE * 2.0**-23))
            squared = np.float64(three[1]) * (1 - (size + SLICE) * 2.0**-23) * (1 - 2 * MIXED)
            if squared >= LEAST_SQUARED:
                by[r] = np.float32(min(LONGEST / longest, MOST / np.float64(three[2])))
                scale[first + r] = np.float32(1 / np.float64(by[r]))
                lost[first + r] = np.sqrt(squared) * by[r]
            else:  # +inf, but of zeros
                lost[first + r] = 0.0 if three[2] == 0 else -1.0
        for left in range(0, size, COLUMNS):
            apart = 2 * size + LINE_BYTES
            to = target + first * apart + 2 * left
            if across:
                to = target + first // ITEMS * ITEMS * 2 * size + left // 2 * FOURS
                to, apart = to + first % ITEMS * 4, FOURS
            if vectors is None:
                pack_plainly(source + 4 * left, stride, to_scale, to, apart, across, added)
            else:
                pack_words(source + 4 * left, stride, to_scale, to, apart, across, added)
        for r in range(count):
            length, total = lost[first + r], np.float64(0)
            for column in range(COLUMNS):
                total += squares[r, column]
            if length > 0:  # two roundings more of each number
                more = (1 + 2 * MIXED) * (1 + size * 2.0**-23)
                lost[first + r] = np.sqrt(total * more) / length + 3 * 2.0**-24
            else:
                lost[first + r] = np.inf if length < 0 else 0.0


@compiled
def _multiply(words, scale, items, stride, blocks, vectors, wide, out):  # type: ignore[no-untyped-def]
    """As `multiply_words_of`: some panels, which stay in L2, with all queries, then the next."""
    (m, n), (panels, item_scale, _), (together, near) = out.shape, items, blocks
    queries, by_query, target = words.ctypes.data, scale.ctypes.data, out.ctypes.data
    apart, slices = out.strides[0], (stride - LINE_BYTES) // (2 * SLICE)
    size = 2 * SLICE * slices  # of a gallery row
    step = max(near // (ITEMS * size), 1) * ITEMS
    for start in range(0, n, step):
        for top in range(0, m, together):
            rows, by_row = min(m - top, together), by_query + 4 * top
            for left in range(start, min(start + step, n), ITEMS):
                by_item, columns = item_scale.ctypes.data + 4 * left, min(n - left, ITEMS)
                to, panel = target + top * apart + 4 * left, panels.ctypes.data + left * size
                left_side = queries + top * stride, stride, panel, slices
                written = to, apart, by_row, by_item, rows, columns
                if vectors is None:
                    multiply_plainly(*left_side, *written)
                elif wide is None:
                    multiply_narrowly(*left_side, *written)
                else:
                    multiply_widely(*left_side, *written)
