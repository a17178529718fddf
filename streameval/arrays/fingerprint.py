"""Fingerprints: whether an input is what it was, and whether two hold the same.

`fingerprint` is quick, and of an array in its place, `of_file` of any file; `content` reads all of
an array, and is the same wherever and however it is stored. `of_labels` is of labels in memory.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from streameval.arrays.array import Array, reading
from streameval.arrays.identity import entries, identify
from streameval.arrays.memory import MemoryArray
from streameval.arrays.npy import Header, NpyArray
from streameval.threads import spread
from streameval.typing import AnyArray

READ_BYTES = 256 << 20  # an array up to this size is read as a whole
SAMPLES = 64  # blocks of rows of a larger one
HASHING = 4  # threads
BLOCK_BYTES = 1 << 20
BLOCK_LABELS = 1 << 16

_hash = partial(hashlib.blake2b, digest_size=16)


def fingerprint(array: Array) -> str:
    """Return a text that differs where the content of an array does.

    Of an array in memory, or of up to 256 MiB, all of it is read. Of a larger one, 64 blocks that
    are spread evenly, the first and the last among them; and for every file its size, and when
    it was written. Of an object of another package, its `identity`.

    Raises
    ------
    OptionError
        If it can be recognised by its name alone, and has none.
    """
    if array.identity is not None:
        return array.identity
    digest, starts, read = _begin(array)
    size = math.prod(array.shape) * array.dtype.itemsize
    if size > READ_BYTES and not isinstance(array, MemoryArray):
        last = max(starts.stop - starts.step, 0)
        starts = np.unique(np.linspace(0, last, SAMPLES).astype(int)).tolist()
        digest.update("".join(_files(array)).encode())
    for block in map(read, starts):
        digest.update(block)
    return digest.hexdigest()


def of_file(path: Path) -> str:
    """Return a text that differs where the content of a file does: `fingerprint` of its bytes."""
    with reading(str(path), "opened", "check the path"):
        size = path.stat().st_size
    header = Header((size,), False, np.dtype(np.uint8))
    array = NpyArray(path, header, 0, str(path))
    array.files = identify(path)
    return fingerprint(array)


def content(array: Array) -> str:
    """Return a text that two arrays have in common where all their values are the same.

    Of the same shape and dtype, too; in whatever format and chunks they are stored.
    """
    whole, starts, read = _begin(array)
    for part in spread(lambda start: _hash(read(start)).digest(), starts, HASHING):
        whole.update(part)
    return whole.hexdigest()


def _begin(array: Array) -> tuple[hashlib.blake2b, range, Callable[[int], memoryview]]:
    """Return the hash of shape and dtype, where blocks of rows begin, and what reads one."""
    rows, row_bytes = array.shape[0], math.prod(array.shape[1:]) * array.dtype.itemsize
    step = max(BLOCK_BYTES // max(row_bytes, 1), 1)

    def read(start: int) -> memoryview:
        return array.read((start, min(start + step, rows))).data

    return _hash(f"{array.shape} {array.dtype.str}".encode()), range(0, rows, step), read


def of_labels(labels: AnyArray) -> str:
    """Return a text that two columns of labels have in common where all labels are the same.

    Of integers or strings, however wide, or of floats. It takes 0.01 s a million integers, 0.04 s
    a million strings.
    """
    are_texts = labels.dtype.kind == "U"
    digest = _hash(f"{len(labels)} {are_texts}".encode())
    for start in range(0, len(labels), BLOCK_LABELS):
        block = labels[start : start + BLOCK_LABELS]
        if are_texts:
            longest = np.strings.str_len(block.astype(np.str_, copy=False)).max()
            dtype = f"U{max(longest, 1)}"
        elif labels.dtype.kind == "f":  # one NaN, one zero
            dtype, block = "<f8", np.where(np.isnan(block), np.nan, block + 0.0)
        else:  # in few bytes, as each takes its time
            limits = [np.min_scalar_type(int(one)) for one in (block.min(), block.max())]
            dtype = np.promote_types(*limits).str if limits[1].itemsize < 8 else "<i8"
        digest.update(dtype.encode())
        digest.update(block.astype(dtype).tobytes())
    return digest.hexdigest()


def _files(array: Array) -> Iterator[str]:
    """Yield a line for each file of an array: its name, its size, and when it was written."""
    for one in array.opened():
        if one.files is None:
            continue
        place = one.files.place
        for entry in entries(place):
            name = entry.name.removeprefix(str(place))
            if entry.size:  # of folders the files in them count
                yield f"{name} {entry.size} {entry.written}\n"
