"""Products of float32 rows, by BLAS and by the matrix unit."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import llvmlite.binding
import numpy as np
import numpy.typing as npt
import pytest

from streameval.counting.filtering import Operand, write_products
from streameval.counting.matrix_unit import supported
from streameval.counting.products import VARIABLE, description, panel_bytes, query_panels, roundings
from streameval.errors import OptionError

needs_unit = pytest.mark.skipif(not supported(), reason="this machine has no matrix unit")
Float32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]


def product_of(queries: Float32, gallery: Float32, start: int = 0, stop: int | None = None) -> Any:
    norms = np.ones(max(len(queries), len(gallery)))
    left = Operand(queries, norms[: len(queries)], queries, 1.0, query_panels(queries))
    right = Operand(gallery, norms[: len(gallery)], gallery, 1.0)
    if left.panels.size:
        right = right.packed(np.empty(panel_bytes(*gallery.shape), np.uint8))
    out = np.full(((len(queries) if stop is None else stop) - start, len(gallery)), np.nan, "f4")
    write_products(left, start, right, out)
    return out


def rows(rng: np.random.Generator, count: int, width: int) -> Float32:
    return rng.standard_normal((count, width)).astype(np.float32)


def bfloat16(x: Float32) -> Float32:
    """Round to the nearest number of 8 bits, ties to even."""
    bits = x.view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32)


@needs_unit
@pytest.mark.parametrize("width", [32, 96, 128, 384])
def test_the_unit_adds_up_in_the_order_that_its_error_bound_supposes(width: int) -> None:
    rng = np.random.default_rng(width)
    q, g = rows(rng, 32, width), rows(rng, 32, width)
    parts = []
    for side in (q, g):
        a = bfloat16(side)
        b = bfloat16(side - a)
        parts.append((a, b, side - a - b))
        assert np.array_equal(bfloat16(parts[-1][2]), parts[-1][2])  # nothing is left
    total = np.zeros((32, 32), np.float32)
    for step in range(0, width, 32):
        for i, j in ((1, 1), (1, 0), (2, 0), (0, 0), (0, 1), (0, 2)):
            left = parts[0][i][:, step : step + 32].astype(np.float64)
            right = parts[1][j][:, step : step + 32].astype(np.float64)
            lane = np.zeros((2, 32, 32), np.float32)
            for pair in range(16):
                for odd in range(2):
                    k = 2 * pair + odd
                    exact = lane[odd] + left[:, k, None] * right[:, k]  # fits in float64
                    lane[odd] = exact.astype(np.float32)
            total = total + (lane[0] + lane[1])
    assert np.array_equal(product_of(q, g), total)


@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("width", [1, 2, 31, 33, 40, 512, 2048])
@pytest.mark.parametrize("kind", ["normal", "constant", "one sign", "powers"])
def test_products_are_as_close_as_they_say(width: int, kind: str) -> None:
    rng = np.random.default_rng(width)
    q, g = rows(rng, 45, width), rows(rng, 70, width)
    if kind == "constant":
        q, g = (np.repeat(side[:, :1], width, 1) for side in (q, g))
    elif kind == "one sign":
        q, g = np.abs(q), np.abs(g)
    elif kind == "powers":
        q, g = (np.ldexp(side, rng.integers(-30, 30, side.shape)) for side in (q, g))
    u = 2.0**-24
    bound = roundings(width, query_panels(q)) * u
    magnitude = np.abs(q).astype(np.float64) @ np.abs(g).astype(np.float64).T
    error = np.abs(product_of(q, g) - q.astype(np.float64) @ g.astype(np.float64).T)
    assert np.all(error <= (bound / (1 - bound) + width * 2.0**-52) * magnitude)


@needs_unit
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


@pytest.mark.usefixtures("product")
def test_products_of_small_integers_are_exact() -> None:
    rng = np.random.default_rng(0)
    q, g = (rng.integers(-128, 128, (n, 130)) for n in (40, 50))
    assert np.array_equal(product_of(q.astype(np.float32), g.astype(np.float32)), q @ g.T)


def test_the_way_to_multiply_is_chosen_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    q = np.ones((3, 4), np.float32)
    monkeypatch.setenv(VARIABLE, "blas")
    assert query_panels(q).size == 0
    monkeypatch.setenv(VARIABLE, "auto")
    assert (query_panels(q).size > 0) == supported()
    monkeypatch.setenv(VARIABLE, "gpu")
    with pytest.raises(OptionError, match="STREAMEVAL_PRODUCT is 'gpu'; expected auto or blas"):
        query_panels(q)


def test_no_unit_where_code_is_compiled_for_a_chosen_processor() -> None:
    code = "from streameval.counting.matrix_unit import supported; print(supported())"
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("kernels", ["Haswell", "SkylakeX"])
def test_slow_kernels_are_pointed_out(kernels: str) -> None:
    features = llvmlite.binding.get_host_cpu_features()
    if not all(features.get(f"avx512{group}") for group in ("f", "cd", "bw", "dq", "vl")):
        pytest.skip("this processor has no AVX-512")
    code = """
import numpy as np, streameval as se
rows = np.eye(3, dtype=np.float32)
labels = se.Labels(np.arange(3))
se.evaluate(se.Features(rows, rows), query=labels, gallery=labels, protocol="no-camera")
"""
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernels, VARIABLE: "blas"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert ("OPENBLAS_CORETYPE=SkylakeX" in done.stderr) == (kernels == "Haswell")


def test_the_plan_says_what_multiplies(product: str) -> None:
    wanted = "AMX" if product == "auto" else "BLAS"
    assert wanted in description()
