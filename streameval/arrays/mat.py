"""MATLAB `.mat` files: up to version 7 loaded whole; of version 7.3 (HDF5) read by blocks."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from streameval.arrays.array import AnyArray, Array, Span, choose_key
from streameval.arrays.hdf5 import Hdf5Array, attributes_of, contents
from streameval.arrays.memory import LoadedArray, available_bytes, check_fits
from streameval.errors import InputError

_READABLE = {
    *("double", "single", "char"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


def open_mat(path: Path, key: str | None, uri: str) -> Array:
    """Load one variable of a `.mat` file.

    Parameters
    ----------
    path : Path
    key : str or None
        Name of the variable; may be left out where there is only one.
    uri : str

    Raises
    ------
    InputError
        If the file is damaged, has no such variable, or it is no array of numbers or text.
    OptionError
        If it is of version 7.3, and h5py is not installed.
    """
    import scipy.io

    try:
        found = scipy.io.whosmat(str(path))
        classes = {name: kind for name, _, kind in found}
        shapes = {name: shape for name, shape, _ in found}
        key = choose_key(uri, key, classes, "FILE.mat", "variable")
        uri = f"{path}::{key}"
        _check_class(uri, classes[key])
        check_fits(uri, 8 * math.prod(shapes[key]), available_bytes())
        values = np.asarray(scipy.io.loadmat(str(path), variable_names=[key])[key])
    except InputError:
        raise
    except NotImplementedError:  # of version 7.3
        return open_mat73(path, key, uri)
    except Exception as error:  # a damaged file raises whatever the parser trips over
        raise InputError(
            f"{uri} can't be read ({type(error).__name__}: {error}): the file is damaged or no "
            ".mat of version 7 or older; save it again"
        ) from error
    return LoadedArray(values, open_mat, path, key, uri)


class Mat73Array(Hdf5Array):
    """A variable of a MATLAB 7.3 file: stored column by column, so that its axes are swapped.

    Parameters
    ----------
    path : Path
    key : str
    uri : str

    Raises
    ------
    InputError
        If it is no array of numbers.
    """

    def __init__(self, path: Path, key: str, uri: str) -> None:
        super().__init__(path, key, uri)
        self.shape, self.chunks = self.shape[::-1], self.chunks[::-1]

    def read_scratch_bytes(self, rows: int, columns: int) -> int:
        """Return the size of the block as it is stored, and of the chunks that are decoded."""
        return rows * columns * self.dtype.itemsize + super().read_scratch_bytes(rows, columns)

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> None:
        stored = np.empty(out.shape[::-1], self.dtype)
        super()._fill(stored, spans[::-1])
        out[...] = stored.T


def open_mat73(path: Path, key: str | None, uri: str) -> Array:
    """Open a variable of a MATLAB 7.3 file; text is loaded whole.

    Raises
    ------
    InputError, OptionError
        As `open_mat` does.
    """
    names = [name for name in contents(path)[0] if not name.startswith("#")]  # MATLAB's own
    key = choose_key(uri, key, names, "FILE.mat", "variable")
    uri = f"{path}::{key}"
    attributes = attributes_of(path, key)
    kind = attributes.get("MATLAB_class", b"double")
    kind = kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)
    _check_class(uri, "uint8" if kind == "logical" else kind)
    if "MATLAB_empty" in attributes:
        raise InputError(f"{uri} is empty in MATLAB; an array with rows is needed")
    array = Mat73Array(path, key, uri)
    if kind != "char":
        return array
    codes = array.read_all().astype(np.uint32)
    texts = np.ascontiguousarray(codes).view(f"U{codes.shape[1]}")[:, 0]
    return LoadedArray(np.char.rstrip(texts), open_mat, path, key, uri)


def _check_class(uri: str, kind: str) -> None:
    if kind not in _READABLE:
        raise InputError(
            f"{uri} is of MATLAB class {kind}; a full array of numbers, or text for "
            "labels, is needed: convert it in MATLAB, for example with full() or double()"
        )
