"""`.npz` files: stored members are read in place, compressed ones are loaded whole."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from streameval.arrays.array import Array, choose_key
from streameval.arrays.memory import LoadedArray, available_bytes, check_fits
from streameval.arrays.npy import Header, NpyArray, read_header
from streameval.errors import InputError

_PIECE_BYTES = 1 << 20  # decompressed at a time
_LOCAL_HEADER_BYTES = 30  # fixed part of a member's header: PKWARE APPNOTE, section 4.3.7
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),
    *(UnicodeDecodeError, struct.error, OverflowError),
)


def open_npz(path: Path, key: str | None, uri: str) -> Array:
    """Open one member of an `.npz` file.

    Parameters
    ----------
    path : Path
    key : str or None
        Name of the member; may be left out where there is only one.
    uri : str

    Raises
    ------
    InputError
        If the file is no `.npz`, has no such member, or the member is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            member = _member(archive, key, uri)
            uri = f"{path}::{_key(member)}"
            with archive.open(member) as file:
                header = read_header(file, uri)
                found = member.file_size - header.length
                if found != header.nbytes:
                    raise InputError(
                        f"{uri} holds {found} bytes of values; its header promises "
                        f"{header.dtype} {header.shape}, {header.nbytes} bytes: write it again"
                    )
                if member.compress_type != zipfile.ZIP_STORED:
                    check_fits(uri, header.nbytes, available_bytes())
                    values = _load(file, header)
                    return LoadedArray(values, open_npz, path, _key(member), uri)
        return NpyArray(path, header, _data_offset(path, member) + header.length, uri)
    except _DAMAGE as error:
        raise InputError(
            f"{uri} can't be read ({error}): the file is damaged or no .npz; write it again "
            "with numpy.savez"
        ) from error


def _key(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _member(archive: zipfile.ZipFile, key: str | None, uri: str) -> zipfile.ZipInfo:
    members = {_key(info): info for info in archive.infolist() if info.filename.endswith(".npy")}
    return members[choose_key(uri, key, members, "FILE.npz", "array")]


def _load(file: IO[bytes], header: Header) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Decompress the values that follow the header, piece by piece; checks the zip's CRC."""
    shape = header.shape[::-1] if header.fortran else header.shape
    values = np.empty(shape, header.dtype)
    if values.size:
        buffer = values.reshape(-1).view(np.uint8)
        filled = 0
        while piece := file.read(_PIECE_BYTES):
            buffer[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
        if filled != buffer.size:
            raise EOFError(f"{filled} of {buffer.size} bytes are there")
    return values.T if header.fortran else values


def _data_offset(path: Path, member: zipfile.ZipInfo) -> int:
    """Return where in the file a stored member's bytes begin.

    The lengths of the name and of the extra field may differ from those in the archive's
    directory, so that they are read from the member's own header.
    """
    with path.open("rb") as file:
        file.seek(member.header_offset)
        fixed = file.read(_LOCAL_HEADER_BYTES)
    name, extra = struct.unpack("<26xHH", fixed)
    return member.header_offset + _LOCAL_HEADER_BYTES + int(name) + int(extra)
