"""The vectors of 512 bits: sums of products of numbers of 8 or 16 bits (AVX-512 VNNI).

An instruction adds four bytes of numbers of a query, spread over a register, times four bytes of
each of 16 gallery rows, to 16 sums of 32 bits. A *panel* is 32 gallery rows: the first four bytes
of each, then the next; queries are rows.
"""

from __future__ import annotations

from typing import Any

from streameval.distances.llvm import I32, I64, call, rolled, spread, vector
from streameval.kernels.matrix_unit import at_offset

LANES = 16  # numbers of 32 bits in a register
LINE = 4 * LANES
ITEMS = 2 * LANES  # gallery rows of a panel
FOURS = 4 * ITEMS  # bytes of a panel that an instruction for each half takes
HALVES = range(ITEMS // LANES)
WHOLE = vector(I32, LANES)
ROUND = 4  # times four bytes in a round of the loop: addresses are added up once for them


def loaded(builder: Any, start: Any, kind: Any) -> list[Any]:
    """Return a number of each row of a panel, in two vectors."""
    return [builder.load(at_offset(builder, start, LINE * half, kind), align=4) for half in HALVES]


def add_products(
    builder: Any, name: str, sums: list[list[Any]], rows: Any, stride: Any, panel: Any, fours: Any
) -> None:
    """Add products of queries and a panel to their sums, which LLVM keeps in registers.

    Parameters
    ----------
    name : str
        Of the instruction.
    sums : [queries][halves]
        Where they are.
    rows, panel
        Addresses: of the first query, whose rows are `stride` bytes apart, and of the panel.
    fours
        How many times four bytes there are in a row, in whole rounds.
    """
    with rolled(builder, builder.udiv(fours, I64(ROUND))) as loop:
        items = at_offset(builder, panel, builder.mul(loop.index, I64(ROUND * FOURS)))
        place = at_offset(builder, rows, builder.mul(loop.index, I64(ROUND * 4)))
        addresses = [
            at_offset(builder, place, builder.mul(stride, I64(query))) for query in range(len(sums))
        ]
        for number in range(ROUND):
            halves = loaded(builder, at_offset(builder, items, number * FOURS), WHOLE)
            for address, own in zip(addresses, sums, strict=True):
                four = builder.load(at_offset(builder, address, 4 * number, I32))
                four = spread(builder, four, LANES)
                for half, total in zip(halves, own, strict=True):
                    given = builder.load(total), four, half
                    builder.store(call(builder, name, *given, returns=WHOLE), total)
