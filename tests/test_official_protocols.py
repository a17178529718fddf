"""Shipped protocols against figures that the benchmarks' own code printed for generated data.

Each case names the repository and the commit of that code. It ran aside; none of it is here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import streameval as se

CUTOFFS = (1, 5, 10, 20)
Array = npt.NDArray[Any]


def changing_clothes() -> tuple[Array, dict[str, se.Labels]]:
    """Return distances without ties, and labels: 12 people in 3 clothes each, 5 strangers."""
    rng = np.random.default_rng(20)
    sides = []
    for count in (60, 400):
        ids = rng.integers(0, 12, count)
        sides.append([ids, rng.integers(0, 4, count), 10 * ids + rng.integers(0, 3, count)])
    (query, _, worn), (gallery, _, clothes) = sides
    query[:5], worn[:5] = 90 + np.arange(5), 900
    distances = rng.permutation(60 * 400).reshape(60, 400) + 0.5
    distances -= 1000 * (query[:, None] == gallery)
    distances += 600.25 * (worn[:, None] != clothes)
    order = np.argsort(np.argsort(distances, axis=None, kind="stable"))
    labels = {
        side: se.Labels(ids, cams, more={"clothes": own})
        for side, (ids, cams, own) in zip(("query", "gallery"), sides, strict=True)
    }
    return order.reshape(distances.shape).astype(np.float32), labels


# guxinqian/Simple-CCReID, commit f773d013508a, tools/eval_metrics.py: evaluate, and
# evaluate_with_clothes in its modes SC and CC; CMC at `CUTOFFS`, and mAP, in float64.
LTCC = {
    "ltcc/standard": (
        [0.7454545454545455, 0.8181818181818182, 0.8727272727272727, 0.9090909090909091],
        0.14478881513684067,
    ),
    "ltcc/sc": (
        [0.4727272727272727, 0.509090909090909, 0.5636363636363636, 0.6545454545454545],
        0.12160980528498568,
    ),
    "ltcc/cc": (
        [0.5272727272727272, 0.6363636363636364, 0.7090909090909091, 0.8],
        0.10736516306458864,
    ),
}


@pytest.mark.parametrize("name", LTCC)
def test_ltcc(name: str) -> None:
    distances, labels = changing_clothes()
    found = se.evaluate(se.Distances(distances), **labels, protocol=name)
    cmc, mean = LTCC[name]
    assert [found[f"CMC@{x}"] for x in CUTOFFS] == pytest.approx(cmc, rel=1e-14)
    assert found["mAP"] == pytest.approx(mean, rel=1e-14)
    assert found.counts["queries_negative"] == 5
