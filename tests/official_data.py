"""Generated data on which the benchmarks' own code ran: see `test_benchmark_rules`.

A change here makes the figures there void.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Data = dict[str, Array]


def _untied(rng: np.random.Generator, same: Array, nearer: int) -> Array:
    """Return distances that all differ; those of the same identity are smaller by `nearer`."""
    whole = 2 * rng.permutation(same.size).reshape(same.shape)
    return (whole + (2 * nearer + 1) * ~same).astype(np.float32)


def cameras() -> Data:
    """Return 70 queries and 400 items of four cameras, untied.

    The identities 12 to 19 have one item each, which some of their queries ignore; 90 to 94 are
    strangers.
    """
    rng = np.random.default_rng(8)
    query_id, gallery_id = rng.integers(0, 20, 70), rng.integers(0, 12, 400)
    query_id[:5], gallery_id[40:48] = 90 + np.arange(5), 12 + np.arange(8)
    return {
        "distances": _untied(rng, query_id[:, None] == gallery_id, 900),
        "query_id": query_id,
        "gallery_id": gallery_id,
        "query_cam": rng.integers(0, 4, 70),
        "gallery_cam": rng.integers(0, 4, 400),
    }
