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


def tracklets() -> Data:
    """Return 300 tracklets of six cameras, 60 of them queries too; with ties.

    The identity -1 is junk, 0 a distractor; 21 to 24 have tracklets of one camera alone, 25 to 28 a
    single one of another camera.
    """
    rng = np.random.default_rng(16)
    few = np.array([21, 22, 23, 24, 24, 25, 26, 27, 28, 25, 26, 27, 28])
    ids = np.concatenate([np.repeat([-1, 0], [30, 60]), rng.integers(1, 21, 197), few])
    cams = rng.integers(1, 7, 300)
    cams[-13:-4], cams[-4:] = 3, 5
    order = rng.permutation(300)
    ids, cams = ids[order], cams[order]
    asking = np.argsort(-ids, kind="stable")[:60][rng.permutation(60)]
    distances = rng.integers(1, 90, (60, 300)) + 8.0 * (ids[asking][:, None] != ids)
    distances[np.arange(60), asking] = 0
    return {
        "distances": distances,
        "query_id": ids[asking],
        "gallery_id": ids,
        "query_cam": cams[asking],
        "gallery_cam": cams,
    }


def landmarks() -> tuple[Array, list[dict[str, Array]]]:
    """Return distances of 24 queries and 300 items, untied, and the items that each query lists.

    Some have no easy item, some no hard one, the first four neither, and the first two none.
    """
    rng = np.random.default_rng(24)
    listed = []
    easy, hard, junk = (rng.integers(0, most, 24) for most in (12, 9, 15))
    easy[:4], hard[:4], junk[:2] = 0, 0, 0
    easy[4:8], hard[8:12], easy[20] = 0, 0, 1
    relevant = np.zeros((24, 300), np.bool_)
    for query, counts in enumerate(zip(easy, hard, junk, strict=True)):
        parts = np.split(rng.permutation(300), np.cumsum(counts))[:3]
        listed.append(dict(zip(("easy", "hard", "junk"), map(np.sort, parts), strict=True)))
        relevant[query, np.concatenate(parts)] = True
    return _untied(rng, relevant, 1500), listed


def products() -> Data:
    """Return features of 1,200 items of about 300 classes; the first 20 are alone in theirs."""
    rng = np.random.default_rng(32)
    ids = rng.integers(0, 300, 1200)
    ids[:20] = 900 + np.arange(20)
    return {"features": rng.random((1200, 8)) + rng.random((1000, 8))[ids] - 1, "id": ids}


def clothes() -> Data:
    """Return features of 80 queries and 600 items of length 1, whose products are exact, and tied.

    Some identities have one item; every query has one.
    """
    rng = np.random.default_rng(40)
    own = np.argsort(rng.random((150, 12)))[:, :3]

    def features(ids: Array) -> Array:
        found, row = np.zeros((len(ids), 24), np.float32), np.arange(len(ids))
        for column in (*own[ids].T, rng.integers(12, 24, len(ids))):
            found[row, column] = np.where(rng.random(len(ids)) < 0.2, -0.5, 0.5)
        return found

    gallery_id = np.concatenate([np.arange(150), rng.integers(0, 150, 450)])
    query_id = rng.integers(0, 150, 80)
    return {
        "query": features(query_id),
        "gallery": features(gallery_id),
        "query_id": query_id,
        "gallery_id": gallery_id,
    }


def rooms() -> Data:
    """Return queries and items of the cameras A, B and C of PRCC, untied; five are strangers."""
    rng = np.random.default_rng(48)
    query_id, gallery_id = rng.integers(0, 60, 120), rng.integers(0, 60, 500)
    query_id[:5] = 90 + np.arange(5)
    return {
        "distances": _untied(rng, query_id[:, None] == gallery_id, 3000),
        "query_id": query_id,
        "gallery_id": gallery_id,
        "query_cam": rng.choice(["A", "B", "C"], 120),
        "gallery_cam": rng.choice(["A", "B", "C"], 500),
    }
