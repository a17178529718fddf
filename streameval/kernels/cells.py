"""Cells of a row of a tile: values to cells of a grid, and the counts of the cells' codes.

Values go to cells 32 at a time: as a loop, LLVM makes vectors of half the width of it, and takes
twice the time. What counting relies on: this is monotone in floating point too (subtract,
multiply, clamp and truncate each are), and an edge's band is quantised by the same operations
(`grids.cell_of`). A value in a cell before the band's first cell is therefore below the band, one
after the last cell above it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError

from streameval.compilation import compiled
from streameval.distances import llvm
from streameval.kernels.grids import ABOVE, LAST

BLOCK = 32  # values at a time; a bit each makes a number

_tuple: Any = types.Tuple


@llvm.intrinsic
def quantise(typing_context, values, weight, offset, origin, scale, far, row, cells):  # type: ignore[no-untyped-def]
    """Write ``values * weight + offset``, and the cell of each.

    Parameters
    ----------
    values, weight, offset : [n] float32 or float64, contiguous
        Without `weight`, None, values may be anything, and it is ``values + offset``; without
        both, nothing is to be written but cells.
    origin, scale, far
        Of the grid, of the same dtype.
    row : [>= n] of the same dtype, written
    cells : [>= n] uint16, written

    Returns
    -------
    the first cell with any value; and how many values are NaN or ±inf before the offset is added,
    which is looked at with an offset and no weight
    """
    number = values.dtype
    weighted, added = (not isinstance(given, types.NoneType) for given in (weight, offset))
    for row in [values, *[offset] * added, *[weight] * weighted]:
        if row.ndim != 1 or row.layout != "C" or row.dtype != number:
            raise TypingError(f"a row is {row}; all must be contiguous, of {number}")
    kind = llvm.FLOAT if number == types.float32 else llvm.DOUBLE

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        def array(which: int) -> Any:
            return context.make_array(signature.args[which])(context, builder, args[which])

        def constant(cell: int, element: Any = llvm.I32) -> Any:
            return llvm.vector(element, BLOCK, cell)

        start, steps, reach = (llvm.spread(builder, args[which], BLOCK) for which in (3, 4, 5))
        zero, above, last = (constant(cell, kind) for cell in (0, ABOVE, LAST))
        lowest, odd = llvm.alloca(builder, constant(LAST)), llvm.alloca(builder, constant(0))

        def block(place: Any, mask: Any) -> None:
            def loaded(which: int) -> Any:
                return llvm.load(builder, BLOCK, array(which).data, place, mask)

            value = loaded(0)
            if weighted:
                value = builder.fmul(value, loaded(1))
            elif added:
                finite = builder.fcmp_ordered("==", builder.fsub(value, value), zero)
                seen = builder.zext(builder.not_(finite), llvm.vector(llvm.I32, BLOCK))
                builder.store(builder.add(builder.load(odd), seen), odd)
            if added:
                value = builder.fadd(value, loaded(2))
                llvm.store(builder, value, array(6).data, place, mask)
            value = builder.fmul(builder.fsub(value, start), steps)
            value = builder.select(builder.fcmp_ordered(">", value, zero), value, zero)  # NaN too
            below = builder.select(builder.fcmp_ordered("<", value, above), value, above)
            below = builder.select(builder.fcmp_ordered("<=", below, reach), below, last)
            cell = builder.fptosi(below, llvm.vector(llvm.I32, BLOCK))
            narrow = builder.trunc(cell, llvm.vector(llvm.I16, BLOCK))
            llvm.store(builder, narrow, array(7).data, place, mask)
            cell = builder.select(mask, cell, constant(LAST))
            least = builder.load(lowest)
            less = builder.icmp_signed("<", cell, least)
            builder.store(builder.select(less, cell, least), lowest)

        llvm.for_blocks(builder, builder.extract_value(array(0).shape, 0), BLOCK, block)
        results = [
            llvm.call(
                builder,
                f"llvm.vector.reduce.{name}.v{BLOCK}i32",
                builder.load(kept),
                returns=llvm.I32,
            )
            for name, kept in (("smin", lowest), ("add", odd))
        ]
        return context.make_tuple(builder, signature.return_type, results)

    returns = _tuple((types.int32, types.int32))
    return returns(values, weight, offset, number, number, number, row, cells), generate


@compiled
def bin_row(cells, code, bins, fours, touched):  # type: ignore[no-untyped-def]
    """Count the codes of cells, and collect the touched ones; return how many these are.

    Parameters
    ----------
    cells : [4 n] uint16, contiguous
    code : [> cells] uint8 or uint16
        Odd where the cell may be touched.
    bins : [WAYS, codes] uint16 or uint32, added to
        Bins of 4 bytes count faster. Where codes are many, bins of 2 bytes stay in L1.
    fours : [n + 1] uint32, scratch
    touched : [4 n + 4] uint32, written
        Positions of the cells that an edge may touch, ascending.
    """
    first, second, third, fourth = bins[0], bins[1], bins[2], bins[3]
    one, found, odd = bins.dtype.type(1), np.uint64(0), np.uint64(1)
    # A number is kept only where `found` moves on behind it. Numbers are unsigned, as signed
    # indices are checked for being negative. Cells are taken by fours: a load or a store costs as
    # much as counting.
    second_cell, third_cell, fourth_cell = np.uint64(16), np.uint64(32), np.uint64(48)
    fours_of_cells, low = cells.view(np.uint64), np.uint64(0xFFFF)
    for four in range(fours_of_cells.shape[0]):
        some = fours_of_cells[four]
        a, b = np.uint64(code[some & low]), np.uint64(code[(some >> second_cell) & low])
        c = np.uint64(code[(some >> third_cell) & low])
        d = np.uint64(code[some >> fourth_cell])
        first[a] += one
        second[b] += one
        third[c] += one
        fourth[d] += one
        fours[found] = four
        found += (a | b | c | d) & odd
    count = np.uint64(0)
    for t in range(found):
        start = 4 * np.uint64(fours[t])
        for j in range(4):
            at = start + np.uint64(j)
            touched[count] = at
            count += np.uint64(code[cells[at]]) & odd
    return np.int64(count)


@llvm.intrinsic
def bits_up_to(typing_context, row, start, most):  # type: ignore[no-untyped-def]
    """Return a bit for each of 32 values of a contiguous row, from one on: whether it is up to one.

    0 of values beyond the row. `most` is float64, and below +inf.
    """
    kind = llvm.FLOAT if row.dtype == types.float32 else llvm.DOUBLE

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, args[0])
        places = llvm.spread(builder, args[1], BLOCK)
        numbers = llvm.vector(llvm.I64, BLOCK, list(range(BLOCK)))
        size = llvm.spread(builder, builder.extract_value(array.shape, 0), BLOCK)
        mask = builder.icmp_signed("<", builder.add(places, numbers), size)
        values = llvm.load(builder, BLOCK, array.data, args[1], mask)
        limit = llvm.spread(builder, args[2], BLOCK)
        if kind == llvm.FLOAT:
            values = builder.fpext(values, llvm.vector(llvm.DOUBLE, BLOCK))
        within = builder.and_(builder.fcmp_ordered("<=", values, limit), mask)
        return builder.bitcast(within, llvm.I32)

    return types.uint32(row, types.intp, types.float64), generate


@llvm.intrinsic
def least_of(typing_context, row):  # type: ignore[no-untyped-def]
    """Return the least value of a contiguous row without NaN; +inf of an empty one."""
    kind = llvm.FLOAT if row.dtype == types.float32 else llvm.DOUBLE

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, args[0])
        infinite = llvm.vector(kind, BLOCK, np.inf)
        least = llvm.alloca(builder, infinite)

        def block(place: Any, mask: Any) -> None:
            value, kept = llvm.load(builder, BLOCK, array.data, place, mask), builder.load(least)
            value = builder.select(mask, value, infinite)
            less = builder.fcmp_ordered("<", value, kept)
            builder.store(builder.select(less, value, kept), least)

        llvm.for_blocks(builder, builder.extract_value(array.shape, 0), BLOCK, block)
        name = f"llvm.vector.reduce.fmin.v{BLOCK}f{row.dtype.bitwidth}"
        return llvm.call(builder, name, builder.load(least), returns=kind)

    return row.dtype(row), generate
