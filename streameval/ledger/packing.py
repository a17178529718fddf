"""Several arrays in one: what is written at once is written as one array of bytes.

Each array of Zarr takes some milliseconds to be written and to be read, however small it is.
Integers are kept in as few bytes as hold them: half as much is compressed and written then.
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
_INTEGERS = ("int8", "int16", "int32")


def narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers in the narrowest signed type that holds them; other values as they are."""
    if values.dtype.kind != "i":
        return values
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    for dtype in map(np.dtype, _INTEGERS):
        limits = np.iinfo(dtype)
        if dtype.itemsize >= values.dtype.itemsize:
            break
        if int(limits.min) <= least and most <= int(limits.max):
            return values.astype(dtype)
    return values


def pack(arrays: Arrays) -> Bytes:
    """Return arrays of numbers as bytes: a table of contents, and one behind the other."""
    kept = [narrow(one) for one in arrays.values()]
    contents = [
        [name, one.dtype.str, few.dtype.str, list(one.shape)]
        for (name, one), few in zip(arrays.items(), kept, strict=True)
    ]
    text = json.dumps(contents, separators=(",", ":")).encode()
    begin = _aligned(_LENGTH + len(text))
    ends = begin + np.cumsum([_aligned(one.nbytes) for one in kept], dtype=np.int64)
    packed = np.zeros(int(ends[-1]) if len(ends) else begin, np.uint8)
    packed[:_LENGTH].view("<i8")[0] = len(text)
    packed[_LENGTH : _LENGTH + len(text)] = np.frombuffer(text, np.uint8)
    for end, one in zip(ends.tolist(), kept, strict=True):
        start = end - _aligned(one.nbytes)
        raw = np.ascontiguousarray(one).reshape(-1).view(np.uint8)
        packed[start : start + one.nbytes] = raw
    return packed


def unpack(packed: Bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that `pack` was given; views of the bytes, but for narrowed integers."""
    length = int(packed[:_LENGTH].view("<i8")[0])
    contents = json.loads(packed[_LENGTH : _LENGTH + length].tobytes())
    arrays: dict[str, npt.NDArray[Any]] = {}
    start = _aligned(_LENGTH + length)
    for name, dtype, kept, shape in contents:
        size = math.prod(shape) * np.dtype(kept).itemsize
        values = packed[start : start + size].view(kept).reshape(shape)
        arrays[name] = values.astype(dtype, copy=False)
        start += _aligned(size)
    return arrays


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
