"""Workers whose files at the same place are others: copies, old copies, none.

The place is in the current folder of a process, and every process has one of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from clusters import cluster
from distributed import Client

import streameval as se

CURRENT = Path("/proc/self/cwd")
QUERIES, ITEMS, WIDTH = 40, 4000, 8
RNG = np.random.default_rng(0)
QUERY, GALLERY = (RNG.integers(0, 100, (rows, WIDTH)).astype("f4") for rows in (QUERIES, ITEMS))
LABELS = {
    "query": se.Labels(id=np.arange(QUERIES)),
    "gallery": se.Labels(id=np.arange(ITEMS) % 500),  # most items are positives of no query
}

pytestmark = pytest.mark.skipif(
    not CURRENT.is_dir(), reason="/proc/self/cwd is not here: processes have no place of their own"
)


def write(folder: Path, gallery: np.ndarray) -> None:
    np.save(folder / "gallery.npy", gallery)
    chunks = {"chunks": (500, WIDTH), "overwrite": True}
    zarr.create_array(folder / "gallery.zarr", data=gallery, **chunks)


def written_again(own: Path) -> None:
    others = GALLERY.copy()
    others[ITEMS // 2 :][np.arange(ITEMS // 2) % 500 >= QUERIES] += 1
    write(own, others)


def without_times(own: Path) -> None:
    shutil.copy(own / "gallery.npy", own / "copy.npy")
    (own / "copy.npy").replace(own / "gallery.npy")
    for file in (own / "gallery.zarr").rglob("*"):
        os.utime(file)


def removed(own: Path) -> None:
    (own / "gallery.npy").unlink()
    shutil.rmtree(own / "gallery.zarr" / "c" / "3")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with cluster(2) as (_, own):
        yield own


@pytest.fixture
def own(tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of one worker; the other one shares that of the client."""
    here, own = tmp_path / "here", tmp_path / "own"
    here.mkdir()
    np.save(here / "query.npy", QUERY)
    write(here, GALLERY)
    shutil.copytree(here, own)
    monkeypatch.chdir(here)
    for address, folder in zip(client.nthreads(), (here, own), strict=True):
        client.run(os.chdir, folder, workers=[address])
    return own


def evaluate(kind: str, **options: Any) -> se.Evaluation:
    source = se.Features(CURRENT / "query.npy", CURRENT / f"gallery{kind}", "sqeuclidean")
    return se.evaluate(source, **LABELS, protocol="no-camera", **options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [".npy", ".zarr"])
def test_copies_are_evaluated(kind: str, own: Path, client: Client) -> None:
    expected = evaluate(kind, threads=1)
    assert evaluate(kind, client=client).statistics.equals(expected.statistics)


@pytest.mark.parametrize("kind", [".npy", ".zarr"])
@pytest.mark.parametrize("fault", [written_again, without_times, removed])
def test_other_files_are_refused(
    kind: str, fault: Callable[[Path], None], own: Path, client: Client
) -> None:
    fault(own)
    with pytest.raises(se.InputError, match=f"gallery{kind} is another one than where .*cp -p"):
        evaluate(kind, client=client)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [".npy", ".zarr"])
def test_copies_that_change(kind: str, own: Path, client: Client) -> None:
    expected = evaluate(kind, threads=1)

    class Changing(se.Progress):
        def start(self, name: str, total: int) -> None:
            if name == "counting":
                self.begun = True

        def advance(self, *given: Any) -> None:
            if self.begun:
                self.begun = False
                written_again(own)

        begun = False

    found: se.Evaluation | str
    try:
        found = evaluate(kind, client=client, progress=Changing())
    except se.InputError as error:
        found = str(error)
    if isinstance(found, str):
        assert f"gallery{kind}" in found
    else:  # the worker had read all that it was given
        assert found.statistics.equals(expected.statistics)
