"""Lists of good and junk pairs: text files with a line a query."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np

from streameval.choices import ListedAs
from streameval.errors import InputError, OptionError, check_path
from streameval.protocols.labels import Labels
from streameval.protocols.listed import ListedPairs, PairList


def read_listed_pairs(
    good: str | Path,
    junk: str | Path | None = None,
    *,
    queries: int,
    gallery: Labels,
    listed_as: ListedAs = "1-based",
) -> ListedPairs:
    """Read lists of good and junk gallery items, as VeRi-776 has them.

    A line a query, in the order of the queries; items are separated by blanks or commas; the
    line of a query of which nothing is listed is empty.

    Parameters
    ----------
    good, junk : str or Path
        Without junk nothing is ignored.
    queries : int
        Their number Q.
    gallery : Labels
        With keys, where these are listed.
    listed_as : {"1-based", "0-based", "key"}
        What stands for a gallery item: its index, counted from 1 (as in MATLAB, and in VeRi-776)
        or from 0, or its key: an image name, say.

    Returns
    -------
    ListedPairs
        For ``listed=`` of `evaluate`.

    Raises
    ------
    InputError
        If a file can't be read, has not a line a query, lists what is not in the gallery, or
        lists a pair that is in the other file, too. Names file and line.
    OptionError
        If `listed_as` is unknown, or the gallery has no keys.
    """
    if listed_as not in get_args(ListedAs):
        raise OptionError(
            f"listed_as is {listed_as!r}; expected one of {', '.join(get_args(ListedAs))}"
        )
    if listed_as == "key" and gallery.key is None:
        raise OptionError(
            f"{good} lists keys, and {gallery.source} has none: give the gallery's keys"
        )
    lists = [_read(good, queries, gallery, listed_as)]
    if junk is None:
        lists.append(PairList.of([()] * queries, "no junk list"))
    else:
        lists.append(_read(junk, queries, gallery, listed_as))
    pairs = ListedPairs(*lists)
    pairs.merged(queries, len(gallery))  # checks both
    return pairs


def _read(path: str | Path, queries: int, gallery: Labels, listed_as: ListedAs) -> PairList:
    check_path(path)
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"list of pairs {path} can't be read: {error}") from error
    while len(lines) > queries and not lines[-1].strip():
        lines.pop()
    rows = [line.replace(",", " ").split() for line in lines]
    if listed_as == "key":
        return PairList.of(_by_key(path, rows, gallery), str(path))
    base = 1 if listed_as == "1-based" else 0
    return PairList.of(_integers(path, rows, base), str(path), base)


def _integers(path: str | Path, rows: list[list[str]], base: int) -> list[list[int]]:
    found = []
    for number, row in enumerate(rows):
        for text in row:
            if not text.isdecimal() or len(text) > 18:
                raise InputError(
                    f"{path}, line {number + 1} (query {number}) has {text[:100]!r}; the index "
                    f"of a gallery item, counted from {base}, is needed; image names are listed "
                    "as keys"
                )
        found.append([int(text) for text in row])
    return found


def _by_key(path: str | Path, rows: list[list[str]], gallery: Labels) -> list[list[int]]:
    keys = [] if gallery.key is None else gallery.key.astype(np.str_).tolist()
    place: dict[str, int] = {}
    twice = set()
    for item, key in enumerate(keys):
        if place.setdefault(key, item) != item:
            twice.add(key)
    found = []
    for number, row in enumerate(rows):
        for text in row:
            if text not in place or text in twice:
                why = "has twice" if text in twice else "has not"
                raise InputError(
                    f"{path}, line {number + 1} (query {number}) has {text[:100]!r}, a key that "
                    f"the gallery {why}: the key of one item is needed"
                )
        found.append([place[text] for text in row])
    return found
