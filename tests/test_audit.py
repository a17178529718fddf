"""The audit: what is planted is found, with its rows; what is in order is not reported."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.arrays import open_array
from support.audit import Audit, audit_features, audit_labels, audit_module, check_labels, scan_rows
from support.cli import main
from support.protocols import find_pairs

import streameval as se
from streameval import PROTOCOLS, Labels

QUERIES, ITEMS, WIDTH = 60, 400, 16
MARKET = PROTOCOLS["market1501"]


def problem() -> tuple[np.ndarray, np.ndarray, Labels, Labels]:
    """Make normalised features of identities that are told apart, in order."""
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((40, WIDTH))
    sides = []
    for count in (QUERIES, ITEMS):
        ids = rng.integers(0, 40, count)
        rows = centres[ids] + 0.3 * rng.standard_normal((count, WIDTH))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        sides.append((rows.astype("f4"), Labels(id=ids, cam=rng.integers(0, 4, count))))
    return sides[0][0], sides[1][0], sides[0][1], sides[1][1]


def audited(
    query: np.ndarray,
    gallery: np.ndarray,
    query_labels: Labels,
    gallery_labels: Labels,
    metric: str = "cosine",
    protocol: str = "market1501",
) -> Audit:
    chosen = PROTOCOLS[protocol]
    pairs = find_pairs(query_labels, gallery_labels, chosen)
    labels = audit_labels(query_labels, gallery_labels, chosen, pairs)
    source = se.Features(query, gallery, metric)  # type: ignore[arg-type]
    return labels + audit_features(source, 1 << 20, gallery_labels, pairs)


def names(audit: Audit, severity: str = "warning") -> set[str]:
    return {one.name for one in audit.findings if one.severity == severity}


def message(audit: Audit, name: str) -> str:
    return next(str(one) for one in audit.findings if one.name == name)


def test_what_is_in_order_is_not_reported() -> None:
    audit = audited(*problem())
    assert names(audit) == set()
    assert audit.facts["gallery_features"]["dtype"] == "float32"
    assert audit.facts["same_identity_closer"]["the gallery"] > 0.9
    json.dumps(audit.summary(), allow_nan=False)


def test_facts_are_those_of_a_slow_count() -> None:
    query, gallery, q, g = problem()
    g.id[:7] = -1
    g.id[7:20] = 99
    q.id[:5] = 500
    alone = int(q.id[10])
    g.cam[g.id == alone] = q.cam[10]
    audit = audited(query, gallery, q, g)
    same = (q.id[:, None] == g.id) & (g.id != -1)
    positive = same & (q.cam[:, None] != g.cam)
    in_gallery = (q.id[:, None] == g.id).any(axis=1)
    said = audit.facts["queries"]
    assert said["positive"] == positive.any(axis=1).sum()
    assert said["negative"] == (~in_gallery).sum() >= 5
    assert said["excluded"] == (in_gallery & ~positive.any(axis=1)).sum() >= 1
    said = audit.facts["gallery"]
    assert said["junk"] == 7
    assert said["distractors"] == sum(one != -1 and one not in q.id for one in g.id) >= 13
    sizes = [np.count_nonzero(g.id == one) for one in np.unique(g.id) if one != -1]
    low = {"1": (1, 1), "2-5": (2, 5), "6-10": (6, 10), "11-50": (11, 50), "51+": (51, 10**9)}
    assert said["identities_by_images"] == {
        name: sum(a <= size <= b for size in sizes) for name, (a, b) in low.items()
    }
    assert audit.facts["pairs"]["positive"] == positive.sum()


@pytest.mark.parametrize("block", [64, 1000, 1 << 20])
def test_bad_rows_are_counted_in_any_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "BLOCK_BYTES", block)
    query, gallery, q, g = problem()
    gallery[[3, 200]] = np.nan
    gallery[17, 2] = np.inf
    gallery[[5, 90]] = 0
    query[59] = -0.0
    audit = audited(query, gallery, q, g)
    assert audit.facts["gallery_features"]["not_finite"] == 3
    assert audit.facts["gallery_features"]["zero"] == 2
    assert audit.facts["query_features"]["zero"] == 1
    assert names(audit) == {"not-finite", "zero-vectors"}  # which are no copies of each other
    assert "3 rows hold NaN or infinity, first row 3" in message(audit, "not-finite")


def test_copies() -> None:
    query, gallery, q, g = problem()
    gallery[10] = gallery[300]
    gallery[11] = gallery[300]
    g.id[[10, 300]] = 7
    g.id[11] = 8
    audit = audited(query, gallery, q, g)
    assert audit.facts["gallery_copies"] == 2
    assert names(audit) == {"copies-in-gallery"}
    assert "1 of them have another identity" in message(audit, "copies-in-gallery")


def test_copies_between_the_sides() -> None:
    query, gallery, q, g = problem()
    pairs = find_pairs(q, g, MARKET)
    own, item = (int(one[0]) for one in (np.repeat(np.arange(QUERIES), np.diff(pairs.indptr)),
                                         pairs.item))  # fmt: skip
    query[own] = gallery[item]
    g.cam[item] = 9
    assert message(audited(query, gallery, q, g), "queries-in-gallery").count("likely leakage") == 1
    g.cam[item] = q.cam[own]
    audit = audited(query, gallery, q, g)
    assert "queries-in-gallery" in names(audit, "note")
    assert audit.facts["query_copies"] == 1
    assert audit.facts["query_copies_positive"] == 0


def test_hashes_tell_rows_apart_and_zeros_of_both_signs_not() -> None:
    rng = np.random.default_rng(0)
    for dtype in ("f4", "f8"):
        rows = rng.integers(0, 2, (3000, 11)).astype(dtype)  # few bits set, many copies
        hashes = scan_rows(open_array(rows), rows.dtype, 1 << 20).hashes
        assert len(np.unique(hashes)) == len(np.unique(rows, axis=0))
        negative = np.where(rows == 0, -0.0, rows).astype(dtype)
        again = scan_rows(open_array(negative), rows.dtype, 1 << 20).hashes
        assert np.array_equal(hashes, again)


def test_lengths() -> None:
    query, gallery, q, g = problem()
    gallery[3] *= 2
    for metric, words in (("cosine", "cosine ignores lengths"), ("euclidean", "ranks by lengths")):
        audit = audited(query, gallery, q, g, metric)
        assert names(audit) == set()
        assert words in message(audit, "not-normalised")


def test_rows_in_another_order_than_labels() -> None:
    query, gallery, q, g = problem()
    shuffled = np.random.default_rng(2).permutation(ITEMS)
    assert "rows-and-labels" in names(audited(query, gallery[shuffled], q, g))
    mixed = np.random.default_rng(2).permutation(QUERIES)
    assert "rows-and-labels" in names(audited(query[mixed], gallery, q, g))
    assert names(audited(query, gallery[shuffled], q, Labels(g.id[shuffled], g.cam[shuffled]))) == (
        set()
    )


def test_cameras() -> None:
    _, _, q, g = problem()
    assert check_labels(q, g, MARKET) == []
    one = Labels(q.id, np.zeros(QUERIES, int)), Labels(g.id, np.zeros(ITEMS, int))
    assert [found.name for found in check_labels(*one, MARKET)] == ["one-camera"]
    from_one = Labels(q.id, q.cam + 1)
    assert [found.name for found in check_labels(from_one, g, MARKET)] == ["camera-of-one-side"]
    apart = Labels(q.id, q.cam + 10)
    assert [found.name for found in check_labels(apart, g, MARKET)] == ["cameras-apart"]
    assert check_labels(apart, g, PROTOCOLS["no-camera"]) == []


def test_one_set_and_orders() -> None:
    g = problem()[3]
    plain = PROTOCOLS["no-camera"]
    assert [one.name for one in check_labels(g, g, plain)] == ["same-set"]
    assert check_labels(g, g, MARKET) == []
    keys = np.array(["a1", "a10", "a2"])
    three = Labels(np.array([1, 1, 2]), key=keys)
    audit = audit_labels(three, three, plain, find_pairs(three, three, plain))
    assert names(audit) == {"same-set", "order-of-names", "keys-of-both-sides"}


def test_keys_of_own_images_that_no_item_has() -> None:
    protocol = replace(PROTOCOLS["no-camera"], self_match="key")
    query = Labels(id=np.arange(3), key=np.array(["query/a", "query/b", "query/c"]))
    items = np.array(["a", "b", "c"])
    for keys, found in ((items, ["no-own-image"]), (query.key, [])):
        findings = check_labels(query, Labels(id=np.arange(3), key=keys), protocol)
        assert [one.name for one in findings] == found
        assert all("query/a" in str(one) and "ignores nothing" in str(one) for one in findings)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((40_000, 64), dtype=np.float32)
    np.save(tmp_path / "a.npy", rows)
    array = open_array(tmp_path / "a.npy")
    tracemalloc.start()
    scan_rows(array, np.dtype("f4"), 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (1 << 20) + 20 * len(rows)  # of 10 MB


def write(folder: Path) -> list[str]:
    query, gallery, q, g = problem()
    given = []
    for side, rows, labels in (("query", query, q), ("gallery", gallery, g)):
        np.save(folder / f"{side}.npy", rows)
        np.save(folder / f"{side}_ids.npy", labels.id)
        np.save(folder / f"{side}_cams.npy", labels.cam + (side == "query"))
        given += [f"--{side}={side}.npy", f"--{side}-ids={side}_ids.npy"]
        given += [f"--{side}-cams={side}_cams.npy"]
    return given


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = write(tmp_path)
    done = CliRunner().invoke(main, ["audit", *given, "--json"])
    assert done.exit_code == 0, done.output
    assert {one["name"] for one in json.loads(done.stdout)["findings"]} >= {"camera-of-one-side"}
    done = CliRunner().invoke(main, ["audit", *given])
    assert "warning" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    labels = [one for one in given if "-ids" in one or "-cams" in one]
    assert CliRunner().invoke(main, ["audit", *labels]).exit_code == 0
    done = CliRunner().invoke(main, ["evaluate", *given, "--quiet"])
    assert (done.exit_code, done.stderr.count("warning: ")) == (0, 1)
    assert "of the queries' cameras are not in the gallery" in done.stderr
    for more, words in (
        (["--metric", "cosine"], "give features"),
        (["--memory", "1GB"], "give features"),
        (["--query", "query.npy"], "--gallery"),
    ):
        done = CliRunner().invoke(main, ["audit", *labels, *more])
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in done.stderr
    done = CliRunner().invoke(main, ["audit", *given, "--memory", "1MB"])
    assert (done.exit_code, "raise --memory" in done.stderr) == (2, True)
