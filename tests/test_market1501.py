"""Market-1501's real labels, with features made up for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from oracle import oracle_metrics, oracle_statistics
from reference import canonical_distances

import streameval as se

DATA = Path(__file__).parents[2] / "shared" / "data" / "market1501-labels"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no labels of Market-1501 in {DATA}")

WIDTH = 64


@pytest.fixture(scope="module")
def sides() -> dict[str, se.Labels]:
    return {
        side: se.read_labels(DATA / f"{side}_id.npy", DATA / f"{side}_cam.npy")
        for side in ("query", "gallery")
    }


def features(sides: dict[str, se.Labels]) -> dict[str, np.ndarray]:
    """Return a centre for each identity, with noise."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((1502, WIDTH))
    noise = {side: rng.standard_normal((len(one), WIDTH)) for side, one in sides.items()}
    return {
        side: (centres[np.maximum(one.id, 0)] + 1.6 * noise[side]).astype(np.float32)
        for side, one in sides.items()
    }


def test_the_pairs_are_those_of_the_benchmark(sides: dict[str, se.Labels]) -> None:
    rows = features(sides)
    result = se.evaluate(se.Features(rows["query"], rows["gallery"]), **sides)
    counts = result.counts
    assert counts["queries_positive"] == counts["queries"] == 3368
    assert counts["queries_negative"] == counts["queries_excluded"] == 0
    assert counts["gallery"] == 19732
    assert counts["pairs_positive"] == 49649
    junk = np.count_nonzero(sides["gallery"].id == -1)
    assert junk == 3819
    query, gallery = sides["query"], sides["gallery"]
    assert query.cam is not None
    assert gallery.cam is not None
    same = sum(
        np.count_nonzero((gallery.id == one) & (gallery.cam == cam))
        for one, cam in zip(query.id, query.cam, strict=True)
    )
    assert counts["pairs_ignored"] == 3368 * junk + same


@pytest.mark.slow
@pytest.mark.parametrize("ties", ["pessimistic", "optimistic", "stable"])
def test_every_metric_equals_the_oracle(sides: dict[str, se.Labels], ties: str) -> None:
    rows = features(sides)
    # Of the first 3,000 queries every tenth; the gallery loses some of them, for the open set.
    chosen = np.arange(0, 3000, 10)
    kept = ~np.isin(sides["gallery"].id, np.unique(sides["query"].id[chosen])[::7])
    query_id, query_cam = sides["query"].id[chosen], sides["query"].cam[chosen]  # type: ignore[index]
    gallery_id, gallery_cam = sides["gallery"].id[kept], sides["gallery"].cam[kept]  # type: ignore[index]
    q, g = rows["query"][chosen], rows["gallery"][kept]
    result = se.evaluate(
        se.Features(q, g),
        query=se.Labels(query_id, query_cam),
        gallery=se.Labels(gallery_id, gallery_cam),
        ties=ties,  # type: ignore[arg-type]
        false_rate_budget=300,
    )
    problem = (canonical_distances(q, g, "cosine"), query_id, gallery_id, query_cam, gallery_cam)
    statistics = oracle_statistics(*problem, thresholds=result.statistics.thresholds)
    assert result.statistics.equals(statistics)
    scalars, curves, columns = oracle_metrics(
        *problem, ties=ties, lo=0.0, hi=2.0, budget=300, ranks=100
    )
    assert result.counts["queries_negative"] > 0
    assert str(dict(result.metrics.scalars)) == str({n: float(v) for n, v in scalars.items()})
    assert np.isnan(scalars["DIR@1|FAR=0.001"])  # of fewer than 1,000 strangers
    assert scalars["DIR@1|FAR=0.1"] > 0
    for name, values in curves.items():
        assert np.array_equal(result.curves[name], values, equal_nan=True), name
    for name, values in columns.items():
        assert np.array_equal(result.per_query[name], values, equal_nan=True), name
