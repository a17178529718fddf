"""A ledger in an object store, whose segments are there too, or on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from servers import bucket, credentials, put_files
from support.ledger import Contents

import streameval as se
from streameval import InputError, OptionError, OutputError

WIDTH, QUERIES = 5, 20
L = "s3://bucket/ledgers/one"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[None]:
    """Run a server with features in a bucket, and point the environment to it."""
    from obstore.store import from_url

    rng = np.random.default_rng(0)
    with bucket() as url, pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for name, value in credentials(url).items():
            patch.setenv(name, value)
        for name, rows in {"q": QUERIES, "a": 50, "b": 30, "c": 9}.items():
            np.save(f"{name}.npy", rng.standard_normal((rows, WIDTH)))
            np.save(f"{name}_ids.npy", rng.integers(0, 8, rows))
            zarr.create_array(f"{name}.zarr", data=np.load(f"{name}.npy"), chunks=(7, WIDTH))
            put_files(Path(f"{name}.zarr"), from_url(f"s3://bucket/data/{name}.zarr"))
        yield


def labels(name: str) -> se.Labels:
    return se.read_labels(f"{name}_ids.npy")


def create(path: str, base: str) -> se.Ledger:
    return se.Ledger.create(
        path,
        query=f"{base}q.zarr",
        query_labels=labels("q"),
        protocol="no-camera",
        keep=12 * QUERIES,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_in_a_bucket_it_is_as_on_disk() -> None:
    ledgers = [create(L, "s3://bucket/data/"), create("L", "")]
    for ledger, base in zip(ledgers, ("s3://bucket/data/", ""), strict=True):
        for name in ("a", "b", "c"):
            ledger.append(f"{base}{name}.zarr", labels(name))
        ledger.remove("a")
        ledger.forget([3])
    found, expected = (ledger.evaluation().statistics for ledger in ledgers)
    assert found.equals(expected)
    again = se.Ledger(L)
    assert again.verify() == []
    assert again.evaluation(2).statistics.equals(ledgers[1].evaluation(2).statistics)
    with pytest.raises(OutputError, match="holds a ledger already"):
        create(L, "s3://bucket/data/")
    with pytest.raises(OutputError, match="is no ledger"):
        se.Ledger("s3://bucket/ledgers/two")
    with pytest.raises(OptionError, match="names no place in a bucket"):
        se.Ledger("s3://bucket")


@pytest.mark.usefixtures("store")
def test_of_two_writers_the_second_is_told_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = create(L, "")
    ledger.append("a.npy", labels("a"))
    save = Contents.save

    def overtaken(change: Contents, state: Any) -> None:
        monkeypatch.setattr(Contents, "save", save)
        se.Ledger(L).append("b.npy", labels("b"))  # another process, in the meantime
        save(change, state)

    monkeypatch.setattr(Contents, "save", overtaken)
    with pytest.raises(OutputError, match=r"another process has changed .* run it again"):
        ledger.append("c.npy", labels("c"))
    assert [one.name for one in ledger.segments] == ["a", "b"]
    ledger.append("c.npy", labels("c"))
    assert [one.name for one in ledger.segments] == ["a", "b", "c"]
    assert ledger.verify() == []


@pytest.mark.usefixtures("store")
def test_data_that_change_in_the_bucket_are_refused() -> None:
    from obstore.store import from_url

    ledger = create(L, "s3://bucket/data/")
    ledger.append("s3://bucket/data/a.zarr", labels("a"))
    from_url("s3://bucket/data/a.zarr").put("c/3/0", Path("a.zarr/c/2/0").read_bytes())
    with pytest.raises(InputError, match=r"'a' of s3://bucket/ledgers/one, .* has changed"):
        ledger.forget([2])
