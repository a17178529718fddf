"""MATLAB `.mat` files up to version 7, loaded whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streameval.errors import InputError
from streameval.inputs.array import Array
from streameval.inputs.memory import LoadedArray

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
        If the file is of version 7.3 or damaged, has no such variable, or it is no array of
        numbers or text.
    """
    import scipy.io

    try:
        classes = {name: kind for name, _, kind in scipy.io.whosmat(str(path))}
        if key is None and len(classes) == 1:
            key = next(iter(classes))
        if key is None or key not in classes:
            found = ", ".join(classes) or "none"
            raise InputError(
                f"{uri} {'holds several variables' if key is None else 'has no such variable'}; "
                f"name one as FILE.mat::NAME. Variables in it: {found}"
            )
        uri = f"{path}::{key}"
        if classes[key] not in _READABLE:
            raise InputError(
                f"{uri} is of MATLAB class {classes[key]}; a full array of numbers, or text for "
                "labels, is needed: convert it in MATLAB, for example with full() or double()"
            )
        values = np.asarray(scipy.io.loadmat(str(path), variable_names=[key])[key])
    except InputError:
        raise
    except NotImplementedError as error:
        raise InputError(
            f"{uri} is a MATLAB 7.3 file, which is HDF5 and not read; save it again with "
            "save(..., '-v7'), or convert it to .npy"
        ) from error
    except Exception as error:  # a damaged file raises whatever the parser trips over
        raise InputError(
            f"{uri} can't be read ({type(error).__name__}: {error}): the file is damaged or no "
            ".mat of version 7 or older; save it again"
        ) from error
    return LoadedArray(values, open_mat, path, key, uri)
