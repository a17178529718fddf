"""What is read of some arrays while it is witnessed, and whether it is read alike again.

`witnessed` is a context: what its thread reads of the arrays in it is noted, by digests, and
nothing is kept of the values.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import ChangedError
from streameval.typing import AnyArray, BoolArray, IntArray, Span

MODULUS = 1 << 64  # of digests

if TYPE_CHECKING:
    from streameval.arrays.array import Array, Spans
    from streameval.arrays.digest import DigestArray

_here = threading.local()

Block = tuple[str, Span, Span]  # the input's name; rows; columns


@dataclass(eq=False)
class Readings:
    """Digests of what has been read of inputs.

    Attributes
    ----------
    blocks : dict of (str, (int, int), (int, int)) to int
        Of blocks: the input's name, rows and columns; of an array with one axis, columns 0:1.
    rows : dict of str to ([n] int64, [n] uint64)
        Of rows that were read by themselves, ascending, each once: their numbers and digests.
    """

    blocks: dict[Block, int] = field(default_factory=dict)
    rows: dict[str, tuple[IntArray, DigestArray]] = field(default_factory=dict)

    def add(self, other: Readings) -> None:
        """Add what has been read elsewhere.

        Raises
        ------
        ChangedError
            If the same was not read alike.
        """
        for block, found in other.blocks.items():
            if self.blocks.setdefault(block, found) != found:
                name, (start, stop), _ = block
                raise read_otherwise(name, f"rows {start}:{stop}")
        for name, (rows, digests) in other.rows.items():
            known, own = self.rows.get(name, (rows[:0], digests[:0]))
            new = ~check_rows(name, (known, own), rows, digests)
            if new.any():
                rows, digests = rows[new], digests[new]
                at, last = np.searchsorted(known, [rows[0], rows[-1]])
                at = np.searchsorted(known, rows) if at < last else at  # some lie between them
                known, own = np.insert(known, at, rows), np.insert(own, at, digests)
            self.rows[name] = known, own

    def joined(self) -> Readings:
        """Return the same with neighbouring blocks as one."""
        joined: dict[Block, int] = {}
        last: Block | None = None
        for block in sorted(self.blocks, key=lambda block: (block[0], block[2], block[1])):
            name, rows, columns = block
            found = self.blocks[block]
            if last is not None and (last[0], last[2], last[1][1]) == (name, columns, rows[0]):
                rows = last[1][0], rows[1]
                found = (found + joined.pop(last)) % MODULUS
            last = name, rows, columns
            joined[last] = found
        return Readings(joined, self.rows)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the same as arrays of numbers; see `of`."""
        names = sorted({block[0] for block in self.blocks} | self.rows.keys())
        blocks = [(names.index(name), *rows, *columns) for name, rows, columns in self.blocks]
        arrays: dict[str, AnyArray] = {
            "names": np.frombuffer(json.dumps(names).encode(), np.uint8),
            "blocks": np.array(blocks, np.int64).reshape(-1, 5),
            "digests": np.array(list(self.blocks.values()), np.uint64),
        }
        for name, (rows, digests) in self.rows.items():
            index = names.index(name)
            arrays |= {f"rows {index}": rows, f"digests {index}": digests}
        return arrays

    @classmethod
    def of(cls, arrays: Mapping[str, AnyArray]) -> Readings:
        """Return what `arrays` has returned."""
        names = json.loads(arrays["names"].tobytes())
        blocks: dict[Block, int] = {}
        for (index, *spans), found in zip(
            arrays["blocks"].tolist(), arrays["digests"].tolist(), strict=True
        ):
            blocks[names[index], (spans[0], spans[1]), (spans[2], spans[3])] = found
        rows = {
            name: (arrays[f"rows {index}"], arrays[f"digests {index}"])
            for index, name in enumerate(names)
            if f"rows {index}" in arrays
        }
        return cls(blocks, rows)

    def whole(self, name: str, shape: tuple[int, ...]) -> int | None:
        """Return the digest of an input; None unless the blocks that were read make all of it."""
        own = [block for block in self.blocks if block[0] == name]
        area = sum((rows[1] - rows[0]) * (columns[1] - columns[0]) for _, rows, columns in own)
        if area != math.prod(shape) or not _are_apart([block[1:] for block in own]):
            return None
        return sum(self.blocks[block] for block in own) % MODULUS


def read_otherwise(name: str, what: str) -> ChangedError:
    """Return the error of an input that is read again, and is not the same."""
    return ChangedError(
        f"{name} has changed while it was read: {what} are not the same when read again; no number "
        "is given of data that change: run it again once nothing writes to them"
    )


def check_rows(
    name: str, known: tuple[IntArray, DigestArray], rows: IntArray, digests: DigestArray
) -> BoolArray:
    """Raise ChangedError where the digests of ascending rows differ from what is known of them.

    Return a mask of the rows that are known, [n] bool; there must be a row at least.
    """
    numbers, expected = known
    within = slice(*np.searchsorted(numbers, [rows[0], rows[-1] + 1]).tolist())
    numbers, expected = numbers[within], expected[within]
    found = np.zeros(len(rows), np.bool_)
    if np.array_equal(numbers, rows):
        found[:], differs = True, expected != digests
    elif len(numbers) <= len(rows):  # each of the fewer is looked for
        at = np.searchsorted(rows, numbers)
        same = rows[at] == numbers
        found[at[same]], differs = True, same & (digests[at] != expected)
    else:
        at = np.minimum(np.searchsorted(numbers, rows), len(numbers) - 1)
        found = numbers[at] == rows
        differs = found & (digests != expected[at])
    for which in np.flatnonzero(differs)[:1]:
        row = (numbers if len(numbers) <= len(rows) else rows)[which]
        raise read_otherwise(name, f"rows {row}:{row + 1}")
    return found


def _are_apart(blocks: list[tuple[Span, Span]]) -> bool:
    """Whether no two blocks overlap, of blocks whose rows are the same or apart."""
    by_rows: dict[Span, list[Span]] = {}
    for rows, columns in blocks:
        by_rows.setdefault(rows, []).append(columns)
    return all(
        one[1] <= other[0]
        for spans in (list(by_rows), *by_rows.values())
        for one, other in pairwise(sorted(spans))
    )


class Witness:
    """Notes what is read of some arrays, by digests.

    Parameters
    ----------
    arrays : mapping of str to Array
        By name.
    known : Readings
        Rows that blocks must hold as they are known.
    """

    def __init__(self, arrays: Mapping[str, Array], known: Readings) -> None:
        self._names = {id(array): name for name, array in arrays.items()}
        self._known, self.readings = known.rows, Readings()
        self._digested: tuple[Array, Spans, DigestArray] | None = None

    def digested(self, array: Array, spans: Spans, digests: DigestArray) -> None:
        """Note the digests of the rows of a block, from `room`, once these are added."""
        self._digested = (array, spans, digests) if len(digests) else None

    def room(self, array: Array, spans: Spans) -> DigestArray:
        """Return zeros for the digests of the rows of a block, [m]; [0] where nobody asks."""
        (start, stop), noted = spans[0], id(array) in self._names
        return np.zeros(stop - start if noted else 0, np.uint64)

    def saw(self, array: Array, spans: Spans, block: AnyArray) -> None:
        """Note a block."""
        name = self._names.get(id(array))
        if name is None or not block.size:
            return
        from streameval.arrays import digest

        rows, columns = spans[0], spans[1] if len(spans) > 1 else (0, 1)
        digested, self._digested = self._digested, None
        if digested is not None and digested[0] is array and digested[1] == spans:
            found = digested[2]
        else:
            found = digest.of_rows(block, columns[0])
        numbers = np.arange(*rows)
        if name in self._known and columns[1] - columns[0] == math.prod(array.shape[1:]):
            check_rows(name, self._known[name], numbers, found)
        self.readings.add(Readings({(name, rows, columns): digest.total(found, numbers)}))

    def took(self, array: Array, rows: IntArray, values: AnyArray) -> None:
        """Note rows by themselves."""
        name, self._digested = self._names.get(id(array)), None
        if name is None or not values.size:
            return
        from streameval.arrays import digest

        self.readings.add(Readings(rows={name: (rows, digest.of_rows(values))}))


def witness() -> Witness | None:
    """Return the witness of this thread, if there is one."""
    return getattr(_here, "witness", None)


@contextmanager
def witnessed(arrays: Mapping[str, Array], known: Readings) -> Iterator[Readings]:
    """Note what this thread reads of arrays while the context lasts; see `Witness`."""
    outer, own = witness(), Witness(arrays, known)
    _here.witness = own
    try:
        yield own.readings
    finally:
        _here.witness = outer
