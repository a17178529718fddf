"""The instructions of `matrix_unit` in plain loops, for processors without one.

They take the same arguments, addresses among them, and write the same bits. They are slow: they
are for tests of the digit product, and for those who look for an error in it.
"""

from __future__ import annotations

import numpy as np

from streameval.compilation import compiled
from streameval.distances.llvm import carray, pointer
from streameval.kernels.matrix_unit import (
    DIGITS,
    ITEM_STEP_BYTES,
    ITEMS,
    QUERIES,
    QUERY_STEP_BYTES,
    STEP,
    TILE_BYTES,
    TILE_ROWS,
)


@compiled
def pack_step(rows, stride, scales, target, apart, across, squares):  # type: ignore[no-untyped-def]
    """As `matrix_unit.pack_step`."""
    by = carray(pointer(scales), TILE_ROWS, np.float32)
    sums = carray(pointer(squares), (DIGITS - 1, TILE_ROWS, STEP // 4), np.int32)
    for row in range(TILE_ROWS):
        values = carray(pointer(rows + row * stride), STEP, np.float32)
        for column in range(STEP):
            biased = np.int64(np.rint(values[column] * by[row])) + 0x808080
            place = STEP * row + column
            if across:  # by fours
                place = STEP * (column // 4) + 4 * row + column % 4
            for digit in range(DIGITS):
                tile = carray(pointer(target + digit * apart), TILE_BYTES, np.int8)
                value = ((biased >> (8 * (DIGITS - 1 - digit))) & 0xFF) - 128
                tile[place] = value
                if digit:
                    sums[digit - 1, row, column // 4] += value * value


@compiled
def write_rows(sums, out, stride, by_query, by_item):  # type: ignore[no-untyped-def]
    """As `matrix_unit.write_rows`. In float64 each step is exact, then rounded once: an FMA."""
    totals = carray(pointer(sums), (DIGITS, QUERIES, ITEMS), np.int32)
    query_scale = carray(pointer(by_query), QUERIES, np.float32)
    item_scale = carray(pointer(by_item), ITEMS, np.float32)
    for row in range(QUERIES):
        products = carray(pointer(out + row * stride), ITEMS, np.float32)
        for item in range(ITEMS):
            high, middle, low = (
                np.float32(totals[0, row, item]),
                np.float32(totals[1, row, item]),
                np.float32(totals[2, row, item]),
            )
            total = np.float32(256.0 * middle + low)
            total = np.float32(65536.0 * high + total)
            products[item] = total * query_scale[row] * item_scale[item]


@compiled
def multiply_panels(  # type: ignore[no-untyped-def]
    queries, items, steps, sums, ahead, before, out, stride, by_query, by_item
):
    """As `matrix_unit.multiply_panels`; nothing is brought closer from `ahead`."""
    write_rows(before, out, stride, by_query, by_item)
    totals = carray(pointer(sums), (DIGITS, 2, TILE_ROWS, ITEMS), np.int32)
    totals[:] = 0
    left_kind, right_kind = (DIGITS, 2, TILE_ROWS, STEP), (DIGITS, STEP // 4, ITEMS, 4)
    rows = np.empty((DIGITS, ITEMS, STEP), np.int8)  # for loops that vectorise
    for step in range(steps):
        left = carray(pointer(queries + step * QUERY_STEP_BYTES), left_kind, np.int8)
        right = carray(pointer(items + step * ITEM_STEP_BYTES), right_kind, np.int8)
        for other in range(DIGITS):
            for item in range(ITEMS):
                for column in range(STEP):
                    rows[other, item, column] = right[other, column // 4, item, column % 4]
        for digit in range(DIGITS):
            for other in range(DIGITS - digit):
                _add_tile(left[digit], rows[other], totals[digit + other])


@compiled
def _add_tile(left, right, totals):  # type: ignore[no-untyped-def]
    """Add the products of a digit of queries and one of gallery rows."""
    for half in range(2):
        for row in range(TILE_ROWS):
            for item in range(ITEMS):
                total = np.int32(0)
                for column in range(STEP):
                    value = np.int32(left[half, row, column]) * np.int32(right[item, column])
                    total = np.int32(total + value)
                totals[half, row, item] += total
