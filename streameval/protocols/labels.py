"""Labels of the queries, or of the gallery: named columns with one entry an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError

AnyArray = npt.NDArray[np.generic]

KNOWN_COLUMNS = ("id", "cam", "key")
"""Columns that every reader of labels knows; others are read where they are asked for."""

CAMERA_PAIRS = "cam-pair"
"""Groups of pairs of a query's camera and a positive's."""

RESERVED_COLUMNS = frozenset({*KNOWN_COLUMNS, "group", CAMERA_PAIRS})
"""Names that further columns cannot have."""


class Labels:
    """Labels of the queries, or of the gallery: one entry per item.

    Parameters
    ----------
    id : [n] array_like of any integer or string type
        Identities.
    cam : [n] array_like of any integer or string type, optional
        Cameras.
    key : [n] array_like of any integer or string type, optional
        Name of the item in both sets, for ``self_match="key"``.
    more : mapping of str to [n] array_like of any integer or string type, optional
        Further columns: for protocols that ignore pairs by them, and to group results by.
    source : str
        Where the labels come from, for messages.
    sources : mapping of str to str, optional
        Where single columns come from, if not from `source`.

    Attributes
    ----------
    columns : dict of str to [n] integer or string array
        All columns by name: ``id``, and ``cam``, ``key`` and further ones where given.
    source : str

    Raises
    ------
    InputError
        If there is no ``id``, a column is not 1-d, holds neither integers nor strings, or has
        another length than ``id``; or if a further column has a reserved name.
    """

    def __init__(
        self,
        id: npt.ArrayLike,
        cam: npt.ArrayLike | None = None,
        key: npt.ArrayLike | None = None,
        more: Mapping[str, npt.ArrayLike] | None = None,
        source: str = "labels",
        sources: Mapping[str, str] | None = None,
    ) -> None:
        if id is None:
            raise InputError(f"{source} has no id: an identity per item is needed")
        more = {} if more is None else more
        if not isinstance(more, Mapping):
            raise InputError(
                f"further columns of {source} are of type {type(more).__name__}; a "
                "mapping of names to columns is needed: more={'weather': [...]}"
            )
        taken = RESERVED_COLUMNS.intersection(more)
        if taken:
            raise InputError(
                f"{source} has {min(taken)} among its further columns; this name is reserved: "
                "rename the column"
            )
        given = {"id": id, "cam": cam, "key": key, **more}
        where = {name: (sources or {}).get(name, source) for name in given}
        self.source = source
        self.columns: dict[str, AnyArray] = {
            name: label_column(values, f"{where[name]} {name}")
            for name, values in given.items()
            if values is not None
        }
        for name, values in self.columns.items():
            if len(values) != len(self.id):
                other = "" if where[name] == where["id"] else f"{where[name]} "
                raise InputError(
                    f"{where['id']} has {len(self.id)} ids, and {other}{len(values)} entries of "
                    f"{name}: one per item is needed"
                )

    @classmethod
    def of(
        cls,
        columns: Mapping[str, npt.ArrayLike],
        source: str = "labels",
        sources: Mapping[str, str] | None = None,
    ) -> Labels:
        """Return labels of named columns, known and further ones."""
        more = {name: values for name, values in columns.items() if name not in KNOWN_COLUMNS}
        id, cam, key = (columns.get(name) for name in KNOWN_COLUMNS)
        return cls(id, cam, key, more, source, sources)  # type: ignore[arg-type]

    @classmethod
    def join(cls, parts: Sequence[Labels], source: str) -> Labels:
        """Return the items of several labels; columns that a part lacks are left out."""
        names = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
        return cls.of(
            {name: np.concatenate([part.columns[name] for part in parts]) for name in names}, source
        )

    def select(self, names: Sequence[str]) -> Labels:
        """Return those of some columns that there are."""
        return self.of({name: v for name, v in self.columns.items() if name in names}, self.source)

    def take(self, index: npt.NDArray[Any] | slice) -> Labels:
        """Return the labels of some items."""
        return self.of({name: values[index] for name, values in self.columns.items()}, self.source)

    @property
    def id(self) -> AnyArray:
        """Identities, [n]."""
        return self.columns["id"]

    @property
    def cam(self) -> AnyArray | None:
        """Cameras, [n]; None without."""
        return self.columns.get("cam")

    @property
    def key(self) -> AnyArray | None:
        """Names of the items, [n]; None without."""
        return self.columns.get("key")

    @property
    def more(self) -> dict[str, AnyArray]:
        """Further columns by name."""
        return {name: values for name, values in self.columns.items() if name not in KNOWN_COLUMNS}

    def __len__(self) -> int:
        return len(self.id)


def as_numpy(values: Any, what: str) -> npt.NDArray[Any]:
    """Return it as an array of NumPy.

    Raises
    ------
    InputError
        If that can't be, or values are masked.
    """
    if np.ma.is_masked(values):
        raise InputError(f"{what} has masked values: fill them in (.filled), or leave them out")
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of two lengths, another device
        raise InputError(f"{what} can't be made an array of NumPy: {error}") from error


def label_column(values: npt.ArrayLike, what: str) -> AnyArray:
    """Return labels as a 1-d array of an integer or string dtype.

    Parameters
    ----------
    values : array_like
        [n], [n, 1] or [1, n].
    what : str
        How messages call it.

    Raises
    ------
    InputError
        If the values are of another shape or type; NaN and fractions name the first row.
    """
    if isinstance(values, str | Path):
        raise InputError(
            f"{what} is a text, {str(values)!r}; labels themselves are needed (those of a file: "
            "read_labels)"
        )
    array = as_numpy(values, what)
    if array.shape == (0,) and not hasattr(values, "dtype"):
        return np.empty(0, np.int64)
    if array.dtype.kind in "US" and not hasattr(values, "dtype"):
        array = np.asarray(values, object)  # of a list [1, "a"] NumPy would make strings
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise InputError(
            f"{what} has shape {array.shape}; a 1-d array, one label an item, is needed"
        )
    if array.dtype.kind == "O":
        array = _of_objects(array, what)
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(array))
        if bad.size:
            raise InputError(
                f"{what} row {bad[0]} is {array[bad[0]]}: labels must be integers or strings"
            )
        raise InputError(
            f"{what} is of dtype {array.dtype}; integers or strings are needed "
            "(whole numbers stored as floats: convert with .astype('int64'))"
        )
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise InputError(f"{what} holds {array.max()}, beyond int64; give such labels as strings")
    if array.dtype.kind not in "iuUST":
        raise InputError(f"{what} is of dtype {array.dtype}; integers or strings are needed")
    return array if array.dtype.kind in "iuU" else _strings(array, what)


def _of_objects(array: AnyArray, what: str) -> AnyArray:
    """Return integers or strings that an object array holds, Python's or NumPy's."""
    values = array.tolist()
    if all(isinstance(value, str) for value in values):
        return array.astype(np.str_)
    if all(isinstance(value, bytes) for value in values):
        return array.astype(np.bytes_)
    if all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values):
        try:
            return array.astype(np.int64)
        except OverflowError as error:
            raise InputError(
                f"{what} holds an integer beyond int64; give such labels as strings"
            ) from error
    names = ", ".join(sorted({type(value).__name__ for value in values}))
    raise InputError(
        f"{what} holds values of type {names}; integers or strings are needed, all of one kind"
    )


def _strings(array: AnyArray, what: str) -> AnyArray:
    """Return bytes or variable-length strings as fixed-length strings."""
    try:
        return array.astype(object if array.dtype.kind == "T" else np.str_).astype(np.str_)
    except UnicodeDecodeError as error:
        raise InputError(f"{what} holds bytes that are no ASCII text ({error})") from error
