"""Whether the inputs of a result are still what was read for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from streameval.arrays import open_array
from streameval.arrays.remote import is_remote
from streameval.errors import InputError
from streameval.result.evaluation import Evaluation


def differences(result: Evaluation, name: str) -> Iterator[str]:
    """Read the inputs of a result again, and yield a line for each that is not what was read.

    Parameters
    ----------
    result : Evaluation
        Of features or distances that have a path.
    name : str
        What messages call it.

    Raises
    ------
    InputError
        If the result does not say what was read.
    """
    from streameval.arrays import digest

    told = result.provenance
    if not told.get("read"):
        raise InputError(
            f"{name} does not say what was read for it: it is of lists or of a ledger, or of an "
            "earlier version; evaluate again"
        )
    for key, known in told["read"].items():
        uri = known["uri"]
        if "folder" in told and not is_remote(uri):
            uri = str(Path(told["folder"]) / uri)
        try:
            array = open_array(uri, fill_missing=told["inputs"].get("fill_missing", False))
            found = _as_text(array.shape, array.dtype.str, f"{digest.of_array(array):016x}")
        except (InputError, OSError) as error:
            yield f"{key}: {error}"
            continue
        was = _as_text(known["shape"], known["dtype"], known["digest"])
        if found != was:
            yield f"{key}: {uri} is {found}, and {was} was read"


def _as_text(shape: Sequence[int], dtype: str, digested: str) -> str:
    return f"{np.dtype(dtype)} {tuple(shape)} with the digest {digested}"
