"""The command line's refusals: one message, exit status 2, nothing written; and signals."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from test_cli import ARRAYS, CSV, FEATURES, ITEMS, QUERIES, STORED, WIDTH, data, run, write_zarr
from waiting import PATIENCE, wait_until

__all__ = ["data"]

IDS = ARRAYS[:4]
PROGRAM = Path(sys.executable).parent / "streameval"


def refused(*arguments: str, says: tuple[str, ...]) -> None:
    """Check that a run ends in one message with all of these words, and writes nothing."""
    before = sorted(Path.cwd().iterdir())
    result = run(*arguments, "--out", "refused")
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" not in result.stderr
    for words in says:
        assert words in result.stderr
    assert sorted(Path.cwd().iterdir()) == before


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (CSV, ("--distances", "--query and --gallery")),
        ((), ("got nothing to evaluate", "--distances", "--query and --gallery", "--neighbors")),
        (("--gallery", "gallery.npy"), ("got --gallery to evaluate", "both sides")),
        ((*STORED, *FEATURES, *CSV), ("got --distances and --query",)),
        ((*STORED, "--gallery", "gallery.npy", *CSV), ("got --distances and --gallery",)),
        (("--query", "query.npy", *CSV), ("got --query to evaluate", "both sides")),
        ((*STORED, "--metric", "cosine", *CSV), ("got --metric", "leave --metric out")),
        (STORED, ("identities of the query are missing", "--query-ids", "--query-labels")),
        ((*STORED, *CSV[:2]), ("identities of the gallery are missing", "--gallery-ids")),
        ((*STORED, *CSV, *ARRAYS[:2]), ("got --query-labels and --query-ids",)),
        ((*STORED, *CSV, *ARRAYS[6:]), ("got --gallery-labels and --gallery-cams",)),
        ((*STORED, *IDS), ("market1501", "has no cameras", "no-camera")),
        (
            (*STORED, *CSV, "--protocol", "marsh"),
            ("'marsh'", "allshots, cloth-changing, cuhk03"),
        ),
        ((*STORED, *CSV, "--self-match", "name"), ("'name'", "index, key")),
        ((*STORED, *CSV, "--self-match", "index"), ("query.csv has 10 rows", "gallery.csv 70")),
        ((*STORED, *IDS, "--protocol", "no-camera", "--self-match", "key"), ("keys of both",)),
        ((*STORED, *CSV, "--ties", "fair"), ("'fair'", "pessimistic, optimistic")),
        ((*STORED, *CSV, "--ap", "best"), ("'best'", "step, trapezoid")),
        ((*STORED, *CSV, "--vp", "mine"), ("'mine'", "reference, equation")),
        ((*FEATURES, *CSV, "--metric", "hamming"), ("'hamming'", "cosine, euclidean")),
        ((*STORED, *CSV, "--false-rate-budget", "0"), ("false_rate_budget", "positive")),
        ((*STORED, *CSV, "--junk-id", "x"), ("--junk-id is 'x'", "gallery.csv are integers")),
        ((*STORED, *CSV, "--range", "1"), ("--range is '1'", "LO,HI")),
        ((*STORED, *CSV, "--range", "2,1"), ("2.0,1.0", "LO < HI")),
        ((*STORED, *CSV, "--range", "0,nan"), ("0.0,nan", "finite")),
        ((*STORED, *CSV, "--memory", "plenty"), ("'plenty'", "2GB")),
        ((*STORED, *CSV, "--memory", "1MB"), ("1.0 MB is too small", "at least", "is needed")),
        ((*STORED, *CSV, "--threads", "0"), ("threads is 0", "at least 1")),
        ((*STORED, *CSV, "--threads", "many"), ("'--threads'", "'many'", "--help")),
        ((*STORED, *CSV, "--fast"), ("--fast", "--help")),
        ((*STORED, *CSV, "--json", "--format", "csv"), ("--json and --format csv", "one of them")),
        (
            (*STORED, *CSV, "--listed-as", "key"),
            ("got --listed-as", "give the lists, --good"),
        ),
        (("--distances", "all.npz::nothing", *CSV), ("all.npz::nothing", "query, gallery")),
        (("--distances", "all.npz", *CSV), ("all.npz", "::")),
        (("--distances", "absent.npy", *CSV), ("absent.npy does not exist",)),
        (("--distances", "query.csv", *CSV), ("unknown format '.csv'", ".npy")),
        ((*STORED, "--query-labels", "query.npy", *CSV[2:]), ("query.npy", ".csv, .parquet")),
    ],
)
def test_options(arguments: tuple[str, ...], says: tuple[str, ...]) -> None:
    refused(*arguments, says=says)


def saved(name: str, values: np.ndarray) -> str:
    np.save(name, values, allow_pickle=values.dtype == object)
    return name


def features(count: int, row: int | None = None, value: float = 0) -> np.ndarray:
    """Return features of ones, one row of which holds a value in column 2."""
    values = np.ones((count, WIDTH), np.float32)
    if row is not None:
        values[row, 2] = value
    return values


@pytest.mark.usefixtures("data")
def test_rows_and_labels_of_other_numbers() -> None:
    few = saved("few.npy", np.arange(ITEMS - 1))
    refused(*STORED, *ARRAYS[:2], "--gallery-ids", few, says=("70 columns", "few.npy 69 ids"))
    refused(*FEATURES, *ARRAYS[:2], "--gallery-ids", few, says=("70 rows", "few.npy 69 ids"))
    says = ("gallery_id.npy has 70 ids", "few.npy 69 entries of cam")
    refused(*STORED, *IDS, *ARRAYS[4:6], "--gallery-cams", few, says=says)


@pytest.mark.usefixtures("data")
def test_shapes() -> None:
    flat = saved("flat.npy", np.ones(ITEMS, np.float32))
    refused(*FEATURES[:2], "--gallery", flat, *CSV, says=("flat.npy", "(70,)", "2-d"))
    wide = saved("wide.npy", np.ones((ITEMS, WIDTH + 1), np.float32))
    refused(*FEATURES[:2], "--gallery", wide, *CSV, says=("(10, 6)", "wide.npy (70, 7)"))
    turned = saved("turned.npy", np.load("distances.npy").T)
    refused("--distances", turned, *CSV, says=("turned.npy is 70 × 10", "transposed"))


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(value: float) -> None:
    bad = saved("bad.npy", features(ITEMS, 41, value))
    says = ("bad.npy (70, 6) row 41", f"{value} in column 2")
    refused(*FEATURES[:2], "--gallery", bad, *CSV, says=says)
    bad = saved("bad_query.npy", features(QUERIES, 4, value))
    refused("--query", bad, *FEATURES[2:], *CSV, says=("bad_query.npy (10, 6) row 4",))
    distances = np.load("distances.npy")
    distances[7, 33] = value
    write_zarr("bad.zarr", distances, (4, 32))
    refused("--distances", "bad.zarr", *CSV, says=("bad.zarr", "row 7, column 33", str(value)))


@pytest.mark.usefixtures("data")
def test_zero_vector_has_no_cosine() -> None:
    zero = np.ones((ITEMS, WIDTH), np.float32)
    zero[13] = 0
    name = saved("zero.npy", zero)
    refused(*FEATURES[:2], "--gallery", name, *CSV, says=("zero.npy", "row 13", "zero vector"))
    done = run(*FEATURES[:2], "--gallery", name, *CSV, "--metric", "euclidean")
    assert done.exit_code == 0, done.stderr


@pytest.mark.usefixtures("data")
def test_labels_that_are_no_labels() -> None:
    ids = np.arange(ITEMS, dtype=np.float64)
    refused(*STORED, *ARRAYS[:2], "--gallery-ids", saved("f.npy", ids), says=("f.npy", "float64"))
    ids[5] = np.nan
    refused(*STORED, *ARRAYS[:2], "--gallery-ids", saved("n.npy", ids), says=("n.npy", "row 5"))
    ids[6] = 0.5
    says = (saved("n.npy", ids), "cam row 6 is 0.5")
    refused(*STORED, *IDS, *ARRAYS[4:6], "--gallery-cams", "n.npy", says=says)
    rows = Path("gallery.csv").read_text().splitlines()
    rows[3] = f"2.5,{rows[3].partition(',')[2]}"
    Path("fraction.csv").write_text("\n".join(rows))
    refused(*STORED, *CSV[:2], "--gallery-labels", "fraction.csv", says=("fraction.csv", "row 2"))
    texts = saved("texts.npy", np.array(["a"] * ITEMS))
    refused(*STORED, *ARRAYS[:2], "--gallery-ids", texts, says=("integers", "strings", texts))


@pytest.mark.usefixtures("data")
def test_pickles_are_not_loaded() -> None:
    name = saved("pickled.npy", np.array([{"a": 1}] * ITEMS, dtype=object))
    refused(*STORED, *ARRAYS[:2], "--gallery-ids", name, says=("pickled.npy", "never loaded"))


@pytest.mark.usefixtures("data")
def test_damaged_zarr() -> None:
    shutil.copytree("distances.zarr", "cut.zarr")
    chunk = Path("cut.zarr/c/1/0")
    chunk.write_bytes(chunk.read_bytes()[:40])
    refused("--distances", "cut.zarr", *CSV, says=("cut.zarr", "truncated or corrupt", "rows"))
    shutil.copytree("distances.zarr", "gap.zarr")
    Path("gap.zarr/c/1/0").unlink()
    refused("--distances", "gap.zarr", *CSV, says=("gap.zarr is incomplete", "c/1/0"))


@pytest.mark.usefixtures("data")
def test_distances_outside_a_given_range() -> None:
    distances = np.full((QUERIES, ITEMS), 0.5)
    distances[6, 50] = 1.5
    name = saved("outside.npy", distances)
    says = ("query 6 to gallery item 50 is 1.5", "given range [0", "--range")
    refused("--distances", name, *CSV, "--range", "0,1", says=says)


@pytest.mark.usefixtures("data")
def test_output_that_is_there_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("work has begun")

    monkeypatch.setattr("streameval.run.preparation.prepare", work)
    Path("refused").mkdir()
    refused(*STORED, *CSV, says=("refused exists already", "--overwrite"))
    Path("refused/precious.txt").touch()
    refused(*STORED, *CSV, "--overwrite", says=("without a result in it", "precious.txt"))
    Path("refused/summary.json").touch()
    refused(*STORED, *CSV, "--overwrite", says=("refused holds precious.txt", "not replaced"))
    Path("file").touch()
    result = run(*STORED, *CSV, "--out", "file", "--overwrite")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: file is a file; a folder to be made is expected\n",
    )


@pytest.mark.usefixtures("data")
def test_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 3.00 TiB")

    monkeypatch.setattr("streameval.sources.tiled.TiledSource.count", exhaust)
    refused(*STORED, *CSV, says=("out of memory (Unable to allocate 3.00 TiB)", "--threads"))


def test_a_process_that_is_refused(data: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "evaluate", "--distances", "absent.zarr", *CSV, "--out", "refused"],
        capture_output=True,
        text=True,
        check=False,
    )
    expected = "error: absent.zarr does not exist\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    assert not (data / "refused").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_busy_run(tmp_path: Path, number: signal.Signals, status: int) -> None:
    queries, items, width = 50_000, 100_000, 64  # minutes of work
    rng = np.random.default_rng(0)
    for side, count in (("query", queries), ("gallery", items)):
        np.save(tmp_path / f"{side}.npy", rng.standard_normal((count, width), dtype=np.float32))
        np.save(tmp_path / f"{side}_id.npy", np.arange(count))
    before = sorted(tmp_path.iterdir())
    more = ("--protocol", "no-camera", "--threads", "2", "--out", "result", "--quiet")
    process = subprocess.Popen(
        [PROGRAM, "evaluate", "--query", "query.npy", "--gallery", "gallery.npy", *IDS, *more],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    busy = psutil.Process(process.pid)
    wait_until(lambda: process.poll() is not None or busy.cpu_times().user > 5)  # it is counting
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    left = sorted(set(tmp_path.iterdir()) - set(before))
    assert left in ([], [tmp_path / "result.progress"])  # after the first seconds
    kept = "; finished work is kept in result.progress: --resume goes on with it" if left else ""
    assert (process.returncode, stdout, stderr) == (status, "", f"interrupted{kept}\n")
