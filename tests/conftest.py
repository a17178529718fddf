"""What tests of several files share."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import profiles  # noqa: F401  # profiles are known, and `dev` is taken, before tests are read
import pytest
from documents import run_in_process, run_shell
from support.compilation import compile_once
from support.kernels import VARIABLE, chosen_way, supported
from support.report import LogProgress
from support.skips import pytest_sessionfinish as pytest_sessionfinish
from waiting import PATIENCE


@pytest.fixture(autouse=True)
def _no_lines_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep lines that only a slow run shows out of stderr, which tests compare."""
    monkeypatch.setattr(LogProgress.__init__, "__defaults__", (math.inf,))


@pytest.fixture(autouse=True)
def _no_warnings_of_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep warnings of waits, which only a busy machine makes long, out of tests."""
    monkeypatch.setattr("streameval.run.connection.TOLD", PATIENCE)


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep processes that run tests side by side from compiling the same kernels at once."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            compile_once(tmp_path_factory.getbasetemp().parent, patch)
        yield


@pytest.fixture(params=[run_in_process, pytest.param(run_shell, marks=pytest.mark.nightly)])
def run_block(request: pytest.FixtureRequest) -> Callable[[str, Path], str]:
    """Return what runs a block of shell in a folder, and returns what it prints."""
    run: Callable[[str, Path], str] = request.param
    return run


USUAL = {"unit": "digits"}.get(chosen_way(), chosen_way())
WAYS = [
    pytest.param(way, marks=() if way == USUAL else pytest.mark.slow)
    for way in ("digits", "words", "blas")
]


@pytest.fixture(params=WAYS)
def product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways to multiply float32: digits, by the matrix unit where there is one, words, and BLAS.

    Without the instructions digits and words are multiplied in plain loops, which write the same
    products. The ways that evaluations do not take on this processor are for ``--all``.
    """
    way: str = request.param
    plain = os.environ.get(VARIABLE) == "digits" or not supported()
    monkeypatch.setenv(VARIABLE, "auto" if way == "digits" and not plain else way)
    return way


gc.disable()  # while tests are collected: what they leave is looked through again and again


def pytest_collection_finish() -> None:
    """Collect garbage again, but for what was there before the first test."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes ``-n auto`` starts: one a core that may be used, 8 at most."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, 8)
