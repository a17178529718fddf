"""Values of a tile that are of interest to their row or to their column, found in one look.

`limits` says which are.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.errors import TypingError

from streameval.compilation import compiled
from streameval.distances import llvm
from streameval.distances.llvm import trailing_zeros
from streameval.kernels.limits import is_wanted

BLOCK = 32  # values that a number of 32 bits marks


@llvm.intrinsic
def mark_row(typing_context, values, weight, offset, near, far, line, marks):  # type: ignore[no-untyped-def]
    """Mark the values of a row that are near enough, or far enough, for the row or the column.

    A value v, once weighted and offset, is marked where it is finite and v <= max(low, slope · near
    + before) or v >= min(high, slope · far + behind).

    Parameters
    ----------
    values, weight, offset, near, far : [n] float32 or float64, contiguous
        Without `weight`, None, values are offset alone.
    line : (slope, before, behind, low, high, top)
        Of the same dtype; what is finite is up to the last.
    marks : [>= n / 32] uint32, written
    """
    number, weighted = values.dtype, not isinstance(weight, types.NoneType)
    for row in (values, offset, near, far, *((weight,) if weighted else ())):
        if row.ndim != 1 or row.layout != "C" or row.dtype != number:
            raise TypingError(f"a row is {row}; all must be contiguous, of {number}")

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        def array(which: int) -> Any:
            return context.make_array(signature.args[which])(context, builder, args[which])

        def larger(one: Any, other: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", one, other), one, other)

        def smaller(one: Any, other: Any) -> Any:
            return builder.select(builder.fcmp_ordered("<", one, other), one, other)

        numbers = (builder.extract_value(args[5], at) for at in range(6))
        slope, before, behind, low, high, top = (
            llvm.spread(builder, one, BLOCK) for one in numbers
        )
        out = array(6).data

        def block(place: Any, mask: Any) -> None:
            def loaded(which: int) -> Any:
                return llvm.load(builder, BLOCK, array(which).data, place, mask)

            value = builder.fmul(loaded(0), loaded(1)) if weighted else loaded(0)
            value = builder.fadd(value, loaded(2))
            # Where a column's limit is no number, the row's holds.
            nearer = larger(builder.fadd(builder.fmul(slope, loaded(3)), before), low)
            further = smaller(builder.fadd(builder.fmul(slope, loaded(4)), behind), high)
            marked = builder.or_(
                builder.fcmp_ordered("<=", value, nearer),
                builder.fcmp_ordered(">=", value, further),
            )
            marked = builder.and_(marked, builder.fcmp_ordered("<=", value, top))
            marked = builder.bitcast(builder.and_(marked, mask), llvm.I32)
            builder.store(marked, builder.gep(out, [builder.udiv(place, llvm.I64(BLOCK))]))

        llvm.for_blocks(builder, builder.extract_value(array(0).shape, 0), BLOCK, block)
        return context.get_dummy_value()

    return types.void(values, weight, offset, near, far, line, marks), generate


@compiled
def list_both(rows, row, lines, near, far, marks, doubts, crowd, crowded):  # type: ignore[no-untyped-def]
    """List the marked values of a tile as doubts, until there is no room for a row more.

    Parameters
    ----------
    rows : Rows
    row : int
        The row to begin with.
    lines : [m, 6] of the values' dtype
        Of each row, as `mark_row`.
    near, far : [n] of that dtype
        Limits of columns.
    marks : [>= n / 32] uint32, scratch
    doubts : Doubts
        Of capacity n at least; written.
    crowd, crowded : int, [m] bool
        A row with more marked values is not listed, but noted.

    Returns
    -------
    the row to go on with (m where all are looked at), and how many doubts there are
    """
    tile, columns, filled = rows.values, rows.columns, 0
    blocks = (tile.shape[1] + BLOCK - 1) // BLOCK
    while row < tile.shape[0] and filled + tile.shape[1] <= len(doubts.query):
        offset, line = columns.offset[rows.offset[row]], lines[row]
        six = line[0], line[1], line[2], line[3], line[4], line[5]
        mark_row(tile[row], columns.weight, offset, near, far, six, marks)
        begin = filled
        for block in range(blocks):
            left = marks[block]
            while left != 0:
                doubts.query[filled] = rows.query[row]
                doubts.column[filled] = BLOCK * block + trailing_zeros(left)
                left &= left - 1
                filled += 1
        crowded[row] = filled - begin > crowd
        if crowded[row]:
            filled = begin
        row += 1
    return row, filled


@compiled
def choose(values, listed, row, lines, near, far):  # type: ignore[no-untyped-def]
    """Keep the listed pairs whose values are of interest, at the beginning; return how many.

    Parameters
    ----------
    values : [p] float
        Finite.
    listed : Doubts
        Written.
    row : [queries] int64
        The row of each query.
    lines, near, far
        As of `Limits`.
    """
    queries, columns, _ = listed
    filled = 0
    for t in range(len(values)):
        k = columns[t]
        if is_wanted(values[t], lines[row[queries[t]]], near[k], far[k]):
            queries[filled], columns[filled] = queries[t], k
            filled += 1
    return filled
