"""Products of float32 rows: by BLAS, and of digits by the matrix unit or in plain loops."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
import numpy.typing as npt
import pytest
from support.kernels import (
    CORETYPE,
    FEW_ROWS,
    ITEMS,
    MOST_COLUMNS,
    PLAIN_WORDS,
    QUERIES,
    VARIABLE,
    Panels,
    Product,
    Words,
    blas_kernels,
    blas_product,
    choose_multiplier,
    chosen_instructions,
    chosen_unit,
    chosen_way,
    description,
    digit_product,
    item_bytes,
    multiply,
    panels_of,
    slice_bytes,
    supported,
    word_product,
)

from streameval import OptionError

IN_LOOPS = () if supported() else pytest.mark.slow  # evaluations take BLAS then
in_digits = pytest.mark.parametrize(
    "product", [pytest.param("digits", marks=IN_LOOPS)], indirect=True
)
ROOT = Path(__file__).parent.parent
Float32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]


def multiplied(queries: Float32, gallery: Float32) -> Product:
    """Return products by the way under test; of few rows, too."""
    memory = np.empty(item_bytes(*gallery.shape), np.uint8)
    if chosen_way() == "words":
        by = chosen_instructions()
        words = Words.of_queries(queries, by)
        return word_product(queries, words, by, gallery, memory)
    if chosen_way() != "blas":
        own, unit = np.empty(item_bytes(*queries.shape), np.uint8), chosen_unit()
        return digit_product(panels_of(queries, own, QUERIES, unit), unit, gallery, memory)
    return choose_multiplier(queries)(gallery, memory)


def product_of(queries: Float32, gallery: Float32, start: int = 0, stop: int | None = None) -> Any:
    out = np.full(((len(queries) if stop is None else stop) - start, len(gallery)), np.nan, "f4")
    multiplied(queries, gallery).write(np.arange(start, start + len(out)), out)
    return out


def rows(rng: np.random.Generator, count: int, width: int) -> Float32:
    return rng.standard_normal((count, width)).astype(np.float32)


def both_panels(queries: Float32, gallery: Float32) -> tuple[Panels, Panels]:
    sides = (queries, QUERIES), (gallery, ITEMS)
    left, right = (
        panels_of(side, np.zeros(item_bytes(*side.shape), "u1"), panel, chosen_unit())
        for side, panel in sides
    )
    return left, right


def digits_of(panels: Panels, panel: int, width: int) -> Array:
    """Read the digits of panels, [3, rows, width]."""
    steps, tiles = -(-width // 64), panel // 16
    shape = (len(panels.scale) // panel, steps, 3, tiles, 16, 16, 4)
    tile = panels.digits[: int(np.prod(shape))].view(np.int8).reshape(shape)
    if panel == ITEMS:  # transposed by fours
        tile = tile.swapaxes(4, 5)
    digits = tile.transpose(2, 0, 3, 4, 1, 5, 6).reshape(3, len(panels.scale), 64 * steps)
    assert not digits[:, :, width:].any()
    return digits[:, :, :width]


@in_digits
@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("width", [1, 63, 64, 130])
@pytest.mark.parametrize("panel", [QUERIES, ITEMS])
def test_rows_are_the_digits_of_whole_numbers(width: int, panel: int) -> None:
    rng = np.random.default_rng(width)
    given = rows(rng, 40, width) * 10.0 ** rng.integers(-9, 9, (40, 1))
    given = given.astype(np.float32)
    given[3] = 0
    given[4] = np.float32(2.0) - np.float32(2.0**-23)  # too much for three digits at 2²³
    panels = both_panels(given, given)[panel == ITEMS]
    digits = digits_of(panels, panel, width)[:, :40].astype(np.int64)
    whole = digits[0] * 65536 + digits[1] * 256 + digits[2]
    most = np.abs(whole).max(axis=1)
    assert not whole[3].any()
    assert np.all(np.delete(most, 3) >= 2**22 - 1)
    unit = panels.scale[:40].astype(np.float64) / 256
    exact = given.astype(np.float64)
    error = exact - whole * unit[:, None]
    assert np.all(np.abs(error) <= unit[:, None] / 2)
    norm = np.delete(np.linalg.norm(exact, axis=1), 3)
    parts = error, 256 * digits[1] * unit[:, None], digits[2] * unit[:, None]
    for rest, bound in zip(parts, panels.lost, strict=True):
        share = np.delete(np.linalg.norm(rest, axis=1), 3) / norm
        assert np.all(share <= np.delete(bound, 3))
    assert panels.lost[1].max() <= 0.2
    assert panels.lost[2].max() <= 1e-3


@in_digits
@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("width", [1, 64, 100, 384])
def test_digits_add_up_without_rounding(width: int) -> None:
    rng = np.random.default_rng(width)
    q, g = rows(rng, 45, width), rows(rng, 70, width)
    left, right = both_panels(q, g)
    a, b, c = digits_of(left, QUERIES, width)[:, :45].astype(np.int64)
    d, e, f = digits_of(right, ITEMS, width)[:, :70].astype(np.int64)
    sums = a @ d.T, a @ e.T + b @ d.T, a @ f.T + b @ e.T + c @ d.T
    value = sums[2].astype(np.float32)
    for level in (1, 0):  # by fused multiplication and addition: rounded once
        base = 256.0 ** (2 - level)
        value = (sums[level].astype(np.float32).astype(np.float64) * base + value).astype("f4")
    scale = left.scale[:45, None] * right.scale[:70]
    assert np.array_equal(product_of(q, g), value * scale)


@in_digits
@pytest.mark.usefixtures("product")
def test_what_digits_cannot_bound_is_left_to_distances() -> None:
    rng = np.random.default_rng(0)
    g = rows(rng, 20, 8)
    g[3] *= np.float32(1e-14)  # its norm is beyond float32's squares
    assert np.array_equal(np.isinf(both_panels(g, g)[1].lost[0]), np.arange(20) == 3)
    assert item_bytes(20, MOST_COLUMNS + 1) == 0


KINDS = ("normal", "constant", "one sign", "powers", "one", "sparse")


def both_sides(kind: str, width: int) -> tuple[Float32, Float32]:
    """Return 45 queries and 70 gallery rows that put different strain on a sum."""
    rng = np.random.default_rng(width)
    q, g = rows(rng, 45, width), rows(rng, 70, width)
    if kind == "constant":
        q, g = (np.repeat(side[:, :1], width, 1) for side in (q, g))
    elif kind == "one sign":
        q, g = np.abs(q), np.abs(g)
    elif kind == "powers":
        q, g = (np.ldexp(side, rng.integers(-30, 30, side.shape)) for side in (q, g))
    elif kind == "one":
        q[:, 0] *= np.float32(1e4)
        g[:, 0] *= np.float32(1e4)
    elif kind == "sparse":
        q, g = (side * (rng.random(side.shape) < 0.05) for side in (q, g))
    return q, g


@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("width", [1, 2, 31, 33, 40, 512, 2048])
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_as_close_as_they_say(width: int, kind: str) -> None:
    q, g = both_sides(kind, width)
    assert_close(product_of(q, g), q, g, multiplied(q, g).roundings)


def assert_close(found: Float32, q: Float32, g: Float32, roundings: Array) -> None:
    """Assert that products differ from exact ones by no more than so many roundings."""
    bound = roundings[:, None] * 2.0**-24
    norms = [np.linalg.norm(side.astype(np.float64), axis=1) for side in (q, g)]
    magnitude = norms[0][:, None] * norms[1]
    error = np.abs(found - q.astype(np.float64) @ g.astype(np.float64).T)
    assert np.all(error <= (bound / (1 - bound) + q.shape[1] * 2.0**-52) * magnitude)


@pytest.mark.parametrize("width", [1, 7, 33, 512, 1024, 2100, 9000])
@pytest.mark.parametrize("kind", KINDS)
def test_products_of_few_queries_are_as_close_as_they_say(width: int, kind: str) -> None:
    q, g = both_sides(kind, width)
    memory = np.empty(0, np.uint8)
    wide = np.full((len(g), width + 3), np.nan, np.float32)  # rows that do not follow each other
    wide[:, 1:-2] = g
    for queries in (1, 2, 3, FEW_ROWS - 1, FEW_ROWS):
        for items in (0, 1, 2, 3, 4, 5, len(g)):
            some = q[:queries], wide[:items, 1:-2]
            product = blas_product(*some, memory)
            out = np.full((queries, items), np.nan, np.float32)
            product.write(np.arange(queries), out)
            assert_close(out, *some, product.roundings)
    chosen = np.array([4, 9, 30, 44])  # of many
    product, out = blas_product(q, wide[:, 1:-2], memory), np.full((4, len(g)), np.nan, np.float32)
    product.write(chosen, out)
    assert_close(out, q[chosen], g, product.roundings[chosen])


def test_few_of_many_queries_are_no_further_than_all_of_them() -> None:
    memory = np.empty(0, np.uint8)
    for width in (*range(1, 200), *range(200, 20_000, 37), 8192, 8193, 16_384, 100_000):
        few, many = (
            blas_product(
                np.empty((rows, width), np.float32), np.empty((0, width)), memory
            ).roundings[0]
            for rows in (FEW_ROWS, FEW_ROWS + 1)
        )
        assert few <= many


@pytest.mark.parametrize("queries", [FEW_ROWS, 40])
def test_slices_take_no_more_memory_than_is_planned(queries: int) -> None:
    width = 4096 if queries > FEW_ROWS else 10_000
    q, g = np.ones((queries, width), np.float32), np.ones((2100, width), np.float32)
    product, every = blas_product(q, g, np.empty(0, np.uint8)), np.arange(queries)
    out = np.empty((queries, 2100), np.float32)
    product.write(every, out)  # kernels are loaded
    tracemalloc.start()
    product.write(every, out)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken <= slice_bytes(queries, 2100, width) + (100 << 10)  # and what a sum is buffered in
    assert (out == width).all()


@pytest.mark.parametrize(
    "product", [pytest.param("digits", marks=IN_LOOPS), "words"], indirect=True
)
@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("width", [7, 40, 160])
@pytest.mark.parametrize("items", [1, 31, 32, 33, 100, 9000])
def test_a_product_does_not_depend_on_the_tile_that_it_is_in(width: int, items: int) -> None:
    rng = np.random.default_rng(items)
    q, g = rows(rng, 75, width), rows(rng, items, width)
    whole = product_of(q, g)
    for start, stop in ((0, 1), (5, 37), (32, 64), (40, 75), (74, 75)):
        assert np.array_equal(product_of(q, g, start, stop), whole[start:stop])
    for first in (0, 3, items - 1):
        assert np.array_equal(product_of(q, g[first:]), whole[:, first:])
    wide = np.zeros((items, width + 5), np.float32)
    wide[:, :width] = g
    assert np.array_equal(product_of(q, wide[:, :width]), whole)


@pytest.mark.parametrize("product", [pytest.param("digits", marks=IN_LOOPS), "blas"], indirect=True)
@pytest.mark.usefixtures("product")
def test_products_of_small_integers_are_exact() -> None:
    rng = np.random.default_rng(0)
    q, g = (rng.integers(-128, 128, (n, 130)) for n in (40, 50))
    assert np.array_equal(product_of(q.astype(np.float32), g.astype(np.float32)), q @ g.T)


@pytest.mark.skipif(not supported(), reason="no matrix unit (AMX) to compare plain loops with")
@pytest.mark.parametrize("width", [1, 64, 100, 2048])
def test_plain_loops_give_the_bits_of_the_matrix_unit(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS:
        q, g = both_sides(kind, width)
        found = []
        for way in ("auto", "digits"):
            monkeypatch.setenv(VARIABLE, way)
            left, right = both_panels(q, g)
            out = np.full((45, 70), np.nan, np.float32)
            multiply(left, right, chosen_unit(), width, 0, out)
            digits = digits_of(left, QUERIES, width), digits_of(right, ITEMS, width)
            found.append([*digits, left.scale, right.scale, left[2:], right[2:], out])
        assert all(map(np.array_equal, *found))


@pytest.mark.slow
def test_the_way_to_multiply_is_chosen_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    q = np.ones((20, 4), np.float32)

    def chosen() -> Any:
        multiplier: Any = choose_multiplier(q)
        return multiplier.func

    monkeypatch.setenv(VARIABLE, "blas")
    assert chosen() is blas_product
    monkeypatch.setenv(VARIABLE, "digits")
    assert chosen() is digit_product
    assert chosen_unit() is None
    monkeypatch.setenv(VARIABLE, "auto")
    usual = blas_product if chosen_instructions() == PLAIN_WORDS else word_product
    assert chosen() is (digit_product if supported() else usual)
    monkeypatch.setenv(VARIABLE, "words")
    assert chosen() is word_product
    monkeypatch.setenv(VARIABLE, "gpu")
    expected = "STREAMEVAL_PRODUCT is 'gpu'; expected auto, words, blas or digits"
    with pytest.raises(OptionError, match=expected):
        choose_multiplier(q)


def test_no_unit_where_code_is_compiled_for_a_chosen_processor() -> None:
    code = "from streameval.kernels.matrix_unit import supported; print(supported())"
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


RUNS = {  # what OpenBLAS's kernels need of a processor
    "Prescott": "sse3",
    "Nehalem": "sse4.2",
    "Sandybridge": "avx",
    "Haswell": "avx2 fma",
    "SkylakeX": "avx512f avx512cd avx512bw avx512dq avx512vl",
}


@pytest.mark.slow
@pytest.mark.parametrize("kernels", RUNS)
def test_products_by_any_kernels_of_blas_are_as_close_as_they_say(
    kernels: str, tmp_path: Path
) -> None:
    if not blas_kernels():
        pytest.skip("NumPy's BLAS is not OpenBLAS")
    features = llvmlite.binding.get_host_cpu_features()
    if not all(features.get(name) for name in RUNS[kernels].split()):
        pytest.skip(f"this processor does not run OpenBLAS's kernels for {kernels}")
    program = """
import sys
import pytest
from support.kernels import description
status = pytest.main(["-p", "no:cacheprovider", "-m", "", "-k", "blas", *sys.argv[1:]])
print(description())
sys.exit(status)
"""
    environment = {
        **os.environ,
        CORETYPE: kernels,
        VARIABLE: "blas",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
    }
    tests = "test_products_are_as_close_as_they_say", "test_products_of_small_integers_are_exact"
    command = [sys.executable, "-c", program, f"--basetemp={tmp_path / 'own'}"]
    command += [f"{__file__}::{name}" for name in tests]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "43 passed" in done.stdout
    own = "Katmai" if kernels == "Prescott" else kernels  # OpenBLAS's own name for it
    assert f"kernels for {own}" in done.stdout


def test_the_plan_says_what_multiplies(product: str) -> None:
    digits = "AMX" if chosen_way() == "unit" else "plain loops"
    words = f"{chosen_instructions().text}, in words"
    assert {"digits": digits, "words": words, "blas": "BLAS"}[product] in description()
