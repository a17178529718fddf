"""Shipped protocols that select queries and items, as `test_benchmark_rules` has the others."""

from __future__ import annotations

import numpy as np
import official_data
import pytest
from test_benchmark_rules import DOUBLE, alike, check, evaluate, items, random_problems

# guxinqian/Simple-CCReID, commit f773d013508a, tools/eval_metrics.py: evaluate, for the images that
# test.py, test_prcc, gives to it; CMC and mAP.
PRCC = {
    "prcc/cc": {
        "CMC@1": 0.3333333333333333,
        "CMC@5": 0.3333333333333333,
        "CMC@10": 0.5757575757575758,
        "CMC@20": 0.6666666666666666,
        "mAP": 0.1796677301483604,
    },
    "prcc/sc": {
        "CMC@1": 0.1590909090909091,
        "CMC@5": 0.22727272727272727,
        "CMC@10": 0.3181818181818182,
        "CMC@20": 0.45454545454545453,
        "mAP": 0.09511761145418487,
    },
}
CAMERA = {"prcc/cc": "C", "prcc/sc": "B"}
WITHOUT = {"prcc/cc": 2, "prcc/sc": 1}
"""Queries that have no image of their identity in the gallery."""


@pytest.mark.parametrize("name", PRCC)
def test_prcc(name: str) -> None:
    found = evaluate(official_data.rooms(), name)
    assert {metric: found[metric] for metric in PRCC[name]} == pytest.approx(PRCC[name], abs=DOUBLE)
    assert found.counts["queries_negative"] == WITHOUT[name]
    assert found.counts["queries_excluded"] == 0


@pytest.mark.parametrize("name", PRCC)
@random_problems
def test_selections_written_as_loops(name: str, seed: int, ties: str, ap: str) -> None:
    rng = np.random.default_rng(seed)
    queries, gallery, levels = rng.integers(1, 20), seed and rng.integers(0, 40), rng.integers(1, 7)
    data = {
        "distances": rng.integers(0, levels, (queries, gallery)) / 8,
        "query_id": rng.integers(-1, 6, queries),
        "gallery_id": rng.integers(-1, 5, gallery),
        "query_cam": rng.choice(["A", "B", "C"], queries),
        "gallery_cam": rng.choice(["A", "B", "C"], gallery),
    }
    data["query_cam"][0] = CAMERA[name]
    asking, shown = (
        [item for item in items(data, side) if item["cam"] == cam]
        for side, cam in (("query", CAMERA[name]), ("gallery", "A"))
    )
    every = [[alike(query, item) for item in shown] for query in asking]
    rows = np.ix_([one["number"] for one in asking], [one["number"] for one in shown])
    if data["distances"].size and not (len(rows) and np.any(data["gallery_cam"] == "A")):
        return  # nothing is selected, which is an error
    check(evaluate(data, name, ties=ties, ap=ap), every, data["distances"][rows])
