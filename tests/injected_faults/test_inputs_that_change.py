"""Inputs that change at chosen moments: the number of one version of them, or one error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import inputs
import numpy as np
import pytest
from distributed import Client, LocalCluster
from support.arrays import FORMATS, Array, MemoryArray, digest, unchanging
from support.run import checkpoint_module

import streameval as se

QUERIES, ITEMS, WIDTH = 12, 130, 8
RNG = np.random.default_rng(0)
QUERY, GALLERY = (RNG.integers(0, 100, (rows, WIDTH)).astype("f4") for rows in (QUERIES, ITEMS))
LABELS = {
    "query": se.Labels(id=RNG.integers(0, 20, QUERIES), cam=np.zeros(QUERIES, int)),
    "gallery": se.Labels(id=RNG.integers(0, 20, ITEMS), cam=np.ones(ITEMS, int)),
}
THREAD = {"threads": 1}


class Route(NamedTuple):
    """A way to evaluate an input: its shape, its key in the provenance, and what evaluates it."""

    shape: tuple[int, int]
    key: str | None
    evaluate: Callable[..., se.Evaluation]


def by_gallery(uri: str, **options: Any) -> se.Evaluation:
    query = str(Path("query.npy").absolute())
    source = se.Features(query, uri, "euclidean")
    return se.evaluate(source, **LABELS, range="minmax", **{**THREAD, **options})


def by_query(uri: str, **options: Any) -> se.Evaluation:
    source = se.Features(uri, "gallery.npy", "euclidean")
    return se.evaluate(source, **LABELS, **THREAD, range="minmax", **options)


def by_matrix(uri: str, **options: Any) -> se.Evaluation:
    return se.evaluate(se.Distances(uri), **LABELS, **THREAD, range="minmax", **options)


def by_lists(uri: str, **options: Any) -> se.Evaluation:
    features = se.Features("query.npy", uri, "euclidean")
    return se.evaluate(
        se.Neighbors(features=features, k=20, index="Flat"), **LABELS, **THREAD, **options
    )


def by_index(uri: str, **options: Any) -> se.Evaluation:
    features = se.Features("query.npy", uri, "euclidean")
    return se.evaluate(
        se.Neighbors(features=features, k=20, index="HNSW8"), **LABELS, **THREAD, **options
    )


def by_ledger(uri: str, **options: Any) -> se.Evaluation:
    how = {"query": "query.npy", "metric": "euclidean", "range": (0, 400)}
    ledger = se.Ledger.create("L", query_labels=LABELS["query"], **how)
    ledger.append(str(Path(uri).absolute()), LABELS["gallery"], threads=1, **options)
    return ledger.evaluation()


@cache
def client() -> Client:
    own = LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    )
    return Client(own, set_as_default=False)


def by_workers(uri: str, **options: Any) -> se.Evaluation:
    return by_gallery(str(Path(uri).absolute()), client=client(), threads=None, **options)


FEATURES, MATRIX = (ITEMS, WIDTH), (QUERIES, ITEMS)
ROUTES = {
    "gallery": Route(FEATURES, "gallery", by_gallery),
    "query": Route((QUERIES, WIDTH), "query", by_query),
    "matrix": Route(MATRIX, "distances", by_matrix),
    "lists": Route(FEATURES, None, by_lists),
    "index": Route(FEATURES, None, by_index),
    "ledger": Route(FEATURES, None, by_ledger),
    "workers": Route(FEATURES, "gallery", by_workers),
}


def versions(shape: tuple[int, int]) -> list[np.ndarray]:
    """Return two arrays of a shape."""
    rng = np.random.default_rng(shape)
    return [rng.integers(0, 100, shape).astype("f4") for _ in range(2)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[se.RankStatistics]]:
    """Return what each version gives, by route."""
    found: dict[str, list[se.RankStatistics]] = {name: [] for name in ROUTES}
    with pytest.MonkeyPatch.context() as patch:
        for name, route in ROUTES.items():
            for version in versions(route.shape):
                patch.chdir(write(tmp_path_factory.mktemp(name)))
                np.save("version.npy", version)
                found[name].append(route.evaluate("version.npy").statistics)
    return found


def write(folder: Path) -> Path:
    """Write the inputs that don't change to a folder."""
    np.save(folder / "query.npy", QUERY)
    np.save(folder / "gallery.npy", GALLERY)
    return folder


@pytest.fixture
def written(
    route: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, list[Path], Path]:
    """Return the URI and files of an input, and the folder of another version of them."""
    other = tmp_path / "other"
    other.mkdir()
    for folder, version in zip((other, tmp_path), versions(ROUTES[route].shape)[::-1], strict=True):
        monkeypatch.chdir(folder)
        uri = inputs.WRITERS[kind](version)
    write(tmp_path)
    return uri, inputs.files_of(uri), other


class Passes(se.Progress):
    """Calls a function where a pass begins."""

    def __init__(self, begins: Callable[[], None]) -> None:
        self._begins = begins

    def start(self, name: str, pairs: int) -> None:
        self._begins()


Moment = tuple[int, int]
"""Before a pass, by its number (0), or before a reading in it (1, 2, ...)."""


READERS = (Array, "read"), (Array, "take"), (Array, "look"), (MemoryArray, "look")


@contextmanager
def moments(happens: Mapping[Moment, Callable[[], None]]) -> Iterator[se.Progress]:
    """Have things happen at moments."""
    at = [-1, 0]

    def count(axis: int) -> None:
        at[axis] += 1
        if axis == 0:
            at[1] = 0
        happens.get((at[0], at[1]), lambda: None)()

    with pytest.MonkeyPatch.context() as patch:
        for kind, name in (
            (Array, "read"),
            (Array, "take"),
            (Array, "look"),
            (MemoryArray, "look"),
        ):
            whole = getattr(kind, name)

            def read(self: Array, *given: Any, _whole: Any = whole, **named: Any) -> Any:
                if at[0] >= 0:
                    count(1)
                return _whole(self, *given, **named)

            patch.setattr(kind, name, read)
        yield Passes(lambda: count(0))


def attempt(evaluate: Callable[[], se.Evaluation]) -> se.Evaluation | str:
    """Return what an evaluation gives, or its error message."""
    try:
        return evaluate()
    except se.StreamevalError as error:
        return str(error)


def check(
    uri: str,
    route: str,
    evaluate: Callable[[], se.Evaluation],
    expected: Sequence[se.RankStatistics],
) -> None:
    """Check that an evaluation gives the number of one version, or names what has changed."""
    found = attempt(evaluate)
    if isinstance(found, str):
        assert Path(uri.partition("::")[0].partition("*")[0]).name in found
        return
    same = [found.statistics.equals(one) for one in expected]
    assert any(same)
    key = ROUTES[route].key
    if key is not None:
        told = found.provenance["read"][key]
        own = versions(ROUTES[route].shape)[same.index(True)].astype(told["dtype"])
        whole = digest.total(digest.of_rows(own), np.arange(len(own)))
        assert told["digest"] == f"{whole:016x}"


MOMENTS = [(number, reading) for number in range(3) for reading in range(4)]
DAILY = 36  # combinations of a test
RESUMED = 18  # of one that resumes runs


def test_every_format_is_tried() -> None:
    assert set(FORMATS) - {".pt", ".pth"} == {name.split()[0] for name in inputs.WRITERS}


@pytest.mark.parametrize(
    ("route", "kind", "fault", "when"),
    inputs.pairwise_first(ROUTES, inputs.WRITERS, inputs.FAULTS, MOMENTS, daily=DAILY),
)
def test_an_input_that_changes(
    route: str,
    kind: str,
    fault: inputs.Fault,
    when: Moment,
    written: tuple[str, list[Path], Path],
    expected: dict[str, list[se.RankStatistics]],
) -> None:
    uri, files, other = written
    with moments({when: lambda: fault(files, other)}) as progress:
        check(uri, route, lambda: ROUTES[route].evaluate(uri, progress=progress), expected[route])


class Killed(BaseException):
    """Ends a run as a kill does."""


def kill() -> None:
    raise Killed


@pytest.mark.parametrize(
    ("route", "kind", "fault", "when", "restored"),
    inputs.pairwise_first(
        ["gallery", "query", "matrix"],
        inputs.WRITERS,
        inputs.FAULTS,
        MOMENTS[1:],
        [False, True],
        daily=RESUMED,
    ),
)
def test_an_input_that_changes_before_a_run_is_resumed(
    route: str,
    kind: str,
    fault: inputs.Fault,
    when: Moment,
    restored: bool,
    written: tuple[str, list[Path], Path],
    expected: dict[str, list[se.RankStatistics]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the run was killed; or while it ran, so that it is put back before it is resumed."""
    uri, files, other = written
    monkeypatch.setattr(checkpoint_module, "COMMIT_SECONDS", 0.0)
    before = {file: file.read_bytes() for file in files}
    evaluate, kept = ROUTES[route].evaluate, {"checkpoint": "kept"}
    happens = {(when[0], when[1] + 1): kill}
    if restored:
        happens[when] = lambda: fault(files, other)
    with moments(happens) as progress, suppress(Killed, se.StreamevalError):
        evaluate(uri, progress=progress, **kept)
    if restored:
        for file, content in before.items():
            file.unlink(missing_ok=True)
            file.write_bytes(content)
    else:
        fault(files, other)
    check(uri, route, lambda: evaluate(uri, **kept, resume=True), expected[route])


@pytest.mark.parametrize("left", ["nothing", "a file"])
def test_a_folder_that_is_removed_while_it_is_listed(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own.zarr"
    folder.mkdir()
    listed = os.scandir

    def scandir(path: str) -> Any:
        if Path(path) == folder:
            folder.rmdir()
            if left == "a file":
                folder.touch()
        return listed(path)

    with pytest.raises(se.InputError, match=r"own\.zarr"), unchanging(folder):
        monkeypatch.setattr(os, "scandir", scandir)
