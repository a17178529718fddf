"""Where metrics are undefined, and options that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle import oracle_statistics
from support.metrics import compute_metrics

from streameval import MetricOptions, OptionError, StreamevalWarning

ALL_RULES = ("pessimistic", "optimistic", "stable", "expected")
THRESHOLDS = np.arange(101) / 100


@pytest.mark.parametrize("ties", ALL_RULES)
def test_without_positives_retrieval_is_nan_and_the_open_set_side_works(ties: Any) -> None:
    problem = {
        "distances": np.array([[0.25, 0.5], [0.75, 1.0]]),
        "query_id": np.array([8, 9]),
        "gallery_id": np.array([1, 2]),
    }
    with pytest.warns(StreamevalWarning, match=r"Q\+ is empty.*CMC@1.*mAP.*MREP.*DIR@1") as caught:
        metrics = compute_metrics(
            oracle_statistics(**problem, thresholds=THRESHOLDS),
            MetricOptions(ties, false_rate_budget=1),
        )
    assert len(caught) == 1
    defined = {name for name, value in metrics.scalars.items() if not np.isnan(value)}
    assert defined == {"MFR", "tau_nz"}
    assert metrics.scalars["tau_nz"] == 0.25
    for name in ("CMC", "mRP", "mVP", "mReP", "DIR@1"):
        assert np.isnan(metrics.curves[name]).all(), name
    assert metrics.curves["FAR"].tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("ties", ALL_RULES)
def test_without_negative_queries_the_open_set_side_is_nan_and_nobody_is_warned(ties: Any) -> None:
    problem = {
        "distances": np.array([[0.25, 0.5]]),
        "query_id": np.array([1]),
        "gallery_id": np.array([1, 2]),
    }
    metrics = compute_metrics(
        oracle_statistics(**problem, thresholds=THRESHOLDS), MetricOptions(ties)
    )
    assert metrics.scalars["mAP"] == 1
    undefined = {name.split("|")[0] for name, value in metrics.scalars.items() if np.isnan(value)}
    assert undefined == {"MFR", "tau_nz", "DIR@1"}
    assert np.isnan(metrics.curves["mFR"]).all()


@pytest.mark.parametrize("ties", ALL_RULES)
@pytest.mark.parametrize(("queries", "gallery"), [(0, 0), (0, 3), (2, 0)])
def test_nothing_to_evaluate(ties: Any, queries: int, gallery: int) -> None:
    problem = {
        "distances": np.ones((queries, gallery)),
        "query_id": np.zeros(queries, dtype=int),
        "gallery_id": np.zeros(gallery, dtype=int),
    }
    stats = oracle_statistics(**problem, thresholds=THRESHOLDS)
    with pytest.warns(StreamevalWarning, match=r"Q\+ is empty"):
        metrics = compute_metrics(stats, MetricOptions(ties))
    assert np.isnan(metrics.scalars["mAP"])


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("ties", "random", "pessimistic, optimistic, stable, expected"),
        ("ap", "interpolated", "step, trapezoid"),
        ("vp", "paper", "reference, equation"),
        ("false_rate_budget", 0, "false_rate_budget: got 0; expected a positive integer"),
        ("max_rank", 2.5, "max_rank: got 2.5; expected a positive integer"),
        ("cmc_ranks", (1, 0), "cmc_ranks: got 0; expected positive integers"),
        ("dir_ranks", (True,), "dir_ranks: got True; expected positive integers"),
        ("cmc", "all", "first-match, all-shots"),
        ("metrics", "mAP", "metrics: got 'mAP'; expected a tuple of names of metrics"),
        ("false_accept_rates", (1.5,), "got 1.5; expected fractions between 0 and 1"),
        ("false_accept_rates", (float("nan"),), "got nan; expected fractions between 0 and 1"),
    ],
)
def test_bad_options_say_what_is_expected(option: str, value: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        MetricOptions(**{option: value})
