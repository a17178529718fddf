"""Chunk files of a local Zarr array, read into memory that is used again.

Zarr's pipelines take fresh memory for each chunk, encoded and decoded, which may cost more than
reading it. What can't be read here is left to them, and they say why.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.arrays.array import Shape, Spans, descriptor, stretches
from streameval.typing import AnyArray, ByteArray, IntArray, Span

if TYPE_CHECKING:
    from streameval.arrays.digest import DigestArray

_HEADER_BYTES = 16  # of a Blosc frame, which is longer than its values by no more

_Chunk = tuple[int, int, int, int]  # of a `_Cut`


class _Cut(NamedTuple):
    """How the chunks along an axis cut a block, [k] int64.

    Attributes
    ----------
    number : of each chunk.
    inside : where the block begins in it.
    begin, end : what it holds of the block, counted in that.
    """

    number: IntArray
    inside: IntArray
    begin: IntArray
    end: IntArray

    @classmethod
    def of(cls, span: Span, edge: int) -> _Cut:
        """Cut a span by chunks of a length."""
        number = np.arange(span[0] // edge, -(-span[1] // edge))
        begin, end = np.maximum(number * edge, span[0]), np.minimum((number + 1) * edge, span[1])
        return cls(number, begin - number * edge, begin - span[0], end - span[0])

    def chunks(self) -> list[_Chunk]:
        """Return the numbers of each chunk."""
        return list(zip(*(values.tolist() for values in self), strict=True))


class NotReadError(Exception):
    """A chunk that is not as it should be; it is read again by other means, which say why."""


class ChunkFiles:
    """The chunk files of a matrix whose values are stored as they are, or by Blosc.

    Parameters
    ----------
    path_of : callable
        Index of a chunk to the path of its file: a text, as a `Path` takes as long as opening it.
    chunks : (int, int)
    dtype : numpy dtype
        As stored: native.
    encoded : bool
        Whether by Blosc.

    Attributes
    ----------
    grain : (int, int)
        What is read at least to know an entry.
    scratch : int
        Bytes that each thread that reads keeps.
    """

    def __init__(
        self, path_of: Callable[[Shape], str], chunks: Shape, dtype: np.dtype[Any], encoded: bool
    ) -> None:
        self._path_of, self._chunks, self._dtype, self._encoded = path_of, chunks, dtype, encoded
        self._size = math.prod(chunks) * dtype.itemsize
        self.grain = chunks if encoded else (1, 1)
        self.scratch = 2 * self._size + _HEADER_BYTES if encoded else 0
        self._here = threading.local()

    def fill(self, out: AnyArray, spans: Spans, digests: DigestArray) -> None:
        """Read a block; add the digests of its rows, [m], unless there is no room for them, [0].

        Raises
        ------
        NotReadError
        """
        rows, columns = map(_Cut.of, spans, self._chunks)
        left = spans[1][0]
        if not self._encoded:
            if not self._copy(rows, columns, out, left, digests):
                raise NotReadError
            return
        from streameval.arrays import digest
        from streameval.arrays.scattered import FOUR

        at_once = digests if self._chunks[0] >= FOUR else digests[:0]  # they cost as much as one
        for row, column in product(rows.chunks(), columns.chunks()):
            self._fill_decoded(row, column, out, left, at_once)
        if len(at_once) < len(digests):
            first = digest.first_word(out.dtype, left)
            digest.add_digests(digest.words_of(out), first, digest.own_multipliers(), digests)

    def _copy(
        self, rows: _Cut, columns: _Cut, out: AnyArray, left: int, digests: DigestArray
    ) -> bool:
        """Copy a block, whose first column is `left`, chunk by chunk; tell whether all was read."""
        from streameval.arrays import digest
        from streameval.arrays.scattered import read_files

        itemsize, wide, words = self._dtype.itemsize, self._chunks[1], digest.words_of(out)
        every = digest.first_word(out.dtype, 1)
        across = _Cut(*(values[:, None] for values in columns))
        parts = np.stack(
            np.broadcast_arrays(
                (rows.inside * wide + across.inside) * itemsize,
                rows.begin,
                rows.end,
                across.begin * every,
                across.end * every,
            ),
            axis=-1,
        ).reshape(-1, 5)
        paths = self._paths(rows.number, columns.number)
        known = digest.first_word(out.dtype, left), digest.own_multipliers(), digests
        return bool(read_files(paths, self._size, wide * itemsize, parts, words, *known))

    def _paths(self, rows: IntArray, columns: IntArray) -> ByteArray:
        """Return the paths of chunks, [k, w], each of which ends in a 0; those of the last call."""
        kept, key = vars(self._here), (rows.tobytes(), columns.tobytes())
        if kept.get("named") != key:
            every = product(columns.tolist(), rows.tolist())
            paths = [os.fsencode(self._path_of((row, column))) for column, row in every]
            longest = max(map(len, paths)) + 1
            padded = b"".join(path.ljust(longest, b"\0") for path in paths)
            kept["paths"] = np.frombuffer(padded, np.uint8).reshape(-1, longest)
            kept["named"] = key
        found: ByteArray = kept["paths"]
        return found

    def _fill_decoded(
        self, row: _Chunk, column: _Chunk, out: AnyArray, left: int, digests: DigestArray
    ) -> None:
        """Decode what lies in a chunk of a block, whose first column is `left`."""
        from streameval.arrays import digest
        from streameval.arrays.scattered import copy_rows

        (i, top, first, end), (k, before, begin, stop) = row, column
        part = out[first:end, begin:stop]
        number = digest.first_word(out.dtype, left + begin)
        known = number, digest.own_multipliers(), digests[first:end]
        if part.shape == self._chunks and part.flags.c_contiguous:
            self._decode((i, k), part)
            if len(digests):
                digest.add_digests(digest.words_of(part), *known)
        else:
            inside = self._decoded((i, k))[top:, before:][: end - first, : stop - begin]
            copy_rows(digest.words_of(inside), digest.words_of(part), *known)

    def pick(self, out: AnyArray, rows: IntArray, columns: IntArray) -> None:
        """Read entries, each once.

        Raises
        ------
        NotReadError
        """
        high, wide = self._chunks
        down, across = rows // high, columns // wide
        place = rows % high * wide + columns % wide
        order = np.lexsort((place, across, down))
        chunk = (down * (int(across.max(initial=0)) + 1) + across)[order]
        place, found = place[order], np.empty(len(rows), self._dtype)
        for own in stretches(chunk) if len(rows) else ():
            first = order[own.start]
            self._pick_from((int(down[first]), int(across[first])), place[own], found[own])
        out[order] = found

    def _pick_from(self, at: Shape, place: IntArray, out: AnyArray) -> None:
        """Read entries of a chunk, at ascending places."""
        if self._encoded:
            out[...] = self._decoded(at).reshape(-1)[place]
            return
        from streameval.arrays.scattered import pieces_of, read_scattered

        itemsize = self._dtype.itemsize
        pieces, longest = pieces_of(place, itemsize)
        window = self._memory("window", longest * itemsize).reshape(longest, itemsize)
        cells = out.view(np.uint8).reshape(-1, itemsize)
        with self._opened(at, self._size) as fileno:
            if read_scattered(fileno, 0, place, pieces, window, cells) < len(pieces):
                raise NotReadError

    def _decoded(self, at: Shape) -> AnyArray:
        """Return the values of a chunk, until the next one is decoded."""
        values: AnyArray = self._memory("values", self._size).view(self._dtype)
        values = values.reshape(self._chunks)
        self._decode(at, values)
        return values

    def _decode(self, at: Shape, out: AnyArray) -> None:
        """Decode a chunk."""
        from numcodecs import blosc

        with self._opened(at) as fileno:
            size = os.fstat(fileno).st_size
            if not _HEADER_BYTES <= size <= self._size + _HEADER_BYTES:
                raise NotReadError
            frame = self._memory("frame", self._size + _HEADER_BYTES)[:size]
            if os.preadv(fileno, [memoryview(frame)], 0) != size:  # type: ignore[arg-type]
                raise NotReadError
        sizes = frame[4:16].view("<u4")  # of the values, of their blocks, of the frame
        if sizes[0] != self._size or sizes[2] != size:
            raise NotReadError
        try:
            blosc.decompress(frame, out)
        except (RuntimeError, ValueError) as error:
            raise NotReadError from error

    @contextmanager
    def _opened(self, at: Shape, size: int | None = None) -> Iterator[int]:
        """Open the file of a chunk, of this size if one is given."""
        try:
            with descriptor(self._path_of(at)) as fileno:
                if size is not None and os.fstat(fileno).st_size != size:
                    raise NotReadError
                yield fileno
        except OSError as error:
            raise NotReadError from error

    def _memory(self, use: str, size: int) -> ByteArray:
        """Return memory of this thread for a use; overwritten by the next."""
        kept = vars(self._here)
        if use not in kept or len(kept[use]) < size:
            kept[use] = np.empty(size, np.uint8)
        memory: ByteArray = kept[use][:size]
        return memory


def chunk_files(array: Any, dtype: np.dtype[Any], folder: Path) -> ChunkFiles | None:
    """Return the chunk files of a Zarr array in a folder; None if these can't be read here."""
    from numcodecs import blosc
    from zarr.codecs import BloscCodec, BytesCodec

    metadata = array.metadata
    if len(array.shape) != 2 or dtype.kind not in "iuf" or 0 in array.shape:
        return None
    if metadata.zarr_format == 2:
        stored = metadata.order == "C" and not metadata.filters
        native = array.dtype.isnative
        codecs = [codec for codec in (metadata.compressor,) if codec is not None]
        known = all(isinstance(codec, blosc.Blosc) for codec in codecs)
    else:
        first, *codecs = metadata.codecs
        stored = isinstance(first, BytesCodec)
        endian = getattr(first, "endian", None)
        native = dtype.itemsize == 1 or getattr(endian, "value", endian) == sys.byteorder
        known = all(isinstance(codec, BloscCodec) for codec in codecs)
    size = math.prod(array.chunks) * dtype.itemsize
    if not (stored and native and known) or len(codecs) > 1 or size >= blosc.MAX_BUFFERSIZE:
        return None

    def path_of(at: Shape) -> str:
        return f"{folder}/{metadata.encode_chunk_key(at)}"

    return ChunkFiles(path_of, tuple(array.chunks), dtype, bool(codecs))
