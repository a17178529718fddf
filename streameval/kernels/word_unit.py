"""Products of words by vectors (AVX-512 VNNI, AVX2), through LLVM, and in plain loops: see `words`.

Panels are of 32 gallery rows, [D / 2, 32, 2] int16; queries are rows. The plain loops take the same
arguments, addresses among them, and write the same products of the same words, slowly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numba.core import cgutils

from streameval.compilation import compiled
from streameval.distances import llvm
from streameval.distances.llvm import (
    FLOAT,
    I16,
    I32,
    I64,
    alloca,
    call,
    carray,
    pointer,
    spread,
    vector,
)
from streameval.kernels.matrix_unit import LINE_BYTES, at_offset, instruction, transposed
from streameval.kernels.vector_unit import FOURS, ITEMS, LANES, WHOLE, Adder, add_products

SLICE = 32  # columns whose products are added up without rounding
COLUMNS = 32  # packed together: a register of words
ROOT = float(np.float32(math.sqrt(0.5)))

_slice = vector(FLOAT, SLICE)


def _add_wide(builder: Any, total: Any, fours: list[Any], items: list[Any]) -> Any:
    """Add products of pairs of words by vectors of 512 bits.

    No sum overflows, so that none is saturated: `vpdpwssd` is the same, but LLVM makes two
    instructions of it for many processors (https://github.com/llvm/llvm-project/issues/84182).
    """
    return call(builder, "llvm.x86.avx512.vpdpwssds.512", total, *fours, *items, returns=WHOLE)


def _add_narrow(builder: Any, total: Any, fours: list[Any], items: list[Any]) -> Any:
    """Add products of pairs of words by vectors of 256 bits."""
    words = (builder.bitcast(value, vector(I16, LANES)) for value in (*fours, *items))
    return builder.add(total, call(builder, "llvm.x86.avx2.pmadd.wd", *words, returns=total.type))


# As many queries as have their sums with a panel, of words and of slices, in registers; with
# vectors of 256 bits, the sums of slices are in memory.
WIDE = Adder(LANES, queries=7, fours=4, joined=1, add=_add_wide)
NARROW = Adder(LANES // 2, queries=4, fours=2, joined=1, add=_add_narrow)


@instruction("aana")
def give_signs(builder, row, signs, width, out):  # type: ignore[no-untyped-def]
    """Write a row of float32 times the sign of each column, in whole slices, then zeros."""
    row, signs = (builder.bitcast(one, FLOAT.as_pointer()) for one in (row, signs))

    def write(place: Any, mask: Any) -> None:
        given = [llvm.load(builder, SLICE, one, place, mask) for one in (row, signs)]
        address = at_offset(builder, out, builder.mul(place, I64(4)), _slice)
        builder.store(builder.fmul(*given), address, align=4)

    llvm.for_blocks(builder, width, SLICE, write)


@instruction("aa")
def mix_slices(builder, first, second):  # type: ignore[no-untyped-def]
    """Replace two slices of float32 by their sum and their difference, times `ROOT`."""
    places = [at_offset(builder, one, 0, _slice) for one in (first, second)]
    one, other = (builder.load(place, align=4) for place in places)
    root = vector(FLOAT, SLICE, ROOT)
    for change, place in zip((builder.fadd, builder.fsub), places, strict=True):
        builder.store(builder.fmul(change(one, other), root), place, align=4)


@instruction("ana")
def measure(builder, row, width, out):  # type: ignore[no-untyped-def]
    """Write three float32 of a row.

    The greatest sum of squares of a slice, the sum of all squares, and the greatest magnitude.
    """
    kind, numbers = vector(FLOAT, SLICE), builder.bitcast(row, FLOAT.as_pointer())
    totals = [alloca(builder, FLOAT(0.0)), alloca(builder, FLOAT(0.0))]
    greatest = alloca(builder, vector(FLOAT, SLICE, 0.0))
    for total in (*totals, greatest):
        builder.store(total.type.pointee(None), total)

    def more(one: Any, other: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", one, other), one, other)

    def look(place: Any, mask: Any) -> None:
        values = llvm.load(builder, SLICE, numbers, place, mask)
        own = llvm.halved(builder, builder.fmul(values, values))
        builder.store(more(own, builder.load(totals[0])), totals[0])
        builder.store(builder.fadd(own, builder.load(totals[1])), totals[1])
        size = call(builder, f"llvm.fabs.v{SLICE}f32", values, returns=kind)
        builder.store(more(size, builder.load(greatest)), greatest)

    llvm.for_blocks(builder, width, SLICE, look)
    name = f"llvm.vector.reduce.fmax.v{SLICE}f32"
    most = call(builder, name, builder.load(greatest), returns=FLOAT)
    for number, value in enumerate((*map(builder.load, totals), most)):
        builder.store(value, at_offset(builder, out, 4 * number, FLOAT))


@instruction("anaanba")
def pack_words(builder, rows, stride, scales, target, apart, across, squares):  # type: ignore[no-untyped-def]
    """Write 16 rows of 32 columns, `apart` bytes from each other; or, across, each pair of columns.

    To `squares`, [16, 32] float32, those of what rounding takes off are added.
    """
    kind = vector(FLOAT, COLUMNS)
    written = []
    for row in range(LANES):
        address = at_offset(builder, rows, builder.mul(stride, I64(row)), kind)
        scale = builder.load(at_offset(builder, scales, 4 * row, FLOAT), align=4)
        scaled = builder.fmul(builder.load(address, align=4), spread(builder, scale, COLUMNS))
        whole = call(builder, f"llvm.rint.v{COLUMNS}f32", scaled, returns=kind)
        lost = builder.fsub(scaled, whole)
        address = at_offset(builder, squares, 4 * COLUMNS * row, kind)
        total = builder.fadd(builder.load(address, align=4), builder.fmul(lost, lost))
        builder.store(total, address, align=4)
        numbers = builder.trunc(builder.fptosi(whole, vector(I32, COLUMNS)), vector(I16, COLUMNS))
        written.append(builder.bitcast(numbers, WHOLE))
    with builder.if_else(across) as (then, otherwise):
        for branch, change in ((then, True), (otherwise, False)):
            with branch:
                for number, words in enumerate(transposed(builder, written) if change else written):
                    address = at_offset(builder, target, builder.mul(apart, I64(number)), WHOLE)
                    builder.store(words, address, align=LINE_BYTES)


@instruction("anananaann")
def multiply_widely(  # type: ignore[no-untyped-def]
    builder, queries, stride, panel, slices, out, apart, by_query, by_item, rows, columns
):
    """Write products by vectors of 512 bits (AVX-512 VNNI): see `_multiply`."""
    given, written = (
        (queries, stride, panel, slices),
        (out, apart, by_query, by_item, rows, columns),
    )
    _multiply(builder, WIDE, given, written)


@instruction("anananaann")
def multiply_narrowly(  # type: ignore[no-untyped-def]
    builder, queries, stride, panel, slices, out, apart, by_query, by_item, rows, columns
):
    """Write products by vectors of 256 bits (AVX2): see `_multiply`."""
    given, written = (
        (queries, stride, panel, slices),
        (out, apart, by_query, by_item, rows, columns),
    )
    _multiply(builder, NARROW, given, written)


def _multiply(builder: Any, adder: Adder, given: Sequence[Any], written: Sequence[Any]) -> None:
    """Write the products of some queries and columns of a panel.

    Parameters
    ----------
    adder : Adder
    given : queries, stride, panel, slices
        Addresses of the first query, whose rows are `stride` bytes apart, and of the panel; and how
        many slices a row has.
    written : out, apart, by_query, by_item, rows, columns
        Addresses of the first product, rows of which are `apart` bytes apart, and of the scales;
        and how many queries and columns there are.
    """
    queries, stride, panel, slices = given
    totals, sums = (adder.places(builder, kind) for kind in (I32, FLOAT))
    for begin in adder.begins:
        llvm.clear(builder, sums)
        items = at_offset(builder, panel, 4 * begin)
        with cgutils.for_range(builder, slices) as loop:
            llvm.clear(builder, totals)
            first = at_offset(builder, items, builder.mul(loop.index, I64(SLICE // 2 * FOURS)))
            left = at_offset(builder, queries, builder.mul(loop.index, I64(2 * SLICE)))
            add_products(builder, adder, totals, left, stride, first, I64(SLICE // 2))
            for total, whole in zip(chain(*sums), chain(*totals), strict=True):
                value = builder.sitofp(builder.load(whole), total.type.pointee)
                builder.store(builder.fadd(builder.load(total), value), total)
        _write_products(builder, sums, begin, written)


def _write_products(
    builder: Any, sums: list[list[Any]], begin: int, written: Sequence[Any]
) -> None:
    """Write what slices add up to, scaled, of the columns from one on that there are."""
    out, apart, by_query, by_item, rows, columns = written
    size = sum(own.type.pointee.count for own in sums[0])
    every = builder.icmp_signed(">=", columns, I64(begin + size))
    numbers = vector(I64, size, list(range(begin, begin + size)))
    there = builder.icmp_signed("<", numbers, spread(builder, columns, size))
    kind, lanes = vector(FLOAT, size), vector(I32, size, list(range(size)))
    scales = builder.load(at_offset(builder, by_item, 4 * begin, kind), align=4)
    for query, own in enumerate(sums):
        with builder.if_then(builder.icmp_signed("<", I64(query), rows)):
            scale = builder.load(at_offset(builder, by_query, 4 * query, FLOAT), align=4)
            value = builder.shuffle_vector(*map(builder.load, own), lanes)
            value = builder.fmul(builder.fmul(value, scales), spread(builder, scale, size))
            row = at_offset(builder, out, builder.mul(apart, I64(query)), FLOAT)
            row = builder.gep(row, [I64(begin)])
            with builder.if_else(every, likely=True) as (all_there, some):
                with all_there:
                    builder.store(value, builder.bitcast(row, kind.as_pointer()), align=4)
                with some:
                    llvm.store(builder, value, row, I64(0), there)


@compiled
def measure_plainly(row, width, out):  # type: ignore[no-untyped-def]
    """As `measure`; the sums, and so the words, may differ by a rounding."""
    numbers, three = carray(pointer(row), width, np.float32), carray(pointer(out), 3, np.float32)
    three[:] = 0
    for first in range(0, width, SLICE):
        own = np.float32(0)
        for value in numbers[first : first + SLICE]:
            own += value * value
            three[2] = max(three[2], abs(value))
        three[0] = max(three[0], own)
        three[1] += own


@compiled
def pack_plainly(rows, stride, scales, target, apart, across, squares):  # type: ignore[no-untyped-def]
    """As `pack_words`."""
    by = carray(pointer(scales), LANES, np.float32)
    lost = carray(pointer(squares), (LANES, COLUMNS), np.float32)
    for row in range(LANES):
        values = carray(pointer(rows + row * stride), COLUMNS, np.float32)
        for column in range(COLUMNS):
            scaled = np.float32(values[column] * by[row])
            whole = np.rint(scaled)
            lost[row, column] += np.float32(np.float32(scaled - whole) * np.float32(scaled - whole))
            place = target + row * apart + 2 * column
            if across:
                place = target + column // 2 * apart + 4 * row + 2 * (column % 2)
            carray(pointer(place), 1, np.int16)[0] = np.int16(whole)


@compiled
def multiply_plainly(  # type: ignore[no-untyped-def]
    queries, stride, panel, slices, out, apart, by_query, by_item, rows, columns
):
    """Write the same in plain loops."""
    scale = carray(pointer(by_query), rows, np.float32)
    item_scale = carray(pointer(by_item), columns, np.float32)
    pairs = carray(pointer(panel), (slices * SLICE // 2, ITEMS, 2), np.int16)
    for query in range(rows):
        own = carray(pointer(queries + query * stride), (slices * SLICE // 2, 2), np.int16)
        values = carray(pointer(out + query * apart), columns, np.float32)
        for item in range(columns):
            total = np.float32(0)
            for number in range(slices):
                added = np.int32(0)
                for pair in range(number * SLICE // 2, (number + 1) * SLICE // 2):
                    for word in range(2):
                        added += np.int32(own[pair, word]) * np.int32(pairs[pair, item, word])
                total = np.float32(total + np.float32(added))
            values[item] = np.float32(np.float32(total * item_scale[item]) * scale[query])
