"""Labels as a ledger keeps them: an array a column, small integers, strings as code points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError
from streameval.ledger.packing import narrow
from streameval.protocols.protocol import AnyArray, Labels

_MORE = "more:"


def label_arrays(labels: Labels, *, more: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of labels as arrays of numbers.

    Parameters
    ----------
    labels : Labels
    more : bool
        Whether further columns are kept, too.
    """
    columns: dict[str, AnyArray | None] = {"id": labels.id, "cam": labels.cam, "key": labels.key}
    if more:
        columns |= {_MORE + quote(name, safe=""): one for name, one in labels.more.items()}
    return {name: _numbers(values) for name, values in columns.items() if values is not None}


def labels_of(arrays: Mapping[str, npt.NDArray[Any]], source: str) -> Labels:
    """Return the labels that `label_arrays` has written."""
    columns = columns_of(arrays)
    more = {
        unquote(name.removeprefix(_MORE)): columns.pop(name)
        for name in list(columns)
        if name.startswith(_MORE)
    }
    return Labels(columns["id"], columns.get("cam"), columns.get("key"), more=more, source=source)


def columns_of(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, AnyArray]:
    """Return the columns that `label_arrays` has made arrays of numbers of, by their names."""
    return {name: _texts(values) for name, values in arrays.items()}


def _numbers(values: AnyArray) -> npt.NDArray[Any]:
    if values.dtype.kind != "U":
        return narrow(values)
    width = values.dtype.itemsize // 4
    texts = np.ascontiguousarray(values, f"<U{width}")
    points: npt.NDArray[Any] = texts.view("<u4")
    return points.reshape(len(values), width)


def _texts(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if values.ndim == 1:
        return values.astype(np.int64)
    texts: npt.NDArray[Any] = np.ascontiguousarray(values).view(f"<U{values.shape[1]}")
    return texts.reshape(len(values))


def stack_labels(one: Labels, other: Labels) -> Labels:
    """Return the labels of queries and of further ones.

    Raises
    ------
    InputError
        If they have different columns, or of different kinds.
    """
    columns: dict[str, AnyArray] = {}
    more: dict[str, AnyArray] = {}
    for name in ("id", "cam", "key", *one.more, *other.more):
        mine, theirs = (
            own.more.get(name) if name not in ("id", "cam", "key") else getattr(own, name)
            for own in (one, other)
        )
        if mine is None and theirs is None:
            continue
        if mine is None or theirs is None:
            there, lacking = (
                (other, "the queries of the ledger") if mine is None else (one, other.source)
            )
            raise InputError(
                f"{lacking} have no column {name!r}, and "
                f"{'these have one' if there is other else 'the queries of the ledger have one'}: "
                "give queries with the same columns"
            )
        if (mine.dtype.kind == "U") != (theirs.dtype.kind == "U"):
            kinds = ["strings" if own.dtype.kind == "U" else "integers" for own in (mine, theirs)]
            raise InputError(
                f"{name} of the queries of the ledger are {kinds[0]}, of {other.source} "
                f"{kinds[1]}: give both as the same"
            )
        both = np.concatenate([mine, theirs])
        (columns if name in ("id", "cam", "key") else more)[name] = both
    return Labels(
        columns["id"], columns.get("cam"), columns.get("key"), more=more, source=one.source
    )
