"""Products of a few queries, gallery rows as they lie: to pack them would take as long again.

Eight sums of vectors, of two queries and four gallery rows, stay in registers. Those of neighbours
are added up together, which takes as long as 64 columns.
"""

from __future__ import annotations

from typing import Any

from numba import types

from streameval.compilation import compiled
from streameval.distances import llvm

LANES = 8
_NEIGHBOURS = [[0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15]]  # of two vectors
_HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]


@llvm.intrinsic
def _products(typing_context, p, q, w, x, y, z):  # type: ignore[no-untyped-def]
    """Return the products of two rows with each of four, [8] float32; all as long as the first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows = llvm.arrays(context, builder, signature, args)
        nothing = llvm.vector(llvm.FLOAT, LANES, 0.0)
        queries, items = rows[:2], rows[2:]
        sums = [[llvm.alloca(builder, nothing) for _ in items] for _ in queries]

        def block(place: Any, mask: Any) -> None:
            own = [llvm.load(builder, LANES, row.data, place, mask) for row in items]
            for query, totals in zip(queries, sums, strict=True):
                given = llvm.load(builder, LANES, query.data, place, mask)
                for values, total in zip(own, totals, strict=True):
                    terms = given, values, builder.load(total)
                    name = f"llvm.fmuladd.v{LANES}f32"
                    builder.store(llvm.call(builder, name, *terms, returns=nothing.type), total)

        llvm.for_blocks(builder, builder.extract_value(rows[0].shape, 0), LANES, block)
        found: list[Any] = []
        for totals in sums:
            vectors = [builder.load(total) for total in totals]
            while len(vectors) > 1:
                pairs = zip(vectors[::2], vectors[1::2], strict=True)
                vectors = [_added(builder, *pair, _NEIGHBOURS) for pair in pairs]
            (both,) = vectors
            four = _added(builder, both, both, _HALVES)
            found += [builder.extract_element(four, llvm.I32(k)) for k in range(len(items))]
        return context.make_tuple(builder, signature.return_type, found)

    returns: Any = types.UniTuple(types.float32, LANES)  # type: ignore[no-untyped-call]
    return returns(p, q, w, x, y, z), generate


def _added(builder: Any, one: Any, other: Any, places: list[list[int]]) -> Any:
    """Return the sum of some lanes of two vectors, and others."""
    kinds = [llvm.vector(llvm.I32, len(own), own) for own in places]
    return builder.fadd(*(builder.shuffle_vector(one, other, kind) for kind in kinds))


def roundings_of_few(width: int) -> int:
    """Return n of `multiply_few`: a product differs by at most γₙ |x| |y| from the exact one.

    Each of eight sums has an eighth of the terms, and goes through three additions more. No more
    roundings count than there are terms that are not zeros.
    """
    return min(-(-width // LANES) + 3, max(width, 1))


@compiled
def multiply_few(queries, items, out):  # type: ignore[no-untyped-def]
    """Write the products of [m, D] and [n, D] float32, the columns of each side by side, [m, n]."""
    m, n = out.shape
    for j in range(0, n, 4):
        last = n - 1
        w, x = items[j], items[min(j + 1, last)]
        y, z = items[min(j + 2, last)], items[min(j + 3, last)]
        for i in range(0, m, 2):
            also = min(i + 1, m - 1)
            a, b, c, d, e, f, g, h = _products(queries[i], queries[also], w, x, y, z)
            if j + 4 <= n:
                out[i, j], out[i, j + 1], out[i, j + 2], out[i, j + 3] = a, b, c, d
                out[also, j], out[also, j + 1], out[also, j + 2], out[also, j + 3] = e, f, g, h
            else:
                for k in range(n - j):
                    out[i, j + k], out[also, j + k] = (a, b, c)[k], (e, f, g)[k]
