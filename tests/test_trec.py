"""TREC files: another evaluator reads the same mAP off them; names that can't be are refused."""

from __future__ import annotations

import tracemalloc
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from list_problems import labels, list_problems, nearest, protocol
from profiles import examples
from support import runs
from support.cli import main
from support.neighbors import Lists, descending, names_of, qrels_lines, run_lines
from support.package import NewFile
from support.protocols import Pairs
from support.runs import prepare

import streameval as se
from streameval import OutputError, StreamevalWarning

QUERIES, ITEMS, WIDTH = 12, 60, 6


def mean_average_precision(run: Iterable[str], qrels: Iterable[str]) -> float:
    """Return mAP as trec_eval -c does: by score as float32, then by name from the last."""
    relevant: dict[str, set[str]] = defaultdict(set)
    for line in qrels:
        query, iteration, item, value = line.split()
        assert (iteration, value) == ("0", "1")
        relevant[query].add(item)
    found: dict[str, list[tuple[np.float32, str]]] = defaultdict(list)
    for line in run:
        query, constant, item, _, score, tag = line.split()
        assert (constant, tag) == ("Q0", "streameval")
        found[query].append((np.float32(score), item))
    values = []
    for query, wanted in relevant.items():
        ranking = [item for _, item in sorted(found[query], reverse=True)]
        hit = np.array([item in wanted for item in ranking], float)
        precision = np.cumsum(hit) / np.arange(1, len(hit) + 1)
        values.append((precision * hit).sum() / len(wanted))
    return float(np.mean(values)) if values else float("nan")


@examples(80)
@given(list_problems(), st.sampled_from(["pessimistic", "optimistic", "stable"]))
def test_another_evaluator_agrees(problem: Any, ties: Any) -> None:
    stated, k, rng = problem
    indices, values = nearest(stated["distances"], k, rng)
    source = se.Neighbors(indices, values, missing="never")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)
        options = se.MetricOptions(metrics=(f"mAP@{k}/total",), ties=ties)
        work = prepare(source, **labels(stated), protocol=protocol(stated), options=options)
        blocks: list[Lists] = []
        result = runs.run(work, options, collect=blocks.append)
    queries, gallery = (names_of(labels(stated)[side], side) for side in ("query", "gallery"))
    run: list[str] = []
    first = 0
    for block in blocks:
        last = first + len(block.indptr) - 1
        pairs = work.pairs.block(first, last)
        run += run_lines(block, pairs, ties, queries[first:last], gallery)
        first = last
    found = mean_average_precision(
        run, qrels_lines(work.pairs.block(0, work.pairs.queries), queries, gallery)
    )
    assert found == pytest.approx(result[f"mAP@{k}/total"], rel=1e-12, nan_ok=True)
    ranks = defaultdict(list)
    for line in run:
        ranks[line.split()[0]].append(int(line.split()[3]))
    assert all(own == list(range(1, len(own) + 1)) for own in ranks.values())


def test_qrels_are_written_in_little_memory() -> None:
    queries, positives = 1000, 300
    pairs = Pairs.assumed(queries, positives, positives)
    tracemalloc.start()
    lines = qrels_lines(pairs, range(queries), range(positives))
    assert next(lines) == "0 0 0 1\n"
    assert tracemalloc.get_traced_memory()[1] < 30 * queries * positives
    tracemalloc.stop()


@given(
    arrays(
        np.float64,
        st.integers(0, 30),
        elements=st.one_of(
            st.floats(-1e300, 1e300), st.sampled_from([0.0, -0.0, 1.0, 1 + 1e-12, 2.5, -1e-46])
        ),
    )
)
def test_scores_fall_and_stay_where_they_were(values: np.ndarray) -> None:
    scores = np.sort(values)[::-1]
    fell = descending(scores)
    written = np.array([f"{one:.9g}" for one in fell.tolist()]).astype(np.float32)
    np.testing.assert_array_equal(written, fell)
    assert (np.diff(fell.astype(np.float64)) < 0).all()
    if np.abs(scores).max(initial=0) < 1e38 and len(np.unique(scores.astype("f4"))) == len(scores):
        np.testing.assert_array_equal(fell, scores.astype(np.float32))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with features and labels of both sides, and lists of them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    features = {}
    for side, count in (("query", QUERIES), ("gallery", ITEMS)):
        features[side] = rng.standard_normal((count, WIDTH)).astype("f4")
        np.save(f"{side}.npy", features[side])
        ids = rng.integers(-1, 7, count)
        rows = "".join(
            f"{one},{rng.integers(0, 3)},{side[0]}/{at:03d}😀.jpg\n" for at, one in enumerate(ids)
        )
        Path(f"{side}.csv").write_text(f"id,cam,key\n{rows}")
    np.save("distances.npy", rng.random((QUERIES, ITEMS)))
    return tmp_path


LABELS = ("--query-labels", "query.csv", "--gallery-labels", "gallery.csv")
FLAT = ("--query", "query.npy", "--gallery", "gallery.npy", "--index", "Flat", "-k", str(ITEMS))
FILES = ("--trec-run", "run.txt", "--trec-qrels", "qrels.txt")


def evaluate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["evaluate", *arguments, "--quiet"])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("ties", ["pessimistic", "stable"])
def test_the_whole_gallery_has_the_whole_map(ties: str) -> None:
    done = evaluate(*FLAT, *LABELS, *FILES, "--ties", ties, "--out", "result")
    assert done.exit_code == 0, done.output
    whole = evaluate(*FLAT[:4], *LABELS, "--ties", ties, "--out", "whole")
    assert whole.exit_code == 0, whole.output
    lines = [Path(name).read_text().splitlines() for name in ("run.txt", "qrels.txt")]
    result = se.Evaluation.load("whole")
    assert mean_average_precision(*lines) == pytest.approx(result["mAP"], rel=1e-12)
    assert se.Evaluation.load("result")["mAP"] == result["mAP"]
    assert len(lines[0]) == int(result.statistics.valid.sum())  # no pair that is ignored
    assert len(lines[1]) == result.counts["pairs_positive"]
    assert lines[0][0].startswith("q/000😀.jpg Q0 g/")
    assert sorted(path.name for path in Path().iterdir() if path.name.startswith(".")) == []


@pytest.mark.peers
@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore")
def test_ranx_agrees() -> None:
    ranx = pytest.importorskip("ranx", reason="ranx is not installed")
    shorter = (*FLAT[:-1], "20", "--missing", "never", "--metrics", "mAP@20/total,MRR")
    for options, name in ((FLAT, "mAP"), (shorter, "mAP@20/total")):
        done = evaluate(*options, *LABELS, *FILES, "--out", "result", "--overwrite")
        assert done.exit_code == 0, done.output
        qrels = ranx.Qrels.from_file("qrels.txt", kind="trec")
        run = ranx.Run.from_file("run.txt", kind="trec")
        found = ranx.evaluate(qrels, run, "map", make_comparable=True)
        assert found == pytest.approx(se.Evaluation.load("result")[name], rel=1e-9)


@pytest.mark.usefixtures("folder")
def test_a_range_from_the_lists_writes_them_once() -> None:
    assert evaluate(*FLAT, *LABELS, *FILES).exit_code == 0
    first = Path("run.txt").read_bytes()
    again = evaluate(*FLAT, *LABELS, *FILES, "--range", "minmax", "--overwrite")
    assert again.exit_code == 0, again.output
    assert Path("run.txt").read_bytes() == first


@pytest.mark.usefixtures("folder")
def test_items_without_keys_go_by_number() -> None:
    for side in ("query", "gallery"):
        rows = Path(f"{side}.csv").read_text().splitlines()
        Path(f"{side}.csv").write_text("\n".join(row.rpartition(",")[0] for row in rows) + "\n")
    assert evaluate(*FLAT, *LABELS, *FILES[:2]).exit_code == 0
    query, _, item, rank, _, _ = Path("run.txt").read_text().splitlines()[0].split()
    assert (query, rank) == ("0", "1")
    assert 0 <= int(item) < ITEMS
    assert not Path("qrels.txt").exists()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["a", "b c"], r"'b c' of gallery row 1 can't be in a TREC file.*numbers"),
        (["a\tb", "c"], r"'a\\tb' of gallery row 0"),
        (["a", "\u2003"], r"gallery row 1"),
        (["", "a"], r"key '' of gallery row 0"),
        ([1, np.nan], r"the key of gallery row 1 is nan"),
        (["x", "y", "x"], r"gallery rows 0 and 2 have the same key 'x'"),
    ],
)
def test_names_that_cannot_be(keys: list[Any], words: str) -> None:
    with pytest.raises(se.InputError, match=words):
        names_of(se.Labels(id=np.arange(len(keys)), key=np.array(keys)), "gallery")


def test_hostile_names_that_can_be() -> None:
    keys = ["<script>alert(1)</script>", "../../etc", "=1+1", "@x", "😀" * 300, "-1", "#"]
    given = se.Labels(id=np.arange(len(keys)), key=np.array(keys))
    assert list(names_of(given, "query")) == keys


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--distances", "distances.npy", *FILES), "--index Flat -k K"),
        ((*FLAT[:4], *FILES), "--trec-run writes lists of neighbours"),
        ((*FLAT, *FILES, "--ties", "expected"), "choose --ties pessimistic"),
        ((*FLAT[:-1], "auto", *FILES), "--trec-run and -k auto"),
        ((*FLAT, *FILES, "--resume", "--out", "result"), "--trec-run and --resume"),
        ((*FLAT, "--trec-run", "query.csv"), "query.csv exists already"),
        ((*FLAT, "--trec-run", "nowhere/run.txt"), "nowhere/run.txt can't be written"),
        ((*FLAT, *FILES, "--overwrite", "--trec-qrels", "."), ". can't be written"),
        ((*FLAT, *FILES, "--range", "0,0.001"), "outside the given range"),
    ],
)
def test_refused_without_a_file(arguments: tuple[str, ...], words: str) -> None:
    before = sorted(Path.cwd().iterdir())
    refused = evaluate(*arguments, *LABELS)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert words in refused.stderr
    assert sorted(Path.cwd().iterdir()) == before


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "run.txt"

    def lines() -> Iterator[str]:
        yield from ("a\n", "b\n")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), NewFile(str(target), overwrite=False) as file:
        file.write_all(lines())
    assert list(tmp_path.iterdir()) == []
    with ExitStack() as stack:
        stopped = stack.enter_context(NewFile(str(target), overwrite=False))
        stopped.write(b"half")
        stopped.discard()  # as a signal does; then, the process ends
        assert not stopped.partial.exists()
        with pytest.raises(OutputError, match="can't be written"):
            stack.close()
    with NewFile(str(target), overwrite=False) as file:
        file.write_all(str(at) for at in range(25_000))
    assert target.read_text() == "".join(map(str, range(25_000)))
    assert list(tmp_path.iterdir()) == [target]
