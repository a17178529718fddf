"""Metrics against figures that the benchmarks' own code printed for the data of `drawn`.

The code ran aside; none of it is here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import streameval as se

Array = npt.NDArray[Any]
QUERIES, GALLERY = 60, 200

# filipradenovic/revisitop be398328edcd, python/evaluate.py: compute_map with kappas 1, 5, 10, 100.
REVISITOP = {
    "mAP": 0.5489511669862311,
    "mP@1": 0.8292682926829268,
    "mP@5": 0.4109756097560976,
    "mP@10": 0.31062717770034837,
    "mP@100": 0.24498713904465363,
}
# tensorflow/models e4009b236c08, research/delf/delf/python/datasets/google_landmarks_dataset/
# metrics.py: GlobalAveragePrecision of each query's nearest item, without excluded queries, with
# scores of minus the distance; and of distances in steps of 20, where it orders ties by query.
GAP, GAP_OF_STEPS = 0.8202348690153567, 0.42354704346226785


def drawn() -> tuple[Array, list[list[Array]]]:
    """Return distances without ties, and ids and cameras of both sides.

    Some queries have one positive, some none: their identity is absent, or of their camera alone.
    """
    rng = np.random.default_rng(720)
    sides = [
        [rng.integers(0, most, count), rng.integers(0, 4, count)]
        for most, count in ((90, QUERIES), (70, GALLERY))
    ]
    (query, cams), (gallery, _) = sides
    query[0], gallery[:3], sides[1][1][:3] = 99, 99, cams[0]
    near = rng.random((QUERIES, GALLERY)) - 0.45 * (query[:, None] == gallery)
    ranks = near.ravel().argsort().argsort().reshape(near.shape)
    return ranks / 7.0, sides


def evaluated(step: int = 0, **options: Any) -> se.Evaluation:
    distances, (query, gallery) = drawn()
    return se.evaluate(
        se.Distances(np.floor(distances / step) if step else distances),
        query=se.Labels(*query),
        gallery=se.Labels(*gallery),
        threads=1,
        **options,
    )


def test_the_data_have_every_kind_of_query() -> None:
    result = evaluated(metrics="mAP")
    assert min(result.counts[f"queries_{name}"] for name in ("negative", "excluded")) > 0
    assert (result.statistics.positives == 1).any()
    assert result.counts["ties"] == 0


def test_revisitop() -> None:
    result = evaluated(metrics=tuple(REVISITOP), ap="trapezoid")
    assert result.metrics.scalars == pytest.approx(REVISITOP, rel=1e-14)


def test_google_landmark_recognition() -> None:
    assert evaluated(metrics="GAP")["GAP"] == pytest.approx(GAP, rel=1e-14)
    of_steps = evaluated(step=20, metrics="GAP", ties="stable")
    assert of_steps["GAP"] == pytest.approx(GAP_OF_STEPS, rel=1e-14)
    low, high = of_steps.intervals["GAP"]
    assert low < of_steps["GAP"] < high
