"""Labels of the queries, or of the gallery: named columns with one entry an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, entry_point, refuse
from streameval.typing import AnyArray, BoolArray

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
    more : mapping of str to [n] array_like of any integer, string or float type, optional
        Other columns, for protocols that use them and for grouping. Floats can only be compared
        with numbers.
    source : str
        Origin of the labels, for messages.
    sources : mapping of str to str, optional
        Origin of single columns, if it is not `source`.

    Attributes
    ----------
    columns : dict of str to [n] integer, string or float64 array
        All given columns by name: ``id``, ``cam``, ``key`` and others.
    source : str
    unread : tuple of str
        Further columns of the table that these are of, for messages.

    Raises
    ------
    InputError
        If there is no ``id``, a column is not 1-d, contains neither integers nor strings, or
        differs from ``id`` in length; if an ``id`` is missing; or if another column has a reserved
        name.

    Notes
    -----
    A label of any column but ``id`` may be missing: None, NaN or an empty text. It equals nothing,
    not even another missing label. In `columns`, a missing text is empty, and whole numbers with
    missing ones are float64, with NaN.
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
        self.unread: tuple[str, ...] = ()
        self.columns: dict[str, AnyArray] = {}
        where = {"id": source, **(sources or {})}
        for name, values in {"id": id, "cam": cam, "key": key, **(more or {})}.items():
            if values is None:
                continue
            origin = where.get(name, source)
            what = f"{origin} {name}"
            self.columns[name] = column = label_column(values, what, optional=name != "id")
            row = first_fraction(column) if name in KNOWN_COLUMNS else None
            if row is not None:
                raise InputError(
                    f"{what} row {row} is {column[row]}: labels must be integers or strings"
                )
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

    def has_every(self, name: str) -> bool:
        """Return whether there is such a column, in which no label is missing."""
        return name in self.columns and not missing(self.columns[name]).any()

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


def missing(column: AnyArray) -> BoolArray:
    """Tell which labels of a column are missing, [n]: NaN, and empty texts."""
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind == "U":
        return np.asarray(column == "")
    return np.broadcast_to(np.False_, len(column))


def same_labels(left: AnyArray, right: AnyArray) -> BoolArray:
    """Tell where two columns have the same label, [n]; a missing one equals nothing."""
    texts = left.dtype.kind == "U"
    if texts != (right.dtype.kind == "U"):  # all of one side are missing
        return np.zeros(len(left), np.bool_)
    same: BoolArray = np.asarray(left == right)
    return same & (left != "") if texts else same


def first_fraction(column: AnyArray) -> int | None:
    """Return the first row of a column that is no integer, or too large to tell; None without."""
    if column.dtype.kind != "f":
        return None
    whole = (np.abs(column) < _EXACT) & (column == np.trunc(column))
    return _first(~whole & ~np.isnan(column))


def whole_numbers(values: AnyArray) -> AnyArray:
    """Return floats as int64 if all are whole numbers below 2⁵³ in size; others as they are."""
    if values.dtype.kind != "f" or np.isnan(values).any():
        return values
    return values.astype(np.int64) if first_fraction(values.reshape(-1)) is None else values


def label_column(values: npt.ArrayLike, what: str, *, optional: bool = False) -> AnyArray:
    """Return labels as a 1-d array of an integer or string dtype; or of float64, if optional.

    Parameters
    ----------
    values : array_like
        [n], [n, 1] or [1, n].
    what : str
        How messages call it.
    optional : bool
        Whether labels may be missing, and floats. A missing one is NaN, of texts an empty one.
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
    if array.dtype.kind in "OT":
        array = _of_objects(array.astype(object), what, optional)
    if array.dtype.kind == "i":
        return array
    kind, numbers = array.dtype.kind, array.dtype.kind == "f"
    bad = _first(~np.isfinite(array) & ~(optional & np.isnan(array))) if numbers else None
    needed = f"{what} is of dtype {array.dtype}; integers or strings are needed"
    refuse(
        InputError,
        bad is not None and f"{what} row {bad} is {array[bad]}: labels must be integers or strings",
        numbers
        and not optional
        and f"{needed} (whole numbers stored as floats: convert with .astype('int64'))",
        kind not in "ufUS" and needed,
        kind == "u"
        and array.max(initial=0) > np.iinfo(np.int64).max
        and f"{what} holds {array.max()}, beyond int64; give such labels as strings",
    )
    if numbers:
        return whole_numbers(array.astype(np.float64, copy=False))
    if kind == "u":
        return array
    try:
        texts: AnyArray = array.astype(np.str_)
    except UnicodeDecodeError as error:
        raise InputError(f"{what} holds bytes that are no ASCII text ({error})") from error
    empty = None if optional else _first(missing(texts))
    if empty is not None:
        raise InputError(f"{what} row {empty} is an empty text: a label is needed")
    return texts


def _first(chosen: AnyArray) -> int | None:
    """Return the first row of which something holds; None if it holds of none."""
    return int(np.argmax(chosen)) if chosen.any() else None


def _of_objects(array: AnyArray, what: str, optional: bool) -> AnyArray:
    """Return integers, strings or, if optional, floats that an object array holds.

    They may be Python's or NumPy's.
    """
    values = array.tolist()
    kinds = set(map(type, values))
    gone = np.zeros(len(values), np.bool_)
    if any(issubclass(one, type(None) | float) for one in kinds):  # NaN is the one not to be itself
        gone[:] = [one is None or (isinstance(one, float) and one != one) for one in values]
    if gone.any():
        row = int(np.argmax(gone))
        refuse(
            InputError,
            not optional
            and f"{what} row {row} is {values[row]}: a label is needed, an integer or a string",
        )
        kinds = set(map(type, array[~gone]))

    def are(*wanted: type) -> bool:
        return all(issubclass(one, wanted) and one is not bool for one in kinds)

    for kind, dtype in ((str, np.str_), (bytes, np.bytes_)):
        if are(kind) and not (values and gone.all()):
            _refuse_nul(array[~gone].tolist(), what)
            array[gone] = kind()
            return array.astype(dtype)
    integers, numbers = (int, np.integer), (int, np.integer, float, np.floating)
    try:
        if are(*integers) and not gone.any():
            return array.astype(np.int64)
    except OverflowError as error:
        raise InputError(
            f"{what} holds an integer beyond int64; give such labels as strings"
        ) from error
    if optional and are(*numbers):
        large = [one for one in values if isinstance(one, integers) and abs(int(one)) >= _EXACT]
        if large:
            raise InputError(
                f"{what} holds {large[0]} beside missing labels or fractions, and integers from "
                "2**53 on are not exact there: give such labels as strings"
            )
        array[gone] = np.nan
        return array.astype(np.float64)
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
    if strings[0] != strings[1] and not any(missing(labels).all() for labels in columns):
        kinds = "strings and integers" if strings[0] else "integers and strings"
        names = {"id": "ids", "cam": "cameras", "key": "keys"}.get(column, f"column {column}")
        raise InputError(
            f"{names} of {query.source}, {gallery.source} are {kinds}, and none would match: store "
            f"those of the {'gallery' if strings[0] else 'query'} as strings, too (NumPy: "
            "labels.astype(str); a table: a column of text), or both as integers"
        )
