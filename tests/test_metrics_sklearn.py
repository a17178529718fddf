"""Against scikit-learn, on distances with and without ties: which option reads as it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import Problem, oracle_statistics, oracle_thresholds
from oracle_pairs import pairs_of, with_histogram
from problems import problems, untied
from profiles import examples
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    ndcg_score,
    precision_recall_curve,
    precision_score,
    recall_score,
    roc_auc_score,
    roc_curve,
)
from test_metrics import quietly

from streameval import MetricOptions


def lists(problem: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return whether each valid item is a positive, and its score, for each query of Q+."""
    whole = Problem(**problem)
    found = []
    for i in range(len(whole.distances)):
        ignored, same = whole.row(i)
        if (same & ~ignored).any():
            found.append((same[~ignored], -whole.distances[i][~ignored]))
    return found


def scalars(problem: dict[str, Any], **options: Any) -> dict[str, float]:
    return quietly(oracle_statistics(**problem), MetricOptions(**options)).scalars


@examples(60)
@given(problem=problems())
def test_average_precision(problem: dict[str, Any]) -> None:
    # scikit-learn returns equal scores together: ap="threshold". Without ties that is "step".
    for ap, given_problem in (("threshold", problem), ("step", untied(problem))):
        queries = lists(given_problem)
        if queries:
            theirs = np.mean([average_precision_score(*query) for query in queries])
            for ties in ("pessimistic", "optimistic", "stable", "expected"):
                mine = scalars(given_problem, ap=ap, ties=ties)["mAP"]
                assert mine == pytest.approx(theirs, abs=1e-14)


@examples(60)
@given(problem=problems(), k=st.sampled_from((1, 3, 10)))
def test_discounted_gain(problem: dict[str, Any], k: int) -> None:
    # scikit-learn averages over the orders of equal scores: ties="expected".
    # It refuses lists of one item.
    queries = [(match, score) for match, score in lists(problem)]
    if queries and all(len(match) > 1 for match, _ in queries):
        theirs = np.mean([ndcg_score([match], [score], k=k) for match, score in queries])
        mine = scalars(problem, metrics=(f"nDCG@{k}",), ties="expected")[f"nDCG@{k}"]
        assert mine == pytest.approx(theirs, abs=1e-13)


@examples(60)
@given(problem=problems(), bins=st.sampled_from((4, 1000)))
def test_roc_of_pairs(problem: dict[str, Any], bins: int) -> None:
    genuine, impostor = pairs_of(problem)
    if not len(genuine) or not len(impostor):
        return
    truth = np.repeat([1, 0], [len(genuine), len(impostor)])
    score = -np.concatenate([genuine, impostor])
    stats = with_histogram(oracle_statistics(**problem), problem, bins=bins)
    rates = tuple(f for f in (0.5, 0.1) if f >= 1 / len(impostor))
    names = ("AUC", *(f"TAR|FAR={f:g}" for f in rates))
    metrics = quietly(stats, MetricOptions(metrics=names))
    assert abs(metrics.scalars["AUC"] - roc_auc_score(truth, score)) <= (
        metrics.details["AUC"].error + 1e-13
    )
    # Every operating point is wanted: scikit-learn drops those on straight lines by default.
    fpr, tpr, _ = roc_curve(truth, score, drop_intermediate=False)
    for f in rates:
        name = f"TAR|FAR={f:g}"
        theirs = tpr[fpr <= f].max()
        assert abs(metrics.scalars[name] - theirs) <= metrics.details[name].error + 1e-13
    # FMR and FNMR at the edges of the bins are exact: they are points of that curve.
    for edge, fmr, fnmr in zip(
        *(metrics.curves[name] for name in ("pair_tau", "FMR", "FNMR")), strict=True
    ):
        at = int(np.sum(np.unique(-score) <= edge))
        assert fmr == pytest.approx(fpr[at], abs=1e-14)
        assert 1 - fnmr == pytest.approx(tpr[at], abs=1e-14)


@examples(60)
@given(problem=problems(), precision=st.sampled_from((0.3, 0.5, 0.9)))
def test_recall_at_a_precision(problem: dict[str, Any], precision: float) -> None:
    genuine, impostor = pairs_of(problem)
    if not len(genuine) or not len(impostor):
        return
    truth = np.repeat([1, 0], [len(genuine), len(impostor)])
    score = -np.concatenate([genuine, impostor])
    reached, recall, _ = precision_recall_curve(truth, score)
    name = f"recall|precision={precision}"
    stats = with_histogram(oracle_statistics(**problem), problem, bins=1000)
    metrics = quietly(stats, MetricOptions(metrics=(name,)))
    theirs = recall[reached >= precision].max()
    assert abs(metrics[name] - theirs) <= metrics.details[name].error + 1e-13


@examples(60)
@given(problem=problems())
def test_figures_at_a_threshold(problem: dict[str, Any]) -> None:
    genuine, impostor = pairs_of(problem)
    if not len(genuine):
        return
    stats = oracle_statistics(
        **problem, thresholds=oracle_thresholds(problem["distances"], 0.0, 1.0)
    )
    truth = np.repeat([1, 0], [len(genuine), len(impostor)])
    returned = np.concatenate([genuine, impostor]) <= 0.5
    theirs = {
        # Where nothing is returned, scikit-learn gives zero_division; null here.
        "precision": precision_score(truth, returned, zero_division=np.nan),
        "recall": recall_score(truth, returned),
        "F1": f1_score(truth, returned),
    }
    names = {name: f"{name}/micro@tau=0.5" for name in theirs}
    mine = quietly(stats, MetricOptions(metrics=tuple(names.values()))).scalars
    for name, value in theirs.items():
        np.testing.assert_allclose(mine[names[name]], value, 0, 1e-14, err_msg=name)


@examples(60)
@given(problem=problems(max_queries=12))
def test_area_of_identification(problem: dict[str, Any]) -> None:
    # With every query of Q+ identified, DIR_AUC is the area of d_1 against strangers' nearest.
    whole = Problem(**problem)
    known, strangers = [], []
    for i in range(len(whole.distances)):
        ignored, same = whole.row(i)
        if (same & ~ignored).any():
            known.append(whole.distances[i][same & ~ignored].min())
        elif not same.any() and not ignored.all():
            strangers.append(whole.distances[i][~ignored].min())
        elif not same.any():
            return  # a stranger with nothing to be compared to has no score
    if known and strangers:
        truth = np.repeat([1, 0], [len(known), len(strangers)])
        theirs = roc_auc_score(truth, -np.array([*known, *strangers]))
        mine = scalars(problem, metrics=("DIR_AUC@1000",))["DIR_AUC@1000"]
        assert mine == pytest.approx(theirs, abs=1e-14)
