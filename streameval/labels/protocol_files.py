"""Files of protocols: rules as TOML, and lists of good and junk pairs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import get_args

import numpy as np

from streameval.arrays.identity import unchanging
from streameval.choices import ListedAs
from streameval.errors import InputError, OptionError, check_path, entry_point, refuse
from streameval.labels.columns import LabelsLike, labels_of
from streameval.protocols.labels import Labels
from streameval.protocols.listed import ListedPairs, PairList
from streameval.protocols.protocol import Protocol
from streameval.protocols.shipped import PROTOCOLS, protocol_of


@entry_point
def read_protocol(path: str | Path) -> Protocol:
    """Read a protocol from a TOML file.

    The keys are the parameters of `Protocol`. ``ignore``, or its earlier spelling
    ``same_identity_and_camera``, is required. ``name`` defaults to the name of the file.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Protocol
        For ``protocol=`` of `evaluate`.

    Raises
    ------
    InputError
        If the file can't be read.
    OptionError
        If a key is unknown or missing, a value is invalid, or the name is that of a built-in
        protocol.
    """
    check_path(path)
    path = Path(path)
    try:
        with unchanging(path):
            given = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise InputError(
            f"protocol {path} does not exist: give a TOML file, or one of {', '.join(PROTOCOLS)}"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"protocol {path} can't be read: {error}") from error
    name = given.get("name", path.stem)
    if name in list(PROTOCOLS):
        raise OptionError(
            f"protocol {path} is named {name!r}, as a shipped protocol: give another name"
        )
    try:
        return protocol_of(given, path.stem, str(path))
    except OptionError as error:
        told = str(error)
        raise OptionError(told if str(path) in told else f"protocol {path}: {told}") from error


@entry_point
def read_listed_pairs(
    good: str | Path,
    junk: str | Path | None = None,
    *,
    queries: int,
    gallery: LabelsLike,
    listed_as: ListedAs = "1-based",
) -> ListedPairs:
    """Read lists of good and junk gallery items, as in VeRi-776.

    A file has one line per query, in the order of the queries. Items are separated by blanks or
    commas. The line of a query without items is empty.

    Parameters
    ----------
    good, junk : str or Path
        Paths of the lists. Without `junk`, nothing is ignored.
    queries : int
        Number of queries Q.
    gallery : Labels, mapping or table
        Labels of the gallery; they need keys if the lists contain keys.
    listed_as : {"1-based", "0-based", "key"}
        Format of an item: its gallery index from 1 (as in MATLAB and VeRi-776) or from 0, or its
        key, such as an image name.

    Returns
    -------
    ListedPairs
        For ``listed=`` of `evaluate`.

    Raises
    ------
    InputError
        If a file can't be read or does not have one line per query, or if an item is not in the
        gallery or in both files. The message names file and line.
    OptionError
        If `listed_as` is unknown, or the gallery has no keys.
    """
    gallery = labels_of(gallery, "gallery")
    known = get_args(ListedAs)
    refuse(
        OptionError,
        listed_as not in known
        and f"listed_as is {listed_as!r}; expected one of {', '.join(known)}",
        listed_as == "key"
        and gallery.key is None
        and f"{good} lists keys, and {gallery.source} has none: give the gallery's keys",
    )
    none = PairList.of([()] * queries, "no junk list")
    pairs = ListedPairs(
        _read_list(good, queries, gallery, listed_as),
        none if junk is None else _read_list(junk, queries, gallery, listed_as),
    )
    pairs.counts(queries, len(gallery))  # checks both
    return pairs


def _read_list(path: str | Path, queries: int, gallery: Labels, listed_as: ListedAs) -> PairList:
    check_path(path)
    try:
        with unchanging(Path(path)):
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"list of pairs {path} can't be read: {error}") from error
    while len(lines) > queries and not lines[-1].strip():
        lines.pop()
    base, keyed = int(listed_as == "1-based"), listed_as == "key"
    place: dict[str, int] = {}
    for item, key in enumerate(np.asarray(gallery.key, np.str_).tolist() if keyed else ()):
        place[key] = -1 if key in place else item

    def index(text: str, query: int) -> int:
        whole = text.isdecimal() and len(text) <= 18
        found = place.get(text) if keyed else int(text) if whole else None
        if found is not None and found >= 0:
            return found
        why = f"; the index of a gallery item, counted from {base}, is needed; list names as keys"
        if keyed:
            has = "not" if found is None else "twice"
            why = f", a key that the gallery has {has}: the key of one item is needed"
        raise InputError(f"{path}, line {query + 1} (query {query}) has {text[:100]!r}{why}")

    rows = (
        [index(text, query) for text in line.replace(",", " ").split()]
        for query, line in enumerate(lines)
    )
    return PairList.of(rows, str(path), base)
