"""Confidence intervals: 1,000 resamples of 10,000 queries, all usual metrics, in two seconds."""

from __future__ import annotations

from functools import partial

import numpy as np

import streameval as se
from benchmarks.figure import Bench, Case, Figure, Measured
from streameval.statistics import RankStatistics

QUERIES = 10_000, 2_000  # full, quick
RESAMPLES = 1000
POSITIVES, GALLERY, THRESHOLDS = 10, 100_000, 101
PER_IDENTITY = {"one-query": 1, "ten-queries": 10}
STRANGERS = 0.2  # share of the queries


def statistics(queries: int) -> RankStatistics:
    """Return statistics of queries with positives that are mostly near, and of strangers."""
    rng = np.random.default_rng(0)
    known = queries - int(STRANGERS * queries)
    counts = np.repeat([POSITIVES, 0], [known, queries - known])
    indptr = np.append(0, np.cumsum(counts)).astype(np.int64)
    shape = known, POSITIVES
    closer = np.sort((GALLERY * rng.random(shape) ** 6).astype(np.int64), axis=1).reshape(-1)
    within = (GALLERY * rng.random((queries, THRESHOLDS)) ** 6).astype(np.int64)
    zeros = np.zeros(len(closer), np.int64)
    return RankStatistics(
        indptr=indptr,
        positive_distance=np.sort(rng.random(shape), axis=1).reshape(-1),
        thresholds=np.linspace(0, 1, THRESHOLDS),
        closer=closer,
        tied=zeros,
        tied_before=zeros,
        negatives_within=np.sort(within, axis=1),
        nearest_negative=rng.random(queries),
        valid=np.full(queries, GALLERY, np.int64),
        ignored=np.zeros(queries, np.int64),
        same_identity=counts.astype(np.int64),
    )


def intervals(per_identity: int, bench: Bench) -> Measured:
    """Measure the intervals of all usual metrics."""
    queries = bench.count(*QUERIES)
    result = se.Evaluation.compute(
        statistics(queries),
        se.MetricOptions(),
        range={"mode": "given", "low": 0.0, "high": 1.0},
        columns={"id": np.arange(queries) // per_identity},
        provenance={},
    )
    samples = bench.time({"intervals": partial(result.confidence, resamples=RESAMPLES)})
    return Measured(samples, {"queries": queries, "metrics": list(result.metrics.scalars)})


CASES = tuple(
    Case(
        (Figure(f"confidence/{name}/time", ("intervals",), 2.0, kind="value"),),
        partial(intervals, per_identity),
    )
    for name, per_identity in PER_IDENTITY.items()
)
