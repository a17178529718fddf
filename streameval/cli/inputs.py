"""What the options name, opened: sources, labels, lists of pairs, protocols, groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from streameval.cli.options import COLUMNS, Values, check_effect
from streameval.cli.types import is_column
from streameval.errors import OptionError

if TYPE_CHECKING:
    from streameval.metrics.confidence import Resampling
    from streameval.protocols.labels import AnyArray, Labels
    from streameval.protocols.listed import ListedPairs
    from streameval.protocols.protocol import Protocol
    from streameval.source import Source
    from streameval.sources.features import Features

SIDES = ("query", "gallery")
BOTH = "features of both sides (--query and --gallery)"
SEARCHES = ("search", "train_rows", "save_index", "missing", "tighten", "rerank", "width")
"""Options of lists of neighbours, as `Neighbors` calls them."""


def read_inputs(values: Values) -> dict[str, Any]:
    """Return the values with what they name in place of the names: what a request is made of.

    The options have passed `check_source` and `check_labels`.

    Raises
    ------
    OptionError, InputError
        If an input can't be read, or what is read doesn't fit an option.
    """
    opened: dict[str, Any] = {"source": open_source(values)} | dict.fromkeys((*SIDES, "listed"))
    opened["without_labels"] = has_shapes_only(values)
    if not opened["without_labels"]:
        opened |= zip(SIDES, open_labels(values), strict=True)
        opened["listed"] = open_listed(values, opened["query"], opened["gallery"])
    junk = parse_junk_ids(values["junk_ids"], opened["gallery"])
    opened |= {"junk_ids": junk, "protocol": open_protocol(values["protocol"])}
    if values.get("group_by") is not None:
        opened["group_by"] = None if opened["query"] is None else open_groups(values["group_by"])
    return {**values, **opened}


def check_source(values: Values) -> None:
    """Refuse options that name no source, or more than one; nothing is opened.

    Raises
    ------
    OptionError
    """
    named = [name for name in ("distances", "neighbors", "index") if values.get(name) is not None]
    sides = [side for side in SIDES if values[side] is not None]
    if len(named) > 1:
        raise OptionError(f"got --{named[0]} and --{named[1]}: choose one of them")
    if named == ["distances"] and sides:
        raise OptionError(
            f"got --distances and --{sides[0]}: give a stored matrix (--distances), or features "
            "(--query and --gallery)"
        )
    if not named and not sides:
        raise OptionError(
            f"got nothing to evaluate: give a stored matrix (--distances), {BOTH}, or lists "
            "(--neighbors)"
        )
    if len(sides) == 1:
        missing = "--gallery" if sides == ["query"] else "--query"
        raise OptionError(f"got --{sides[0]} to evaluate: give {BOTH}; {missing} is missing")
    check_effect("metric", when=bool(sides), remedy="give features, --query and --gallery")
    lists = "give --neighbors URI, or --index SPEC and features"
    of_lists = named in (["neighbors"], ["index"])
    check_effect("neighbor_distances", "k", *SEARCHES, when=of_lists, remedy=lists)
    if of_lists:
        check_effect("width", when=values["k"] == "auto", remedy="give -k auto")


def keywords(function: Callable[..., Any], values: Values) -> dict[str, Any]:
    """Return the values that a function takes, by its own names."""
    return {name: values[name] for name in signature(function).parameters if name in values}


def has_lists(values: Values) -> bool:
    """Return whether the source is lists of neighbours."""
    return any(values.get(name) is not None for name in ("neighbors", "index"))


def has_shapes_only(values: Values) -> bool:
    """Return whether shapes are given in place of data, and no labels: enough for a plan."""
    from streameval.arrays.memory import PREFIX

    uris = [values.get(name) for name in ("distances", *SIDES)]
    sources = [uri for uri in uris if uri is not None]
    labels = any(any(label_uris(values, side).values()) for side in SIDES)
    shapes = bool(sources) and all(uri.startswith(PREFIX) for uri in sources)
    return bool(values.get("dry_run")) and shapes and not labels


def open_source(values: Values) -> Source:
    """Open the source that options name which have passed `check_source`."""
    import streameval as se

    if values.get("distances") is not None:
        return se.Distances(values["distances"])
    features = None if values["query"] is None else open_features(values)
    if features is not None and not has_lists(values):
        return features
    chosen = {name: values[name] for name in ("index", "k", *SEARCHES) if values[name] is not None}
    lists = values["neighbors"], values["neighbor_distances"]
    return se.Neighbors(*lists, features=features, **chosen)


def open_features(values: Values) -> Features:
    """Open the features of both sides."""
    import streameval as se

    return se.Features(values["query"], values["gallery"], values["metric"] or "cosine")


def with_bundle(values: Values) -> Values:
    """Return options with the arrays of the one file that holds them all, if there is one.

    Raises
    ------
    OptionError
        If sources or labels are given beside it.
    InputError
        If it lacks an array.
    """
    if values["bundle"] is None:
        return values
    from streameval.labels.bundle import NAMES, bundle_uris

    others = (*NAMES, "distances", "query_labels", "gallery_labels")
    twice = [name for name in others if values.get(name) is not None]
    if twice:
        raise OptionError(
            f"got {values['bundle']} and --{twice[0].replace('_', '-')}: give the one file that "
            "holds features and labels, or each by its option"
        )
    return {**values, **bundle_uris(values["bundle"])}


def label_uris(values: Values, side: str) -> dict[str, str | None]:
    """Return where the labels of a side are: an array a column, or a table."""
    arrays = {column: values[f"{side}_{column}"] for column in COLUMNS}
    return {**arrays, "table": values[f"{side}_labels"]}


def check_labels(values: Values, *sides: str) -> None:
    """Check that the labels of sides come from arrays or from a table, before any is read.

    Raises
    ------
    OptionError
        If both are given, or no identities are.
    """
    for side in sides or SIDES:
        table, ids = values[f"{side}_labels"], values[f"{side}_ids"]
        arrays = [f"--{side}-{name}" for name in COLUMNS if values[f"{side}_{name}"] is not None]
        if table is not None and arrays:
            raise OptionError(
                f"got --{side}-labels and {arrays[0]}: give a table with columns id[,cam][,key], "
                "or an array a column"
            )
        if table is None and ids is None:
            raise OptionError(
                f"the identities of the {side} are missing: give --{side}-ids ARRAY, or "
                f"--{side}-labels TABLE with a column id"
            )


def open_labels(values: Values) -> tuple[Labels, Labels]:
    """Read the labels of both sides, with the columns of a table that are asked for."""
    from streameval.labels.columns import LabelUris, read_sides
    from streameval.protocols.labels import RESERVED_COLUMNS

    column = values.get("group_by") or "id"
    more = [column] if is_column(column) and column not in RESERVED_COLUMNS else []
    query, gallery = (LabelUris(**label_uris(values, side)) for side in SIDES)
    return read_sides(query, gallery, more=more, shared=_protocol_columns(values))


def open_side(
    values: Values, side: str, like: Labels | None = None, more: Sequence[str] = ()
) -> Labels:
    """Read the labels of one side; texts in a table where those of `like` are texts."""
    from streameval.labels.columns import read_label_table, read_labels

    check_labels(values, side)
    table = values[f"{side}_labels"]
    if table is None:
        return read_labels(*(values[f"{side}_{column}"] for column in COLUMNS))
    text: list[str] = []
    shared = _protocol_columns(values)
    if like is not None:
        text = [name for name, labels in like.columns.items() if is_text(labels)]
        shared = tuple(like.more)
    return read_label_table(table, text=text, more=more, shared=shared)


def _protocol_columns(values: Values) -> tuple[str, ...]:
    """Return the label columns that the protocol compares; none where it is unknown."""
    from streameval.protocols.protocol import PROTOCOLS, Protocol

    opened = open_protocol(values.get("protocol"))
    protocol = opened if isinstance(opened, Protocol) else PROTOCOLS.get(opened or "")
    return () if protocol is None else protocol.columns


def open_listed(values: Values, query: Labels, gallery: Labels) -> ListedPairs | None:
    """Read the lists of good and junk pairs; None where there are none."""
    if values.get("good") is None:
        return None
    from streameval.labels.listed import read_listed_pairs

    return read_listed_pairs(
        values["good"],
        values["junk"],
        queries=len(query),
        gallery=gallery,
        listed_as=values["listed_as"],
    )


def open_protocol(protocol: str | None) -> str | Protocol | None:
    """Return the protocol of a TOML file; a name, or None, as it is."""
    if protocol is None or not protocol.lower().endswith(".toml"):
        return protocol
    from streameval.labels.protocol_file import read_protocol

    return read_protocol(protocol)


def open_groups(group_by: str) -> str | AnyArray:
    """Return the column that ``--group-by`` names, or the labels of an array."""
    if is_column(group_by):
        return group_by
    from streameval.labels.columns import read_labels

    return read_labels(group_by).id


def is_text(labels: AnyArray) -> bool:
    """Return whether labels are strings, not integers."""
    return labels.dtype.kind == "U"


def parse_junk_ids(texts: Sequence[str], gallery: Labels | None) -> list[int | str] | None:
    """Return junk ids in the type of the gallery's ids; None (the protocol's) without any.

    Raises
    ------
    OptionError
        If the ids are integers, and a junk id is not.
    """
    if not texts or gallery is None:
        return None
    if is_text(gallery.id):
        return list(texts)
    for text in texts:
        if not is_integer(text):
            raise OptionError(
                f"--junk-id is {text!r}, and the ids of {gallery.source} are integers; "
                "give an integer"
            )
    return [int(text) for text in texts]


def is_integer(text: str) -> bool:
    """Return whether a text is a whole number."""
    return re.fullmatch(r"\s*[+-]?\d+\s*", text) is not None


def parse_level(percent: float, **draws: int) -> Resampling:
    """Return how ``--ci 95`` makes intervals.

    Raises
    ------
    OptionError
    """
    from streameval.metrics.confidence import Resampling

    if not 1 <= percent < 100:
        raise OptionError(f"--ci is {percent:g}; expected a percentage from 1 to below 100: 95")
    return Resampling(percent / 100, **draws)


def by_name(places: Sequence[str], labels: Sequence[str], what: str) -> dict[str, str]:
    """Return places by what ``--label`` calls them, or by themselves.

    Raises
    ------
    OptionError
        If the numbers of places and labels differ, or two names are the same.
    """
    if labels and len(labels) != len(places):
        raise OptionError(f"got {len(labels)} --label for {len(places)} {what}: one each")
    names = labels or places
    if len(set(names)) != len(names):
        raise OptionError(f"two {what} are called the same: name them by --label")
    return dict(zip(names, places, strict=True))
