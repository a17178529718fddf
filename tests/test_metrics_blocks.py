"""Metrics of blocks of queries, one after the other, equal those of all queries at once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import oracle_statistics, oracle_thresholds
from oracle_pairs import with_histogram
from problems import problems
from profiles import examples
from support.metrics import CHOICES, METRICS, Metrics, compute_metrics, exact_parts, rounded

from streameval import MetricOptions, RankStatistics, StreamevalWarning

AT_DISTANCES = ("DIR@1|tau=0.4", "FNIR@2|tau=0.3", "FPIR|tau=0.4")
RANKS = 4  # that are counted under single gallery shot


def blocks_of(stats: RankStatistics, cuts: Sequence[int]) -> Iterator[RankStatistics]:
    """Give blocks of consecutive queries, the last of which holds the histogram of all."""
    assert stats.impostor_histogram is not None
    ends = [0, *sorted(min(cut, stats.queries) for cut in cuts), stats.queries]
    for at, (start, end) in enumerate(pairwise(ends), 2):
        yield replace(
            stats.take(np.arange(start, end)),
            impostor_histogram=stats.impostor_histogram * (at == len(ends)),
            histogram_edges=stats.histogram_edges,
        )


def quietly(stats: Any, options: MetricOptions) -> Metrics:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        return compute_metrics(stats, options)


def assert_equal(one: Metrics, other: Metrics) -> None:
    """Check that two are equal in every bit."""
    for name, values in vars(one).items():
        others = getattr(other, name)
        assert values.keys() == others.keys(), name
        for key, value in values.items():
            if name == "details":
                value, others_value = (repr(asdict(each[key])) for each in (values, others))
                assert value == others_value, key
            else:
                assert np.array_equal(value, others[key], equal_nan=key != "class"), (name, key)


@examples(50)
@given(
    problem=problems(),
    ties=st.sampled_from(CHOICES["ties"]),
    ap=st.sampled_from(CHOICES["ap"]),
    vp=st.sampled_from(CHOICES["vp"]),
    cmc=st.sampled_from(CHOICES["cmc"]),
    unmatched=st.sampled_from(["exclude", "miss"]),
    cuts=st.lists(st.integers(0, 8), max_size=4),
)
def test_any_blocks_of_queries_give_the_same_metrics(
    problem: dict[str, Any], ties: Any, ap: Any, vp: Any, cmc: Any, unmatched: Any, cuts: list[int]
) -> None:
    stats = oracle_statistics(
        **problem, thresholds=oracle_thresholds(problem["distances"], 0.0, 1.0)
    )
    shots = np.sort(np.random.default_rng(0).random((2, stats.queries, 3, RANKS)), axis=-1)
    tied = np.add.reduceat(np.append(stats.tied, 0), stats.indptr[:-1]) * stats.has_positive > 0
    shots = np.where(tied[:, None, None], shots, shots[:, :, :1])  # rules differ by ties alone
    ahead = np.sort(np.random.default_rng(0).integers(0, 5, (stats.queries, 3)))
    ahead = np.where(tied[:, None], ahead, ahead[:, :1])
    stats = replace(
        with_histogram(stats, problem),
        single_shot=shots[0],
        sampled_shots=shots[1],
        identities_ahead=ahead,
    )
    options = MetricOptions(
        ties,
        ap,
        vp,
        5,
        cmc=cmc,
        unmatched=unmatched,
        dir_ranks=(1, 3),
        false_accept_rates=(0.0, 0.4),
        metrics=("all", *AT_DISTANCES),
    )
    whole = quietly(stats, options)
    assert len(whole.scalars) > len(METRICS)
    assert_equal(quietly(blocks_of(stats, cuts), options), whole)


@examples(30)
@given(
    problem=problems(),
    ties=st.sampled_from(CHOICES["ties"]),
    positives=st.integers(1, 5),
    threads=st.integers(1, 3),
)
def test_small_blocks_and_threads_give_the_same_metrics(
    problem: dict[str, Any], ties: Any, positives: int, threads: int
) -> None:
    stats = oracle_statistics(
        **problem, thresholds=oracle_thresholds(problem["distances"], 0.0, 1.0)
    )
    whole = quietly(stats, MetricOptions(ties))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        patch.setattr("streameval.metrics.blocks.POSITIVES", positives)
        assert_equal(compute_metrics(stats, MetricOptions(ties), threads), whole)


def test_no_statistics_have_no_metrics() -> None:
    with pytest.raises(ValueError, match="no statistics"):
        compute_metrics([])


@given(
    st.lists(st.floats(-1e12, 1e12), max_size=30),
    st.lists(st.integers(0, 30), max_size=3),
    st.integers(0, 40),
)
def test_sums_of_blocks_are_rounded_once(values: list[float], cuts: list[int], scale: int) -> None:
    terms = np.array([values, [math.ldexp(value, -scale) for value in values]], dtype=np.float64)
    ends = [0, *sorted(cuts), len(values)]
    blocks = [exact_parts([terms[:, start:end]]) for start, end in pairwise(ends)]
    expected = [float(sum(map(Fraction, row), Fraction(0))) for row in terms.tolist()]
    assert rounded(blocks).tolist() == expected


def test_terms_in_any_batches_give_the_same_sums() -> None:
    terms = np.random.default_rng(0).random((300, 500)) ** 9
    expected = [math.fsum(row) for row in terms.tolist()]
    assert rounded([exact_parts([terms])]).tolist() == expected
    assert rounded([exact_parts(terms[:, None])]).tolist() == expected


def test_terms_are_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        exact_parts([np.array([[1.0, math.nan]])])
