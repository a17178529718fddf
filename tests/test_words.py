"""Rows in words of 16 bits: what they leave out, and that no sum of a slice overflows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.distances import Vectors, find_distance
from support.kernels import (
    NARROW_WORDS,
    PLAIN_WORDS,
    SLICE,
    VARIABLE,
    WIDE_WORDS,
    FeatureColumns,
    Instructions,
    QueryBlock,
    Words,
    blas_product,
    chosen_instructions,
    has_avx2,
    has_vnni,
    item_bytes,
    multiply_words_of,
    signs_of,
    steps_of,
    word_bytes,
    word_product,
)
from test_products import KINDS, both_sides

Array = npt.NDArray[Any]
WAYS = [
    pytest.param(by, id=by.text, marks=pytest.mark.skipif(not there, reason=f"no {by.text}"))
    for by, there in ((WIDE_WORDS, has_vnni()), (NARROW_WORDS, has_avx2()), (PLAIN_WORDS, True))
]
WIDTHS = [1, 31, 32, 33, 130, 512]


def words_of(rows: Array, by: Instructions) -> tuple[Words, Words]:
    """Return rows as queries and as gallery rows."""
    memory = np.full(word_bytes(*rows.shape), 85, np.uint8)
    return Words.of_queries(rows, by), Words.of_items(rows, memory, by)


def whole(words: Words, count: int, width: int) -> Array:
    """Read the numbers of queries, [n, columns of whole slices]."""
    padded = -(-width // SLICE) * SLICE
    apart = 2 * padded + 64
    rows = words.words[: count * apart].reshape(count, apart)[:, : 2 * padded].view(np.int16)
    return rows.astype(np.int64)


def mixed(rows: Array) -> Array:
    """Return rows mixed in float64: signs, then sums and differences of slices, over √2."""
    count, width = rows.shape
    out = np.zeros((count, -(-width // SLICE), SLICE))
    out.reshape(count, -1)[:, :width] = rows * signs_of(width)
    apart = 1
    while apart < out.shape[1]:
        for first in range(out.shape[1] - apart):
            if first // apart % 2 == 0:
                one, other = out[:, first].copy(), out[:, first + apart].copy()
                out[:, first], out[:, first + apart] = one + other, one - other
                out[:, [first, first + apart]] /= np.sqrt(2)
        apart *= 2
    return out.reshape(count, -1)


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_what_words_leave_out_is_within_their_bound(
    by: Instructions, kind: str, width: int
) -> None:
    rows = both_sides(kind, width)[1]
    rows[5] = 0
    words, panels = words_of(rows, by)
    numbers, scale = whole(words, len(rows), width), words.scale.astype(np.float64)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    error = mixed(rows.astype(np.float64)) - scale[:, None] * numbers
    told = np.isfinite(words.lost)
    assert np.all(told == ((norms == 0) | (norms >= 1e-12)))
    bound = words.lost + 2.3 * 2.0**-24 * steps_of(numbers.shape[1] // SLICE)  # what mixing rounds
    assert np.all(np.linalg.norm(error, axis=1)[told] <= (bound * norms)[told] * (1 + 1e-12))
    assert np.array_equal(words.lost, panels.lost)
    assert np.array_equal(words.scale, panels.scale[: len(rows)])
    assert not panels.scale[len(rows) :].any()


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_sum_of_a_slice_overflows(by: Instructions, kind: str) -> None:
    for width in WIDTHS:
        rows = both_sides(kind, width)[0]
        numbers = whole(words_of(rows, by)[0], len(rows), width)
        for start in range(0, numbers.shape[1], SLICE):
            part = numbers[:, start : start + SLICE]
            assert (part**2).sum(axis=1).max() < 2**31
        assert np.abs(numbers).max() <= 2**15 - 1


@pytest.mark.parametrize("width", [*WIDTHS, 640, 2048])
def test_mixing_keeps_products(width: int) -> None:
    q, g = (side.astype(np.float64) for side in both_sides("normal", width))
    assert np.allclose(mixed(q) @ mixed(g).T, q @ g.T, rtol=0, atol=1e-12 * width)


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("width", [512, 640, 2048])
def test_mixed_slices_are_about_as_long_as_each_other(by: Instructions, width: int) -> None:
    rng = np.random.default_rng(width)
    noise = rng.standard_normal((300, width))
    falling = noise / np.arange(1, width + 1)  # as principal components
    positive = np.abs(noise) + 3  # as what a rectifier leaves
    for rows in (noise, falling, positive, np.where(np.arange(width) < SLICE, noise, 0)):
        words, _ = words_of(rows.astype(np.float32), by)
        slices = whole(words, len(rows), width).reshape(len(rows), -1, SLICE)
        squares = (slices.astype(np.float64) ** 2).sum(axis=2)
        assert np.all(squares.max(axis=1) <= 6 * squares.mean(axis=1))


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("width", WIDTHS)
def test_sums_of_slices_are_added_up_one_after_the_other(by: Instructions, width: int) -> None:
    q, g = both_sides("normal", width)
    words, items = words_of(q, by)[0], words_of(g, by)[1]
    left, right = whole(words, len(q), width), whole(words_of(g, by)[0], len(g), width)
    total = np.zeros((len(q), len(g)), np.float32)
    for start in range(0, left.shape[1], SLICE):
        part = slice(start, start + SLICE)
        total += (left[:, part] @ right[:, part].T).astype(np.float32)
    expected = total * items.scale[: len(g)] * words.scale[:, None]
    for query in (np.arange(45), np.arange(7, 7 + by.together), np.array([0, 3, 44]), np.arange(0)):
        out = np.full((len(query), len(g)), np.nan, np.float32)
        multiply_words_of(words, query, items, width, by, out)
        assert np.array_equal(out, expected[query])


def test_rows_of_unknown_length_are_multiplied_by_blas() -> None:
    rows = both_sides("normal", 40)[0]
    rows[3] *= np.float32(1e-14)
    by = chosen_instructions()
    words = Words.of_queries(rows, by)
    assert np.array_equal(np.isinf(words.lost), np.arange(45) == 3)
    memory = np.empty(word_bytes(*rows.shape), np.uint8)
    product = word_product(rows, words, by, rows, memory)
    assert not product.coarse
    assert np.array_equal(product.roundings, blas_product(rows, rows, memory).roundings)


def columns_of_words() -> tuple[FeatureColumns, QueryBlock]:
    """Return 70 gallery rows against a block of 45 queries."""
    q, g = both_sides("normal", 64)
    queries = QueryBlock(Vectors.of(q), find_distance("cosine"), np.zeros(45, np.int64))
    memory, out = np.empty(item_bytes(*g.shape), np.uint8), np.zeros((1, 70), np.float32)
    return FeatureColumns(queries, Vectors.of(g), np.arange(70), out, memory), queries


@pytest.mark.filterwarnings("error")
def test_rows_of_unknown_length_and_zeros_are_no_numbers_to_warn_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "words")
    q = both_sides("normal", 64)[0]
    q[3] *= np.float32(1e-14)
    zeros = np.zeros((5, 64), np.float32)
    for queries, items in ((q, zeros), (zeros, q), (q, zeros[:0])):
        memory = np.empty(word_bytes(*items.shape), np.uint8)
        by = chosen_instructions()
        words = Words.of_queries(queries, by)
        assert not word_product(queries, words, by, items, memory).coarse
        assert words.told == (queries is zeros)


def test_doubts_that_no_product_left_are_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "words")
    columns, queries = columns_of_words()
    (tile,) = columns.tiles(45, np.empty(4 * 45 * 70, np.uint8), None)
    pairs = np.repeat(np.arange(45), 70), np.tile(np.arange(70), 45)
    exact = tile.resolve(*pairs)
    assert not queries.narrow.any()
    assert tile.closer is not None
    values = tile.closer.estimates(*pairs)
    assert queries.narrow.all()
    level = tile.levels(np.arange(45), 70 * np.arange(46), exact).tied
    assert np.all(np.abs(values - level) <= tile.closer.band[pairs[0]])
    assert tile.closer.band.max() < tile.band.min() / 10


@pytest.mark.parametrize("product", ["digits", "blas"], indirect=True)
@pytest.mark.usefixtures("product")
def test_doubts_of_products_that_are_not_coarse_are_not_noted() -> None:
    columns, queries = columns_of_words()
    queries.note_doubts(np.repeat(np.arange(45), 70), 70)
    assert not queries.narrow.any()
    (tile,) = columns.tiles(45, np.empty(4 * 45 * 70, np.uint8), None)
    assert tile.last


def test_queries_that_words_leave_in_doubt_are_multiplied_by_blas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "words")
    columns, queries = columns_of_words()

    def tiles() -> list[tuple[list[int], bool, bool]]:
        """Return the queries of each tile, whether it is of words, and the last."""
        room = np.empty(4 * 45 * 70, np.uint8)
        found = [
            (tile.query.tolist(), bool(tile.band.max() > 4e-5), tile.last)
            for tile in columns.tiles(45, room, None)
        ]
        return found

    assert tiles() == [(list(range(45)), True, True)]
    few, many = np.repeat(4, 16), np.repeat(9, 17)
    queries.note_doubts(np.concatenate([few, many]), 70)
    rest = [query for query in range(45) if query != 9]
    assert tiles() == [(rest, True, False), ([9], False, True)]


def test_a_row_that_words_leave_in_doubt_has_a_finer_tile_by_blas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "words")
    columns, queries = columns_of_words()
    (tile,) = columns.tiles(45, np.empty(4 * 45 * 70, np.uint8), None)
    tile.values[4, 11] = np.inf
    (finer,) = tile.finer(np.array([4, 30]))
    assert finer.query.tolist() == [4, 30]
    assert finer.unit == tile.unit
    assert np.all(finer.band < tile.band[[4, 30]] / 5)
    assert np.flatnonzero(np.isinf(finer.values)).tolist() == [11]
    kept = np.isfinite(finer.values)
    assert tile.columns.weight is not None
    coarse, closer = (one * tile.columns.weight for one in (tile.values[[4, 30]], finer.values))
    error = np.abs(closer[kept] - coarse[kept])
    assert error.max() <= tile.band.max() + finer.band.max()
    assert np.flatnonzero(queries.narrow).tolist() == [4, 30]
