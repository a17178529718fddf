"""Look-ups of labels: which items of one side have the label of an item of the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.protocols.labels import AnyArray, Labels

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

_BLOCK = 1 << 16  # gallery labels looked up at a time: temporaries stay small
_TABLE = 1 << 20  # entries of a look-up table, 4 bytes each
_FAR = 1 << 62  # bound of labels whose differences fit in 64 bits


def matches(query: Labels, gallery: Labels, column: str) -> tuple[IntArray, IntArray]:
    """Return the gallery items with the label of each query, in gallery order: (indptr, item)."""
    known, code = encode(query, gallery, column)
    items, codes = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    index_of = _lookup(known)
    for start in range(0, len(gallery), _BLOCK):
        block = index_of(gallery.columns[column][start : start + _BLOCK])
        among = np.flatnonzero(block >= 0)
        items.append(start + among)
        codes.append(block[among])
    item_code = np.concatenate(codes)
    by_code = np.concatenate(items)[np.argsort(item_code, kind="stable")]
    begin = np.concatenate([[0], np.cumsum(np.bincount(item_code, minlength=len(known)))])
    indptr = np.concatenate([[0], np.cumsum(np.diff(begin)[code])]).astype(np.int64)
    return indptr, by_code[expand(begin[code], begin[1:][code])]


def rule_codes(
    query: Labels, gallery: Labels, rule: tuple[str, ...]
) -> tuple[IntArray, Int32Array]:
    """Return codes that are equal where both sides agree in every column of a rule.

    Returns
    -------
    query : [Q] int64
        From 0, without gaps.
    gallery : [G] int32
        −1 for an item that agrees with no query.
    """
    query_code: IntArray = np.zeros(len(query), np.int64)
    steps = []
    for column in rule:
        known, code = encode(query, gallery, column)
        used, query_code = np.unique(query_code * len(known) + code, return_inverse=True)
        steps.append((gallery.columns[column], _lookup(known), len(known), _lookup(used)))
    item_code = np.empty(len(gallery), np.int32)
    for start in range(0, len(gallery), _BLOCK):
        part = np.zeros(min(_BLOCK, len(gallery) - start), np.int32)
        for labels, index_of, count, number_of in steps:
            index = index_of(labels[start : start + _BLOCK])
            joined = np.where((part < 0) | (index < 0), -1, part.astype(np.int64) * count + index)
            part = number_of(joined)
        item_code[start : start + _BLOCK] = part
    return query_code, item_code


def encode(query: Labels, gallery: Labels, column: str) -> tuple[AnyArray, Int32Array]:
    """Return the distinct labels of the queries, ascending, and the index of each query's."""
    check_kinds(query, gallery, column)
    known, code = np.unique(query.columns[column], return_inverse=True)
    return known, code.astype(np.int32)


def check_kinds(query: Labels, gallery: Labels, column: str) -> None:
    """Raise InputError if one side has integers in a column, and the other strings."""
    columns = query.columns[column], gallery.columns[column]
    strings = [labels.dtype.kind == "U" for labels in columns]
    if all(map(len, columns)) and strings[0] != strings[1]:
        kinds = " and ".join("strings" if are_strings else "integers" for are_strings in strings)
        side = "gallery" if strings[0] else "query"
        names = {"id": "ids", "cam": "cameras", "key": "keys"}.get(column, f"column {column}")
        raise InputError(
            f"{names} of {query.source}, {gallery.source} are {kinds}, and none would match: store "
            f"those of the {side} as strings, too (NumPy: labels.astype(str); a table: a column "
            "of text), or both as integers"
        )


def _lookup(known: AnyArray) -> Callable[[AnyArray], Int32Array]:
    """Return a lookup from label to index; a table where the known integers lie close together."""
    if not len(known):
        return lambda labels: np.full(len(labels), -1, np.int32)
    if known.dtype.kind == "U":
        return partial(_search, known)
    known = known.astype(np.int64)
    low, high = int(known[0]), int(known[-1])
    if not -_FAR < low <= high < _FAR or high - low >= _TABLE:
        return lambda labels: _search(known, labels.astype(np.int64))
    table = np.full(high - low + 3, -1, np.int32)  # an entry beyond either end: unknown
    table[known - (low - 1)] = np.arange(len(known))
    return lambda labels: table[np.clip(labels.astype(np.int64), low - 1, high + 1) - (low - 1)]


def _search(known: AnyArray, labels: AnyArray) -> Int32Array:
    at = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    return np.where(known[at] == labels, at, -1).astype(np.int32)


def expand(begin: IntArray, end: IntArray) -> IntArray:
    """Return the indices of all ranges ``begin[i]:end[i]`` one after the other."""
    length = end - begin
    offset = np.repeat(begin - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
    expanded: IntArray = np.arange(int(length.sum()), dtype=np.int64) + offset
    return expanded
