"""Re-ranked distances have the same bits whatever multiplies, and whatever code is compiled for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding
import pytest
from support.kernels import CORETYPE, VARIABLE, blas_kernels
from test_products import RUNS

PROGRAM = """
import hashlib
import warnings
import numpy as np
import streameval as se

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
centres, noise = rng.standard_normal((40, 65)), rng.standard_normal((900, 65))
rows = centres[rng.integers(0, 40, 900)] + 0.7 * noise
ids = rng.integers(0, 60, 900)
sides = {"query": {"id": ids[:70]}, "gallery": {"id": ids[70:]}, "protocol": "no-camera"}
for kind in (np.float32, np.float16):
    features = se.Features(rows[:70].astype(kind), rows[70:].astype(kind), "euclidean")
    for source in (
        se.Reranked(features, k1=9, k2=4),
        se.Reranked(features, k1=9, k2=4, with_="gallery"),
        se.Reranked(se.Expanded(features, "aqe", k=5)),
    ):
        found = hashlib.sha256()
        for _, block in source.distance_blocks(range(70), 1 << 16):
            found.update(np.ascontiguousarray(block))
        statistics = se.evaluate(source, **sides).statistics
        for name in ("positive_distance", "closer", "tied", "negatives_within"):
            found.update(np.ascontiguousarray(getattr(statistics, name)))
        print(found.hexdigest())
"""


def digests(**variables: str) -> str:
    """Return what the program prints where environment variables are set."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **variables},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_re_ranked_distances_have_the_same_bits_on_any_processor() -> None:
    expected = digests()
    assert len(set(expected.split())) == 6
    assert digests(**{VARIABLE: "digits"}) == expected
    assert digests(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == expected
    features = llvmlite.binding.get_host_cpu_features()
    for kernels, needed in RUNS.items() if blas_kernels() else ():
        if all(features.get(name) for name in needed.split()):
            assert digests(**{VARIABLE: "blas", CORETYPE: kernels}) == expected, kernels
