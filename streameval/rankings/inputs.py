"""What a saved result was evaluated from, opened again and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.remote import is_remote
from streameval.errors import InputError
from streameval.labels.columns import LabelUris, read_sides
from streameval.labels.listed import read_listed_pairs
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import Pairs, find_pairs
from streameval.protocols.protocol import saved_protocol
from streameval.result import Evaluation
from streameval.sources.distances import Distances
from streameval.sources.features import Features
from streameval.sources.tiled import TiledSource

SIDES = ("query", "gallery")


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a result was evaluated from.

    Attributes
    ----------
    source : TiledSource
    labels : dict of str to Labels
        Of the sides, "query" and "gallery".
    tables : dict of str to str
        Of the sides whose labels are in a table: its path.
    pairs : Pairs
    """

    source: TiledSource
    labels: Mapping[str, Labels]
    tables: Mapping[str, str]
    pairs: Pairs


def reopen(result: Evaluation, name: str) -> Inputs:
    """Open what a result was evaluated from.

    Relative paths are those of the folder that it was evaluated in.

    Parameters
    ----------
    result : Evaluation
    name : str
        What messages call it.

    Raises
    ------
    InputError
        If the result does not say where its inputs are, is of lists of neighbours or of a
        ledger; if an input is not there any more, or is not what it was.
    """
    told = result.provenance
    for key, what in (("ledger", "a ledger"), ("lists", "lists of neighbours")):
        if key in told:
            raise InputError(
                f"{name} is a result of {what}, whose ranked lists can't be computed again: "
                "leave --images out, or evaluate the features or distances"
            )
    if "labels" not in told:
        raise InputError(
            f"{name} does not say where its labels are (it was evaluated from Python, or by an "
            "earlier version): evaluate again by streameval evaluate --out, or leave --images out"
        )
    folder = told.get("folder")
    uris = {side: _label_uris(told["labels"][side], folder) for side in SIDES}
    try:
        source = _open(told["inputs"], folder)
        protocol = saved_protocol(told["protocol"])
        query, gallery = read_sides(uris["query"], uris["gallery"], shared=protocol.columns)
        listed = None
        if "listed" in told:
            good, junk = (_located(told["listed"][one], folder) for one in ("good", "junk"))
            listed = read_listed_pairs(
                str(good),
                junk,
                queries=len(query),
                gallery=gallery,
                listed_as=told["listed"]["listed_as"],
            )
        _check_unchanged(source, told.get("fingerprints", {}))
    except (InputError, OSError) as error:
        raise InputError(
            f"the inputs of {name} can't be read again: {error}; put back what it was evaluated "
            "from, or evaluate again"
        ) from error
    sizes = (len(query), len(gallery))
    if source.shape != sizes or sizes != (result.statistics.queries, result.counts["gallery"]):
        raise _changed(name, f"there are {source.shape} rows and {sizes} labels of queries, items")
    pairs = find_pairs(query, gallery, protocol, listed)
    _check_labels(result, query, pairs, name)
    tables = {side: one.table for side, one in uris.items() if one.table is not None}
    return Inputs(source, {"query": query, "gallery": gallery}, tables, pairs)


def _open(inputs: Mapping[str, Any], folder: str | None) -> TiledSource:
    if "distances" in inputs:
        return Distances(str(_located(inputs["distances"], folder)))
    query, gallery = (str(_located(inputs[side], folder)) for side in SIDES)
    return Features(query, gallery, inputs["metric"])


def _label_uris(uris: Mapping[str, str | None], folder: str | None) -> LabelUris:
    return LabelUris(**{column: _located(uri, folder) for column, uri in uris.items()})


def _located(uri: str | None, folder: str | None) -> str | None:
    """Return a URI from where the evaluation ran."""
    if uri is None or folder is None or is_remote(uri):
        return uri
    return str(Path(folder) / uri)


def _check_unchanged(source: TiledSource, recorded: Mapping[str, str]) -> None:
    """Raise InputError if an input has another fingerprint than a result recorded, if it did."""
    for item in source.inputs():
        found = item.fingerprint() if item.name in recorded else None
        if found is not None and found != recorded[item.name]:
            raise InputError(
                f"{item.name} {item.uri} are not what they were: their fingerprint is {found}, "
                f"and was {recorded[item.name]}"
            )


def _check_labels(result: Evaluation, query: Labels, pairs: Pairs, name: str) -> None:
    """Check that labels make the same of every pair.

    Raises
    ------
    InputError
    """
    for column in ("id", "cam"):
        own, values = result.columns.get(column), query.columns.get(column)
        if own is not None and (values is None or not np.array_equal(own, values)):
            raise _changed(name, f"the queries' {column} are not those of the result")
    statistics = result.statistics
    positives, ignored, same_identity = pairs.counts_in(0, pairs.gallery)
    same = (
        np.array_equal(positives, statistics.positives)
        and np.array_equal(ignored, statistics.ignored)
        and np.array_equal(same_identity, statistics.same_identity)
    )
    if same and statistics.positive_item is not None:
        owner = np.repeat(np.arange(statistics.queries), statistics.positives)
        order = np.lexsort((statistics.positive_item, owner))
        same = np.array_equal(statistics.positive_item[order], pairs.positives()[1])
    if not same:
        raise _changed(name, "the labels make other pairs positive or ignored")


def _changed(name: str, how: str) -> InputError:
    return InputError(
        f"the inputs of {name} have changed since it was evaluated: {how}; put back what it was "
        "evaluated from, or evaluate again"
    )
