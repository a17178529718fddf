"""Vectors: sums of products of numbers of 8 or 16 bits (AVX-512 VNNI, or AVX2).

Four bytes of numbers of a query, spread over a register, are multiplied by four bytes of each of
the gallery rows that have a lane there, and added to as many sums of 32 bits. A *panel* is 32
gallery rows: the first four bytes of each, then the next; queries are rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from streameval.distances.llvm import I32, I64, alloca, rolled, spread, vector
from streameval.kernels.matrix_unit import at_offset

LANES = 16  # numbers of 32 bits in a register of 512 bits
LINE = 4 * LANES
ITEMS = 2 * LANES  # gallery rows of a panel
FOURS = 4 * ITEMS  # bytes of a panel that are multiplied by four of a query
HALVES = range(ITEMS // LANES)
WHOLE = vector(I32, LANES)
REGISTERS = range(2)  # of gallery rows, side by side


class Adder(NamedTuple):
    """How products are added up in registers.

    Attributes
    ----------
    lanes : int
        Sums in a register.
    queries : int
        As many as have sums in registers, two of each.
    fours : int
        Times four bytes in a round of the loop: addresses are added up once for them.
    joined : int
        Of them, those that are added up before they come to a sum.
    add : callable
        ``add(builder, total, fours, items)`` returns the sums with the products of four bytes of a
        query, or more, and those of the gallery rows.
    """

    lanes: int
    queries: int
    fours: int
    joined: int
    add: Callable[[Any, Any, list[Any], list[Any]], Any]

    @property
    def begins(self) -> range:
        """The gallery rows of a panel that queries begin with, each time they go over it."""
        return range(0, ITEMS, len(REGISTERS) * self.lanes)

    def places(self, builder: Any, kind: Any) -> list[list[Any]]:
        """Return memory for the sums of each query, which LLVM keeps in registers."""
        zeros = vector(kind, self.lanes, 0)
        return [[alloca(builder, zeros) for _ in REGISTERS] for _ in range(self.queries)]


def loaded(builder: Any, start: Any, kind: Any) -> list[Any]:
    """Return a number of each row of a panel, in two vectors."""
    return [builder.load(at_offset(builder, start, LINE * half, kind), align=4) for half in HALVES]


def add_products(
    builder: Any,
    adder: Adder,
    sums: list[list[Any]],
    rows: Any,
    stride: Any,
    items: Any,
    fours: Any,
) -> None:
    """Add products of queries and the gallery rows of a pass to their sums.

    Parameters
    ----------
    adder : Adder
    sums : [queries][registers]
        Where they are: see `Adder.places`.
    rows, items
        Addresses: of the first query, whose rows are `stride` bytes apart, and of the first four
        bytes of the first gallery row.
    fours
        How many times four bytes there are in a row, in whole rounds.
    """
    kind = vector(I32, adder.lanes)

    def load(start: Any, offset: int, kind: Any) -> Any:
        return builder.load(at_offset(builder, start, offset, kind), align=4)

    with rolled(builder, builder.udiv(fours, I64(adder.fours))) as loop:
        first = at_offset(builder, items, builder.mul(loop.index, I64(adder.fours * FOURS)))
        place = at_offset(builder, rows, builder.mul(loop.index, I64(adder.fours * 4)))
        addresses = [
            at_offset(builder, place, builder.mul(stride, I64(query))) for query in range(len(sums))
        ]
        for start in range(0, adder.fours, adder.joined):
            numbers = range(start, start + adder.joined)
            sizes = (4 * adder.lanes * register for register in REGISTERS)
            own_items = [
                [load(first, FOURS * four + size, kind) for four in numbers] for size in sizes
            ]
            for address, own in zip(addresses, sums, strict=True):
                given = (load(address, 4 * four, I32) for four in numbers)
                spreads = [spread(builder, four, adder.lanes) for four in given]
                for registers, total in zip(own_items, own, strict=True):
                    value = adder.add(builder, builder.load(total), spreads, registers)
                    builder.store(value, total)
