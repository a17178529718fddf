"""What the options' texts stand for; heavy modules are imported where they are used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from streameval.errors import OptionError

if TYPE_CHECKING:
    from streameval.kernels.canonical import Metric
    from streameval.labels.listed import ListedAs
    from streameval.metrics.resampling import Resampling
    from streameval.protocols.listed import ListedPairs
    from streameval.protocols.protocol import AnyArray, Labels, Protocol
    from streameval.sources.sources import Distances, Features


def open_source(
    distances: str | None, query: str | None, gallery: str | None, metric: str | None
) -> Distances | Features:
    """Open the distances, or the features of both sides.

    Raises
    ------
    OptionError
        If the options conflict, or one is missing.
    InputError
        If an array can't be evaluated.
    """
    if distances is not None and (query is not None or gallery is not None):
        other = "--query" if query is not None else "--gallery"
        raise OptionError(
            f"got --distances and {other}: give a stored matrix (--distances), or features "
            "(--query and --gallery)"
        )
    if distances is not None:
        if metric is not None:
            raise OptionError(
                f"got --distances and --metric {metric}: a stored matrix holds its distances "
                "already; leave --metric out"
            )
        from streameval.sources.sources import Distances

        return Distances(distances)
    return open_features(query, gallery, metric)


def open_features(query: str | None, gallery: str | None, metric: str | None) -> Features:
    """Open the features of both sides.

    Raises
    ------
    OptionError
        If one is missing, or the metric unknown.
    InputError
        If an array can't be evaluated.
    """
    from streameval.sources.sources import Features

    sides = check_features(query, gallery)
    return Features(*sides, cast("Metric", metric or "cosine"))  # checked there


def check_features(query: str | None, gallery: str | None) -> tuple[str, str]:
    """Return the features of both sides, before any is read.

    Raises
    ------
    OptionError
        If one is missing.
    """
    both = "features of both sides (--query and --gallery)"
    if query is None and gallery is None:
        raise OptionError(
            f"got nothing to evaluate: give a stored matrix (--distances), {both}, or lists "
            "(--neighbors)"
        )
    if query is None or gallery is None:
        raise OptionError(
            f"got {'--gallery' if query is None else '--query'} to evaluate: give {both}"
        )
    return query, gallery


def with_bundle(given: dict[str, Any]) -> dict[str, Any]:
    """Return options with the arrays of the one file that holds them all, if there is one.

    Parameters
    ----------
    given : dict of str to object
        By their names, and ``bundle``, the file or None.

    Raises
    ------
    OptionError
        If sources or labels are given beside it.
    InputError
        If it lacks an array.
    """
    if given["bundle"] is None:
        return given
    from streameval.labels.bundle import NAMES, bundle_uris

    others = (*NAMES, "distances", "query_labels", "gallery_labels")
    twice = [name for name in others if given.get(name) is not None]
    if twice:
        raise OptionError(
            f"got {given['bundle']} and --{twice[0].replace('_', '-')}: give the one file that "
            "holds features and labels, or each by its option"
        )
    return given | bundle_uris(given["bundle"])


LabelOptions = tuple[str | None, str | None, str | None, str | None]
"""Ids, cams, keys and table of a side, as given."""


def label_options(given: Mapping[str, Any], side: str) -> LabelOptions:
    """Return what the options of a side, "query" or "gallery", say of its labels."""
    ids, cams, keys, table = (
        given[f"{side}_{column}"] for column in ("ids", "cams", "keys", "labels")
    )
    return ids, cams, keys, table


def check_label_options(
    side: str, ids: str | None, cams: str | None, keys: str | None, table: str | None
) -> None:
    """Check that the labels of a side come from arrays or from a table, before any is read.

    Parameters
    ----------
    side : {"query", "gallery"}
    ids, cams, keys, table : str or None

    Raises
    ------
    OptionError
        If both are given, or no identities are.
    """
    arrays = [
        f"--{side}-{column}"
        for column, uri in (("ids", ids), ("cams", cams), ("keys", keys))
        if uri is not None
    ]
    if table is not None and arrays:
        raise OptionError(
            f"got --{side}-labels and {arrays[0]}: give a table with columns id[,cam][,key], or "
            "an array a column"
        )
    if table is None and ids is None:
        raise OptionError(
            f"the identities of the {side} are missing: give --{side}-ids ARRAY, or "
            f"--{side}-labels TABLE with a column id"
        )


def open_labels(
    query: LabelOptions, gallery: LabelOptions, group_by: str | None
) -> tuple[Labels, Labels]:
    """Read the labels of both sides; the options have passed `check_label_options`.

    A table of the queries may have a further column to group by.
    """
    from streameval.labels.columns import LabelUris, read_sides
    from streameval.protocols.protocol import RESERVED_COLUMNS

    further = group_by is not None and is_column(group_by) and group_by not in RESERVED_COLUMNS
    more = [group_by] if group_by is not None and further else []
    return read_sides(LabelUris(*query), LabelUris(*gallery), more=more)


def open_listed(
    good: str | None, junk: str | None, listed_as: ListedAs, query: Labels, gallery: Labels
) -> ListedPairs | None:
    """Read the lists of good and junk pairs; None where there are none.

    Raises
    ------
    OptionError
        If there are junk pairs alone, or what they list without any list.
    InputError
        If a list can't be read, or doesn't fit.
    """
    if good is None:
        if junk is not None:
            raise OptionError(f"got --junk {junk} without --good: give the positives, too")
        if listed_as != "1-based":
            raise OptionError(
                f"got --listed-as {listed_as} without --good: give the lists, or leave it out"
            )
        return None
    from streameval.labels.listed import read_listed_pairs

    return read_listed_pairs(good, junk, queries=len(query), gallery=gallery, listed_as=listed_as)


def open_protocol(protocol: str | None) -> str | Protocol | None:
    """Return the protocol of a TOML file; a name, or None, as it is.

    Raises
    ------
    InputError, OptionError
        As `read_protocol` does.
    """
    if protocol is None or not protocol.lower().endswith(".toml"):
        return protocol
    from streameval.labels.protocol_file import read_protocol

    return read_protocol(protocol)


def open_groups(group_by: str) -> str | AnyArray:
    """Return the column that ``--group-by`` names, or the labels of an array.

    Raises
    ------
    InputError
        If there is no such array.
    """
    from streameval.labels.columns import read_labels

    return group_by if is_column(group_by) else read_labels(group_by).id


def is_column(group_by: str) -> bool:
    """Tell whether a text is the name of a column; a URI has a suffix, or a folder."""
    return re.fullmatch(r"[\w -]+", group_by) is not None


def parse_range(text: str) -> str | tuple[float, float]:
    """Return the range of an option: ``auto``, ``minmax`` or ``LO,HI``.

    Raises
    ------
    OptionError
    """
    if text == "auto":
        return "auto"
    if text == "minmax":
        return "minmax"
    try:
        low, high = (float(bound) for bound in text.split(","))
    except ValueError:
        raise OptionError(
            f"--range is {text!r}; expected auto, minmax, or two numbers LO,HI such as 0,2"
        ) from None
    return low, high


def parse_level(percent: float | None, **how: int) -> Resampling | None:
    """Return how ``--ci 95`` makes intervals; None where it is not given.

    Parameters
    ----------
    percent : float, optional
    **how
        Other attributes of `Resampling`.

    Raises
    ------
    OptionError
    """
    from streameval.metrics.resampling import Resampling

    if percent is None:
        return None
    if not 1 <= percent < 100:
        raise OptionError(f"--ci is {percent:g}; expected a percentage from 1 to below 100: 95")
    return Resampling(percent / 100, **how)


def by_name(places: tuple[str, ...], labels: tuple[str, ...], what: str) -> dict[str, str]:
    """Return places by what ``--label`` calls them, or by themselves.

    Raises
    ------
    OptionError
        If there is not one label each, or two names are the same.
    """
    if labels and len(labels) != len(places):
        raise OptionError(f"got {len(labels)} --label for {len(places)} {what}: one each")
    names = labels or places
    if len(set(names)) != len(names):
        raise OptionError(f"two {what} are called the same: name them by --label")
    return dict(zip(names, places, strict=True))


def parse_junk_ids(texts: Sequence[str], gallery: Labels) -> list[int | str] | None:
    """Return junk ids as what the gallery's ids are; None (the protocol's own) for none.

    Raises
    ------
    OptionError
        If the ids are integers, and a junk id is not.
    """
    if not texts:
        return None
    if gallery.id.dtype.kind == "U":
        return list(texts)
    for text in texts:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
            raise OptionError(
                f"--junk-id is {text!r}, and the ids of {gallery.source} are integers; "
                "give an integer"
            )
    return [int(text) for text in texts]
