"""Pairs by lists of good and junk gallery items, as VeRi-776 has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.protocols import find_pairs
from test_cli import ARRAYS, QUERIES, STORED, data, run
from test_cli_metrics import refused, summary

import streameval as se

__all__ = ["data"]

Rows = list[npt.NDArray[np.int64]]
LISTED = se.PROTOCOLS["listed"]


def lists_of(query: se.Labels, gallery: se.Labels) -> tuple[Rows, Rows]:
    """Return good and junk items as market1501 finds them, for ids without junk."""
    assert query.cam is not None
    same = query.id[:, None] == gallery.id
    camera = query.cam[:, None] == gallery.cam
    good, junk = (
        [np.flatnonzero(row) for row in pairs] for pairs in (same & ~camera, same & camera)
    )
    return good, junk


def write(path: str, rows: Any, *, base: int = 1) -> None:
    lines = [" ".join(str(item + base) for item in row) for row in rows]
    Path(path).write_text("\n".join(lines) + "\n")


@pytest.fixture
def sides() -> dict[str, se.Labels]:
    rng = np.random.default_rng(1)
    return {
        "query": se.Labels(rng.integers(0, 9, 20), rng.integers(0, 3, 20)),
        "gallery": se.Labels(rng.integers(0, 7, 60), rng.integers(0, 3, 60), np.arange(60) * 7),
    }


@pytest.fixture
def files(
    sides: dict[str, se.Labels], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Rows, Rows]:
    monkeypatch.chdir(tmp_path)
    good, junk = lists_of(sides["query"], sides["gallery"])
    write("gt.txt", good)
    write("jk.txt", junk)
    return good, junk


@pytest.mark.parametrize("kind", ["features", "stored"])
def test_listed_pairs_count_as_those_that_a_protocol_finds(
    kind: str, sides: dict[str, se.Labels]
) -> None:
    rng = np.random.default_rng(2)
    q, g = rng.standard_normal((20, 8)), rng.standard_normal((60, 8))
    source = se.Features(q, g) if kind == "features" else se.Distances(rng.random((20, 60)))
    listed = se.ListedPairs.of(*lists_of(sides["query"], sides["gallery"]))
    expected = se.evaluate(source, **sides)
    found = se.evaluate(source, **sides, listed=listed)
    assert found.statistics.equals(expected.statistics)
    assert found.provenance["protocol"]["name"] == "listed"


def test_what_is_in_neither_list_is_a_negative() -> None:
    sides = {"query": se.Labels([1, 1, 2]), "gallery": se.Labels([1, 1, 1, 2])}
    listed = se.ListedPairs.of([[2, 0], [], []], [[], [1], []])
    source = se.Distances(np.array([[0.1, 0.2, 0.3, 0.4]] * 3))
    result = se.evaluate(source, **sides, listed=listed)
    assert result.statistics.valid.tolist() == [4, 3, 4]
    assert result.statistics.positives.tolist() == [2, 0, 0]
    assert result.statistics.closer.tolist() == [0, 1]
    assert result.per_query["class"].tolist() == ["positive", "excluded", "negative"]
    good_alone = se.evaluate(source, **sides, listed=se.ListedPairs.of([[2, 0, 2], [1], [3]]))
    assert good_alone.statistics.ignored.tolist() == [0, 0, 0]
    assert good_alone.statistics.positives.tolist() == [2, 1, 1]


def test_files_of_every_kind(files: tuple[Rows, Rows], sides: dict[str, se.Labels]) -> None:
    gallery = sides["gallery"]
    expected = find_pairs(**sides, protocol=LISTED, listed=se.ListedPairs.of(*files))
    write("gt0.txt", files[0], base=0)
    write("jk0.txt", files[1], base=0)
    keys = [[f"{7 * item}" for item in row] for row in files[0]]
    Path("gtk.txt").write_text("\r\n".join(", ".join(row) for row in keys) + "\r\n\r\n")
    keys = [[f"{7 * item}" for item in row] for row in files[1]]
    Path("jkk.txt").write_text("\n".join("\t".join(row) for row in keys))
    for listed_as, names in (
        ("1-based", ("gt.txt", "jk.txt")),
        ("0-based", ("gt0.txt", "jk0.txt")),
        ("key", ("gtk.txt", "jkk.txt")),
    ):
        listed = se.read_listed_pairs(
            *names,
            queries=20,
            gallery=gallery,
            listed_as=listed_as,  # type: ignore[arg-type]
        )
        found = find_pairs(**sides, protocol=LISTED, listed=listed)
        for field in ("indptr", "item", "positive"):
            assert np.array_equal(getattr(found, field), getattr(expected, field))


def read(**changes: Any) -> se.ListedPairs:
    gallery = se.Labels(np.arange(4), key=np.array(["a", "b", "c", "a"]))
    what: dict[str, Any] = {"queries": 3, "gallery": gallery}
    return se.read_listed_pairs("gt.txt", "jk.txt", **what | changes)


@pytest.mark.parametrize(
    ("good", "junk", "listed_as", "says"),
    [
        ("1 2\n\n3\n", "4\n1\n", "1-based", "jk.txt has 2 lines, and there are 3 queries"),
        ("1 2\n\n3\n4\n", "\n\n\n", "1-based", "gt.txt has 4 lines, and there are 3 queries"),
        (
            "1\n5\n\n",
            "\n\n\n",
            "1-based",
            r"gt.txt, line 2 \(query 1\) lists item 5; the 4 .* 1 to 4",
        ),
        (
            "1\n\n\n",
            "\n\n0\n",
            "1-based",
            r"jk.txt, line 3 .* item 0; .* does the list count from 0",
        ),
        (
            "1\n4\n\n",
            "\n\n\n",
            "0-based",
            "line 2 .* item 4; .* 0 to 3: does the list count from 1",
        ),
        ("1\n3 2\n", "1\n1 2\n", "1-based", "lines"),
        (
            "1\n3 2\n\n",
            "4\n1 2\n\n",
            "1-based",
            r"gt.txt, line 2 \(query 1\) and jk.txt, line 2 \(query 1\) both list item 2",
        ),
        ("1\nx.jpg\n\n", "\n\n\n", "1-based", r"line 2 .* has 'x.jpg'; the index .* as keys"),
        ("1\n-1\n\n", "\n\n\n", "1-based", "'-1'"),
        ("b\nd\n\n", "\n\n\n", "key", "gt.txt, line 2 .* has 'd', a key that the gallery has not"),
        (
            "b\n\na\n",
            "\n\n\n",
            "key",
            "gt.txt, line 3 .* has 'a', a key that the gallery has twice",
        ),
    ],
)
def test_lists_that_are_refused(
    good: str,
    junk: str,
    listed_as: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gt.txt").write_text(good)
    Path("jk.txt").write_text(junk)
    with pytest.raises(se.InputError, match=says):
        read(listed_as=listed_as)


def test_what_does_not_go_with_lists(files: tuple[Rows, Rows], sides: dict[str, se.Labels]) -> None:
    listed, source = se.ListedPairs.of(*files), se.Distances(np.ones((20, 60)))
    for what, says in (
        ({"listed": listed, "protocol": "market1501"}, "choose protocol listed"),
        ({"protocol": "listed"}, "protocol listed takes its pairs from lists: give good"),
        ({"listed": listed, "junk_ids": [3]}, "got junk ids: put these pairs on the junk list"),
        ({"listed": listed, "self_match": "index"}, "got self_match"),
    ):
        with pytest.raises(se.OptionError, match=says):
            se.evaluate(source, **sides, **what)  # type: ignore[arg-type]
    with pytest.raises(se.OptionError, match="listed_as is '2'"):
        read(listed_as="2")
    with pytest.raises(se.OptionError, match=r"gt.txt lists keys, and labels has none"):
        read(listed_as="key", gallery=se.Labels(np.arange(4)))
    Path("gt.txt").unlink()
    with pytest.raises(se.InputError, match=r"gt.txt can't be read"):
        read()
    with pytest.raises(se.InputError, match=r"the good list, line 2 \(query 1\) is float64"):
        se.ListedPairs.of([[1], [0.5]])


def test_a_list_that_counts_from_elsewhere_is_warned_of(
    files: tuple[Rows, Rows], sides: dict[str, se.Labels]
) -> None:
    off_by_one = [[item + 1 for item in row if item < 59] for row in files[0]]
    with pytest.warns(se.StreamevalWarning, match="are of different identities, first item"):
        find_pairs(**sides, protocol=LISTED, listed=se.ListedPairs.of(off_by_one))


@pytest.mark.usefixtures("data")
def test_on_the_command_line() -> None:
    sides = (se.read_labels(f"{side}_id.npy", f"{side}_cam.npy") for side in ("query", "gallery"))
    good, junk = lists_of(*sides)
    write("gt.txt", good)
    write("jk.txt", junk)
    expected = summary("--out", "labels")
    found = summary("--good", "gt.txt", "--junk", "jk.txt", "--out", "lists")
    assert found["metrics"] == expected["metrics"]
    assert found["counts"] == expected["counts"]
    assert found["provenance"]["protocol"]["listed"] is True
    write("gt.txt", good[1:])
    says = (f"gt.txt has {QUERIES - 1} lines", f"{QUERIES} queries", "one line a query")
    refused(run(*STORED, *ARRAYS, "--good", "gt.txt"), *says)
    refused(run(*STORED, *ARRAYS, "--junk", "jk.txt"), "got --junk", "--good")
