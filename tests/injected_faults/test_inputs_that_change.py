"""Inputs that change at chosen moments: the number of one version of them, or one error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import inputs
import numpy as np
import pytest
from support.arrays import FORMATS, Array, digest

import streameval as se

RNG = np.random.default_rng(0)
QUERY = RNG.integers(0, 100, (12, 8)).astype("f4")
VERSIONS = [RNG.integers(0, 100, (130, 8)).astype("f4") for _ in range(2)]
LABELS = {
    "query": se.Labels(id=RNG.integers(0, 20, 12), cam=np.zeros(12, int)),
    "gallery": se.Labels(id=RNG.integers(0, 20, 130), cam=np.ones(130, int)),
}


def evaluated(gallery: Any, **options: Any) -> se.Evaluation:
    source = se.Features("query.npy", gallery, "euclidean")
    return se.evaluate(source, **LABELS, range="minmax", threads=1, **options)


@pytest.fixture(scope="module")
def expected() -> list[se.RankStatistics]:
    return [
        se.evaluate(se.Features(QUERY, own, "euclidean"), **LABELS, range="minmax").statistics
        for own in VERSIONS
    ]


class Passes(se.Progress):
    """Calls a function where a pass begins."""

    def __init__(self, begins: Callable[[], None]) -> None:
        self._begins = begins

    def start(self, name: str, pairs: int) -> None:
        self._begins()


@contextmanager
def moment(when: tuple[int, int], happens: Callable[[], None]) -> Iterator[se.Progress]:
    """Have something happen before a pass (0), or before a reading in it (1, 2, ...)."""
    at = [-1, 0]

    def count(axis: int) -> None:
        at[axis] += 1
        if axis == 0:
            at[1] = 0
        if tuple(at) == when:
            happens()

    with pytest.MonkeyPatch.context() as patch:
        for name in ("read", "take"):
            whole = getattr(Array, name)

            def read(self: Array, *given: Any, _whole: Any = whole, **named: Any) -> Any:
                if at[0] >= 0:
                    count(1)
                return _whole(self, *given, **named)

            patch.setattr(Array, name, read)
        yield Passes(lambda: count(0))


MOMENTS = [(number, reading) for number in range(3) for reading in range(4)]
CASES = list(inputs.pairwise_first(inputs.WRITERS, inputs.FAULTS, MOMENTS))


def test_every_format_is_tried() -> None:
    assert set(FORMATS) - {".pt", ".pth"} == {name.split()[0] for name in inputs.WRITERS}


@pytest.mark.parametrize(("kind", "fault", "when"), CASES)
def test_an_input_that_changes(
    kind: str,
    fault: inputs.Fault,
    when: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: list[se.RankStatistics],
) -> None:
    (tmp_path / "other").mkdir()
    for folder, version in zip((tmp_path / "other", tmp_path), VERSIONS[::-1], strict=True):
        monkeypatch.chdir(folder)
        uri = inputs.WRITERS[kind](version)
    np.save("query.npy", QUERY)
    files = inputs.files_of(uri)
    with moment(when, lambda: fault(files, tmp_path / "other")) as progress:
        error = None
        try:
            found = evaluated(uri, progress=progress)
        except se.StreamevalError as raised:
            error = raised
    if error is not None:
        assert Path(uri.partition("::")[0].partition("*")[0]).name in str(error)
        return
    same = [found.statistics.equals(one) for one in expected]
    assert any(same)
    read = int(found.provenance["read"]["gallery"]["digest"], 16)
    dtype = found.provenance["read"]["gallery"]["dtype"]
    own = VERSIONS[same.index(True)].astype(dtype)
    assert read == digest.total(digest.of_rows(own), np.arange(len(own)))
