"""Agreement: which gallery items have the labels of which queries, in one column or in several.

The gallery is looked up block by block, and most of its labels belong to no query: what is held
beside the labels follows the queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import floor
from typing import Any

import numpy as np

from streameval.compilation import compiled
from streameval.errors import OptionError
from streameval.protocols.labels import Labels, check_kinds, missing, whole_numbers
from streameval.protocols.rules import Test
from streameval.stretches import entries_of
from streameval.typing import AnyArray, BoolArray, HashArray, Int32Array, IntArray

BLOCK = 1 << 16  # gallery labels looked up at a time: temporaries stay small
SLOTS = 8  # of a look-up table, for each label that is known
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd: 2⁶⁴ by the golden ratio spreads what lies close

Lookup = Callable[[AnyArray], Int32Array]
"""Labels to their indices among those that are known; −1 of others."""


_ORDER: dict[str, Callable[[AnyArray, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_INT64 = range(-(2**63), 2**63)
_OF_FLOOR = {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}  # what integers are to be to a fraction


def outcome(test: Test, labels: Labels) -> BoolArray:
    """Tell of which items of its side a test holds, [n]; raise OptionError for other values.

    Integers and floats are compared as numbers, exactly.
    """
    column, values = labels.columns[test.column], test.value
    values = values if isinstance(values, tuple) else (values,)
    texts, absent = column.dtype.kind == "U", missing(column)
    if absent.all():  # of no kind
        return np.full(len(column), test.negated)
    if values and texts != isinstance(values[0], str):
        kinds = ("integers", "a number") if column.dtype.kind != "f" else ("numbers", "a number")
        kinds = ("texts", "a text in quotes") if texts else kinds
        raise OptionError(
            f"a rule compares {test.side}.{test.column} with {test.value!r}, and this column of "
            f"{labels.source} holds {kinds[0]}: give {kinds[1]}"
        )
    holds: BoolArray = compare(column, test.operator, values) != test.negated
    return holds


def compare(column: AnyArray, operator: str, values: tuple[Any, ...]) -> BoolArray:
    """Tell which labels compare so with a value, or are one of several; a missing one never."""
    integers = column.dtype.kind in "iu"
    if operator not in _ORDER:
        if integers:  # values that a label can be
            values = tuple(int(one) for one in values if one == int(one) in _INT64)
        kind = np.int64 if integers else column.dtype.type
        return np.isin(column, np.array(values, kind))
    (value,) = values
    if integers and value != floor(value):
        operator = _OF_FLOOR[operator]
    value = floor(value) if integers else value
    return np.asarray(_ORDER[operator](column, value), np.bool_)


class Agreement:
    """Codes of the queries' labels in some columns, and look-up of items that agree in all.

    Parameters
    ----------
    query, gallery : Labels
    columns : sequence of str
        At least one.

    Attributes
    ----------
    query : [Q] int64
        Code of each query, from 0 without gaps.
    count : int
        Number of codes.
    """

    def __init__(self, query: Labels, gallery: Labels, columns: Sequence[str]) -> None:
        *first, column = columns
        check_kinds(query, gallery, column)
        labels, self._labels = query.columns[column], gallery.columns[column]
        absent = missing(labels)
        known, index = np.unique(labels[~absent], return_inverse=True)
        code = np.full(len(labels), len(known))  # of missing labels: that of no item
        code[~absent] = index
        self._index_of = lookup(known)
        self.count = self._size = len(known) + int(absent.any())
        self._narrower = Agreement(query, gallery, first) if first else None
        if self._narrower is not None:
            joined = self._narrower.query * self._size + code
            used, code = np.unique(joined, return_inverse=True)
            self._number_of, self.count = lookup(used), len(used)
        self.query: IntArray = code.astype(np.int64, copy=False)

    def items(self, block: slice) -> Int32Array:
        """Return the codes of a block of the gallery; −1 of items that agree with no query."""
        if self._narrower is None:
            return self._index_of(self._labels[block])
        found = self._narrower.items(block)
        some = np.flatnonzero(found >= 0)
        index = self._index_of(self._labels[block][some])
        joined = found[some].astype(np.int64) * self._size + index
        joined[index < 0] = -1
        found[some] = self._number_of(joined)
        return found

    def blocks(self) -> Iterator[tuple[int, Int32Array]]:
        """Yield where each block of the gallery begins, and its codes."""
        for start in range(0, len(self._labels), BLOCK):
            yield start, self.items(slice(start, start + BLOCK))

    def counts(self) -> IntArray:
        """Return the number of items that agree with each query, [Q]."""
        count = np.zeros(self.count + 1, np.int64)
        for _, codes in self.blocks():
            count += np.bincount(codes + 1, minlength=self.count + 1)
        return count[1:][self.query]

    def codes(self) -> Int32Array:
        """Return the codes of the whole gallery, [G]."""
        codes = np.empty(len(self._labels), np.int32)
        for start, block in self.blocks():
            codes[start : start + len(block)] = block
        return codes


class Matches:
    """The items that agree with each query, in gallery order, found as they are asked for.

    Held: 8 bytes for each item that agrees with any query.
    """

    def __init__(self, agreement: Agreement, gallery: int) -> None:
        count, parts = np.zeros(agreement.count, np.int64), []
        for start, codes in agreement.blocks():
            some = np.flatnonzero(codes >= 0)
            own = codes[some].astype(np.int64)
            count += np.bincount(own, minlength=agreement.count)
            parts.append(own * max(gallery, 1) + some + start)
        self._item = np.concatenate([np.empty(0, np.int64), *parts])
        del parts
        self._item.sort()  # by code, then in gallery order
        for start in range(0, len(self._item), BLOCK):
            self._item[start : start + BLOCK] %= gallery
        self._begin, self._count = (np.cumsum(count) - count), count
        self._code = agreement.query

    def count(self, start: int, stop: int) -> IntArray:
        """Return the number of items of some queries, [n]."""
        return self._count[self._code[start:stop]]

    def of(self, start: int, stop: int) -> tuple[IntArray, IntArray]:
        """Return the items of some queries: (indptr [n + 1], item)."""
        code = self._code[start:stop]
        indptr, entry = entries_of(self._begin[code], self._count[code])
        return indptr, self._item[entry]


def distinct(labels: AnyArray) -> AnyArray:
    """Return the labels that there are, ascending, each once; little is held beside them.

    A missing one is no label.
    """
    known, held = labels[:0], 0
    parts: list[AnyArray] = []
    for start in range(0, len(labels), BLOCK):
        parts.append(_once(labels[start : start + BLOCK]))
        held += len(parts[-1])
        if held >= max(len(known), 8 * BLOCK):
            known, parts, held = _once(np.concatenate([known, *parts])), [], 0
    return whole_numbers(_once(np.concatenate([known, *parts])))


def _once(labels: AnyArray) -> AnyArray:
    """Return labels ascending, each once: sorted, as the table that `np.unique` makes is slow."""
    labels = np.sort(labels if labels.dtype.kind in "iu" else labels[~missing(labels)])
    first = np.ones(len(labels), np.bool_)
    first[1:] = labels[1:] != labels[:-1]
    return labels[first]


def coded(known: AnyArray, labels: AnyArray) -> Int32Array:
    """Return the index of each label among those that are known, [n]; −1 of others."""
    index_of, codes = lookup(known), np.empty(len(labels), np.int32)
    for start in range(0, len(labels), BLOCK):
        codes[start : start + BLOCK] = index_of(labels[start : start + BLOCK])
    return codes


def multiplicities(labels: AnyArray, without: AnyArray) -> tuple[IntArray, IntArray]:
    """Return how often labels occur: each frequency, ascending, and the number of such labels.

    Labels in `without` have frequency 0. Texts are told apart by a hash of 64 bits. A sorted copy
    of the labels, or of the hashes, is held.
    """
    texts = labels.dtype.kind == "U"
    ordered = np.empty(len(labels), np.uint64 if texts else labels.dtype.newbyteorder("="))
    for start in range(0, len(labels), BLOCK):
        block = labels[start : start + BLOCK]
        ordered[start : start + BLOCK] = _bits(block) if texts else block
    ordered.sort()
    left_out, begin = _bits(without), 0
    labels_of: Counter[int] = Counter()
    for start in range(0, len(ordered), BLOCK):
        block = ordered[start : start + BLOCK + 1]
        end = start + 1 + np.flatnonzero(block[1:] != block[:-1])
        if start + BLOCK >= len(ordered):
            end = np.append(end, len(ordered))
        frequency = np.diff(end, prepend=begin)
        frequency[np.isin(_bits(ordered[end - 1]), left_out)] = 0
        begin = end[-1] if len(end) else begin
        known, number = np.unique(frequency, return_counts=True)
        labels_of.update(dict(zip(known.tolist(), number.tolist(), strict=True)))
    frequencies = sorted(labels_of)
    return np.array(frequencies, np.int64), np.array([labels_of[n] for n in frequencies], np.int64)


def lookup(known: AnyArray) -> Lookup:
    """Return the look-up of labels among those that are known, ascending and each once.

    Each has a slot of a table by its bits, or the next one that is free. Floats are whole numbers,
    or NaN, which is not known.
    """
    if not len(known):
        return lambda labels: np.full(len(labels), -1, np.int32)
    known = known.astype(np.int64) if known.dtype.kind == "f" else known
    bits, texts = _bits(known), known.dtype.kind == "U"
    shift = np.uint64(64 - (SLOTS * len(known)).bit_length())
    table = np.full(1 << 64 - int(shift), -1, np.int32)
    _fill(table, bits, shift)

    def index_of(labels: AnyArray) -> Int32Array:
        index = np.empty(len(labels), np.int32)
        if labels.dtype.kind == "f":
            absent = np.isnan(labels)
            index[absent], index[~absent] = -1, index_of(labels[~absent].astype(np.int64))
            return index
        _look_up(table, bits, shift, _bits(labels), index)
        if texts:  # others may have the same bits
            some = np.flatnonzero(index >= 0)
            other = some[known[index[some]] != labels[some]]
            index[other] = _search(known, labels[other])
        return index

    return index_of


@compiled
def _fill(table, known, shift):  # type: ignore[no-untyped-def]
    """Put the number of each label into a table, by its bits."""
    last = np.uint64(len(table) - 1)
    for number in range(len(known)):
        slot = known[number] * _FACTOR >> shift
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & last
        table[slot] = number


@compiled
def _look_up(table, known, shift, bits, out):  # type: ignore[no-untyped-def]
    """Write the number of a known label with the same bits as each; −1 where there is none."""
    last = np.uint64(len(table) - 1)
    for i in range(len(bits)):
        slot = bits[i] * _FACTOR >> shift
        number = table[slot]
        while number >= 0 and known[number] != bits[i]:
            slot = (slot + np.uint64(1)) & last
            number = table[slot]
        out[i] = number


def _bits(labels: AnyArray) -> HashArray:
    """Return 64 bits of each label: of an integer its own, of a text those of a hash."""
    if labels.dtype.kind != "U":
        return labels.astype(np.int64, copy=False).view(np.uint64)
    native = labels.astype(labels.dtype.newbyteorder("="), copy=False)  # files have others, too
    letters = np.ascontiguousarray(native).view(np.uint32)
    letters = letters.reshape(len(labels), labels.dtype.itemsize // 4)
    factors = np.cumprod(np.full(letters.shape[1], _FACTOR))  # modulo 2⁶⁴
    bits = np.zeros(len(labels), np.uint64)
    for column, factor in zip(letters.T, factors, strict=True):  # a wider array has the same
        bits += column * factor
    return bits


def _search(known: AnyArray, labels: AnyArray) -> Int32Array:
    at = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    return np.where(known[at] == labels, at, -1).astype(np.int32)
