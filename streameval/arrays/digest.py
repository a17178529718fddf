"""Digests of what is read, which add up: those of blocks to that of the array.

The digest of an array is a sum over its values: the bits of a value, times a multiplier of its
column, times a multiplier of its row, modulo 2⁶⁴ (multilinear hashing: Lemire and Kaser, "Strongly
universal string hashing is fast", 2014). So it is the same however the array is cut into blocks,
and whoever reads them. A value that changes is always seen; of changes of several values, one in
2³² or fewer is missed. It tells accidents, not forgeries.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from streameval.arrays.array import Array, blocks
from streameval.arrays.witness import MODULUS
from streameval.compilation import compiled
from streameval.distances import llvm
from streameval.typing import AnyArray, IntArray, Span

PIECE_BYTES = 4 << 20  # read again at a time, or a chunk
DigestArray = npt.NDArray[np.uint64]

_SEGMENT = 1024  # words that share a multiplier, times one of their own
_BLOCK = 16  # words multiplied together
_COLUMNS = np.uint64(1 << 63)  # multipliers of columns are others than those of rows
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint32}


@compiled
def _multiplier(number):  # type: ignore[no-untyped-def]
    """Return an odd number that looks drawn at random (SplitMix64: Steele et al., 2014)."""
    bits = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31)) | np.uint64(1)


def _dots_of(count: int) -> Any:
    """Return what sums the products of each of some rows of words with multipliers, as uint64.

    Two products of 32 bits in each 64: as a loop, LLVM widens every word first. No row is shorter
    than the multipliers.
    """

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = llvm.arrays(context, builder, signature, args)
        pairs, words = llvm.vector(llvm.I64, _BLOCK // 2), llvm.vector(llvm.I32, _BLOCK)
        low, half = (llvm.vector(llvm.I64, _BLOCK // 2, value) for value in (2**32 - 1, 32))
        sums = [llvm.alloca(builder, llvm.vector(llvm.I64, _BLOCK // 2, 0)) for _ in range(count)]

        def block(place: Any, mask: Any) -> None:
            def halves(array: Any) -> tuple[Any, Any]:
                loaded = llvm.load(builder, _BLOCK, array.data, place, mask)
                wide = loaded if loaded.type == words else builder.zext(loaded, words)
                both = builder.bitcast(wide, pairs)
                return builder.and_(both, low), builder.lshr(both, half)

            even, odd = halves(arrays[0])
            for array, kept in zip(arrays[1:], sums, strict=True):
                first, second = halves(array)
                added = builder.add(builder.mul(first, even), builder.mul(second, odd))
                builder.store(builder.add(builder.load(kept), added), kept)

        llvm.for_blocks(builder, builder.extract_value(arrays[0].shape, 0), _BLOCK, block)
        name = f"llvm.vector.reduce.add.v{_BLOCK // 2}i64"
        totals = [llvm.call(builder, name, builder.load(kept), returns=llvm.I64) for kept in sums]
        return context.make_tuple(builder, signature.return_type, totals)

    returns: Any = types.UniTuple(types.uint64, count)  # type: ignore[no-untyped-call]
    return lambda *given: (returns(*given), generate)


@llvm.intrinsic
def _dots(typing_context, times, a, b, c, d):  # type: ignore[no-untyped-def]
    """Return the sums of four rows of words: see `_dots_of`."""
    return _dots_of(4)(times, a, b, c, d)


@llvm.intrinsic
def _dot(typing_context, times, row):  # type: ignore[no-untyped-def]
    """Return the sum of a row of words: see `_dots_of`."""
    return _dots_of(1)(times, row)


@compiled
def add_digests(words, first, own, out):  # type: ignore[no-untyped-def]
    """Add the digest of each row of words, the first of which has a number: see `of_rows`.

    Four rows at a time share the multipliers, and keep the memory busy: 1.7 times as fast as one.
    A few words, as labels have, are taken one column after the other: 6 times as fast.
    """
    rows, size = words.shape
    if size < _BLOCK // 2:
        for left in range(size):
            segment, at = divmod(first + left, _SEGMENT)
            factor = np.uint64(own[at]) * _multiplier(_COLUMNS + np.uint64(segment))
            for row in range(rows):
                out[row] += np.uint64(words[row, left]) * factor
        return
    for row in range(0, rows, 4):
        left = 0
        while left < size:
            segment, at = divmod(first + left, _SEGMENT)
            count = min(_SEGMENT - at, size - left)
            times, times_all = own[at : at + count], _multiplier(_COLUMNS + np.uint64(segment))
            if row + 4 <= rows:
                a, b, c, d = _dots(
                    times,
                    words[row, left:],
                    words[row + 1, left:],
                    words[row + 2, left:],
                    words[row + 3, left:],
                )
                out[row] += a * times_all
                out[row + 1] += b * times_all
                out[row + 2] += c * times_all
                out[row + 3] += d * times_all
            else:
                for last in range(row, rows):
                    out[last] += _dot(times, words[last, left:])[0] * times_all
            left += count


@compiled
def _sum(digests, rows):  # type: ignore[no-untyped-def]
    """Return the sum of the digests of rows, each times the multiplier of its number."""
    total = np.uint64(0)
    for i in range(len(rows)):
        total += digests[i] * _multiplier(rows[i])
    return total


@cache
def own_multipliers() -> npt.NDArray[np.uint32]:
    """Return the multiplier of each word of a segment, of 32 bits: a product takes 64."""
    numbers = range(int(_COLUMNS) - _SEGMENT, int(_COLUMNS))
    bits = np.array([_multiplier(np.uint64(number)) for number in numbers], np.uint64)
    return (bits >> np.uint64(32)).astype(np.uint32) | np.uint32(1)


def of_rows(block: AnyArray, first_column: int = 0) -> DigestArray:
    """Return the digest of each row of a block, [m] uint64; the same wherever the row is.

    Parameters
    ----------
    block : [m] or [m, n] array of numbers
    first_column : int
        Number of its first column in the array.
    """
    table = block.reshape(len(block), -1)
    if table.strides[1] != table.dtype.itemsize:
        table = np.ascontiguousarray(table)
    words, out = words_of(table), np.zeros(len(table), np.uint64)
    add_digests(words, first_word(table.dtype, first_column), own_multipliers(), out)
    return out


def words_of(table: AnyArray) -> AnyArray:
    """Return the values of a matrix, whose rows are in one piece each, as words."""
    return table.view(_WORDS[table.dtype.itemsize])


def first_word(dtype: np.dtype[Any], column: int) -> int:
    """Return the number of the first word of a column."""
    return column * max(dtype.itemsize // 4, 1)


def total(digests: DigestArray, rows: IntArray) -> int:
    """Return the digest of some rows of an array, from those of each and their numbers."""
    return int(_sum(digests, rows))


def of_block(array: Array, rows: Span, columns: Span) -> int:
    """Return the digest of a block of an array, read again by pieces along its chunks."""
    chunk, width = (*array.chunks, 1)[:2], (*array.shape, 1)[1]
    step, left = [min(chunk[0], array.shape[0]), min(chunk[1], width)], PIECE_BYTES
    left //= max(math.prod(step) * array.dtype.itemsize, 1)
    for axis, size in ((1, width), (0, array.shape[0])):  # whole rows first
        times = max(min(left, -(-size // max(step[axis], 1))), 1)
        step[axis], left = max(step[axis] * times, 1), left // times
    found = 0
    for own, across in blocks((rows, columns), tuple(step)):
        values = array.look((own, across)[: len(array.shape)])
        found += total(of_rows(values, across[0]), np.arange(*own))
    return found % MODULUS


def of_array(array: Array) -> int:
    """Return the digest of an array, all of which is read."""
    return of_block(array, (0, array.shape[0]), (0, math.prod(array.shape[1:])))
