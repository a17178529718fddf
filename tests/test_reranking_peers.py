"""Re-ranked distances beside those that the code of other tools printed for generated data.

Each code was run on the data below, in its own float32: `re_ranking` of
python-version/re_ranking_ranklist.py of zhunzhong07/person-re-ranking (278f2c7) on Euclidean
distances; of torchreid/utils/rerank.py of KaiyangZhou/deep-person-reid (f8cd150), on squared
Euclidean and on cosine distances, as its engine passes them; of re_ranking.py of
layumi/Person_reID_baseline_pytorch (82ff40f), on inner products of rows of length 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streameval as se

PLACES = ((0, 0), (7, 100), (31, 5), (59, 199))
ZHONG, TORCHREID, LAYUMI = "zhong", "torchreid", "layumi"
OTHERS = {"k1": 10, "k2": 1, "lambda_": 0.6}
FIGURES: list[tuple[str, str, int, dict[str, Any], float, float, list[float]]] = [
    # tool, metric, power, options, mean, mean with query i weighted i + 1, at PLACES
    (
        ZHONG,
        "euclidean",
        2,
        {},
        0.80744451,
        24.64716344,
        [0.8822818, 0.7775737, 0.8966897, 0.7786292],
    ),
    (ZHONG, "cosine", 2, {}, 0.83959495, 25.65723836, [0.8956035, 0.8464274, 0.8981787, 0.7209479]),
    (
        TORCHREID,
        "euclidean",
        4,
        {},
        0.73930080,
        22.57128593,
        [0.8181746, 0.7030376, 0.8392931, 0.7051728],
    ),
    (
        TORCHREID,
        "cosine",
        4,
        {},
        0.77840864,
        23.80396089,
        [0.8464583, 0.7750669, 0.8523813, 0.6455621],
    ),
    (
        LAYUMI,
        "cosine",
        4,
        {},
        0.77840864,
        23.80396089,
        [0.8464583, 0.7750669, 0.8523813, 0.6455621],
    ),
    (
        ZHONG,
        "euclidean",
        2,
        OTHERS,
        0.73997221,
        22.57237221,
        [0.8167212, 0.7307002, 0.8474215, 0.6266809],
    ),
    (
        ZHONG,
        "cosine",
        2,
        OTHERS,
        0.79802765,
        24.39487721,
        [0.8778899, 0.7727149, 0.8903681, 0.6593647],
    ),
    (
        TORCHREID,
        "euclidean",
        4,
        OTHERS,
        0.60511855,
        18.46439178,
        [0.6894276, 0.582271, 0.7336433, 0.4807042],
    ),
    (
        TORCHREID,
        "cosine",
        4,
        OTHERS,
        0.67733885,
        20.73860326,
        [0.7806312, 0.6315273, 0.8007681, 0.5100767],
    ),
    (
        LAYUMI,
        "cosine",
        4,
        OTHERS,
        0.67733885,
        20.73860326,
        [0.7806312, 0.6315273, 0.8007681, 0.5100767],
    ),
]


@pytest.mark.parametrize(
    ("tool", "metric", "power", "options", "mean", "weighted", "some"), FIGURES
)
def test_distances_are_those_of_other_tools(
    tool: str,
    metric: str,
    power: int,
    options: dict[str, Any],
    mean: float,
    weighted: float,
    some: list[float],
) -> None:
    rng = np.random.default_rng(20)
    ids = rng.integers(0, 25, 260)
    rows = rng.standard_normal((25, 32))[ids] + 1.2 * rng.standard_normal((260, 32))
    rows = rows.astype(np.float32)
    source = se.Reranked(se.Features(rows[:60], rows[60:], metric), power=power, **options)
    blocks = source.distance_blocks(range(60), 1 << 20)
    distances = np.concatenate([block for _, block in blocks], axis=1)
    single = 5e-7  # the digits of float32 after some additions
    assert distances.mean() == pytest.approx(mean, rel=single)
    assert (distances * np.arange(1, 61)[:, None]).mean() == pytest.approx(weighted, rel=single)
    assert [distances[place] for place in PLACES] == pytest.approx(some, rel=single)
