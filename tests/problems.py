"""Small random evaluation problems, with ties: what `oracle` takes as keyword arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st


@st.composite
def problems(
    draw: st.DrawFn, max_queries: int = 8, max_gallery: int = 14, levels: int = 6
) -> dict[str, Any]:
    """Draw distances from few values, so that ties happen; identities in and out of the gallery."""
    queries = draw(st.integers(1, max_queries))
    gallery = draw(st.integers(1, max_gallery))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = np.sort(rng.random(draw(st.integers(1, levels))))
    identities = draw(st.integers(1, 5))
    problem: dict[str, Any] = {
        "distances": rng.choice(values, (queries, gallery)),
        "query_id": rng.integers(0, identities + 2, queries),
        "gallery_id": rng.integers(-1, identities, gallery),
    }
    if draw(st.booleans()):
        problem["query_cam"] = rng.integers(0, 2, queries)
        problem["gallery_cam"] = rng.integers(0, 2, gallery)
        problem["same_camera"] = draw(st.booleans())
    return problem


def untied(problem: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Return the problem with all distances different."""
    distances = problem["distances"]
    rng = np.random.default_rng(seed)
    return {**problem, "distances": rng.permutation(distances.size).reshape(distances.shape) / 7.0}
