"""k-reciprocal re-ranking: distances of the definition to the bit, and what it refuses."""

from __future__ import annotations

import warnings
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_reranking import oracle_reranked
from profiles import examples
from support.reranking import alone_module, copies_module, exponentials, search_module

import streameval as se

Array = npt.NDArray[Any]
KINDS = [
    "random",
    "clustered",
    "few values",
    "copies",
    "half",
    "one is tiny",
    "any size",
    "with zeros",
]
PARAMETERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "k1": st.sampled_from([2, 3, 5, 7, 20]),
        "k2": st.sampled_from([1, 2, 6, 12]),
        "lambda_": st.sampled_from([0.0, 0.3, 0.9, 1.0]),
        "power": st.sampled_from([2, 4]),
    }
)
METRICS = ("cosine", "euclidean", "sqeuclidean")


def images(rng: np.random.Generator, kind: str, count: int, width: int) -> Array:
    """Return features: at random, around few centres, of few values, or with copies."""
    rows = rng.standard_normal((count, width)).astype(np.float32)
    if kind == "clustered":
        centres = rng.standard_normal((max(count // 8, 1), width)).astype(np.float32)
        return (centres[rng.integers(0, len(centres), count)] + 0.3 * rows).astype(np.float32)
    if kind == "few values":
        return np.sign(rows) * np.ceil(np.abs(rows))
    if kind == "copies":
        return rows[rng.integers(0, max(count // 4, 1), count)]
    if kind == "half":
        return rows.astype(np.float16)
    if kind == "one is tiny":  # no float32 holds its inverse norm beside the others
        rows[rng.integers(count)] *= np.float32(1e-14)
        return rows
    if kind == "any size":
        scaled = rows.astype(np.float64) * 10.0 ** rng.integers(-130, 140)
        return scaled * 10.0 ** rng.uniform(-8, 8, (count, 1)) if rng.random() < 0.5 else scaled
    if kind == "with zeros":
        rows[rng.random(count) < 0.2] = 0
        return rows * np.float32(10.0 ** rng.integers(-22, 3))
    return rows


def labels(rng: np.random.Generator, queries: int, items: int) -> dict[str, se.Labels]:
    return {
        "query": se.Labels(rng.integers(0, 6, queries), rng.integers(0, 3, queries)),
        "gallery": se.Labels(rng.integers(-1, 5, items), rng.integers(0, 3, items)),
    }


def evaluate(*args: Any, **kwargs: Any) -> se.Evaluation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.StreamevalWarning)
        return se.evaluate(*args, **kwargs)


def all_distances(source: se.Reranked) -> Array:
    """Return the distances of all pairs."""
    blocks = source.distance_blocks(range(source.shape[0]), 1 << 14)
    return np.concatenate([block for _, block in blocks], axis=1)


def mark_all_tiles(patch: pytest.MonkeyPatch) -> None:
    """Mark pairs wherever anything is known, however few, and list all that are marked."""
    patch.setattr(copies_module, "FEW", 2.0)  # tiles are not cut
    patch.setattr("streameval.kernels.features.worth_marking", lambda *_: True)
    dear = "streameval.kernels.marks.gallery_row_seconds"
    patch.setattr(dear, lambda count, width: 1e9 * count)


def check_statistics(
    source: se.Reranked, expected: Array, rng: np.random.Generator, draw: st.DrawFn
) -> None:
    """Assert that what is counted is what is of the distances of all pairs."""
    sides, tile = labels(rng, *expected.shape), draw(st.sampled_from([None, (5, 17)]))
    result = evaluate(source, **sides, tile=tile, threads=draw(st.sampled_from([1, 2])))
    by_matrix = evaluate(se.Distances(expected), **sides, range=(0, 1))
    assert result.statistics.equals(by_matrix.statistics)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@examples(12)
def test_distances_are_those_of_the_definition(kind: str, data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    queries, items = draw(st.integers(1, 12)), draw(st.integers(1, 90))
    given = draw(PARAMETERS)
    metric = draw(st.sampled_from(METRICS[kind == "with zeros" :]))
    block = draw(st.sampled_from([1024, 32]))
    rows = images(rng, kind, queries + items, 33)
    query, gallery = rows[:queries], rows[queries:]
    expected = oracle_reranked(query, gallery, metric, **given)
    source = se.Reranked(se.Features(query, gallery, metric), **given)
    assert np.array_equal(all_distances(source), expected)
    with pytest.MonkeyPatch.context() as patch:  # in small blocks, the other way with copies
        patch.setattr(search_module, "LEAST_BLOCK", block)
        patch.setattr(copies_module, "FEW", 2.0 if kind == "copies" else 0.0)
        assert np.array_equal(all_distances(source), expected)
        mark_all_tiles(patch)
        assert np.array_equal(all_distances(source), expected)
    check_statistics(source, expected, rng, draw)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@examples(12)
def test_a_query_with_the_gallery_is_as_if_it_were_the_only_one(
    kind: str, data: st.DataObject
) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    queries, items = draw(st.integers(1, 12)), draw(st.integers(1, 90))
    given = draw(PARAMETERS)
    metric = draw(st.sampled_from(METRICS[kind == "with zeros" :]))
    rows = images(rng, kind, queries + items, 33)
    query, gallery = rows[:queries], rows[queries:]
    if draw(st.booleans()):  # the queries are further from items than these from one another
        query = query * np.float32(-3)
    expected = np.concatenate(
        [oracle_reranked(query[[q]], gallery, metric, **given) for q in range(queries)]
    )
    source = se.Reranked(se.Features(query, gallery, metric), with_="gallery", **given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alone_module, "STEP", draw(st.sampled_from([1024, 7])))
        assert np.array_equal(all_distances(source), expected)
    check_statistics(source, expected, rng, draw)


def test_exponential_is_within_one_unit_in_the_last_place() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [-rng.random(3000), -(rng.random(500) ** 8), [0.0, -1.0, -0.5, -5e-324]]
    )
    found = exponentials(values)
    assert found[3500] == 1.0
    with localcontext() as context:
        context.prec = 50
        exact = [Decimal(value).exp() for value in values.tolist()]
        errors = [
            abs(Decimal(one) - wanted) / Decimal(float(np.spacing(float(wanted))))
            for one, wanted in zip(found.tolist(), exact, strict=True)
        ]
    assert max(errors) < 1


@pytest.mark.parametrize("metric", METRICS)
def test_marks_find_what_is_near_or_far_for_one_side_alone(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "LEAST_BLOCK", 32)
    mark_all_tiles(monkeypatch)
    for seed in range(8):
        rows = images(np.random.default_rng(seed), "random", 160, 33)
        expected = oracle_reranked(rows[:10], rows[10:], metric, 2, 1, 0.3)
        source = se.Reranked(se.Features(rows[:10], rows[10:], metric), k1=2, k2=1)
        assert np.array_equal(all_distances(source), expected)


def test_blocks_of_which_no_image_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "LEAST_BLOCK", 32)
    rng = np.random.default_rng(3)
    rows = images(rng, "random", 400, 9)
    rows[100:] = rows[7]
    query, gallery = rows[:30], rows[30:]
    source = se.Reranked(se.Features(query, gallery), k1=5)
    assert np.array_equal(
        all_distances(source), oracle_reranked(query, gallery, "cosine", 5, 6, 0.3)
    )
