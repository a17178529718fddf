"""Marks of pairs, from rows in one digit of 8 bits: by a matrix unit, by vectors, in plain loops.

Each of the ways multiplies rows of whole numbers, and compares what their sums say with a limit
a query while they are at hand: a bit a pair is written, and no sum. `sieve` says what the numbers
are, and what the bits tell.

A *panel* is 32 gallery rows. It begins with a number of 32 bits and three float32 of each (`bias`,
`weight`, `near` and `far`); then come four columns of each, and four more, [D / 4, 32, 4] int8. Of
each query there is a *record* of 32 bytes: the address of a row of offsets, its scale, and five
limits, slope, before, behind, low and high. A pair's value is, in float32,

    v = (sum − bias) · weight · scale + offset

and the pair is marked where v <= low; or, where high is less than +inf, as `limits` says. Where the
offset is NaN it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.core import cgutils

from streameval.compilation import compiled
from streameval.distances.llvm import (
    FLOAT,
    I8,
    I16,
    I32,
    I64,
    alloca,
    call,
    carray,
    clear,
    for_blocks,
    halved,
    load,
    pointer,
    spread,
    store,
    vector,
)
from streameval.kernels.limits import is_wanted
from streameval.kernels.matrix_unit import STEP, TILE_ROWS, at_offset, instruction
from streameval.kernels.vector_unit import (
    FOURS,
    HALVES,
    ITEMS,
    LANES,
    LINE,
    WHOLE,
    Adder,
    add_products,
    loaded,
)

QUERIES = 32  # that the matrix unit takes at a time
HEAD = 16 * ITEMS  # bytes of its biases, weights and limits
RECORD = 32  # bytes of a query's record
SUMS = 4 * QUERIES * ITEMS  # bytes of the sums of some queries and a panel

_floats = vector(FLOAT, LANES)


@instruction("anaaa")
def write_digits(builder, row, width, scale, digits, sums):  # type: ignore[no-untyped-def]
    """Write the whole numbers that a row makes, and their sums.

    All but `width` are addresses: of float32 numbers, of what each is multiplied by, of the
    int8 to write, and of three float32: the sums of the numbers, of their squares, and of the
    squares of what rounding took off.
    """
    kind = vector(FLOAT, STEP)
    by = spread(builder, builder.load(at_offset(builder, scale, 0, FLOAT)), STEP)
    totals = [alloca(builder, vector(FLOAT, STEP, 0.0)) for _ in range(3)]
    for total in totals:
        builder.store(vector(FLOAT, STEP, 0.0), total)
    numbers = builder.bitcast(row, FLOAT.as_pointer())

    def write(place: Any, mask: Any) -> None:
        scaled = builder.fmul(load(builder, STEP, numbers, place, mask), by)
        whole = call(builder, f"llvm.rint.v{STEP}f32", scaled, returns=kind)
        lost = builder.fsub(scaled, whole)
        terms = whole, builder.fmul(whole, whole), builder.fmul(lost, lost)
        for total, term in zip(totals, terms, strict=True):
            builder.store(builder.fadd(builder.load(total), term), total)
        store(builder, builder.fptosi(whole, vector(I8, STEP)), digits, place, mask)

    for_blocks(builder, width, STEP, write)
    for number, total in enumerate(totals):
        target = at_offset(builder, sums, 4 * number, FLOAT)
        builder.store(halved(builder, builder.load(total)), target)


def _comparison(
    builder: Any, panel: Any, records: Any, shift: Any, marks: Any, apart: Any
) -> Callable[[Any, dict[int, Any]], None]:
    """Return what compares the sums of a query, by its number and half a panel each.

    It writes the 16 bits of each half.
    """
    biases = loaded(builder, panel, WHOLE)
    weights, near, far = (
        loaded(builder, at_offset(builder, panel, place * HEAD // 4), _floats)
        for place in (1, 2, 3)
    )

    def chosen(relation: str, one: Any, other: Any) -> Any:
        return builder.select(builder.fcmp_ordered(relation, one, other), one, other)

    def compare(query: Any, sums: dict[int, Any]) -> None:
        record = at_offset(builder, records, builder.mul(query, I64(RECORD)))
        address = builder.add(builder.load(at_offset(builder, record, 0, I64)), shift)
        offsets = loaded(builder, builder.inttoptr(address, I8.as_pointer()), _floats)
        single = [
            builder.load(at_offset(builder, record, place, FLOAT)) for place in range(8, RECORD, 4)
        ]
        scale, slope, before, behind, low, high = (spread(builder, one, LANES) for one in single)
        target = at_offset(builder, marks, builder.mul(query, apart))
        values = {}
        for half, total in sums.items():
            number = builder.sitofp(builder.sub(total, biases[half]), _floats)
            value = builder.fmul(builder.fmul(number, weights[half]), scale)
            values[half] = builder.fadd(value, offsets[half])

        def write(half: int, marked: Any) -> None:
            bits = builder.bitcast(marked, I16)
            builder.store(bits, at_offset(builder, target, 2 * half, I16), align=2)

        both = builder.fcmp_ordered("<", single[5], FLOAT(math.inf))
        with builder.if_else(both, likely=False) as (two, one):
            with two:
                for half, value in values.items():
                    nearer = builder.fadd(builder.fmul(slope, near[half]), before)
                    further = builder.fadd(builder.fmul(slope, far[half]), behind)
                    within = builder.fcmp_ordered("<=", value, chosen(">", nearer, low))
                    beyond = builder.fcmp_ordered(">=", value, chosen("<", further, high))
                    write(half, builder.or_(within, beyond))
            with one:
                for half, value in values.items():
                    write(half, builder.fcmp_ordered("<=", value, low))

    return compare


def _of_sums(builder: Any, sums: Any, compare: Callable[[Any, dict[int, Any]], None]) -> Any:
    """Return what compares a query's sums that were stored."""

    def compare_stored(query: Any) -> None:
        own = at_offset(builder, sums, builder.mul(query, I64(4 * ITEMS)))
        compare(query, dict(enumerate(loaded(builder, own, WHOLE))))

    return compare_stored


@instruction("aaanan")
def compare_sums(builder, sums, panel, records, shift, marks, apart):  # type: ignore[no-untyped-def]
    """Write the marks of 32 queries and a panel, of the sums that were stored.

    `shift` is how far, in bytes, the panel's offsets lie behind the address in a record; `apart`
    how far the marks of a query are from those of the one before.
    """
    compare = _comparison(builder, panel, records, shift, marks, apart)
    write = _of_sums(builder, sums, compare)
    with cgutils.for_range(builder, I64(QUERIES)) as loop:
        write(loop.index)


@instruction("ananaaaanan")
def multiply_and_compare(  # type: ignore[no-untyped-def]
    builder, queries, stride, items, steps, sums, before, panel, records, shift, marks, apart
):
    """Store the sums of 32 queries and a panel by the matrix unit; mark the pairs before.

    What follows `before` is as of `compare_sums`, of the block before: vector instructions that
    find time between those of the unit. Tiles 0 to 3 add up, 4 and 5 hold queries, 6 and 7
    gallery rows.
    """
    compare = _comparison(builder, panel, records, shift, marks, apart)
    write = _of_sums(builder, before, compare)
    rows = builder.sdiv(builder.add(steps, I64(QUERIES - 1)), steps)  # compared in each step
    below = builder.mul(stride, I64(TILE_ROWS))
    for tile in range(4):
        call(builder, "llvm.x86.tilezero", I8(tile))
    first = at_offset(builder, items, HEAD)
    with cgutils.for_range(builder, steps) as loop:
        own = at_offset(builder, queries, builder.mul(loop.index, I64(STEP)))
        other = at_offset(builder, first, builder.mul(loop.index, I64(STEP * ITEMS)))
        call(builder, "llvm.x86.tileloaddt164", I8(4), own, stride)
        for half in HALVES:
            source = at_offset(builder, other, half * LINE)
            call(builder, "llvm.x86.tileloadd64", I8(6 + half), source, I64(FOURS))
            call(builder, "llvm.x86.tdpbusd", I8(half), I8(4), I8(6 + half))
        call(builder, "llvm.x86.tileloaddt164", I8(5), at_offset(builder, own, below), stride)
        for half in HALVES:
            call(builder, "llvm.x86.tdpbusd", I8(2 + half), I8(5), I8(6 + half))
        begin = builder.mul(loop.index, rows)
        left = builder.sub(I64(QUERIES), begin)
        fewer = builder.icmp_signed("<", left, rows)
        with cgutils.for_range(builder, builder.select(fewer, left, rows)) as inner:
            write(builder.add(begin, inner.index))
    for tile in range(4):
        place = tile // 2 * TILE_ROWS * 4 * ITEMS + tile % 2 * LINE
        target = at_offset(builder, sums, place)
        call(builder, "llvm.x86.tilestored64", I8(tile), target, I64(4 * ITEMS))


def _add_wide(builder: Any, total: Any, fours: list[Any], items: list[Any]) -> Any:
    """Add products of bytes by vectors of 512 bits."""
    return call(builder, "llvm.x86.avx512.vpdpbusd.512", total, *fours, *items, returns=WHOLE)


def _add_narrow(builder: Any, total: Any, fours: list[Any], items: list[Any]) -> Any:
    """Add products of eight columns, of numbers of 7 bits: sums of four products fit in 16."""
    shorts, bytes_ = vector(I16, LANES), vector(I8, 2 * LANES)
    one, other = (
        call(
            builder,
            "llvm.x86.avx2.pmadd.ub.sw",
            *(builder.bitcast(value, bytes_) for value in pair),
            returns=shorts,
        )
        for pair in zip(fours, items, strict=True)
    )
    ones, name = vector(I16, LANES, 1), "llvm.x86.avx2.pmadd.wd"
    eight = call(builder, name, builder.add(one, other), ones, returns=total.type)
    return builder.add(total, eight)


WIDE = Adder(LANES, queries=12, fours=4, joined=1, add=_add_wide)
NARROW = Adder(LANES // 2, queries=4, fours=2, joined=2, add=_add_narrow)


@instruction("anananann")
def mark_wide(  # type: ignore[no-untyped-def]
    builder, queries, stride, panel, fours, records, shift, marks, apart, count
):
    """Mark the pairs of queries and a panel by vectors of 512 bits (AVX-512 VNNI)."""
    given = queries, stride, panel, fours, records, shift, marks, apart, count
    _mark(builder, WIDE, given)


@instruction("anananann")
def mark_narrow(  # type: ignore[no-untyped-def]
    builder, queries, stride, panel, fours, records, shift, marks, apart, count
):
    """Mark the pairs of queries and a panel by vectors of 256 bits (AVX2)."""
    given = queries, stride, panel, fours, records, shift, marks, apart, count
    _mark(builder, NARROW, given)


def _mark(builder: Any, adder: Adder, given: Sequence[Any]) -> None:
    """Mark the pairs of queries and a panel, some queries at a time.

    What is given are the addresses of the first query and how far rows are apart, of the panel and
    how many times four bytes a row has, and what `mark_plainly` has, too.
    """
    queries, stride, panel, fours, records, shift, marks, apart, count = given
    sums, halves = adder.places(builder, I32), vector(I32, LANES, list(range(LANES)))
    compare = _comparison(builder, panel, records, shift, marks, apart)
    first = at_offset(builder, panel, HEAD)
    with _groups(builder, count, adder.queries) as start:
        own_rows = at_offset(builder, queries, builder.mul(start, stride))
        for begin in adder.begins:
            clear(builder, sums)
            items = at_offset(builder, first, 4 * begin)
            add_products(builder, adder, sums, own_rows, stride, items, fours)
            for query, own in enumerate(sums):
                totals = [builder.load(total) for total in own]
                if adder.lanes < LANES:
                    totals = [builder.shuffle_vector(*totals, halves)]
                of_half = dict(enumerate(totals, begin // LANES))
                compare(builder.add(start, I64(query)), of_half)


@contextmanager
def _groups(builder: Any, count: Any, size: int) -> Iterator[Any]:
    """Write a loop over so many queries, some at a time; give the first."""
    groups = builder.udiv(builder.add(count, I64(size - 1)), I64(size))
    with cgutils.for_range(builder, groups) as loop:
        yield builder.mul(loop.index, I64(size))


@compiled
def mark_plainly(queries, stride, panel, fours, records, shift, marks, apart, count):  # type: ignore[no-untyped-def]
    """Mark the pairs of some queries and a panel: the same bits, slowly."""
    bias = carray(pointer(panel), ITEMS, np.int32)
    floats = carray(pointer(panel), (4, ITEMS), np.float32)
    weight, near, far = floats[1], floats[2], floats[3]
    rows = carray(pointer(panel + HEAD), (fours, ITEMS, 4), np.int8)
    for query in range(count):
        own = carray(pointer(queries + query * stride), (fours, 4), np.uint8)
        record = carray(pointer(records + query * RECORD), 8, np.float32)
        address = carray(pointer(records + query * RECORD), 1, np.int64)[0]
        offset = carray(pointer(address + shift), ITEMS, np.float32)
        out = carray(pointer(marks + query * apart), 1, np.uint32)
        bits = np.uint32(0)
        for item in range(ITEMS):
            total = np.int32(0)
            for four in range(fours):
                for column in range(4):
                    total += np.int32(own[four, column]) * np.int32(rows[four, item, column])
            value = np.float32(total - bias[item]) * weight[item]
            value = np.float32(np.float32(value * record[2]) + offset[item])
            if is_wanted(value, record[3:], near[item], far[item]):
                bits |= np.uint32(1) << np.uint32(item)
        out[0] = bits
