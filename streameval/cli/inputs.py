"""What the options name, opened: sources, labels, lists of pairs, protocols, groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from streameval.cli.options import (
    COLUMNS,
    GROUPS,
    MORE,
    RERANK,
    SEARCHES,
    SIDES,
    Values,
    check_effect,
)
from streameval.cli.types import NamedFile, Recipe, is_column
from streameval.errors import OptionError, StreamevalError

if TYPE_CHECKING:
    from streameval.choices import Fuse, RerankWith
    from streameval.metrics.confidence import Resampling
    from streameval.metrics.options import MetricOptions
    from streameval.protocols.labels import Labels
    from streameval.protocols.protocol import Protocol
    from streameval.source import Source
    from streameval.sources.feature_source import FeatureSource
    from streameval.sources.features import Features
    from streameval.typing import AnyArray

BOTH = "features of both sides (--query and --gallery)"


def read_inputs(values: Values) -> dict[str, Any]:
    """Return the values with what they name in place of the names: what a request is made of.

    The options have passed `check_source`; without, the source is None.
    """
    from streameval.labels.pair_files import read_listed_pairs, read_pairs
    from streameval.protocols.labels import RESERVED_COLUMNS

    names = (*SIDES, "listed", "pairs", "drawn", "junk_ids", "group_by")
    opened: dict[str, Any] = dict.fromkeys(names)
    opened["without_labels"], of_more = has_shapes_only(values), []
    if not opened["without_labels"]:
        named = {values.get(name) or "id" for name in ("average", "group_by")}
        more = sorted(one for one in named - RESERVED_COLUMNS if is_column(one))
        query, gallery, *of_more = open_labels(values, *labelled(values), more=more)
        if values.get("good") is not None:
            opened["listed"] = read_listed_pairs(
                values["good"],
                values["junk"],
                queries=len(query),
                gallery=gallery,
                listed_as=values["listed_as"],
            )
        opened["drawn"] = open_drawn(values, gallery)
        opened["pairs"] = {
            name: read_pairs(path, query=query, gallery=gallery, listed_as=values["listed_as"])
            for name, path in pair_files(values).items()
        } or None
        opened |= {"query": query, "gallery": gallery, "group_by": open_groups(values)}
        opened["junk_ids"] = junk_ids(values, gallery)
    opened |= {"source": open_source(values, of_more), "protocol": open_protocols(values)[0]}
    return {**values, **opened, "protocols": open_protocols(values)}


def open_drawn(values: Values, gallery: Labels) -> tuple[AnyArray, ...] | None:
    """Return the rows of each trial that ``--drawn`` names; None without."""
    path, shots = values.get("drawn"), values.get("shots")
    if path is None:
        return None
    if (values["drawn_as"] is None) == (shots is None):
        raise OptionError(
            f"--drawn {path} has row numbers, or the permutations of SYSU-MM01: give --drawn-as "
            "0-based or --drawn-as 1-based for the former, --shots N for the latter"
        )
    from streameval.labels.trial_files import read_drawn

    return read_drawn(
        path,
        listed_as=values["drawn_as"],
        shots=shots,
        gallery=gallery,
        protocol=open_protocols(values)[0],
    )


def with_ranking(values: Values) -> Values:
    """Return options in which ``--rerank`` without a value is what it was once: --canonical."""
    if values["rerank"] != RERANK.bare:
        return values
    if not has_lists(values):
        raise OptionError(
            "got --rerank without a value, which ranks lists of neighbours by canonical distances "
            f"as --canonical does, and there are no lists: give --rerank {RERANK.metavar}"
        )
    return {**values, "rerank": None, "canonical": True}


def check_source(values: Values) -> None:
    """Refuse options that name no source, or more than one; nothing is opened."""
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
    check_effect("metric", bool(sides), "give features, --query and --gallery")
    lists = has_lists(values)
    ranked = values.get("rerank") is None or (bool(sides) and not lists)
    asked = "rerank_with rerank_index"
    check_effect(f"rerank {asked} rerank_folder", ranked, f"give {BOTH}, and no lists")
    check_effect(f"expand {MORE}", bool(sides) and not lists, f"give {BOTH}, and no lists")
    more = values.get(MORE) is not None
    check_effect(GROUPS["MORE"], more, "give --multi-query URI")
    found = values.get("rerank") is not None or more or bool(values.get("expand"))
    check_effect(asked, values.get("rerank") is not None, "give --rerank k-reciprocal")
    check_effect("rerank_folder", found, "give --rerank k-reciprocal or --expand aqe")
    remedy = "give --neighbors URI, or --index SPEC and features"
    searched = lists or values.get("rerank_index") is not None
    check_effect("search", searched, f"{remedy}; or --rerank-index FACTORY")
    check_effect(f"neighbor_distances k {SEARCHES}", lists, remedy)
    if lists:
        check_effect("width", values["k"] == "auto", "give -k auto")


def check_terms(values: Values) -> MetricOptions:
    """Check labels and options as far as no data are needed; return the metric options."""
    from streameval.request import Terms

    if not has_shapes_only(values):
        check_labels(values, labelled(values))
    listed = None if values["good"] is None else "listed"
    protocols = [protocol or listed for protocol in open_protocols(values)]
    terms = Terms.several({**values, "junk_ids": None}, protocols)
    return terms[0].options


def keywords(function: Callable[..., Any], values: Values) -> dict[str, Any]:
    """Return the values that a function takes, by its own names."""
    return {name: values[name] for name in signature(function).parameters if name in values}


def filled(values: Values) -> dict[str, Any]:
    """Return whether ``--fill-missing`` is given, as what opens arrays takes it."""
    return {"fill_missing": bool(values.get("fill_missing"))}


def has_lists(values: Values) -> bool:
    """Return whether the source is lists of neighbours."""
    return any(values.get(name) is not None for name in ("neighbors", "index"))


def has_shapes_only(values: Values) -> bool:
    """Return whether shapes are given in place of data, and no labels: enough for a plan."""
    from streameval.arrays.memory import PREFIX

    uris = [values.get(name) for name in ("distances", *SIDES)]
    shapes = all(uri.startswith(PREFIX) for uri in uris if uri is not None) and any(uris)
    labels = any(any(label_uris(values, side).values()) for side in SIDES)
    labels |= values.get(MORE) is not None
    return bool(values.get("dry_run")) and shapes and not labels


def open_source(values: Values, labels: Sequence[Labels] = ()) -> Source | None:
    """Open the source that options name which have passed `check_source`; None without any.

    The labels are those of the further images of queries, if there are such.
    """
    import streameval as se

    fill = filled(values)
    if values.get("distances") is not None:
        return se.Distances(values["distances"], **fill)
    features = made = None
    if values["query"] is not None:
        metric = values["metric"] or "cosine"
        features = se.Features(values["query"], values["gallery"], metric, **fill)
        made = expanded(features, values, labels)
        if values.get("rerank") is not None:
            _, numbers = with_numbers(values["rerank"])
            among: RerankWith = values["rerank_with"] or "all"
            chosen = {"with_": among, "index": values["rerank_index"]}
            chosen |= {"search": values["search"] or "", "folder": values["rerank_folder"]}
            return se.Reranked(made, **chosen, **numbers)
    if not has_lists(values):
        return made
    names = f"index k search {SEARCHES}".split()
    chosen = {name: values[name] for name in names if values[name] is not None}
    lists = values["neighbors"], values["neighbor_distances"]
    return se.Neighbors(*lists, features=features, **(chosen | fill))


def expanded(features: Features, values: Values, labels: Sequence[Labels]) -> FeatureSource:
    """Return features, fused with further images and expanded as options say."""
    import streameval as se

    made: FeatureSource = features
    folder: dict[str, Any] = {"folder": values.get("rerank_folder")}
    for own in labels:
        fuse: Fuse = values["fuse"] or "mean"
        made = se.MultiQuery(made, values[MORE], own, fuse, **folder, **filled(values))
    for name, numbers in map(with_numbers, values.get("expand") or ()):
        made = se.Expanded(made, name, **folder, **numbers)
    return made


def with_numbers(text: str) -> tuple[Any, dict[str, Any]]:
    """Return the name and the numbers of ``NAME,key=N``, by the names that Python has for them."""
    name, given = Recipe.split(text)
    return name, {"lambda_" if key == "lambda" else key: one for key, one in given.items()}


def with_bundle(values: Values) -> Values:
    """Return options with the arrays of the one file that holds them all, if there is one."""
    if values["bundle"] is None:
        return values
    from streameval.labels.columns import BUNDLE, bundle_uris

    others = (*BUNDLE, "distances", "query_labels", "gallery_labels")
    twice = [name for name in others if values.get(name) is not None]
    if twice:
        raise OptionError(
            f"got {values['bundle']} and --{twice[0].replace('_', '-')}: give the one file that "
            "holds features and labels, or each by its option"
        )
    return {**values, **bundle_uris(values["bundle"], **filled(values))}


def labelled(values: Values) -> tuple[str, ...]:
    """Return the sides that have labels: with the further images of queries, if there are such."""
    return SIDES if values.get(MORE) is None else (*SIDES, MORE)


def label_uris(values: Values, side: str) -> dict[str, str | None]:
    """Return where the labels of a side are: an array a column, or a table."""
    arrays = {column: values.get(f"{side}_{column}") for column in COLUMNS}
    return {**arrays, "table": values[f"{side}_labels"]}


def check_labels(values: Values, sides: Sequence[str]) -> None:
    """Check that the labels of sides come from arrays or from a table, before any is read."""
    tables = any(values[f"{side}_labels"] is not None for side in sides)
    check_effect("pattern", tables, "give file names or a table, --query-labels, --gallery-labels")
    for side in sides:
        uris = label_uris(values, side)
        named = side.replace("_", "-")
        arrays = [f"--{named}-{name}" for name in COLUMNS if uris[name] is not None]
        if uris["table"] is not None and arrays:
            raise OptionError(
                f"got --{named}-labels and {arrays[0]}: give a table with columns id[,cam][,key], "
                "or an array a column"
            )
        if uris["table"] is None and uris["ids"] is None:
            raise OptionError(
                f"the identities of the {named} are missing: give --{named}-ids ARRAY, or "
                f"--{named}-labels TABLE with a column id"
            )


def open_labels(
    values: Values, *sides: str, more: Sequence[str] = (), like: Labels | None = None
) -> list[Labels]:
    """Read the labels of sides: a column of a table is what it is in the others, and in `like`.

    The columns that the protocol compares are read, those of `like`, and of the first table `more`.
    """
    from streameval.labels.columns import read_sides
    from streameval.protocols.shipped import with_options

    check_labels(values, sides)
    shared = tuple(() if like is None else like.more)
    if like is None:
        protocols = [with_options(one or "market1501", {}) for one in open_protocols(values)]
        shared = tuple(dict.fromkeys(name for one in protocols for name in one.columns))
    uris = (label_uris(values, side) for side in sides)
    given = {"more": more, "shared": shared, "like": like, "pattern": values["pattern"]}
    return read_sides(*uris, **given, **filled(values))


def open_protocols(values: Values) -> list[str | Protocol | None]:
    """Return the protocols of ``--protocol``, which some commands take several times."""
    given = values.get("protocols") or [values.get("protocol")]
    return [open_protocol(protocol) for protocol in given]


def open_protocol(protocol: str | None) -> str | Protocol | None:
    """Return the protocol of a TOML file; a name, or None, as it is."""
    if protocol is None or not protocol.lower().endswith(".toml"):
        return protocol
    from streameval.labels.protocol_files import read_protocol

    return read_protocol(protocol)


def pair_files(values: Values) -> dict[str, str]:
    """Return the files of pairs that options name, by the names that rules have for them."""
    named = [NamedFile.split(text) for text in values.get("pairs") or ()]
    files = dict(named)
    if len(files) != len(named):
        names = [name for name, _ in named]
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"got --pairs {twice}= twice: give each list a name of its own")
    return files


def open_groups(values: Values) -> str | AnyArray | None:
    """Return the column that ``--group-by`` names, or the labels of an array; None without."""
    group_by: str | None = values.get("group_by")
    if group_by is None or is_column(group_by):
        return group_by
    from streameval.labels.columns import read_labels

    return read_labels(group_by, **filled(values)).id


def junk_ids(values: Values, labels: Labels) -> list[int | str] | None:
    """Return junk ids in the type of the gallery's; None (the protocol's) without any."""
    return as_ids(values["junk_ids"], labels, "--junk-id is", "an integer", OptionError) or None


def as_ids(
    texts: Sequence[str], labels: Labels, what: str, needed: str, refusal: type[StreamevalError]
) -> list[int | str]:
    """Return texts in the type of the ids of labels, which may be integers."""
    if labels.id.dtype.kind == "U":
        return list(texts)
    for text in texts:
        if re.fullmatch(r"\s*[+-]?\d+\s*", text) is None:
            raise refusal(
                f"{what} {text!r}, and the ids of {labels.source} are integers: give {needed}"
            )
    return [int(text) for text in texts]


def parse_level(values: Values) -> Resampling:
    """Return how ``--ci 95`` makes intervals, with ``--resamples`` and ``--seed``."""
    from streameval.metrics.confidence import Resampling

    percent = values["ci"]
    if not 1 <= percent < 100:
        raise OptionError(f"--ci is {percent:g}; expected a percentage from 1 to below 100: 95")
    return Resampling(percent / 100, **keywords(Resampling, values))


def by_name(places: Sequence[str], labels: Sequence[str], what: str) -> Mapping[str, str]:
    """Return places by what ``--label`` calls them, or by themselves."""
    if labels and len(labels) != len(places):
        raise OptionError(f"got {len(labels)} --label for {len(places)} {what}: one each")
    named = dict(zip(labels or places, places, strict=True))
    if len(named) != len(places):
        raise OptionError(f"two {what} are called the same: name them by --label")
    return named
