"""Ranked lists from saved results: as a full sort has them, and of the same inputs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from spread import spread
from support.cli import main
from support.rankings import Kind, RankedList, nearest_items, reopen
from support.rankings import nearest_module as nearest

import streameval as se

QUERIES, ITEMS, TOP = 9, 70, 12
TIES = ("pessimistic", "optimistic", "stable")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make features, distances of few values, and labels with junk."""
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    for side, count in (("query", QUERIES), ("gallery", ITEMS)):
        np.save(f"{side}.npy", rng.integers(0, 2, (count, 4)) + np.float32(0.5))
        rows = zip(rng.integers(-1, 5, count), rng.integers(0, 3, count), strict=True)
        lines = "".join(f"{max(one, -(side == 'gallery'))},{cam}\n" for one, cam in rows)
        Path(f"{side}.csv").write_text("id,cam\n" + lines)
    np.save("distances.npy", rng.integers(0, 6, (QUERIES, ITEMS)) / np.float32(3))
    return tmp_path


def saved(*more: str, out: str = "result") -> se.Evaluation:
    labels = ("--query-labels", "query.csv", "--gallery-labels", "gallery.csv")
    done = CliRunner().invoke(main, ["evaluate", *labels, *more, "--out", out, "--quiet"])
    assert done.exit_code == 0, done.output
    return se.Evaluation.load(out)


def ranked(result: se.Evaluation, queries: range = range(QUERIES)) -> list[RankedList]:
    return nearest_items(result, reopen(result, "result"), queries, TOP, "result")


def sorted_lists(distances: np.ndarray, protocol: str, ties: str) -> list[list[tuple[Any, ...]]]:
    """Return the oracle: every distance, sorted."""
    labels = [
        np.loadtxt(f"{side}.csv", delimiter=",", skiprows=1, dtype=int)
        for side in ("query", "gallery")
    ]
    found = []
    for query, row in enumerate(distances.astype(np.float64)):
        same = labels[1][:, 0] == labels[0][query, 0]
        camera = labels[1][:, 1] == labels[0][query, 1]
        ignored = (labels[1][:, 0] == -1) | (same & camera)
        if protocol == "separate-camera":
            ignored |= camera
        kinds = np.where(ignored, Kind.IGNORED.value, np.where(same, Kind.MATCH.value, 0))
        place = {"pessimistic": (0, 1, 2), "optimistic": (1, 0, 2)}.get(ties, (0, 0, 0))
        order = np.lexsort((np.arange(ITEMS), np.array(place)[kinds], row))[:TOP]
        ranks = np.cumsum(kinds[order] != Kind.IGNORED.value)
        found.append(
            [
                (int(at), float(row[at]), Kind(int(kinds[at])), rank)
                for at, rank in zip(order, ranks.tolist(), strict=True)
            ]
        )
    return found


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("ties", "protocol", "block"),
    spread(TIES, ["market1501", "separate-camera"], [1, 200, 1 << 24]),
)
def test_lists_are_those_of_a_full_sort(
    ties: str, protocol: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "BLOCK_BYTES", block)
    result = saved("--distances", "distances.npy", "--ties", ties, "--protocol", protocol)
    expected = sorted_lists(np.load("distances.npy"), protocol, ties)
    for own, oracle in zip(ranked(result), expected, strict=True):
        assert [(one.row, one.distance, one.kind) for one in own.items] == [
            one[:3] for one in oracle
        ]
        assert [one.rank for one in own.items if one.rank is not None] == [
            one[3] for one in oracle if one[2] is not Kind.IGNORED
        ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "dot"])
def test_features_have_the_distances_of_the_result(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("--query", "query.npy", "--gallery", "gallery.npy", "--metric", metric)
    result = saved(*given)
    whole = ranked(result)
    monkeypatch.setattr(nearest, "BLOCK_BYTES", 100)
    assert ranked(result) == whole
    first = result.per_query["first_rank"]
    for own in whole:
        matches = [one for one in own.items if one.kind is Kind.MATCH]
        nearest_match = (matches or [own.next_match])[0]
        if np.isnan(first[own.query]):
            assert nearest_match is None
        else:
            assert nearest_match is not None
            assert nearest_match.rank == first[own.query]
            assert nearest_match.distance == result.per_query["nearest_positive"][own.query]


def test_relative_paths_are_of_the_folder_of_the_evaluation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ranked(saved("--distances", "distances.npy"))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert ranked(se.Evaluation.load(folder / "result")) == expected


@pytest.mark.usefixtures("folder")
def test_other_inputs_are_refused() -> None:
    result = saved("--distances", "distances.npy")
    distances = np.load("distances.npy")
    labels = Path("gallery.csv").read_text()
    np.save("distances.npy", distances + 1)
    with pytest.raises(se.InputError, match=r"result .*fingerprint is .*and was"):
        reopen(result, "result")
    Path("distances.npy").unlink()
    with pytest.raises(se.InputError, match=r"can't be read again: .*distances\.npy.*put back"):
        reopen(result, "result")
    np.save("distances.npy", distances)
    Path("gallery.csv").write_text(labels.replace(f"\n{result.columns['id'][0]},", "\n77,"))
    with pytest.raises(se.InputError, match="labels make other pairs"):
        reopen(result, "result")
    Path("gallery.csv").write_text(labels + "3,1\n")
    with pytest.raises(se.InputError, match="have changed"):
        reopen(result, "result")


@pytest.mark.usefixtures("folder")
def test_without_a_fingerprint_distances_are_checked() -> None:
    result = saved("--distances", "distances.npy")
    del result.provenance["fingerprints"]  # type: ignore[attr-defined]
    np.save("distances.npy", np.load("distances.npy") * 2)
    with pytest.raises(se.InputError, match="query 0 has other distances"):
        ranked(result)


@pytest.mark.usefixtures("folder")
def test_what_can_not_be_reopened() -> None:
    result = se.evaluate(
        se.Distances("distances.npy"),
        query=se.read_label_table("query.csv"),
        gallery=se.read_label_table("gallery.csv"),
    )
    with pytest.raises(se.InputError, match="does not say where its labels are"):
        reopen(result, "result")
    distances = np.load("distances.npy")
    order = np.argsort(distances, axis=1)[:, :20]
    np.save("lists.npy", order)
    np.save("of_lists.npy", np.take_along_axis(distances, order, 1))
    lists = saved("--neighbors", "lists.npy", "--neighbor-distances", "of_lists.npy", out="lists")
    with pytest.raises(se.InputError, match="lists of neighbours"):
        reopen(lists, "lists")
