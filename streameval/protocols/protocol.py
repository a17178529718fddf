"""Protocols: which (query, gallery) pairs take part, as data.

Every pair is exactly one of *ignored*, *positive* (same identity, not ignored) and *negative*
(anything else). A `Protocol` says which are ignored and how CMC is read; nothing else in the
package knows a protocol by its name. A new one is one more entry of `PROTOCOLS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streameval.choices import SelfMatch
from streameval.errors import InputError, OptionError

AnyArray = npt.NDArray[np.generic]

SINGLE_GALLERY_SHOT: Literal["single-gallery-shot"] = "single-gallery-shot"


@dataclass(frozen=True)
class Protocol:
    """Which pairs are ignored, and how CMC is read.

    Attributes
    ----------
    name : str
    same_identity_and_camera : bool
        Ignore pairs of the same identity seen by the same camera.
    same_camera : bool
        Ignore every pair of the same camera.
    cmc : {"first-match", "all-shots", "single-gallery-shot"}
        How CMC counts a query with several positives: see `MetricOptions`.
    junk_ids : tuple of int or str
        Gallery identities that take no part for any query.
    self_match : {None, "index", "key"}
        Ignore the query's own image: the gallery item with the same index, or the same key.
    listed : bool
        Take positive and ignored pairs from lists (`ListedPairs`), and from nothing else.
    shot_draws, shot_seed : int
        Under single gallery shot: how often ``CMC_sampled@x`` draws an item of each identity for
        each query, and the seed of these draws.
    """

    name: str
    same_identity_and_camera: bool
    same_camera: bool = False
    cmc: Literal["first-match", "all-shots", "single-gallery-shot"] = "first-match"
    junk_ids: tuple[int | str, ...] = (-1,)
    self_match: SelfMatch | None = None
    listed: bool = False
    shot_draws: int = 10
    shot_seed: int = 0

    def __post_init__(self) -> None:
        """Check that there are draws, from a seed, and identities to draw from."""
        if self.listed and self.cmc == SINGLE_GALLERY_SHOT:
            raise OptionError(
                f"protocol {self.name} takes its pairs from lists, and its CMC is of one item of "
                "each gallery identity: lists don't tell what an unlisted item of the query's own "
                "identity is; choose cmc first-match or all-shots"
            )
        for name, least in (("shot_draws", 1), ("shot_seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
                raise OptionError(
                    f"{name} of protocol {self.name} is {value!r}; a whole number of at least "
                    f"{least} is needed"
                )

    @property
    def needs_cameras(self) -> bool:
        """Whether pairs are ignored by camera."""
        return self.same_identity_and_camera or self.same_camera


PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol("market1501", same_identity_and_camera=True),
        Protocol("allshots", same_identity_and_camera=True, cmc="all-shots"),
        Protocol(
            "cuhk03", same_identity_and_camera=True, same_camera=True, cmc="single-gallery-shot"
        ),
        Protocol("cuhk03-torchreid", same_identity_and_camera=True, cmc="single-gallery-shot"),
        Protocol("separate-camera", same_identity_and_camera=True, same_camera=True),
        Protocol("no-camera", same_identity_and_camera=False),
        Protocol("listed", same_identity_and_camera=False, junk_ids=(), listed=True),
    )
}
"""The protocols by name; ``market1501`` is the default."""


def with_options(
    protocol: str | Protocol,
    *,
    junk_ids: Iterable[int | str] | None = None,
    self_match: SelfMatch | None = None,
    shot_draws: int | None = None,
    shot_seed: int | None = None,
) -> Protocol:
    """Return a protocol, or the one of that name, with the options that are given.

    Parameters
    ----------
    protocol : str or Protocol
        A key of `PROTOCOLS`, or a protocol itself.
    junk_ids : sequence of int or str, optional
        In place of the protocol's own junk identities.
    self_match : {"index", "key"}, optional
    shot_draws, shot_seed : int, optional
        In place of the protocol's own.

    Raises
    ------
    OptionError
        If the name or the way to match is unknown, and the known ones are listed; or if the
        protocol has no use for an option.
    """
    if isinstance(protocol, str):
        if protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise OptionError(f"unknown protocol {protocol!r}; known protocols: {known}")
        protocol = PROTOCOLS[protocol]
    if not isinstance(protocol, Protocol):
        raise OptionError(
            f"protocol is {protocol!r}; expected a Protocol, or the name of one: "
            f"{', '.join(PROTOCOLS)}"
        )
    if isinstance(junk_ids, str) or not isinstance(junk_ids, Iterable | None):
        raise OptionError(f"junk_ids is {junk_ids!r}; expected several identities: [{junk_ids!r}]")
    junk_ids = None if junk_ids is None else tuple(junk_ids)
    if self_match not in (None, "index", "key"):
        raise OptionError(f"self_match is {self_match!r}; expected index or key")
    if protocol.listed and (junk_ids or self_match):
        raise OptionError(
            f"protocol {protocol.name} takes its pairs from lists alone, and got "
            f"{'junk ids' if junk_ids else 'self_match'}: put these pairs on the junk list"
        )
    draws = {"shot_draws": shot_draws, "shot_seed": shot_seed}
    named = [name for name, value in draws.items() if value is not None]
    if named and protocol.cmc != SINGLE_GALLERY_SHOT:
        raise OptionError(
            f"{named[0]} is {draws[named[0]]!r}, and protocol {protocol.name} draws nothing: "
            "choose cuhk03 or cuhk03-torchreid, or leave it out"
        )
    given: dict[str, Any] = {"junk_ids": junk_ids, "self_match": self_match, **draws}
    return replace(protocol, **{name: one for name, one in given.items() if one is not None})


CAMERA_PAIRS = "cam-pair"
"""What groups are by, where they are pairs of a query's camera and a positive's."""

RESERVED_COLUMNS = frozenset({"id", "cam", "key", "group", CAMERA_PAIRS})
"""Columns of labels that have a meaning of their own."""


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of the queries, or of the gallery: one entry an item; lists become arrays.

    Attributes
    ----------
    id : [n] array of any integer or string type
        Identities.
    cam : [n] array of any integer or string type, optional
        Cameras.
    key : [n] array of any integer or string type, optional
        What the item is known by in both sets, for ``self_match="key"``.
    more : mapping of str to [n] array of any integer or string type
        Further labels of queries, that results may be grouped by.
    source : str
        Where the labels came from, for messages.
    sources : dict of str to str
        Where single columns came from, by their names, where that is not `source`.
    """

    id: AnyArray
    cam: AnyArray | None = None
    key: AnyArray | None = None
    more: Mapping[str, AnyArray] = field(default_factory=dict)
    source: str = "labels"
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Bring every column to a 1-d integer or string array, or say why that can't be."""
        if self.id is None:
            raise InputError(f"{self.source} has no id: an identity an item is needed")
        if not isinstance(self.more, Mapping):
            raise InputError(
                f"further columns of {self.source} are of type {type(self.more).__name__}; a "
                "mapping of names to columns is needed: more={'weather': [...]}"
            )
        where = {column: self.sources.get(column, self.source) for column in ("id", "cam", "key")}
        for column, source in where.items():
            values = getattr(self, column)
            if values is not None:
                object.__setattr__(self, column, label_column(values, f"{source} {column}"))
        further = {
            name: label_column(values, f"{self.source} {name}")
            for name, values in self.more.items()
        }
        object.__setattr__(self, "more", further)
        taken = RESERVED_COLUMNS.intersection(further)
        if taken:
            raise InputError(
                f"{self.source} has {min(taken)} among its further columns, a name that stands for "
                "something else: give it another"
            )
        where |= dict.fromkeys(further, self.source)
        for column in ("cam", "key", *further):
            values = further[column] if column in further else getattr(self, column)
            if values is not None and len(values) != len(self.id):
                other = "" if where[column] == where["id"] else f"{where[column]} "
                raise InputError(
                    f"{where['id']} has {len(self.id)} ids, and {other}{len(values)} entries of "
                    f"{column}: one an item is needed"
                )

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
