"""What tests of several files share."""

from __future__ import annotations

import math

import pytest
from support.kernels import VARIABLE, supported
from support.report import LogProgress


@pytest.fixture(autouse=True)
def _no_lines_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep lines that only a slow run shows out of stderr, which tests compare."""
    monkeypatch.setattr(LogProgress.__init__, "__defaults__", (math.inf,))


@pytest.fixture(params=["auto", "blas"])
def product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to multiply float32: the matrix unit, where there is one, and BLAS."""
    way: str = request.param
    if way == "auto" and not supported():
        pytest.skip("this machine has no matrix unit that can be used")
    monkeypatch.setenv(VARIABLE, way)
    return way
