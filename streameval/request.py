"""Request: everything asked of an evaluation, checked once when it is made.

Python keywords, a TOML file and the command line are three mappings of names to values;
`Request.of` takes any of them. The manifest for resuming, the provenance and the plan are read off
the request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, get_args

import numpy as np

from streameval.choices import IDENTITY_READINGS, CmcReading, RangeName
from streameval.errors import InputError, OptionError, check_type, refuse
from streameval.labels.columns import labels_of
from streameval.labels.pair_files import lists_of
from streameval.metrics.metric import Measure
from streameval.metrics.options import (
    DEFAULT_OPTIONS,
    OPTION_NAMES,
    MetricOptions,
    is_count,
    is_number,
)
from streameval.metrics.selection import (
    names_of,
    refined_measures,
    required_fields,
    wanted_measures,
    with_changes,
    with_named,
)
from streameval.planning.range import Range
from streameval.protocols.draws import check_every_draw, trials_of
from streameval.protocols.labels import Labels
from streameval.protocols.listed import ListedPairs
from streameval.protocols.presets import Preset, find_preset
from streameval.protocols.protocol import REST, SINGLE_GALLERY_SHOT, Protocol
from streameval.protocols.shipped import protocols_of, with_options
from streameval.single_shot.ahead import SHOT_RANKS
from streameval.source import Source
from streameval.statistics import FIELDS, WHOLE_FIELDS
from streameval.typing import IntArray, Keywords

RangeOption = RangeName | Range


@dataclass(frozen=True, eq=False)
class Terms:
    """What is asked of an evaluation beside its data: which pairs count, and how they are read.

    Attributes
    ----------
    protocol : Protocol
        With the junk ids, own images and draws that are asked for.
    listed : ListedPairs or None
        Positive and ignored pairs in place of identities and cameras.
    options : MetricOptions
        With those that the protocol sets, and the refined metrics.
    range : {"auto", "minmax", "minmax-all"} or Range
        What τ = 0 and τ = 1 of GOM stand for.
    refine : tuple of Measure
        Metrics whose thresholds further passes settle.
    group_by : str, [Q] array or None
        A column of the queries' labels, ``cam-pair``, or a label for each query.
    preset : str or None
        Name of the tool whose conventions these are, where nothing else is given.
    """

    protocol: Protocol
    listed: ListedPairs | None
    options: MetricOptions
    range: RangeOption
    refine: tuple[Measure, ...]
    group_by: Any
    preset: str | None

    @classmethod
    def of(cls, given: Keywords) -> Self:
        """Return the request of a mapping of the keywords of `evaluate`; None is not given.

        A preset stands behind what is given. Keywords that are not of a request are ignored.
        """
        return cls(**cls._values(given))

    @classmethod
    def _values(cls, given: Keywords) -> dict[str, Any]:
        given = {name: value for name, value in given.items() if value is not None}
        preset = find_preset(given["preset"]) if "preset" in given else None
        listed = given.get("listed")
        check_type("listed", listed, ListedPairs | None, "ListedPairs are needed")
        protocol = _protocol(given, preset)
        refine = tuple(refined_measures(names_of(given.get("refine", ()), "refine")))
        options = _metric_options(given, preset, protocol)
        options = with_named(options, [one.name for one in refine])
        _check_reading(options, protocol)
        return {
            "protocol": protocol,
            "listed": listed,
            "options": options,
            "range": _range(given.get("range", preset and preset.range)),
            "refine": refine,
            "group_by": given.get("group_by"),
            "preset": preset and preset.name,
        }

    @classmethod
    def several(cls, given: Keywords, protocols: Sequence[str | Protocol | None]) -> list[Self]:
        """Return the request of each of some protocols; None is the default one.

        Raises
        ------
        OptionError
            If there is none, or two have the same name.
        """
        if isinstance(protocols, str | Protocol) or not len(protocols):
            raise OptionError(
                f"protocols is {protocols!r}; a list of them is needed: ['market1501']"
            )
        requests = [cls.of({**given, "protocol": protocol}) for protocol in protocols]
        named = {name for request in requests for name in request.protocol.lists}
        requests = [request.without_lists_of_others(named) for request in requests]
        names = [request.protocol.name for request in requests]
        for name in names:
            if names.count(name) > 1:
                raise OptionError(
                    f"protocol {name} comes twice, and results are called by it: leave one out, or "
                    "rename it"
                )
        return requests

    def without_lists_of_others(self, named: Collection[str]) -> Self:
        """Return the terms without the lists of pairs that other protocols alone name."""
        lists = {} if self.listed is None else self.listed.lists
        own = {
            name: one
            for name, one in lists.items()
            if name in self.protocol.lists or name not in named
        }
        return replace(self, listed=ListedPairs(own) if own else None)

    @property
    def fields_needed(self) -> frozenset[str]:
        """Fields of `RankStatistics` that the metrics read."""
        return required_fields(self.options)

    @property
    def needs_range(self) -> bool:
        """Whether the metrics read what is counted at distances of the range."""
        return not self.fields_needed.isdisjoint(("negatives_within", "impostor_histogram"))


@dataclass(frozen=True, eq=False)
class Request(Terms):
    """Everything asked of an evaluation.

    Attributes
    ----------
    source : Source
    query, gallery : Labels or None
        None where the work is planned without labels.
    tile : (int, int) or None
        Query rows and gallery items of a tile, in place of the plan's own.
    drawn : tuple of [n] int64, or None
        The rows of each trial, where they are given; the protocol says so, too.
    """

    source: Source
    query: Labels | None
    gallery: Labels | None
    tile: tuple[int, int] | None = None
    drawn: tuple[IntArray, ...] | None = None

    @classmethod
    def _values(cls, given: Keywords) -> dict[str, Any]:
        terms = super()._values(given)
        source, labels = given.get("source"), {side: given.get(side) for side in SIDES}
        if not isinstance(source, Source):
            raise InputError(
                f"the source is of type {type(source).__name__}; Features(query, gallery), "
                "Distances(matrix), Computed(function, shape) or Neighbors(lists, distances) is "
                "needed"
            )
        if not given.get("without_labels"):
            needed = terms["protocol"].columns
            labels = {side: labels_of(own, side, needed) for side, own in labels.items()}
            if given.get("pairs") is not None:
                terms["listed"] = _lists(given, queries=len(labels["query"] or ()))
        tile = given.get("tile")
        if tile is not None:
            if np.shape(tile) != (2,) or not all(map(is_count, tile)):
                raise OptionError(f"tile is {tile!r}; two sizes of at least 1 are needed")
            tile = int(tile[0]), int(tile[1])
        if given.get("drawn") is not None:
            terms["drawn"] = trials_of(given["drawn"])
            terms["protocol"] = terms["protocol"].with_given_trials(len(terms["drawn"]))
        return {**terms, "source": source, "tile": tile, **labels}

    def with_source(self, source: Source) -> Request:
        """Return the request for another source."""
        return replace(self, source=source)

    def without_labels(self) -> Request:
        """Return the request without labels, which are large, and of no use once it is planned."""
        return replace(self, query=None, gallery=None, listed=None, drawn=None)


SIDES = ("query", "gallery")
"""The two sets of images that have labels."""

OPTIONS = tuple(field.name for field in fields(Protocol) if field.name in OPTION_NAMES)
"""Metric options that a protocol sets."""


def _lists(given: Keywords, *, queries: int) -> ListedPairs:
    """Return the lists of pairs that rules name."""
    if given.get("listed") is not None:
        raise OptionError(
            "got listed and pairs: lists of good and junk pairs replace all rules; leave either out"
        )
    return lists_of(given["pairs"], queries)


def _protocol(given: Keywords, preset: Preset | None) -> Protocol:
    """Return what is given, else the preset's, else the default.

    The preset's junk ids belong to its protocol, and go with it; listed pairs are a protocol, too.
    """
    protocol, junk_ids = given.get("protocol"), given.get("junk_ids")
    if protocol is None and "listed" in given:
        protocol = "listed"
    if preset is not None and protocol is None:
        protocol = preset.protocol
        junk_ids = preset.junk_ids if junk_ids is None else junk_ids
    named = "market1501" if protocol is None else protocol
    return with_options(named, {**given, "junk_ids": junk_ids})


def _metric_options(given: Keywords, preset: Preset | None, protocol: Protocol) -> MetricOptions:
    """Return the metric options of a mapping of keywords; a preset's and a protocol's behind."""
    options: MetricOptions = given.get("options", DEFAULT_OPTIONS)
    check_type("options", options, MetricOptions, "MetricOptions(...) is needed")
    usual = [name for name in OPTIONS if getattr(options, name) == getattr(DEFAULT_OPTIONS, name)]
    options = replace(options, **{name: getattr(protocol, name) for name in usual})
    if preset is not None:
        options = replace(options, **preset.options, metrics=preset.metrics)
    options = with_changes(options, {name: given.get(name) for name in OPTION_NAMES})
    options = replace(options, over_draws=protocol.over_draws)
    named, _ = wanted_measures(options)
    for measure in named:
        missing = sorted(set(measure.metric.needs) - set(FIELDS))
        if missing:
            raise OptionError(
                f"{measure.name} needs {', '.join(missing)}, which no evaluation counts yet: "
                "leave it out, or add the field to statistics of your own"
            )
    return options


def _check_reading(options: MetricOptions, protocol: Protocol) -> None:
    """Check that the protocol counts identities as metrics need it, and the ranks of draws."""
    named, listed = wanted_measures(options)
    drawn = [measure.name for measure in named if "sampled_shots" in measure.metric.needs]
    asked: dict[str, CmcReading] = dict.fromkeys(drawn, SINGLE_GALLERY_SHOT)
    asked[f"cmc={options.cmc}"] = options.cmc
    for what, reading in asked.items():
        if reading in IDENTITY_READINGS and reading != protocol.cmc:
            raise OptionError(
                f"{what} needs a protocol that {IDENTITY_READINGS[reading].does}, and "
                f"{protocol.name} does not: choose {protocols_of(reading)}"
            )
    if protocol.over_draws:
        check_every_draw(protocol, options.unmatched)
        if options.average and protocol.queries == REST:
            raise OptionError(
                f"average is {options.average!r}, and protocol {protocol.name} lets what is not "
                "drawn ask, over all draws: leave average out, or choose a number of trials"
            )
    if protocol.cmc == SINGLE_GALLERY_SHOT or protocol.over_draws:
        for measure in (*named, *listed):
            read = measure.metric.needs_under(options)
            if read & WHOLE_FIELDS and measure.values and measure.values[0] > SHOT_RANKS:
                drawn_of = "all draws" if protocol.over_draws else "single gallery shot"
                raise OptionError(
                    f"{measure.name} under {drawn_of} (protocol {protocol.name}): ranks "
                    f"up to {SHOT_RANKS} are counted; ask for "
                    f"{measure.metric.measure(SHOT_RANKS).name} at most, or choose a protocol of "
                    "another CMC"
                )


def _range(wanted: Any) -> RangeOption:
    """Return a range as it is asked for: auto where it is not."""
    if wanted is None:
        return "auto"
    names = get_args(RangeName)
    if wanted in names if isinstance(wanted, str) else isinstance(wanted, Range):
        known: RangeOption = wanted
        return known
    given = list(wanted) if isinstance(wanted, Iterable) else []
    if len(given) != 2 or not all(map(is_number, given)):
        raise OptionError(f"range is {wanted!r}; expected {', '.join(names)}, or two numbers LO,HI")
    low, high = float(given[0]), float(given[1])
    finite = np.isfinite(low) and np.isfinite(high)
    refuse(
        OptionError,
        not (low < high and finite)
        and f"range is {low},{high}; expected two finite numbers LO,HI with LO < HI",
        not np.isfinite(high - low)
        and f"range is {low},{high}, and HI - LO is beyond float64: choose a narrower range",
    )
    return Range(low, high, strict=True)
