"""Presets give what their tools do: each tool's arithmetic, written again from its description."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import problems, untied
from profiles import examples
from sklearn.metrics import average_precision_score

import streameval as se

Array = npt.NDArray[Any]


@st.composite
def setups(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a problem with cameras and without ties, which has a query that every tool counts."""
    problem = untied(draw(problems(max_queries=12, max_gallery=20)), draw(st.integers(0, 99)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    for side in ("query", "gallery"):
        problem[f"{side}_cam"] = rng.integers(0, 3, len(problem[f"{side}_id"]))
    problem["gallery_id"] = np.abs(problem["gallery_id"])  # tools differ in where junk is left out
    problem["query_cam"][0], problem["gallery_cam"][0] = 0, 1
    problem["gallery_id"][0] = problem["query_id"][0]
    return problem


def evaluate(problem: dict[str, Any], preset: str) -> se.Evaluation:
    return se.evaluate(
        se.Distances(problem["distances"]),
        query=se.Labels(problem["query_id"], problem["query_cam"]),
        gallery=se.Labels(problem["gallery_id"], problem["gallery_cam"]),
        preset=preset,
        threads=1,
    )


def ranked_lists(problem: dict[str, Any], *, cameras: bool = True) -> list[tuple[Array, Array]]:
    """Return matches and distances in ranked order, of the queries that have a match."""
    lists = []
    for i, distance in enumerate(problem["distances"]):
        same = problem["gallery_id"] == problem["query_id"][i]
        keep = ~same | (problem["gallery_cam"] != problem["query_cam"][i]) | (not cameras)
        order = np.argsort(distance)
        order = order[keep[order]]
        if same[order].any():
            lists.append((same[order], distance[order]))
    return lists


def agree(result: se.Evaluation, theirs: dict[str, float]) -> None:
    for name, value in theirs.items():
        assert result[name] == pytest.approx(value, abs=1e-13), name


@examples(40)
@given(problem=setups())
def test_torchreid_and_fastreid(problem: dict[str, Any]) -> None:
    found, average, inverse = [], [], []
    for match, _ in ranked_lists(problem):
        hits = match.cumsum()
        found.append([bool(match[:x].any()) for x in (1, 5, 10, 20)])
        average.append(np.sum(hits / np.arange(1, len(match) + 1) * match) / match.sum())
        last = np.flatnonzero(match)[-1]
        inverse.append(hits[last] / (last + 1))
    cmc = np.mean(found, axis=0)
    theirs = {f"CMC@{x}": value for x, value in zip((1, 5, 10, 20), cmc, strict=True)}
    theirs["mAP"] = float(np.mean(average))
    agree(evaluate(problem, "torchreid"), theirs)
    del theirs["CMC@20"]
    agree(evaluate(problem, "fastreid"), {**theirs, "mINP": float(np.mean(inverse))})


@examples(40)
@given(problem=setups())
def test_open_reid(problem: dict[str, Any]) -> None:
    steps = np.zeros(100)
    lists = ranked_lists(problem)
    for match, _ in lists:
        for earlier, place in enumerate(np.flatnonzero(match)):
            steps[place - earlier] += 1 / match.sum()
    cmc = steps.cumsum() / len(lists)
    average = [average_precision_score(match, -distance) for match, distance in lists]
    theirs = {f"CMC@{x}": cmc[x - 1] for x in (1, 5, 10)} | {"mAP": float(np.mean(average))}
    agree(evaluate(problem, "open-reid"), theirs)


@examples(40)
@given(problem=setups())
def test_market_matlab(problem: dict[str, Any]) -> None:
    average = []
    for match, _ in ranked_lists(problem):
        area, recall, precision = 0.0, 0.0, 1.0
        for place, hits in enumerate(match.cumsum(), start=1):
            area += (hits / match.sum() - recall) * (precision + hits / place) / 2
            recall, precision = hits / match.sum(), hits / place
        average.append(area)
    agree(evaluate(problem, "market-matlab"), {"mAP": float(np.mean(average))})


@examples(40)
@given(problem=setups())
def test_oml(problem: dict[str, Any]) -> None:
    found, precision, average = [], [], []
    for match, _ in ranked_lists(problem, cameras=False):
        first, most = match[:5], min(5, int(match.sum()))
        found.append(bool(first.any()))
        precision.append(first.sum() / most)
        average.append(np.sum(first.cumsum() / np.arange(1, len(first) + 1) * first) / most)
    theirs = {"CMC@5": np.mean(found), "P@5/min": np.mean(precision), "mAP@5/min": np.mean(average)}
    agree(evaluate(problem, "oml"), {name: float(value) for name, value in theirs.items()})


@examples(20)
@given(problem=setups())
def test_gom_as_printed_and_as_coded(problem: dict[str, Any]) -> None:
    lists = ranked_lists(problem)
    everything = np.concatenate([distance for _, distance in lists])
    paper, code = evaluate(problem, "gom-paper"), evaluate(problem, "gom-code")
    low, high = code.range["low"], code.range["high"]
    assert low <= everything.min()
    assert high >= everything.max()
    for result, stops in ((paper, False), (code, True)):
        curve = []
        for t in range(101):
            values = []
            for match, distance in lists:
                returned = int(np.sum((distance - low) / max(high - low, 1e-9) <= t / 100))
                tp = int(match[:returned].sum())
                if stops:
                    returned = min(returned, int(np.flatnonzero(match)[-1]) + 1)
                values.append(tp / (returned - tp + match.sum()))
            curve.append(np.mean(values))
        np.testing.assert_allclose(result.curves["mVP"], curve, 0, 1e-13)
