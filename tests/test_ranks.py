"""Negatives ahead of positives, each stretch of the gallery apart: as a full count has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from support.arrays import open_array
from support.ledger import Block, Part, Segment, settings_of
from support.package import Terms
from support.runs import session_of

import streameval as se

WIDTH = 5


def labels_of(rng: np.random.Generator, count: int) -> se.Labels:
    return se.Labels(rng.integers(-1, 4, count), rng.integers(0, 3, count))


def part_of(number: int, values: np.ndarray, labels: se.Labels) -> Part:
    segment = Segment(number, str(number), len(labels), 0, 0, ("id", "cam"), ())
    return Part(segment, labels, open_array(values))


def both_ways(
    rng: np.random.Generator,
    metric: Any,
    queries: int,
    sizes: list[int],
    scales: tuple[float, ...],
    dtype: str,
    protocol: str,
) -> None:
    """Count what is ahead of the positives of a segment behind all others, in both ways."""
    own = labels_of(rng, queries)

    def rows(count: int) -> np.ndarray:
        values = rng.integers(-3, 4, (count, WIDTH)) + 0.5
        return (values * rng.choice(scales, (count, 1))).astype(dtype)

    features = None if metric is None else open_array(rows(queries))
    parts = []
    for number, size in enumerate(sizes):
        values = rng.integers(0, 7, (queries, size)).astype(dtype)
        parts.append(
            part_of(number, values if metric is None else rows(size), labels_of(rng, size))
        )
    wanted: Any = "auto" if metric == "cosine" else (0.0, 1e9)
    fixed = settings_of(features, metric, Terms.of({"protocol": protocol, "range": wanted}), 1000)
    fixed = replace(fixed, range=None, thresholds=0)
    session = session_of({"threads": 2})
    positives = Block(fixed, own, features, parts[-1:], session).find_positives(0)
    chosen = np.unique(positives.query)
    old = parts[:-1]
    if not len(chosen):
        return
    block = Block(fixed, own, features, old, session, chosen)
    ahead = block.ahead(positives)
    for one, (closer, tied) in zip(block.count(positives)[0], ahead, strict=True):
        assert np.array_equal(one.closer, closer)
        assert np.array_equal(one.tied, tied)
        assert np.array_equal(one.tied_before, tied)


@examples(40)
@given(
    seed=st.integers(0, 2**32 - 1),
    metric=st.sampled_from([None, "cosine", "euclidean", "sqeuclidean", "dot"]),
    queries=st.sampled_from([1, 3, 16, 17, 70]),
    sizes=st.lists(st.integers(1, 60), min_size=2, max_size=5),
    spread=st.sampled_from([(1.0,), (1.0, 1e-3, 1e3), (1e-30, 1.0)]),
    dtype=st.sampled_from(["f4", "f8"]),
    protocol=st.sampled_from(["market1501", "separate-camera"]),
)
def test_ranks_by_stretch_are_those_of_a_full_count(
    seed: int,
    metric: Any,
    queries: int,
    sizes: list[int],
    spread: tuple[float, ...],
    dtype: str,
    protocol: str,
) -> None:
    both_ways(np.random.default_rng(seed), metric, queries, sizes, spread, dtype, protocol)


@pytest.mark.parametrize("metric", ["cosine", "sqeuclidean", None])
def test_tiles_and_tasks_are_cut_anywhere(metric: Any) -> None:
    rng = np.random.default_rng(0)
    both_ways(rng, metric, 20, [9000, 1, 300, 8240, 12_000, 50], (1.0,), "f4", "market1501")
