"""Whether inputs, options and protocol fit together, before anything large is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, OptionError
from streameval.metrics.metric import Measure
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions, is_number
from streameval.metrics.selection import wanted_measures, with_named
from streameval.neighbors.source import Neighbors, Source
from streameval.planning import SHOT_RANKS
from streameval.protocols.protocol import PROTOCOLS, SINGLE_GALLERY_SHOT, Labels, Protocol
from streameval.run.job import UNIT_TOLERANCE, Range
from streameval.sources.sources import Distances, Features
from streameval.statistics import SHOT_FIELDS

RangeOption = Literal["auto", "minmax"] | Sequence[float] | npt.NDArray[Any]


def check_source(source: Any) -> None:
    """Refuse what is no source of an evaluation.

    Raises
    ------
    InputError
    """
    if not isinstance(source, Features | Distances | Neighbors):
        raise InputError(
            f"the source is of type {type(source).__name__}; Features(query, gallery), "
            "Distances(matrix) or Neighbors(lists, distances) is needed"
        )


def check_labels(**sides: Any) -> None:
    """Refuse labels that are none; they are named as the caller's arguments are.

    Raises
    ------
    InputError
    """
    for side, labels in sides.items():
        if not isinstance(labels, Labels):
            raise InputError(
                f"{side} is of type {type(labels).__name__}; Labels are needed: "
                f"{side}=Labels(id=..., cam=...)"
            )


def check_rows(source: Source, query: Labels, gallery: Labels) -> None:
    """Check that there is a label a row and column of the source.

    Raises
    ------
    InputError
    """
    queries, items = source.shape
    if isinstance(source, Distances):
        where = source.matrix.uri
        if (len(query), len(gallery)) == (items, queries) and queries != items:
            raise InputError(
                f"{where} is {queries} × {items}, and there are {len(query)} query ids and "
                f"{len(gallery)} gallery ids: the matrix is transposed; store a row a query"
            )
        described = (
            f"distances {where} have {queries} rows",
            f"distances {where} have {items} columns",
        )
    elif isinstance(source, Neighbors) and source.lists is not None:
        where = source.stored.uri
        described = (
            f"neighbours {where} have {queries} rows",
            f"neighbours {where} are of {items} gallery items",
        )
        if source.features is not None and source.features.shape[0] != queries:
            raise InputError(
                f"{described[0]}, and the query features {source.features.query.uri} "
                f"{source.features.shape[0]}: a list a query is needed"
            )
    else:
        features = source.features if isinstance(source, Neighbors) else source
        if features is None:
            raise OptionError("neighbours without lists need features")
        described = (
            f"query features {features.query.uri} have {queries} rows",
            f"gallery features {features.gallery.uri} have {items} rows",
        )
    if len(query) != queries:
        raise InputError(
            f"{described[0]}, and {query.source} {len(query)} ids: one id a query is needed"
        )
    if len(gallery) != items:
        raise InputError(
            f"{described[1]}, and {gallery.source} {len(gallery)} ids: "
            "one id a gallery item is needed"
        )
    if queries == 0:
        raise InputError(f"{described[0]}: at least one query is needed")


def check_lists(
    source: Neighbors, options: MetricOptions, protocol: str | Protocol, refine: Sequence[str]
) -> None:
    """Check that lists of neighbours can give what is asked for.

    Raises
    ------
    OptionError
    """
    if refine:
        raise OptionError(
            f"{refine[0]} is refined by further passes over all pairs, and lists hold some of "
            "them: leave --refine out, or evaluate the features"
        )
    known = PROTOCOLS.get(protocol) if isinstance(protocol, str) else protocol
    if SINGLE_GALLERY_SHOT in (options.cmc, known and known.cmc):
        raise OptionError(
            "CMC under single gallery shot counts the items of every gallery identity, and lists "
            "leave items out: choose another protocol (separate-camera ignores the same pairs as "
            "cuhk03), or evaluate the features"
        )
    named, _ = wanted_measures(options)
    drawn = [one.name for one in named if "sampled_shots" in one.metric.needs]
    if drawn:
        raise OptionError(f"{drawn[0]} can't be read off lists: leave it out")
    if source.reading == "never" and options.ties == "expected":
        raise OptionError(
            "ties expected has no meaning for what is never found: choose pessimistic, optimistic "
            "or stable"
        )


def check_shots(options: MetricOptions, protocol: Protocol) -> None:
    """Check that the protocol draws where metrics need it, and that their ranks are counted then.

    Raises
    ------
    OptionError
    """
    named, listed = wanted_measures(options)
    if protocol.cmc == SINGLE_GALLERY_SHOT:
        for one in (*named, *listed):
            if one.metric.needs_under(options) & SHOT_FIELDS and one.values[0] > SHOT_RANKS:
                raise OptionError(
                    f"{one.name} under single gallery shot (protocol {protocol.name}): ranks up "
                    f"to {SHOT_RANKS} are counted; ask for {one.metric.measure(SHOT_RANKS).name} "
                    "at most, or choose a protocol of another CMC"
                )
        return
    drawn = [one.name for one in named if "sampled_shots" in one.metric.needs]
    if drawn or options.cmc == SINGLE_GALLERY_SHOT:
        raise OptionError(
            f"{drawn[0] if drawn else f'cmc={SINGLE_GALLERY_SHOT}'} needs a protocol that draws "
            f"one item of each gallery identity, and {protocol.name} does not: choose cuhk03 or "
            f"cuhk03-torchreid, or a Protocol with cmc={SINGLE_GALLERY_SHOT!r}"
        )


def resolve_options(
    options: MetricOptions, protocol: Protocol, refined: Sequence[Measure]
) -> MetricOptions:
    """Return the options with the protocol's reading of CMC, and with the refined metrics."""
    if options.cmc == DEFAULT_OPTIONS.cmc:
        options = replace(options, cmc=protocol.cmc)
    return with_named(options, refined)


def resolve_range(wanted: RangeOption, source: Features | Distances | None) -> Range | None:
    """Return the range of the distances, or None where it must come from the data.

    Raises
    ------
    OptionError
        If the range is unknown, or not two ascending finite numbers.
    """
    named = wanted if isinstance(wanted, str) else None
    if named == "minmax":
        return None
    if named == "auto":
        if source is None or isinstance(source, Distances) or source.metric == "dot":
            return None
        if source.metric == "cosine":
            return Range(0.0, 2.0)
        # Taken from the first queries; all others are checked while they are counted.
        _, norms = source.read_query(0, min(source.shape[0], 256))
        if np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
            return None
        return Range(0.0, 2.0 if source.metric == "euclidean" else 4.0, unit=True)
    low, high = _two_numbers(wanted)
    if not (low < high and np.isfinite(high - low)):
        raise OptionError(f"range is {low},{high}; expected two finite numbers LO,HI with LO < HI")
    return Range(low, high, strict=True)


def _two_numbers(given: Any) -> tuple[float, float]:
    try:
        low, high = given
    except (TypeError, ValueError):  # not to be gone through, or not two of them
        low = high = None
    if not is_number(low) or not is_number(high):
        raise OptionError(f"range is {given!r}; expected auto, minmax, or two numbers LO,HI")
    return float(low), float(high)
