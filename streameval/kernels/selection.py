"""Selection: the values of a row that may be of interest, one after the other, and their cells.

Where positives alone are ranked, what is beyond the furthest of them and the nearest negative is
not counted. With vectors it takes a fraction of the time of counting a value to leave it out.
AVX-512 has an instruction that brings the values of a mask together. With AVX2 a table says, for
each mask, how lanes are to be permuted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types

from streameval.compilation import compiled
from streameval.distances import llvm
from streameval.kernels.cells import quantise
from streameval.kernels.grids import LAST, SAMPLED, place_of_sample
from streameval.kernels.multiplier import has_avx2, has_avx512
from streameval.kernels.tiles import greatest_finite, product, round_up
from streameval.typing import FloatingArray

BEYOND = 16  # values more that have to fit what is written
FEW = 0.6  # of the values of a row: more are counted as fast where they are
_CHUNK = 1024  # values listed at a time: a byte each stays in L1

_tuple: Any = types.Tuple


def selects() -> bool | None:
    """Return whether this processor selects by vectors; None where it is not worth it."""
    return has_avx2() or None


class Room(NamedTuple):
    """Memory for rows of n values.

    Attributes
    ----------
    values : [n + BEYOND] float32 or float64
    cells : [n + BEYOND] uint16
    every : [n + BEYOND] uint32
        0, 1, 2 and so on.
    chosen : [n + BEYOND] uint32
    """

    values: FloatingArray
    cells: npt.NDArray[np.uint16]
    every: npt.NDArray[np.uint32]
    chosen: npt.NDArray[np.uint32]


@compiled
def room_for_cells(n, like):  # type: ignore[no-untyped-def]
    """Return memory for rows of n values, of the dtype of an array."""
    size, every = n + BEYOND, np.arange(n + BEYOND).astype(np.uint32)
    cells, chosen = np.empty(size, np.uint16), np.empty(size, np.uint32)
    return Room(np.empty(size, like.dtype), cells, every, chosen)


@compiled
def cells_of_row(given, grid, limit, room, vectors):  # type: ignore[no-untyped-def]
    """Write the cells of a row's values, or of those up to a limit, where these are few.

    Parameters
    ----------
    given : (values, weight, offset)
    grid : (origin, scale, far)
        As of `cells.quantise`.
    limit
        Of the dtype of the values.
    room : Room
    vectors : True or None
        Whether values are selected: `selects`.

    Returns
    -------
    values, cells : [k]
        Of four, in the order of the row; +inf and `LAST` beyond the last value.
    places : [>= k] uint32
        Of each, in the row.
    lowest, odd
        As of `cells.quantise`.
    """
    (values, weight, offset), (origin, scale, far) = given, grid
    row, cells, every, chosen = room
    few = False
    if vectors is not None:
        few = few_up_to(limit, values, weight, offset)
    if few:
        count, odd = select(values, weight, offset, limit, row, chosen)
        lowest, _ = quantise(row[:count], None, None, origin, scale, far, row, cells)
    else:
        count = len(values)
        lowest, odd = quantise(values, weight, offset, origin, scale, far, row, cells)
    stop = count + -count % 4
    row[count:stop], cells[count:stop] = np.inf, LAST
    return row[:stop], cells[:stop], chosen if few else every, lowest, odd


@compiled
def limit_of(tied, band, reach, like):  # type: ignore[no-untyped-def]
    """Return up to where a row's values may be of interest, of the dtype of an array.

    Parameters
    ----------
    tied : [m] float64
        The levels of its edges, ascending.
    band, reach : float
        The query's nearest negative may be up to the latter; NaN and +inf where that is open.
    """
    if len(tied) and not tied[len(tied) - 1] + band <= reach:
        most = tied[len(tied) - 1] + band  # perhaps NaN, too
    else:
        most = reach
    return round_up(most if reach < np.inf else np.inf, like)


@compiled
def few_up_to(limit, values, weight, offset):  # type: ignore[no-untyped-def]
    """Tell by a sample whether few values of a row are up to a limit."""
    few = 0
    if not limit < np.inf:
        return False
    for s in range(4 * SAMPLED):
        k = place_of_sample(s, len(values))
        few += product(values, weight, k) + offset[k] <= limit
    return few <= FEW * 4 * SAMPLED


@compiled
def least_sampled(values, weight, offset):  # type: ignore[no-untyped-def]
    """Return the least of the values of a row that are looked at, float64; +inf of none."""
    least = np.inf
    for s in range(4 * SAMPLED):
        k = place_of_sample(s, len(values))
        least = min(least, np.float64(product(values, weight, k) + offset[k]))
    return least


Packing = Callable[[Any, Any, Any], list[Any]]
"""What brings the lanes of a mask together: of values, and of their places from the first on."""


def _wide_packing(builder: Any, lanes: int) -> Packing:
    """Return the instructions of vectors of 512 bits."""
    numbers = llvm.vector(llvm.I32, lanes, list(range(lanes)))

    def pack(value: Any, first: Any, mask: Any) -> list[Any]:
        packed = []
        for vector in (value, builder.add(llvm.spread(builder, first, lanes), numbers)):
            element = "i32" if vector.type.element == llvm.I32 else f"f{512 // lanes}"
            name = f"llvm.x86.avx512.mask.compress.v{lanes}{element}"
            given = vector, vector.type(None), mask
            packed.append(llvm.call(builder, name, *given, returns=vector.type))
        return packed

    return pack


def _narrow_packing(builder: Any, lanes: int) -> Packing:
    """Return those of vectors of 256 bits, with tables of masks."""
    eight = llvm.vector(llvm.I32, 8)
    tables = [_lanes_of_masks(builder, lanes, parts) for parts in (1, 8 // lanes)]

    def pack(value: Any, first: Any, mask: Any) -> list[Any]:
        number = builder.zext(builder.bitcast(mask, ir.IntType(lanes)), llvm.I64)
        places, order = (
            builder.load(builder.gep(table, [llvm.I64(0), number])) for table in tables
        )
        given = builder.bitcast(value, eight), order
        moved = llvm.call(builder, "llvm.x86.avx2.permd", *given, returns=eight)
        whole = builder.add(llvm.spread(builder, first, lanes), places)
        return [builder.bitcast(moved, value.type), whole]

    return pack


def _lanes_of_masks(builder: Any, lanes: int, parts: int) -> Any:
    """Return a table: the lanes of each mask, as the numbers of their parts; then zeros."""
    kind, rows = llvm.vector(llvm.I32, parts * lanes), []
    for mask in range(1 << lanes):
        chosen = [lane for lane in range(lanes) if mask >> lane & 1]
        numbers = [parts * lane + part for lane in chosen for part in range(parts)]
        rows.append(ir.Constant(kind, numbers + [0] * (kind.count - len(numbers))))
    whole = ir.Constant(ir.ArrayType(kind, len(rows)), rows)
    return llvm.global_constant(builder, f"lanes.{lanes}.{parts}", whole)


@llvm.intrinsic
def select(typing_context, values, weight, offset, limit, row, places):  # type: ignore[no-untyped-def]
    """Write the values of a row up to a limit, in order, and where they are.

    Parameters
    ----------
    values, weight, offset : [n] float32 or float64, contiguous
        As of `cells.quantise`.
    limit
        Of the same dtype.
    row : [>= n + BEYOND] of the same dtype, written
    places : [>= n + BEYOND] uint32, written
        Both are written beyond the last value that there is.

    Returns
    -------
    how many these are; and how many values are NaN or ±inf before the offset is added, which is
    looked at without `weight` only
    """
    number, weighted = values.dtype, not isinstance(weight, types.NoneType)
    kind = llvm.FLOAT if number == types.float32 else llvm.DOUBLE
    lanes = (512 if has_avx512() else 256) // number.bitwidth

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        def array(which: int) -> Any:
            return context.make_array(signature.args[which])(context, builder, args[which])

        zero, most = llvm.vector(kind, lanes, 0.0), llvm.spread(builder, args[3], lanes)
        pack = (_wide_packing if has_avx512() else _narrow_packing)(builder, lanes)
        found, odd = (llvm.alloca(builder, llvm.I64(0)) for _ in range(2))
        for count in (found, odd):
            builder.store(llvm.I64(0), count)

        def add_number(count: Any, mask: Any) -> None:
            bits = builder.bitcast(mask, ir.IntType(lanes))
            name = f"llvm.ctpop.i{lanes}"
            number = builder.zext(llvm.call(builder, name, bits, returns=bits.type), llvm.I64)
            builder.store(builder.add(builder.load(count), number), count)

        def block(place: Any, mask: Any) -> None:
            def loaded(which: int) -> Any:
                return llvm.load(builder, lanes, array(which).data, place, mask)

            value = loaded(0)
            if weighted:
                value = builder.fmul(value, loaded(1))
            else:
                finite = builder.fcmp_ordered("==", builder.fsub(value, value), zero)
                add_number(odd, builder.and_(mask, builder.not_(finite)))
            value = builder.fadd(value, loaded(2))
            within = builder.and_(mask, builder.fcmp_ordered("<=", value, most))
            packed = pack(value, builder.trunc(place, llvm.I32), within)
            for which, vector in zip((4, 5), packed, strict=True):
                target = builder.gep(array(which).data, [builder.load(found)])
                builder.store(vector, builder.bitcast(target, vector.type.as_pointer()), align=4)
            add_number(found, within)

        llvm.for_blocks(builder, builder.extract_value(array(0).shape, 0), lanes, block)
        results = [builder.load(count) for count in (found, odd)]
        return context.make_tuple(builder, signature.return_type, results)

    returns = _tuple((types.int64, types.int64))
    return returns(values, weight, offset, number, row, places), generate


@compiled
def list_values(row, weight, offset, low, high, most):  # type: ignore[no-untyped-def]
    """List the values of a row that are finite, and up to `low` or between `high` and `most`.

    Written so that it vectorises: first a byte a value, 0 or 1, then eight of them at a time.

    Parameters
    ----------
    row, weight, offset : [n] float32 or float64
        Values are ``row * weight + offset``; without `weight`, None, ``row + offset``.
    low, high, most : float64
        Rounded outwards.

    Returns
    -------
    positions of the values, ascending, uint32
    """
    positions, within = np.empty(row.shape[0] + 1, np.uint32), np.zeros(_CHUNK, np.uint8)
    eights, found = within.view(np.uint64), np.uint64(0)
    finite = greatest_finite(row)
    lowest, top = round_up(min(low, finite), row), round_up(min(most, finite), row)
    above = -round_up(-high, row)
    for left in range(0, row.shape[0], _CHUNK):
        right = min(left + _CHUNK, row.shape[0])
        for k in range(right - left):
            value = product(row, weight, left + k) + offset[left + k]
            within[k] = (value <= lowest) | ((value >= above) & (value <= top))
        within[right - left :] = 0
        for eight in range((right - left + 7) // 8):
            if eights[eight] != 0:
                for k in range(8 * eight, 8 * eight + 8):
                    positions[found] = left + k
                    found += np.uint64(within[k])
    return positions[: np.int64(found)]
