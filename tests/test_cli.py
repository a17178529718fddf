"""The command line: every style of input, what it prints and writes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner, Result
from support.cli import Range, Value, main
from support.cli import evaluate as command
from support.distances import DISTANCES
from support.kernels import sieve_description
from support.metrics import CHOICES
from support.protocols import protocol_module as protocol
from support.report import FORMATS

from streameval import PRESETS, PROTOCOLS

CUHK03 = Path(__file__).resolve().parent.parent.parent / "shared/data/cuhk03-detected-100q"
QUERIES, ITEMS, WIDTH = 10, 70, 6


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["evaluate", *(str(one) for one in arguments)])


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into a folder with features, distances and labels in every format."""
    monkeypatch.chdir(tmp_path)
    # A run on a slow machine, too, leaves no finished work.
    monkeypatch.setattr("streameval.run.checkpoint.COMMIT_SECONDS", math.inf)
    rng = np.random.default_rng(3)
    features = {
        "query": rng.standard_normal((QUERIES, WIDTH)).astype("f4"),
        "gallery": rng.standard_normal((ITEMS, WIDTH)).astype("f4"),
    }
    labels: dict[str, dict[str, np.ndarray]] = {}
    for side, values in features.items():
        np.save(f"{side}.npy", values)
        write_zarr(f"{side}.zarr", values, (16, WIDTH))
        labels[side] = {
            "id": rng.integers(0, 9, len(values)),
            "cam": rng.integers(0, 3, len(values)),
            "key": np.arange(len(values)) * 7,
        }
        for column, own in labels[side].items():
            np.save(f"{side}_{column}.npy", own)
        table = pa.table(labels[side])
        pq.write_table(table, f"{side}.parquet")
        rows = zip(*(own.tolist() for own in labels[side].values()), strict=True)
        lines = ["id,cam,key", *(",".join(map(str, row)) for row in rows)]
        Path(f"{side}.csv").write_text("\n".join(lines) + "\n")
    distances = rng.random((QUERIES, ITEMS)).astype("f4")
    np.save("distances.npy", distances)
    write_zarr("distances.zarr", distances, (4, 32))
    np.savez(
        "all.npz", **features, query_id=labels["query"]["id"], gallery_id=labels["gallery"]["id"]
    )
    return tmp_path


def write_zarr(path: str, values: np.ndarray, chunks: tuple[int, int]) -> None:
    array = zarr.create_array(
        path,
        shape=values.shape,
        chunks=chunks,
        dtype=values.dtype,
        config={"write_empty_chunks": True},
    )
    array[...] = values


ARRAYS = (
    *("--query-ids", "query_id.npy", "--gallery-ids", "gallery_id.npy"),
    *("--query-cams", "query_cam.npy", "--gallery-cams", "gallery_cam.npy"),
)
CSV = ("--query-labels", "query.csv", "--gallery-labels", "gallery.csv")
PARQUET = ("--query-labels", "query.parquet", "--gallery-labels", "gallery.parquet")
STORED = ("--distances", "distances.zarr")
FEATURES = ("--query", "query.npy", "--gallery", "gallery.zarr")


def metrics(*arguments: str) -> Mapping[str, float]:
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    summary = json.loads(result.stdout)
    assert list(summary) == [
        "metrics",
        "details",
        "intervals",
        "counts",
        "options",
        "provenance",
    ]
    values: Mapping[str, float] = summary["metrics"]
    return values


@pytest.mark.usefixtures("data")
def test_labels_of_every_form_give_the_same() -> None:
    expected = metrics(*STORED, *ARRAYS)
    assert metrics(*STORED, *CSV) == metrics(*STORED, *PARQUET) == expected
    assert metrics(*STORED, *ARRAYS[:2], *ARRAYS[4:6], *CSV[2:]) == expected


@pytest.mark.usefixtures("data")
def test_sources_of_every_form_give_the_same() -> None:
    assert metrics(*STORED, *CSV) == metrics("--distances", "distances.npy", *CSV)
    without_cameras = ("--query-ids", "all.npz::query_id", "--gallery-ids", "all.npz::gallery_id")
    expected = metrics(*FEATURES, *without_cameras, "--protocol", "no-camera")
    keyed = ("--query", "all.npz::query", "--gallery", "all.npz::gallery")
    assert metrics(*keyed, *without_cameras, "--protocol", "no-camera") == expected


@pytest.mark.usefixtures("data")
def test_every_option_is_passed_on() -> None:
    result = run(
        *FEATURES,
        *CSV,
        *("--metric", "sqeuclidean", "--protocol", "separate-camera", "--self-match", "key"),
        *("--junk-id", "-1", "--junk-id", "3", "--ties", "expected", "--range", "-1,500"),
        *("--vp", "equation", "--false-rate-budget", "20", "--ap", "trapezoid"),
        *("--memory", "1.5GB", "--threads", "1", "--json", "--quiet"),
    )
    assert (result.exit_code, result.stderr) == (0, "")
    summary = json.loads(result.stdout)
    assert summary["options"]["range"] == {"mode": "given", "low": -1.0, "high": 500.0}
    chosen = {name: summary["options"][name] for name in ("ties", "vp", "ap", "false_rate_budget")}
    assert chosen == {
        "ties": "expected",
        "vp": "equation",
        "ap": "trapezoid",
        "false_rate_budget": 20,
    }
    provenance = summary["provenance"]
    assert provenance["inputs"]["metric"] == "sqeuclidean"
    assert provenance["protocol"]["name"] == "separate-camera"
    assert provenance["protocol"]["junk_ids"] == [-1, 3]
    assert provenance["protocol"]["self_match"] == "key"
    assert provenance["plan"]["threads"] == 1
    assert provenance["plan"]["memory"] == 1_500_000_000


@pytest.mark.usefixtures("data")
def test_junk_ids_are_strings_where_ids_are() -> None:
    for side in ("query", "gallery"):
        ids = np.load(f"{side}_id.npy")
        np.save(f"{side}_text.npy", np.array([f"{one:03d}" for one in ids]))
    given = ("--protocol", "no-camera", "--junk-id")
    numbers = ("--query-ids", "query_id.npy", "--gallery-ids", "gallery_id.npy", *given, "4")
    texts = ("--query-ids", "query_text.npy", "--gallery-ids", "gallery_text.npy", *given, "004")
    assert metrics(*STORED, *texts) == metrics(*STORED, *numbers)


def test_out_holds_what_is_printed(data: Path) -> None:
    printed = run(*STORED, *CSV, "--json", "--out", "new/result")
    assert printed.exit_code == 0, printed.stderr
    saved = data / "new" / "result"
    assert json.loads((saved / "summary.json").read_text()) == json.loads(printed.stdout)
    assert {path.name for path in saved.iterdir()} == {
        "summary.json",
        "curves.npz",
        "per_query.parquet",
        "positives.parquet",
        "statistics.zarr",
    }
    again = run(*STORED, *CSV, "--out", "new/result", "--overwrite", "--ap", "trapezoid")
    assert again.exit_code == 0, again.stderr
    assert json.loads((saved / "summary.json").read_text())["options"]["ap"] == "trapezoid"
    assert [path.name for path in saved.parent.iterdir()] == ["result"]
    assert again.stdout.endswith("Written to   new/result\n")


@pytest.mark.usefixtures("data")
def test_table_in_a_file_is_plain() -> None:
    result = run(*FEATURES, *CSV)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.isascii()
    assert "query.npy x gallery.zarr | cosine, 6 columns" in result.stdout
    values = metrics(*FEATURES, *CSV)
    for name, value in values.items():
        line = next(row for row in result.stdout.splitlines() if row.split()[:1] == [name])
        shown = "-" if value is None else f"{value if name[:3] == 'tau' else 100 * value:.2f}"
        assert line.split()[1] == shown


def test_dry_run_evaluates_nothing(data: Path) -> None:
    result = run(*FEATURES, *CSV, "--dry-run", "--out", "result")
    assert (result.exit_code, result.stderr) == (0, "")
    for name in ("Passes", "positives, counting", "Tasks", "Reads", "projected peak"):
        assert name in result.stdout
    assert not (data / "result").exists()
    plan = json.loads(run(*STORED, *CSV, "--dry-run", "--json").stdout)
    assert "client" not in plan
    assert plan["passes"] == ["range", "counting"]
    assert plan["pairs"] == QUERIES * ITEMS
    assert plan["projected_peak"] == sum(plan["parts"].values()) <= plan["memory"]


@pytest.mark.usefixtures("data")
def test_dry_run_says_what_multiplies_and_in_how_many_rounds() -> None:
    shapes = "--query=shape:200000x256", "--gallery=shape:100000x256"
    plans, texts = {}, {}
    for metrics in ("rank", "all"):
        asked = *shapes, "--metrics", metrics, "--memory", "600MB", "--dry-run"
        plans[metrics] = json.loads(run(*asked, "--json").stdout)
        texts[metrics] = " ".join(run(*asked).stdout.split())
        assert all(by in texts[metrics] for by in plans[metrics]["multiplied_by"])
        assert f"Rounds {plans[metrics]['rounds']:,}; the statistics of each" in texts[metrics]
    sieve, plain = sieve_description(256), plans["all"]["multiplied_by"]
    assert len(plain) == 1
    assert plans["rank"]["multiplied_by"] == [*filter(None, [sieve]), *plain]
    assert plans["all"]["rounds"] >= plans["rank"]["rounds"] > 1
    stored = json.loads(run(*STORED, *CSV, "--dry-run", "--json").stdout)
    assert (stored["multiplied_by"], stored["rounds"]) == ([], 1)


@pytest.mark.usefixtures("data")
def test_warnings_are_words() -> None:
    np.save("strangers.npy", np.arange(100, 100 + QUERIES))
    labels = ("--query-ids", "strangers.npy", "--gallery-ids", "gallery_id.npy")
    result = run(*STORED, *labels, "--protocol", "no-camera", "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: no query has a positive in the gallery")
    assert len(result.stderr.splitlines()) == 1
    assert json.loads(result.stdout)["metrics"]["mAP"] is None


def test_choices_are_those_that_exist() -> None:
    params = {param.name: param.type for param in command.params}
    names = {name: tuple(kind.names()) for name, kind in params.items() if isinstance(kind, Value)}
    assert names["metric"] == DISTANCES
    assert names["protocols"] == tuple(PROTOCOLS)
    assert names["preset"] == tuple(PRESETS)
    known = {name: choices for name, choices in CHOICES.items() if name != "cmc"}  # of a protocol
    assert {name: names[name] for name in known} == known
    matches, _ = get_args(get_type_hints(protocol.Protocol)["self_match"])
    assert names["self_match"] == get_args(matches)
    assert names["format"] == ("table", "json", *FORMATS)


def test_ranges_are_parsed() -> None:
    kind = Range("auto", "minmax")
    assert kind("auto") == "auto"
    assert kind("minmax") == "minmax"
    assert kind("-1,1") == (-1.0, 1.0)
    assert kind("0, 2.5e1") == kind([0, 25]) == (0.0, 25.0)


@pytest.mark.parametrize("arguments", [[], ["evaluate"], ["ledger", "create"], ["report"]])
def test_command_line_imports_nothing_heavy(arguments: list[str]) -> None:
    """Help shows names of protocols, presets, distances and rules all the same."""
    code = (
        "import sys, streameval.cli\n"
        "streameval.cli.main([*sys.argv[1:], '--help'], standalone_mode=False)\n"
        "heavy = {'numpy', 'numba', 'zarr', 'rich', 'pyarrow', 'scipy'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_labels_of_a_table_are_read_without_pandas(tmp_path: Path) -> None:
    """Which pyarrow imports to convert a value of Python: a third of a second."""
    table = tmp_path / "labels.csv"
    table.write_text("id,cam\n1,1\n2,1\n", encoding="utf-8")
    code = (
        "import sys, streameval as se\n"
        "print(*se.read_label_table(sys.argv[1]).id, 'pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1 2 False\n", "")


@pytest.mark.slow
def test_kept_kernels_are_loaded_without_what_compiles(data: Path) -> None:
    """The second process that appends finds its kernels kept: no linear algebra is imported."""
    code = (
        "import sys, streameval.cli\n"
        "streameval.cli.main(sys.argv[1:], standalone_mode=False)\n"
        "print(*sorted({'scipy.linalg', 'numba.np.linalg'} & set(sys.modules)))"
    )

    def command(*arguments: str) -> str:
        full = [sys.executable, "-c", code, "ledger", *arguments, "--quiet"]
        done = subprocess.run(full, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1]

    sides = ("--query-ids", "query_id.npy", "--query-cams", "query_cam.npy")
    command("create", "ledger", "--query", "query.npy", *sides)
    labels = ("--gallery-ids", "gallery_id.npy", "--gallery-cams", "gallery_cam.npy")
    np.save("more.npy", np.load("gallery.npy")[::-1])
    command("append", "ledger", "--gallery", "gallery.npy", *labels)
    assert command("append", "ledger", "--gallery", "more.npy", *labels) == ""


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"], prog_name="streameval")
    assert result.exit_code == 0
    assert result.stdout == f"streameval {version('streameval')}\n"


@pytest.mark.skipif(not CUHK03.is_dir(), reason=f"the data of CUHK03 are not at {CUHK03}")
def test_cuhk03_as_published(data: Path) -> None:
    write_zarr("cuhk03.zarr", np.load(CUHK03 / "distances.npy"), (16, 1000))
    labels = [
        one
        for side in ("query", "gallery")
        for column in ("id", "cam")
        for one in (f"--{side}-{column}s", str(CUHK03 / f"{side}_{column}.npy"))
    ]
    published = json.loads((CUHK03 / "published.json").read_text())
    for rule, digits in (("step", 4), ("trapezoid", 6)):
        given = ("--distances", "cuhk03.zarr", *labels, "--ap", rule, "--out", rule)
        assert run(*given).exit_code == 0
        summary = json.loads((data / rule / "summary.json").read_text())
        assert round(summary["metrics"]["mAP"], digits) == published[f"mAP_{rule}"]
        curve = np.load(data / rule / "curves.npz")["CMC"]
        count = len(published["CMC"])
        assert np.round(curve[:count], 2).tolist() == published["CMC"]
        assert summary["counts"]["ties"] == 2
