"""Whether results are of the same task: queries, protocol, gallery; and read in the same way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict

import numpy as np

from streameval.choices import GALLERY, KINDS, OPTIONS, PROTOCOL
from streameval.errors import InputError, OptionError, check_type, warn
from streameval.protocols.shipped import saved_protocol
from streameval.result.evaluation import Evaluation, Results
from streameval.result.groups import check_not_of_lists
from streameval.result.saved import plain
from streameval.sorting import order_within
from streameval.statistics import RankStatistics
from streameval.typing import IntArray, JsonObject, Span

QUERIES = "queries"
DISTANCE = "distance"
READ_BY = ("ties", "ap", "vp", "cmc", "unmatched", "over_draws", "average", "false_rate_budget")
"""Options that results are compared by."""
MADE_BY = ("metric", "steps", "k", "missing", "tighten", "canonical", "search")
"""Options of a source, likewise."""


def check_despite(despite: Collection[str]) -> Collection[str]:
    """Return what runs may differ in, one name or several; refuse others with an OptionError."""
    names = (despite,) if isinstance(despite, str) else despite
    check_type("despite", names, Collection, f"some of {', '.join(KINDS)} are needed")
    unknown = [one for one in names if one not in KINDS]
    if unknown:
        raise OptionError(f"despite is {unknown[0]!r}; known: {', '.join(KINDS)}")
    return names


def check_comparable(results: Results, despite: Collection[str]) -> list[str]:
    """Return in what runs differ, where they may.

    Raises InputError if they differ in their queries or in what they may not, or one is of lists.
    """
    for name, one in results.items():
        check_not_of_lists(one.lists, f"{name} is of lists: a comparison")
    remarks: list[str] = []
    for pair, kind, said in _differing_pairs(results, differing):
        if kind == QUERIES:
            raise InputError(
                f"{pair} are not on the same queries: {said}; a paired comparison "
                "needs the same queries in the same order: evaluate both with the same labels"
            )
        if kind not in despite:
            raise InputError(
                f"{pair} differ in {kind}: {said}; evaluate both alike, or "
                f"compare all the same: --despite {kind}"
            )
        remarks.append(f"{pair} differ in {kind}: {said}")
    return remarks


def check_same_rules(results: Results) -> None:
    """Refuse, with an InputError, results under other rules; their items and features may differ.

    The rules are the protocol, the distance of features, how lists of neighbours are read, and the
    options of the metrics.
    """
    for pair, kind, said in _differing_pairs(results, other_rules):
        raise InputError(
            f"{pair} differ in {kind}: {said}; an average is of runs under the same rules: "
            "evaluate all alike"
        )


def warn_of_others(results: Results) -> None:
    """Warn where results that are shown together are not of the same task.

    Their options may differ: that is what a figure or a table may be about.
    """
    for pair, kind, said in _differing_pairs(results, differing):
        if kind != OPTIONS:
            text = f"{pair} differ in {kind}: {said}; their numbers are of different tasks"
            warn(text)


def _differing_pairs(
    results: Results, differing: Callable[[Evaluation, Evaluation], dict[str, str]]
) -> Iterator[tuple[str, str, str]]:
    """Give the names of the first result and another, a kind that they differ in, and how."""
    first, *others = results
    for other in others:
        for kind, said in differing(results[first], results[other]).items():
            yield f"{first} and {other}", kind, said


def differing(a: Evaluation, b: Evaluation) -> dict[str, str]:
    """Return in what two results differ, and how: ``queries`` alone, or any of `KINDS`."""
    queries = _queries_differ(a, b)
    if queries:
        return {QUERIES: queries}
    said = {
        PROTOCOL: _protocols_differ(a, b),
        GALLERY: _galleries_differ(a, b),
        OPTIONS: _options_differ(a, b),
    }
    return {kind: how for kind, how in said.items() if how}


def other_rules(a: Evaluation, b: Evaluation) -> dict[str, str]:
    """Return in what rules two results differ, and how: protocol, distance, options."""
    said = {
        PROTOCOL: _protocols_differ(a, b),
        DISTANCE: _distances_differ(a, b),
        OPTIONS: _options_differ(a, b),
    }
    return {kind: how for kind, how in said.items() if how}


def _queries_differ(a: Evaluation, b: Evaluation) -> str:
    if a.statistics.queries != b.statistics.queries:
        return f"{a.statistics.queries:,} and {b.statistics.queries:,} of them"
    for name in ("id", "cam"):
        own, other = a.columns.get(name), b.columns.get(name)
        if (own is None) != (other is None) and name == "id":
            return f"only one has a column {name}"
        if own is not None and other is not None:
            unequal = np.flatnonzero(np.asarray(own != other))
            if len(unequal):
                at = int(unequal[0])
                return f"query {at} has {name} {own[at]!s} in one, {other[at]!s} in the other"
    return ""


def _protocols_differ(a: Evaluation, b: Evaluation) -> str:
    own, other = (one.provenance.get("protocol", {}) for one in (a, b))
    if own == other:
        return ""
    protocols = (saved_protocol(saved) if saved else None for saved in (own, other))
    return _unequal(*(plain(asdict(one) if one else {}) for one in protocols))


def _distances_differ(a: Evaluation, b: Evaluation) -> str:
    inputs = (one.provenance.get("inputs", {}) for one in (a, b))
    return _unequal(*({name: given.get(name) for name in MADE_BY} for given in inputs))


def _unequal(own: JsonObject, other: JsonObject) -> str:
    names = [name for name in {**own, **other} if own.get(name) != other.get(name)]
    return ", ".join(f"{name} {own.get(name)} and {other.get(name)}" for name in names)


def _galleries_differ(a: Evaluation, b: Evaluation) -> str:
    if a.counts["gallery"] != b.counts["gallery"]:
        return f"{a.counts['gallery']:,} items and {b.counts['gallery']:,}"
    for field, what in (
        ("same_identity", "items of its identity"),
        ("positives", "positives"),
        ("valid", "items that are not ignored"),
    ):
        own, other = getattr(a.statistics, field), getattr(b.statistics, field)
        unequal = np.flatnonzero(own != other)
        if len(unequal):
            at = int(unequal[0])
            return f"query {at} has {own[at]:,} {what} in one, {other[at]:,} in the other"
    if all("positive_item" in one.statistics.held for one in (a, b)):
        for span in a.statistics.spans:
            items, others = (positive_items(one.statistics, span) for one in (a, b))
            if not np.array_equal(items, others):
                return "the positives are other items: another gallery, or in another order"
    # Which labels negatives have, and which items are ignored, no count tells.
    own, other = (one.provenance.get("label_fingerprints", {}) for one in (a, b))
    for what in own:
        if other.get(what, own[what]) != own[what]:
            return f"the {what} are others, though all counts agree"
    return ""


def positive_items(statistics: RankStatistics, queries: Span) -> IntArray:
    """Return the gallery items of the positives of some queries, ascending within each, [p]."""
    begins = statistics.indptr[queries[0] : queries[1] + 1]
    begin, end = begins[[0, -1]].tolist()
    items = statistics.stretch("positive_item", begin, end)
    return items[order_within(begins - begin, items)]


def _options_differ(a: Evaluation, b: Evaluation) -> str:
    own, other = ({name: getattr(one.options, name) for name in READ_BY} for one in (a, b))
    if len(a.statistics.thresholds) and len(b.statistics.thresholds):
        own["range"], other["range"] = (
            f"{used['low']:g},{used['high']:g}" if used["mode"] == "given" else used["mode"]
            for used in (a.range, b.range)
        )
    return _unequal(own, other)
