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
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.arrays.array import Shape, Spans, slices, stretches
from streameval.typing import AnyArray, ByteArray, IntArray

if TYPE_CHECKING:
    from streameval.arrays.digest import DigestArray

_HEADER_BYTES = 16  # of a Blosc frame, which is longer than its values by no more


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
        from streameval.arrays import digest

        at_once = digests if self._chunks[0] >= 4 else digests[:0]  # four rows cost as much as one
        edges = zip(spans, self._chunks, strict=True)
        grid = (range(start // edge, -(-stop // edge)) for (start, stop), edge in edges)
        for at in product(*grid):
            inside, place = [], []
            for (start, stop), index, edge in zip(spans, at, self._chunks, strict=True):
                first, last = max(start, index * edge), min(stop, (index + 1) * edge)
                inside.append((first - index * edge, last - index * edge))
                place.append((first - start, last - start))
            part, left = out[slices(tuple(place))], spans[1][0] + place[1][0]
            self._fill_from(at, tuple(inside), part, left, at_once[slice(*place[0])])
        if len(at_once) < len(digests):
            first = digest.first_word(out.dtype, spans[1][0])
            digest.add_digests(digest.words_of(out), first, digest.own_multipliers(), digests)

    def _fill_from(
        self, at: Shape, inside: Spans, out: AnyArray, column: int, digests: DigestArray
    ) -> None:
        """Read what lies in a chunk, from a column of the array on."""
        from streameval.arrays import digest
        from streameval.arrays.scattered import read_rows

        words, own = digest.words_of(out), digest.own_multipliers()
        first = digest.first_word(out.dtype, column)
        if self._encoded:
            if out.shape == self._chunks and out.flags.c_contiguous:
                self._decode(at, out)
            else:
                out[...] = self._decoded(at)[slices(inside)]
            if len(digests):
                digest.add_digests(words, first, own, digests)
            return
        (top, _), (left, _) = inside
        stride = self._chunks[1] * self._dtype.itemsize
        offset = top * stride + left * self._dtype.itemsize
        with self._opened(at, self._size) as fileno:
            if not read_rows(fileno, offset, stride, words, first, own, digests):
                raise NotReadError

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
            fileno = os.open(self._path_of(at), os.O_RDONLY)
        except OSError as error:
            raise NotReadError from error
        try:
            if size is not None and os.fstat(fileno).st_size != size:
                raise NotReadError
            yield fileno
        except OSError as error:
            raise NotReadError from error
        finally:
            os.close(fileno)

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
