"""Lists of neighbours as searches return them, made from a matrix of distances by a sort."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from problems import problems

import streameval as se


@st.composite
def list_problems(draw: st.DrawFn) -> tuple[dict[str, Any], int, np.random.Generator]:
    """Draw a problem of few distances, k (also beyond the gallery), and a source of chance."""
    problem = draw(problems())
    queries, gallery = problem["distances"].shape
    if draw(st.booleans()):  # a gallery of junk, most of it
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        problem["gallery_id"] = np.where(rng.random(gallery) < 0.6, -1, problem["gallery_id"])
    if draw(st.booleans()):  # hardly any ties
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        problem["distances"] = rng.random((queries, gallery))
    k = draw(st.integers(1, gallery + 3))
    return problem, k, np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def nearest(distances: np.ndarray, k: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return the nearest k items and their distances, ties in any order; padded with −1."""
    queries = len(distances)
    chance = rng.random(distances.shape)
    order = np.lexsort((chance, distances), axis=1)[:, :k]
    indices = np.full((queries, k), -1)
    indices[:, : order.shape[1]] = order
    values = np.full((queries, k), np.inf)
    values[:, : order.shape[1]] = np.take_along_axis(distances, order, axis=1)
    return indices, values


def disturbed(
    indices: np.ndarray, values: np.ndarray, rng: np.random.Generator, how: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same lists in another order, or with entries twice."""
    indices, values = indices.copy(), values.copy()
    for row, own in zip(indices, values, strict=True):
        held = int(np.sum(row >= 0))
        if how == "unsorted":
            order = rng.permutation(held)
            row[:held], own[:held] = row[order], own[order]
        elif how == "twice" and held < len(row):
            row[held], own[held] = row[held - 1], own[held - 1]
    return indices, values


def labels(problem: dict[str, Any]) -> dict[str, se.Labels]:
    """Return the labels of both sides."""
    return {
        side: se.Labels(id=problem[f"{side}_id"], cam=problem.get(f"{side}_cam"))
        for side in ("query", "gallery")
    }


def protocol(problem: dict[str, Any]) -> str:
    """Return the name of the problem's protocol."""
    if "query_cam" not in problem:
        return "no-camera"
    return "separate-camera" if problem["same_camera"] else "market1501"
