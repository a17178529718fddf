"""Ledgers that an earlier version made are opened, are equal, and go on equally.

``recorded/ledgers.tar.xz`` holds two of them, of features and of stored distances, with their
data, what each snapshot was, and what came of three more changes.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streameval as se
from streameval.errors import StreamevalWarning
from streameval.statistics import FIELDS

pytest.importorskip("icechunk")
pytestmark = pytest.mark.filterwarnings(f"ignore::{StreamevalWarning.__module__}.StreamevalWarning")
RECORDED = Path(__file__).parent / "recorded" / "ledgers.tar.xz"
CHANGES = 6  # of each: create, three segments, forget, queries


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Unpack the ledgers, work beside them, and return the statistics and what was told."""
    monkeypatch.chdir(tmp_path)
    with tarfile.open(RECORDED) as recorded:
        recorded.extractall(filter="data")
    return np.load("expected.npz"), json.loads(Path("expected.json").read_text())


def check(found: se.Evaluation, name: str, arrays: Any) -> None:
    for field in FIELDS:
        values = getattr(found.statistics, field)
        if values is None:
            assert f"{name}/{field}" not in arrays
        else:
            assert np.array_equal(values, arrays[f"{name}/{field}"]), (name, field)


def without_times(snapshot: se.Snapshot | dict[str, Any]) -> dict[str, Any]:
    entry = snapshot if isinstance(snapshot, dict) else snapshot.entry()
    return {name: value for name, value in entry.items() if name not in ("time", "seconds")}


@pytest.mark.parametrize("kind", ["features", "distances"])
def test_an_earlier_ledger_is_equal_and_goes_on_equally(kind: str, expected: Any) -> None:
    arrays, told = expected
    ledger = se.Ledger(kind)
    assert [without_times(entry) for entry in ledger.trajectory] == [
        without_times(entry) for entry in told[f"{kind}/trajectory"]
    ]
    for at in range(CHANGES):
        found = ledger.evaluation(at)
        check(found, f"{kind}/{at}", arrays)
        scalars = {name: repr(value) for name, value in found.metrics.scalars.items()}
        assert scalars | found.counts == told[f"{kind}/{at}"]
    end = "" if kind == "features" else "-distances"
    for name in "abc":
        ledger.move(name, f"{name}{end}.npy")
    if kind == "features":
        ledger.move(None, "q.npy")
    ledger.move(None, f"more{end}.npy")
    assert ledger.verify() == []
    snapshots = [
        ledger.append(f"d{end}.npy", se.read_label_table("d.csv"), name="d"),
        ledger.forget([1, 5]),
        ledger.remove("b"),
    ]
    for at, (snapshot, entry) in enumerate(zip(snapshots, told[f"{kind}/after"], strict=True)):
        moves = snapshot.number - entry["number"]  # which were not there
        assert without_times(snapshot) == without_times(entry | {"number": snapshot.number})
        check(ledger.evaluation(snapshot.number), f"{kind}/{CHANGES + at}", arrays)
        assert moves == (5 if kind == "features" else 4)
    assert ledger.verify() == []
