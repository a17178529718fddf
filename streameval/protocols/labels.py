"""Labels of the queries, or of the gallery: named columns with one entry an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, entry_point, refuse
from streameval.typing import AnyArray

KNOWN_COLUMNS = ("id", "cam", "key")
"""Columns that every reader of labels knows; others are read where they are asked for."""

CAMERA_PAIRS = "cam-pair"
"""Groups of pairs of a query's camera and a positive's."""

RESERVED_COLUMNS = frozenset({*KNOWN_COLUMNS, "group", CAMERA_PAIRS})
"""Names that further columns cannot have."""


_EXACT = 2.0**53  # from here on, floats stand for several integers


class Labels:
    """Labels of the queries, or of the gallery: one entry per item.

    Parameters
    ----------
    id : [n] array_like of any integer or string type
        Identities.
    cam : [n] array_like of any integer or string type, optional
        Cameras.
    key : [n] array_like of any integer or string type, optional
        Name of the item on both sides, for ``self_match="key"``.
    more : mapping of str to [n] array_like of any integer or string type, optional
        Other columns, for protocols that use them and for grouping.
    source : str
        Origin of the labels, for messages.
    sources : mapping of str to str, optional
        Origin of single columns, if it is not `source`.

    Attributes
    ----------
    columns : dict of str to [n] integer or string array
        All given columns by name: ``id``, ``cam``, ``key`` and others.
    source : str

    Raises
    ------
    InputError
        If there is no ``id``, a column is not 1-d, contains neither integers nor strings, or
        differs from ``id`` in length; or if another column has a reserved name.
    """

    @entry_point
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
        if not isinstance(more, Mapping | None):
            raise InputError(
                f"further columns of {source} are of type {type(more).__name__}; a "
                "mapping of names to columns is needed: more={'weather': [...]}"
            )
        taken = RESERVED_COLUMNS.intersection(more or ())
        if taken:
            raise InputError(
                f"{source} has {min(taken)} among its further columns; this name is reserved: "
                "rename the column"
            )
        self.source = source
        self.columns: dict[str, AnyArray] = {}
        where = {"id": source, **(sources or {})}
        for name, values in {"id": id, "cam": cam, "key": key, **(more or {})}.items():
            if values is None:
                continue
            origin = where.get(name, source)
            self.columns[name] = column = label_column(values, f"{origin} {name}")
            if len(column) != len(self.id):
                other = "" if origin == where["id"] else f"{origin} "
                raise InputError(
                    f"{where['id']} has {len(self.id)} ids, and {other}{len(column)} entries of "
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

    def take(self, index: AnyArray | slice) -> Labels:
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


def as_numpy(values: Any, what: str) -> AnyArray:
    """Return it as an array of NumPy."""
    if np.ma.is_masked(values):
        raise InputError(f"{what} has masked values: fill them in (.filled), or leave them out")
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of two lengths, another device
        raise InputError(f"{what} can't be made an array of NumPy: {error}") from error


def whole_numbers(values: AnyArray) -> AnyArray:
    """Return floats as int64 if all are whole numbers below 2⁵³ in size; others as they are."""
    if values.dtype.kind != "f" or not np.all(np.abs(values) < _EXACT):  # NaN is not
        return values
    return values.astype(np.int64) if np.array_equal(values, np.trunc(values)) else values


def label_column(values: npt.ArrayLike, what: str) -> AnyArray:
    """Return labels as a 1-d array of an integer or string dtype.

    Parameters
    ----------
    values : array_like
        [n], [n, 1] or [1, n].
    what : str
        How messages call it.
    """
    if isinstance(values, str | Path):
        raise InputError(
            f"{what} is a text, {str(values)!r}; labels themselves are needed (those of a file: "
            "read_labels)"
        )
    array = as_numpy(values, what)
    if array.shape == (0,) and not hasattr(values, "dtype"):
        return np.empty(0, np.int64)
    if array.dtype.kind in "iuUS" and not hasattr(values, "dtype"):
        array = np.asarray(values, object)  # a list [1, "a"] would become strings, [1, True] ones
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise InputError(
            f"{what} has shape {array.shape}; a 1-d array, one label an item, is needed"
        )
    if array.dtype.kind == "O":
        array = _of_objects(array, what)
    if array.dtype.kind == "T":
        _refuse_nul(array.tolist(), what)
    kind = array.dtype.kind
    needed = f"{what} is of dtype {array.dtype}; integers or strings are needed"
    bad = np.flatnonzero(~np.isfinite(array) if kind == "f" else ())
    refuse(
        InputError,
        len(bad) and f"{what} row {bad[0]} is {array[bad[0]]}: labels must be integers or strings",
        kind == "f" and f"{needed} (whole numbers stored as floats: convert with .astype('int64'))",
        kind not in "iuUST" and needed,
        kind == "u"
        and array.max(initial=0) > np.iinfo(np.int64).max
        and f"{what} holds {array.max()}, beyond int64; give such labels as strings",
    )
    if kind in "iuU":
        return array
    try:
        return array.astype(object if kind == "T" else np.str_).astype(np.str_)
    except UnicodeDecodeError as error:
        raise InputError(f"{what} holds bytes that are no ASCII text ({error})") from error


def _of_objects(array: AnyArray, what: str) -> AnyArray:
    """Return integers or strings that an object array holds, Python's or NumPy's."""
    values = array.tolist()
    kinds = set(map(type, values))
    if type(None) in kinds:
        row = next(row for row, value in enumerate(values) if value is None)
        raise InputError(f"{what} row {row} is None: a label is needed, an integer or a string")
    kind: Any
    for kind, dtype in ((str, np.str_), (bytes, np.bytes_), (int | np.integer, np.int64)):
        if all(issubclass(one, kind) and one is not bool for one in kinds):
            if dtype is not np.int64:
                _refuse_nul(values, what)
            try:
                return array.astype(dtype)
            except OverflowError as error:
                raise InputError(
                    f"{what} holds an integer beyond int64; give such labels as strings"
                ) from error
    names = ", ".join(sorted({one.__name__ for one in kinds}))
    raise InputError(
        f"{what} holds values of type {names}; integers or strings are needed, all of one kind"
    )


def _refuse_nul(texts: Sequence[Any], what: str) -> None:
    """Refuse texts that NumPy would cut short: those with a NUL character."""
    nul: Any = b"\0" if texts and isinstance(texts[0], bytes) else "\0"
    for row in (row for row, text in enumerate(texts) if nul in text):
        raise InputError(
            f"{what} row {row} is {texts[row][:100]!r}, with a NUL character, which no label can "
            "have (NumPy drops it): write the label without"
        )


def check_kinds(query: Labels, gallery: Labels, column: str) -> None:
    """Raise InputError if one side has integers in a column, and the other strings."""
    columns = query.columns[column], gallery.columns[column]
    strings = [labels.dtype.kind == "U" for labels in columns]
    if all(map(len, columns)) and strings[0] != strings[1]:
        kinds = "strings and integers" if strings[0] else "integers and strings"
        names = {"id": "ids", "cam": "cameras", "key": "keys"}.get(column, f"column {column}")
        raise InputError(
            f"{names} of {query.source}, {gallery.source} are {kinds}, and none would match: store "
            f"those of the {'gallery' if strings[0] else 'query'} as strings, too (NumPy: "
            "labels.astype(str); a table: a column of text), or both as integers"
        )
