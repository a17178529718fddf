"""Labels as they are stored in an array: all of it, or a column or row of a matrix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.composed import SelectedArray
from streameval.arrays.identity import unchanging
from streameval.arrays.uri import open_array
from streameval.errors import InputError
from streameval.protocols.labels import whole_numbers
from streameval.typing import AnyArray

_BLOCK = 1 << 16  # entries read at a time
_SELECTOR = re.compile(r"(?P<uri>.+)\[(?P<selector>[^\[\],]*,[^\[\],]*)\]\s*", re.DOTALL)


def read_column(source: Any, fill_missing: bool) -> Any:
    """Return the labels of an array by its URI; others as they are given.

    The URI may end in a selector: ``x.mat::tracks[:,2]`` is column 2 of a matrix, counted from 0,
    ``x.npy[0,:]`` its first row. Integers of a file come in the smallest signed dtype that holds
    them. A matrix has one dtype, and MATLAB's numbers are float64: whole numbers of such become
    integers.

    Raises
    ------
    InputError
        If the array can't be read, or is no column of labels.
    """
    if not isinstance(source, str | Path):
        return source
    uri, selector = split_selector(str(source))
    array = open_array(uri, fill_missing=fill_missing)
    if selector is not None:
        array = _selected(array, selector)
    elif len(array.shape) == 2 and 1 not in array.shape:  # features, say: too large to be read
        raise InputError(
            f"{array.uri} has shape {array.shape}; labels need one column, one entry an item"
            f"{_selectors(array)}"
        )
    with unchanging(array):
        if array.dtype.kind in "iu":
            return _compact(array)
        values = array.read_all()
    is_matlab = Path(uri.partition("::")[0]).suffix.lower() == ".mat"
    return whole_numbers(values) if selector is not None or is_matlab else values


def split_selector(uri: str) -> tuple[str, str | None]:
    """Return the URI of an array, and what it ends in: ``:,2`` of ``[:,2]``; None without."""
    match = _SELECTOR.fullmatch(uri)
    return (uri, None) if match is None else (match["uri"], match["selector"])


def _selected(array: Array, selector: str) -> Array:
    """Return the column or the row of a matrix that a selector names."""
    parts = [part.strip() for part in selector.split(",")]
    for axis, size in enumerate(array.shape if len(array.shape) == 2 else ()):
        number = parts[axis]
        if parts[1 - axis] == ":" and number.isdecimal() and int(number) < size:
            return SelectedArray(array, np.array([int(number)]), axis)
    raise InputError(
        f"{array.uri}[{selector}] names no labels: the array has shape {array.shape}"
        f"{_selectors(array) or ', and a column is selected from a matrix'}"
    )


def _selectors(array: Array) -> str:
    """Return in words which columns and rows a matrix has."""
    rows, columns = array.shape if len(array.shape) == 2 else (0, 0)
    if not rows or not columns:
        return ""
    return f"; select a column, [:,0] to [:,{columns - 1}], or a row, [0,:] to [{rows - 1},:]"


def _compact(array: Array) -> AnyArray:
    """Read integers into the smallest signed dtype that holds them: labels can be many."""
    count = array.shape[0]
    spans = [(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
    bounds = [int(end) for block in map(array.read, spans) for end in (block.min(), block.max())]
    least = min([0, *bounds, *(-1 - end for end in bounds)])
    values: AnyArray = np.empty(array.shape, np.min_scalar_type(least))
    for start, stop in spans:
        values[start:stop] = array.read((start, stop))
    return values
