"""Several arrays in one: what is written at once is written as one array of bytes.

Each array of Zarr takes some milliseconds to be written and to be read, however small it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]
Bytes = npt.NDArray[np.uint8]

_ALIGNED = 8  # bytes: where each array begins
_LENGTH = 8  # bytes that say how long the table of contents is


def pack(arrays: Arrays) -> Bytes:
    """Return arrays of numbers as bytes: a table of contents, and one behind the other."""
    contents = [[name, one.dtype.str, list(one.shape)] for name, one in arrays.items()]
    text = json.dumps(contents, separators=(",", ":")).encode()
    begin = _aligned(_LENGTH + len(text))
    ends = begin + np.cumsum([_aligned(one.nbytes) for one in arrays.values()], dtype=np.int64)
    packed = np.zeros(int(ends[-1]) if len(ends) else begin, np.uint8)
    packed[:_LENGTH].view("<i8")[0] = len(text)
    packed[_LENGTH : _LENGTH + len(text)] = np.frombuffer(text, np.uint8)
    for end, one in zip(ends.tolist(), arrays.values(), strict=True):
        start = end - _aligned(one.nbytes)
        raw = np.ascontiguousarray(one).reshape(-1).view(np.uint8)
        packed[start : start + one.nbytes] = raw
    return packed


def unpack(packed: Bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that `pack` was given: views of the bytes."""
    length = int(packed[:_LENGTH].view("<i8")[0])
    contents = json.loads(packed[_LENGTH : _LENGTH + length].tobytes())
    arrays: dict[str, npt.NDArray[Any]] = {}
    start = _aligned(_LENGTH + length)
    for name, dtype, shape in contents:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        arrays[name] = packed[start : start + size].view(dtype).reshape(shape)
        start += _aligned(size)
    return arrays


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
