"""Which old data an append reads again, and how it is told that they are what they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from spread import spread
from support.arrays import Array, content
from support.kernels import MarkTile, sieve_of
from support.ledger import Block
from support.package import pack, unpack

import streameval as se
from streameval import InputError

QUERIES, WIDTH = 8, 4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of queries and segments."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, rows in {"q": QUERIES, "a": 60, "b": 50, "c": 40, "d": 30}.items():
        np.save(f"{name}.npy", rng.standard_normal((rows, WIDTH)))
    return tmp_path


def labels(name: str, low: int = 0, high: int = 5) -> se.Labels:
    count = len(np.load(f"{name}.npy"))
    return se.Labels(np.random.default_rng(count).integers(low, high, count))


def create(keep: int) -> se.Ledger:
    return se.Ledger.create(
        "L", query="q.npy", query_labels=labels("q"), protocol="no-camera", keep=12 * QUERIES * keep
    )


def check(ledger: se.Ledger, names: str, own: dict[str, se.Labels] | None = None) -> None:
    """Compare a ledger with a fresh evaluation, and with itself counted again."""
    segments = [(own or {}).get(name, labels(name)) for name in names]
    fresh = se.evaluate(
        se.Features("q.npy", np.concatenate([np.load(f"{name}.npy") for name in names]), "cosine"),
        query=labels("q"),
        gallery=se.Labels(np.concatenate([one.id for one in segments])),
        protocol="no-camera",
    )
    assert ledger.evaluation().statistics.equals(fresh.statistics)
    assert ledger.verify() == []


@pytest.mark.usefixtures("folder")
def test_old_data_are_not_needed_where_enough_negatives_are_kept() -> None:
    ledger = create(keep=200)
    ledger.append("a.npy", labels("a"))
    Path("a.npy").rename("away.npy")
    snapshot = ledger.append("b.npy", labels("b"))
    assert snapshot.rescanned == 0
    Path("away.npy").rename("a.npy")
    check(ledger, "ab")


@pytest.mark.usefixtures("folder")
def test_nearest_negatives_are_looked_for_again_once_few_are_left() -> None:
    ledger = create(keep=6)
    for name in "abc":
        ledger.append(f"{name}.npy", labels(name))
    ledger.remove("a")
    ledger.remove("b")
    near = ledger._store.contents().state().near
    few = near.few()
    assert few.any()
    snapshot = ledger.append("d.npy", labels("d"))
    assert snapshot.rescanned == QUERIES * 40
    after = ledger._store.contents().state().near
    assert not after.few().any()
    assert (np.isfinite(after.distance).sum(axis=1)[few] == 6).any()
    check(ledger, "cd")


@pytest.mark.usefixtures("folder")
def test_data_in_place_of_others_are_not_taken_for_these() -> None:
    ledger = create(keep=1)
    ledger.append("b.npy", labels("b"))
    ledger.append("a.npy", labels("a"))
    np.save("a.npy", np.load("b.npy"))
    ledger.move("b", "a.npy")
    with pytest.raises(InputError, match=r"segment 'a' of L, .*a\.npy, has changed"):
        ledger.append("c.npy", labels("c"))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.usefixtures("folder")
def test_data_whose_files_alone_have_changed_are_read_once_to_see_that(
    monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """As after chmod, or where all of them have been copied from another disk."""
    own = {name: labels(name) for name in "qab"}
    metric, query = ("cosine", "q.npy") if not stored else (None, None)
    if stored:
        rng = np.random.default_rng(1)
        for name, items in {"a": 60, "b": 50, "q": 110}.items():
            np.save(f"{name}.npy", rng.random((QUERIES, items)))
    ledger = se.Ledger.create(
        "L", query=query, query_labels=own["q"], metric=metric, protocol="no-camera", range=(0, 2)
    )
    for name in "ab":
        ledger.append(f"{name}.npy", own[name])
    ledger.add_queries("q.npy", own["q"])
    for name in "abq":
        os.utime(f"{name}.npy", ns=(1, 1))
    read: list[str] = []

    def counted(array: Array) -> str:
        read.append(Path(array.uri).stem)
        return content(array)

    monkeypatch.setattr("streameval.ledger.gallery.content", counted)
    for identity, expected in ((0, "abq"), (1, "")):
        ledger.forget([identity])
        assert "".join(sorted(read)) == expected
        read.clear()
    assert ledger.verify() == []
    np.save("b.npy", np.load("b.npy")[::-1])
    with pytest.raises(InputError, match=r"b\.npy, has changed since it came"):
        ledger.forget([2])


@pytest.mark.parametrize(
    ("change", "file"),
    [
        *((change, f"{one}.npy") for change in ("append", "add_queries") for one in "abq"),
        *(("forget", f"{one}.npy") for one in "aq"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_data_that_change_while_they_are_read_are_refused(
    change: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come, and those that are there: here a, and the queries."""
    ledger = create(keep=1)
    ledger.append("a.npy", labels("a"))
    before = ledger.evaluation().statistics
    count = Block.count
    given = (labels("a").id[:2],) if change == "forget" else ("b.npy", labels("b"))

    def counted(*arguments: Any, **named: Any) -> Any:
        os.utime(file, ns=(1, 1))
        return count(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Block, "count", counted)
        with pytest.raises(InputError, match=f"{file} has changed since it was opened"):
            getattr(ledger, change)(*given)
    assert ledger.evaluation().statistics.equals(before)
    getattr(ledger, change)(*given)
    assert ledger.verify() == []


@pytest.mark.usefixtures("folder")
def test_identities_may_be_of_any_size() -> None:
    ledger = create(keep=3)
    own = {
        "a": labels("a"),
        "b": labels("b", 300, 999),
        "c": labels("c", -(2**40), 2**40),
        "d": labels("d"),
    }
    for name, one in own.items():
        ledger.append(f"{name}.npy", one)
        check(ledger, "abcd"[: "abcd".index(name) + 1], own)
    assert ledger.forget(own["c"].id[:2]).gallery < 180


DTYPES = st.sampled_from(["<i8", "<f8", "<i4", "|u1", "<i2"])


@given(
    st.dictionaries(
        st.text(max_size=5),
        DTYPES.flatmap(
            lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=1, min_side=0))
        ),
        max_size=5,
    )
)
def test_what_is_packed_is_unpacked(given_arrays: dict[str, Any]) -> None:
    found = unpack(pack(given_arrays))
    assert list(found) == list(given_arrays)
    for name, values in given_arrays.items():
        assert found[name].dtype == values.dtype
        assert found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes()


@pytest.mark.skipif(not sieve_of(8), reason="no instructions to multiply bytes")
@pytest.mark.parametrize(("metric", "levels"), spread(["cosine", "euclidean"], [0, 2]))
@pytest.mark.usefixtures("product")
def test_rescans_list_what_digits_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: int, metric: Any
) -> None:
    """Old negatives ahead of new positives, of which some are near and some are far."""
    rng, listed = np.random.default_rng(7), 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("streameval.sources.features.FIRST_ITEMS", 16)
    monkeypatch.setattr("streameval.kernels.features.worth_marking", lambda *_: True)
    monkeypatch.setattr(
        "streameval.kernels.marks.gallery_row_seconds", lambda count, width: 1e-6 * count
    )
    marked = MarkTile.listed

    def counted(tile: MarkTile) -> Any:
        nonlocal listed
        listed += 1
        return marked(tile)

    monkeypatch.setattr(MarkTile, "listed", counted)
    centres = rng.standard_normal((20, 24))
    own: dict[str, se.Labels] = {}
    for name, rows in {"q": 30, "a": 900, "b": 700, "c": 50, "d": 40}.items():
        identity = rng.integers(0, 20, rows)
        values = centres[identity] + rng.uniform(0.1, 1.5, (rows, 1)) * rng.standard_normal(24)
        np.save(f"{name}.npy", np.rint(values * levels) if levels else values)
        own[name] = se.Labels(identity)
    ledger = se.Ledger.create(
        "L",
        query="q.npy",
        query_labels=own["q"],
        metric=metric,
        protocol="no-camera",
        keep=12 * 30 * 8,
        range=(0, 100),
    )
    for name in "abcd":
        ledger.append(f"{name}.npy", own[name])
    assert listed > 0
    fresh = se.evaluate(
        se.Features("q.npy", np.concatenate([np.load(f"{name}.npy") for name in "abcd"]), metric),
        query=own["q"],
        gallery=se.Labels(np.concatenate([own[name].id for name in "abcd"])),
        protocol="no-camera",
        range=(0, 100),
    )
    assert ledger.evaluation().statistics.equals(fresh.statistics)
    assert ledger.verify() == []
