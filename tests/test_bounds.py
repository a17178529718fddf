"""What lists tell: the exact value of every metric lies in its interval, whatever the lists."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from list_problems import disturbed, labels, list_problems, nearest, protocol
from oracle import Problem, oracle_statistics
from oracle_lists import precision_of_correct
from profiles import examples
from support.metrics import (
    CHOICES,
    METRICS,
    ListReading,
    compute_list_metrics,
    measures_of,
    metrics_of,
)
from support.neighbors import Lists, Places, find_extremes
from support.protocols import find_pairs

from streameval import PROTOCOLS, MetricOptions

THRESHOLDS = np.linspace(0, 1, 101)
AT_DISTANCES = ("DIR@1|tau=0.4", "FNIR@2|tau=0.3", "FPIR|tau=0.4")
OPTIONS = st.builds(
    MetricOptions,
    ties=st.sampled_from(CHOICES["ties"]),
    ap=st.sampled_from(CHOICES["ap"]),
    vp=st.sampled_from(CHOICES["vp"]),
    cmc=st.sampled_from(["first-match", "all-shots"]),
    unmatched=st.sampled_from(["exclude", "miss"]),
    false_rate_budget=st.just(5),
    metrics=st.just(("all", *AT_DISTANCES)),
)


def returned_of(indices: np.ndarray, values: np.ndarray, gallery: int) -> Lists:
    """Return lists as they are counted: certain to the last distance, or all of the gallery."""
    held = indices >= 0
    ends = [
        own[some].max() if some.sum() < gallery else np.inf
        for own, some in zip(values, held, strict=True)
    ]
    lists = Lists(
        np.append(0, np.cumsum(held.sum(axis=1))), indices[held], values[held], np.array(ends)
    )
    return lists.nearest(held.shape[1])


HIDDEN_TIES = {  # of a positive that no list of 3 holds: neither extreme has any
    "distances": np.array(
        [
            [7, 7, 8, 4, 8, 3, 8, 3, 8, 7, 8],
            [3, 7, 7, 8, 5, 3, 5, 8, 4, 1, 5],
            [5, 3, 7, 4, 1, 5, 8, 4, 3, 7, 3],
        ]
    )
    / 10,
    "query_id": np.array([4, 0, 4]),
    "gallery_id": np.array([-1, -1, -1, 2, 4, 1, 4, 4, 2, 4, 1]),
    "query_cam": np.array([1, 0, 0]),
    "gallery_cam": np.array([0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 1]),
    "same_camera": True,
}


HIDDEN_NEGATIVE = {  # closer than the nearest positive, behind an item that is ignored
    "distances": np.array([[10, 15, 50, 60], [90, 30, 40, 20]]) / 100,
    "query_id": np.array([0, 1]),
    "gallery_id": np.array([-1, 2, 0, 1]),
}
ONE_ITEM = {  # as far from all: the last six of seven predictions are correct
    "distances": np.full((7, 1), 0.6),
    "query_id": np.array([1, 0, 0, 0, 0, 0, 0]),
    "gallery_id": np.array([0]),
}


@examples(150)
@given(list_problems(), OPTIONS, st.booleans())
@example(
    (HIDDEN_TIES, 3, np.random.default_rng(0)),
    MetricOptions(ties="expected", false_rate_budget=5, metrics=("all",)),
    True,
)
@example(
    (HIDDEN_NEGATIVE, 1, np.random.default_rng(0)),
    MetricOptions(ties="optimistic", metrics=("all",)),
    True,
)
def test_exact_values_lie_in_the_intervals(
    drawn: tuple[dict[str, Any], int, np.random.Generator], options: MetricOptions, tighten: bool
) -> None:
    problem, k, rng = drawn
    gallery = problem["distances"].shape[1]
    exact = oracle_statistics(**problem, thresholds=THRESHOLDS)
    sides = labels(problem)
    pairs = find_pairs(sides["query"], sides["gallery"], PROTOCOLS[protocol(problem)])
    returned = returned_of(*nearest(problem["distances"], k, rng), gallery)
    places = Places(pairs, returned)
    known = problem["distances"][places.missing_positives()] if tighten else None
    ends = find_extremes(places, THRESHOLDS, None, known)
    if not (ends.missing_positives + ends.missing_negatives).any():
        assert ends.worst.equals(exact)
        assert ends.best.equals(exact)
    reading = ListReading("bounds", k, ends.effective, ends.missing_positives, tighten, ends.best)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compute_list_metrics(ends.worst, reading, options)
        truth = metrics_of(exact, options, measures_of(options, exact))
    rounding = 1e-12 if options.ties == "expected" else 0.0
    for name, (low, high) in found.bounds.items():
        value = truth.scalars[name]
        assert low - rounding <= value <= high + rounding, (name, low, high)  # never without value
    for name, value in found.scalars.items():
        if not math.isnan(value):
            assert value == pytest.approx(truth.scalars[name], abs=rounding), name
    ranks = truth.per_query["first_rank"]
    low, high = (
        found.per_query.get(f"first_rank/{end}", found.per_query.get("first_rank"))
        for end in ("lower", "upper")
    )
    assert ((low <= ranks + rounding) & (ranks <= high + rounding) | np.isnan(ranks)).all()
    certain = int(ends.effective[exact.has_positive].min(initial=gallery))
    if options.cmc == "first-match" and options.ties != "expected" and exact.has_positive.any():
        for x in range(1, certain + 1):
            ranks = replace(options, metrics=(f"CMC@{x}", f"P@{x}", f"recall@{x}"))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                open_ = compute_list_metrics(ends.worst, reading, ranks)
            assert not any(map(math.isnan, open_.scalars.values())), (x, ends.effective)


@examples(80)
@given(list_problems(), st.sampled_from(("pessimistic", "optimistic", "stable")))
@example((ONE_ITEM, 1, np.random.default_rng(0)), "pessimistic")
def test_what_is_never_found_counts_as_zero(
    drawn: tuple[dict[str, Any], int, np.random.Generator], ties: Any
) -> None:
    """The list is the ranking; positives that it lacks have a precision of 0."""
    import streameval as se

    problem, k, rng = drawn
    indices, values = nearest(problem["distances"], k, rng)
    names = ("MRR", "mP@recall=0.5", "mP@recall=1", "mP@3", "P@3", "GAP")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.StreamevalWarning)
        found = se.evaluate(
            se.Neighbors(indices, values, missing="never"),
            **labels(problem),
            protocol=protocol(problem),
            metrics=names,
            ties=ties,
        )
    whole, expected = Problem(**problem), {name: list[float]() for name in names[:-1]}
    predicted: list[tuple[float, bool, int, bool]] = []
    for i, (row, own) in enumerate(zip(indices, values, strict=True)):
        ignored, same = whole.row(i)
        items = [item for item in row if item >= 0 and not ignored[item]]
        total = int((same & ~ignored).sum())
        at = dict(zip(row, own, strict=True))
        second = {"pessimistic": same, "optimistic": ~same, "stable": np.arange(len(same))}[ties]
        items.sort(key=lambda item, at=at, second=second: (at[item], second[item]))
        if items and (total or not same.any()):
            first = bool(same[items[0]])
            order = {"pessimistic": first, "optimistic": not first}.get(ties, False)
            predicted.append((at[items[0]], order, i, first))
        if not total:
            continue
        ranks = [rank for rank, item in enumerate(items, 1) if same[item]]
        precisions = [j / rank for j, rank in enumerate(ranks, 1)] + [0.0] * (total - len(ranks))
        last = ranks[-1] if len(ranks) == total else 3
        hits = sum(rank <= min(3, last) for rank in ranks)
        for name, value in (
            ("MRR", 1 / ranks[0] if ranks else 0.0),
            ("mP@recall=0.5", max(precisions[math.ceil(total / 2) - 1 :])),
            ("mP@recall=1", precisions[-1]),
            ("mP@3", hits / min(3, last)),
            ("P@3", sum(rank <= 3 for rank in ranks) / 3),
        ):
            expected[name].append(value)
    for name, each in expected.items():
        mean = math.fsum(each) / len(each) if each else math.nan
        np.testing.assert_equal(found[name], mean, name)
    gap = precision_of_correct([one[-1] for one in sorted(predicted)])
    np.testing.assert_equal(found["GAP"], gap / len(each) if each else math.nan)


def test_every_metric_says_what_lists_tell_of_it() -> None:
    """The histogram needs all distances; all others say how they move."""
    for metric in METRICS:
        for measure in metric.measures(MetricOptions()):
            of_all = {"impostor_histogram", "sampled_shots"}.intersection(metric.needs)
            assert (measure.tail == "withheld") == bool(of_all), measure.name
            assert (measure.tail == "own") == (metric.between is not None)


def test_a_hand_made_list() -> None:
    """Two of three positives in the first four places, one of which is ignored."""
    import streameval as se

    gallery = se.Labels(id=np.array([1, -1, 2, 1, 2, 1, 2, 2]))
    lists = se.Neighbors(np.array([[0, 1, 2, 3]]), np.array([[0.1, 0.2, 0.3, 0.4]]))
    names = ("CMC@1", "mAP", "mINP", "recall@3", "P@4", "mAP@4/hits")
    found = se.evaluate(
        lists,
        query=se.Labels(id=np.array([1])),
        gallery=gallery,
        protocol="no-camera",
        metrics=names,
    )
    # Valid: + − +, the last at the horizon, where others may tie; then a positive, 3 negatives.
    assert found.lists is not None
    assert found.lists.effective.tolist() == [2]
    bounds = found.metrics.bounds
    assert bounds["CMC@1"] == (1.0, 1.0)
    assert bounds["mAP"] == ((1 + 2 / 6 + 3 / 7) / 3, (1 + 2 / 3 + 3 / 4) / 3)
    assert bounds["mINP"] == (3 / 7, 3 / 4)
    assert bounds["recall@3"] == (1 / 3, 2 / 3)
    assert bounds["P@4"] == (1 / 4, 3 / 4)
    assert "mAP@4/hits" not in bounds
    assert found.metrics.details["mAP@4/hits"].open


@examples(60)
@given(list_problems(), st.sampled_from(["as they are", "unsorted", "twice"]))
def test_lists_are_repaired_and_bound_all_the_same(
    drawn: tuple[dict[str, Any], int, np.random.Generator], how: str
) -> None:
    import streameval as se

    problem, k, rng = drawn
    gallery = problem["distances"].shape[1]
    indices, values = disturbed(*nearest(problem["distances"], k, rng), rng, how)
    sides, name = labels(problem), protocol(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.StreamevalWarning)
        exact = se.evaluate(
            se.Distances(problem["distances"]), **sides, protocol=name, range=(0, 1)
        )
        try:
            found = se.evaluate(se.Neighbors(indices, values), **sides, protocol=name, range=(0, 1))
        except se.InputError as error:  # by chance, all fall: that is never taken for distances
            assert (how, "similarities" in str(error)) == ("unsorted", True)  # noqa: PT017
            return
    for metric, (low, high) in found.metrics.bounds.items():
        assert math.isnan(exact[metric]) or low <= exact[metric] <= high, metric
    if k >= gallery and how != "twice":
        assert found.statistics.equals(exact.statistics)
        assert found.metrics.scalars == pytest.approx(exact.metrics.scalars, abs=0, nan_ok=True)


def test_no_interval_where_nothing_may_be_returned() -> None:
    """The one certain item is ignored: the others are within τ or not, and none has a precision."""
    import streameval as se

    found = se.evaluate(
        se.Neighbors(np.array([[0]]), np.array([[0.1]])),
        query=se.Labels(id=np.array([1])),
        gallery=se.Labels(id=np.array([-1, 1, 2])),
        protocol="no-camera",
        range=(0.0, 1.0),
        metrics=("precision/micro@tau=0.25", "recall/micro@tau=0.25"),
    )
    assert found.metrics.bounds == {"recall/micro@tau=0.25": (0.0, 1.0)}
    assert found.metrics.details["precision/micro@tau=0.25"].open
