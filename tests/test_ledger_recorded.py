"""Ledgers that an earlier version made are opened, are equal, and go on equally.

``recorded/ledgers.tar.xz`` holds two of them, of features and of stored distances, with their
data, what each snapshot was, and what came of three more changes.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spread import with_daily
from support.package import FIELDS

import streameval as se
from streameval import StreamevalWarning

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


def check_entries(found: list[se.Snapshot], told: list[dict[str, Any]]) -> None:
    """Compare but for times; there may be more metrics than there were."""
    for snapshot, entry in zip(found, told, strict=True):
        metrics = {name: snapshot.metrics[name] for name in entry["metrics"]}
        same = snapshot.entry() | {"metrics": metrics}
        assert same | {name: entry[name] for name in ("time", "seconds")} == entry


@pytest.mark.parametrize("kind", with_daily(["features", "distances"], "features"))
def test_an_earlier_ledger_is_equal_and_goes_on_equally(kind: str, expected: Any) -> None:
    arrays, told = expected
    ledger = se.Ledger(kind)
    check_entries([*ledger.trajectory], told[f"{kind}/trajectory"])
    for at in range(CHANGES):
        found = ledger.evaluation(at)
        check(found, f"{kind}/{at}", arrays)
        values = {name: repr(value) for name, value in found.metrics.scalars.items()}
        values |= found.counts
        assert {name: values[name] for name in told[f"{kind}/{at}"]} == told[f"{kind}/{at}"]
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
    moves = snapshots[0].number - CHANGES  # which were not there
    check_entries(
        [replace(snapshot, number=snapshot.number - moves) for snapshot in snapshots],
        told[f"{kind}/after"],
    )
    for at, snapshot in enumerate(snapshots):
        check(ledger.evaluation(snapshot.number), f"{kind}/{CHANGES + at}", arrays)
    assert ledger.verify() == []
