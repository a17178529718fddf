"""The closed forms of the expectation over tie-breaks, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support.metrics import (
    ExpectedRanks,
    expected_inverse,
    harmonic_difference,
)
from support.package import stack

from streameval import RankStatistics


def one_group(positives: int, negatives: int, closer: int, before: int) -> RankStatistics:
    """Return a query with `before` untied positives ahead of one tie group."""
    total = before + positives
    tie = np.arange(total) >= before
    counts: dict[str, Any] = {
        "closer": np.where(tie, closer, 0),
        "tied": np.where(tie, negatives, 0),
        "tied_before": np.zeros(total, dtype=np.int64),
        "negatives_within": np.zeros((1, 0), dtype=np.int64),
        "nearest_negative": np.array([0.0]),
        "valid": np.array([total + negatives + closer]),
        "ignored": np.array([0]),
        "same_identity": np.array([total]),
    }
    distance = np.where(tie, before, np.arange(total)).astype(np.float64)
    return RankStatistics(np.array([0, total]), distance, np.empty(0), **counts)


groups = {
    "positives": st.integers(1, 12),
    "negatives": st.integers(1, 60),
    "closer": st.one_of(st.integers(0, 70), st.integers(10**5, 10**7)),
    "before": st.integers(0, 5),
}


@examples(150)
@given(**groups)
def test_terms_are_exact(positives: int, negatives: int, closer: int, before: int) -> None:
    p, n, ahead, size = positives, negatives, closer + before, positives + negatives
    ranks = ExpectedRanks(one_group(p, n, closer, before))
    step, lower, inverse, first = Fraction(0), Fraction(0), Fraction(0), Fraction(0)
    for k in range(1, size + 1):
        inside = Fraction((k - 1) * (p - 1), max(size - 1, 1))  # positives before place k
        step += Fraction(p, size) * (before + 1 + inside) / (ahead + k)
        if ahead + k == 1:
            lower += Fraction(p, size)
        else:
            lower += Fraction(p, size) * (before + inside) / (ahead + k - 1)
        inverse += Fraction(comb(k - 1, p - 1), comb(size, p)) / (ahead + k)
        first += Fraction(comb(size - k, p - 1), comb(size, p)) / (ahead + k)
    total = before + p
    assert ranks.terms("step")[before:].sum() == pytest.approx(float(step), rel=1e-11, abs=1e-15)
    trapezoid = float((lower + step) / 2)
    assert ranks.terms("trapezoid")[before:].sum() == pytest.approx(trapezoid, rel=1e-11, abs=1e-15)
    assert ranks.inverse_rank(last=True)[0] == pytest.approx(float(total * inverse), rel=1e-11)
    if not before:
        assert ranks.inverse_rank()[0] == pytest.approx(float(first), rel=1e-11)


@examples(60)
@given(positives=groups["positives"], negatives=groups["negatives"], closer=st.integers(0, 9))
def test_chance_of_a_first_match_is_hypergeometric(
    positives: int, negatives: int, closer: int
) -> None:
    ranks = ExpectedRanks(one_group(positives, negatives, closer, 0))
    curve = ranks.hit_terms(20).sum(axis=1)
    for x in range(1, 21):
        drawn = max(x - closer, 0)
        none = Fraction(comb(negatives, drawn), comb(positives + negatives, drawn) or 1)
        assert curve[x - 1] == pytest.approx(float(1 - none), abs=1e-15)
        assert ranks.first_within(x)[0] == curve[x - 1]
    assert ranks.first_rank()[0] == pytest.approx(
        closer + (positives + negatives + 1) / (positives + 1)
    )


@given(low=st.integers(0, 10**9), count=st.integers(0, 300))
def test_harmonic_difference_is_accurate_relative_to_itself(low: int, count: int) -> None:
    exact = float(sum((Fraction(1, low + k) for k in range(1, count + 1)), Fraction(0)))
    computed = harmonic_difference(np.array([low]), np.array([low + count]))[0]
    assert computed == pytest.approx(exact, rel=1e-14, abs=0)


@pytest.mark.parametrize("positives", [1, 2, 7, 40])
@pytest.mark.parametrize("ahead", [0, 150, 300, 400, 5000])
def test_last_place_by_recurrence_and_by_sum(positives: int, ahead: int) -> None:
    negatives = 300
    size = positives + negatives
    exact = sum(
        Fraction(comb(k - 1, positives - 1), comb(size, positives)) / (ahead + k)
        for k in range(positives, size + 1)
    )
    computed = expected_inverse(np.array([[positives, negatives, ahead]]), last=True)[0]
    assert computed == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize("positives", [1, 2, 7, 40, 500])
@pytest.mark.parametrize("ahead", [0, 6, 43, 150, 5000])
def test_first_place_by_recurrence_and_by_sum(positives: int, ahead: int) -> None:
    negatives = 300
    size = positives + negatives
    exact = sum(
        Fraction(comb(size - k, positives - 1), comb(size, positives)) / (ahead + k)
        for k in range(1, negatives + 2)
    )
    computed = expected_inverse(np.array([[positives, negatives, ahead]]), last=False)[0]
    assert computed == pytest.approx(float(exact), rel=1e-12)


def test_a_collapsed_model() -> None:
    """A thousand queries, each with its own huge tie group: no loop over the gallery."""
    queries = 1000
    parts = [one_group(2 + i % 30, 10**6 + i, i, 0) for i in range(queries)]
    ranks = ExpectedRanks(stack(parts))
    for values in (
        ranks.terms("step"),
        ranks.terms("trapezoid"),
        ranks.inverse_rank(last=True),
        ranks.inverse_rank(),
    ):
        assert (values > 0).all()
        assert (values < 1e-3).all()
    assert 0 < ranks.hit_terms(100)[-1].sum() < 10
