"""Bits of finished work that flip: the right numbers, or an error; never others, no traceback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from support.run import checkpoint_module

import streameval as se

pytestmark = pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
RNG = np.random.default_rng(0)
LABELS = {
    side: se.Labels(id=RNG.integers(0, 9, count), cam=RNG.integers(0, 3, count))
    for side, count in (("query", 11), ("gallery", 90), ("more", 20))
}
SIDES = {side: LABELS[side] for side in ("query", "gallery")}


OPTIONS = {"range": "minmax", "threads": 1, "ties": "optimistic"}


def features() -> se.Features:
    return se.Features("query.npy", "gallery.npy", "euclidean")


def search(index: str = "IVF4,Flat", **more: Any) -> se.Neighbors:
    return se.Neighbors(features=features(), index=index, k=9, **more)


Read = Callable[[], list[se.Evaluation]]


class Stop(se.Progress):
    """Interrupts a run where a pass begins, or has ended."""

    def __init__(self, at: str) -> None:
        self._at, self._label = at, ""

    def start(self, label: str, pairs: int) -> None:
        self._label = label
        if self._at == f"{label} begins":
            raise KeyboardInterrupt

    def finish(self) -> None:
        if self._at == f"{self._label} ends":
            raise KeyboardInterrupt


def resumed(source: Any, options: Mapping[str, Any], folder: str) -> list[se.Evaluation]:
    """Go on with unfinished work; keep it as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_module.Checkpoint, "remove", lambda self: None)
        patch.setattr(checkpoint_module, "COMMIT_SECONDS", 1e9)
        return [se.evaluate(source, **SIDES, **options, checkpoint=folder, resume=True)]


def checkpoint(folder: str, source: Any, at: str, options: Mapping[str, Any]) -> Read:
    with pytest.raises(KeyboardInterrupt):
        se.evaluate(source, **SIDES, **options, checkpoint=folder, progress=Stop(at))
    return partial(resumed, source, options, folder)


def of_features(folder: str) -> Read:
    return checkpoint(folder, features(), "counting ends", OPTIONS)


def of_index(folder: str) -> Read:
    return checkpoint(folder, search(), "search begins", {"threads": 1})


def ledger(folder: str) -> Read:
    made = se.Ledger.create(
        folder, query="query.npy", query_labels=LABELS["query"], metric="euclidean", range=(0, 400)
    )
    made.append("gallery.npy", LABELS["gallery"])
    made.append("more.npy", LABELS["more"])
    made.forget([3])
    return lambda: [
        se.Ledger(folder).evaluation(),
        se.Ledger(folder).evaluation(1),
        se.Ledger(folder).evaluation("more"),
    ]


def result(folder: str) -> Read:
    se.evaluate(features(), **SIDES, **OPTIONS).save(folder)
    return lambda: [se.Evaluation.load(folder)]


def index(folder: str) -> Read:
    Path(folder).mkdir()
    kept = f"{folder}/kept.faiss"
    se.evaluate(search(save_index=kept), **SIDES)
    return lambda: [se.evaluate(search(kept), **SIDES, threads=1)]


KINDS = (of_features, of_index, ledger, result, index)


def flips(files: list[Path], count: int | None) -> list[tuple[Path, int, int]]:
    """Return files, their bytes and a bit: all bytes, or some, as often of each file."""
    rng = Random(0)
    sizes = {file: file.stat().st_size for file in files if file.stat().st_size}
    if count is None:
        return [(file, at, rng.randrange(8)) for file, size in sizes.items() for at in range(size)]
    order = sorted(sizes)
    rng.shuffle(order)
    drawn = (order[i % len(order)] for i in range(count))
    return [(file, rng.randrange(sizes[file]), rng.randrange(8)) for file in drawn]


def put(file: Path, content: bytes) -> None:
    """Replace a file, not its bytes: threads of FAISS still read ahead in what is mapped."""
    new = file.with_name("new")
    new.write_bytes(content)
    new.replace(file)


def same(found: se.Evaluation, expected: se.Evaluation) -> bool:
    """Whether no number differs; a flip in a saved option may ask for CMC@4 in place of CMC@5."""
    values, others = found.metrics.scalars, expected.metrics.scalars
    both = values.keys() & others.keys()
    return (
        found.statistics.equals(expected.statistics)
        and all(repr(values[name]) == repr(others[name]) for name in both)
        and found.counts == expected.counts
    )


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(4, id="daily"),
        pytest.param(120, id="slow", marks=pytest.mark.slow),
        pytest.param(None, id="all", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("make", KINDS)
def test_a_flipped_bit(
    make: Callable[[str], Read],
    count: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, own in LABELS.items():
        values = np.random.default_rng(1).integers(0, 50, (len(own), 6)).astype("f4")
        np.save(f"{side}.npy", values)
    monkeypatch.setattr(checkpoint_module, "COMMIT_SECONDS", 0.0)
    read = make("kept")
    expected = read()
    files = sorted(file for file in Path("kept").rglob("*") if file.is_file())
    wrong, refused = [], 0
    drawn = flips(files, count)
    for file, at, bit in drawn:
        whole = file.read_bytes()
        put(file, whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        try:
            found = read()
        except se.StreamevalError:
            refused += 1
        except BaseException as error:  # as those of Rust's panics
            wrong.append((str(file), at, bit, repr(error)[:300]))
        else:
            if not all(map(same, found, expected)):
                wrong.append((str(file), at, bit, "other numbers"))
        put(file, whole)
    counts = {"flips": len(drawn), "errors": refused, "wrong": len(wrong)}
    request.node.user_properties += counts.items()  # shown by --junitxml
    assert not wrong
    assert refused
