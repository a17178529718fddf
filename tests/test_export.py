"""Results as CSV, Markdown, LaTeX and Parquet; labels that would like to do harm."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.cli import main
from support.report import Table, as_csv, as_latex, as_markdown, as_parquet, number
from support.result import harmless

import streameval as se

HOSTILE = [
    "<script>alert(1)</script>",
    "../../etc",
    "😀 emoji",
    "x" * 300,
    "=1+1",
    "+1;cmd",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "a|b & c_d % $e$ {f} \\g ~h ^i #j",
    "\x1b[31mred\x1b[0m",
    "[red]markup[/red]",
    "line\nbreak",
    '"quoted", comma',
]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Save two results of the same queries, whose identities and cameras are hostile."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ids = np.array(HOSTILE)
    for name in ("=first", "_second"):
        se.evaluate(
            se.Distances(rng.random((2 * len(ids), 3 * len(ids)))),
            query=se.Labels(id=np.tile(ids, 2), cam=np.repeat(ids, 2)),
            gallery=se.Labels(id=np.tile(ids[2:], 4)[: 3 * len(ids)], cam=np.tile(ids, 3)),
            group_by="id",
            threads=1,
        ).save(name)
    return tmp_path


def test_rows_of_results(saved: Path) -> None:
    result = se.Evaluation.load("=first")
    printed = run("show", "=first", "_second", "--format", "csv", "--ci", "95")
    heading, *rows = csv.reader(io.StringIO(printed.stdout))
    assert [row[0] for row in rows] == ["'=first", "_second"]
    own = dict(zip(heading, rows[0], strict=True))
    assert float(own["mAP"]) == result["mAP"]
    low, high = result.confidence().intervals["mAP"]
    assert float(own["mAP low"]) == pytest.approx(low)
    assert float(own["mAP high"]) == pytest.approx(high)
    assert own["DIR@1|FAR=0.001"] == ""
    markdown = run("show", "=first", "_second", "--format", "markdown", "--metrics", "mAP,tau_max")
    assert f"| =first | {100 * result['mAP']:.2f} | {result['tau_max']:.2f} |" in markdown.stdout
    latex = run("show", "_second", "--format", "latex", "--metrics", "mAP,DIR@1|FAR=0.001").stdout
    assert latex.splitlines()[0] == r"run & mAP & DIR@1\textbar{}FAR=0.001 \\"
    assert re.fullmatch(r"\\_second & \d+\.\d\d & -- \\\\", latex.splitlines()[1])
    both = json.loads(run("show", "=first", "_second", "--json").stdout)
    assert both["=first"] == result.summary()
    assert json.loads(run("show", "=first", "--json").stdout) == result.summary()
    assert run("show", "=first", "--format", "parquet", "--out", "rows.parquet").exit_code == 0
    table = pq.read_table("rows.parquet")
    assert table["run"].to_pylist() == ["=first"]
    assert table["mAP"].to_pylist() == [result["mAP"]]


@pytest.mark.usefixtures("saved")
def test_rows_of_a_comparison() -> None:
    given = ("compare", "=first", "_second", "--resamples", "50", "--metrics", "mAP,mINP")
    heading, *rows = csv.reader(io.StringIO(run(*given, "--format", "csv").stdout))
    assert heading[:3] == ["metric", "compared with", "run"]
    assert [row[:3] for row in rows] == [[name, "'=first", "_second"] for name in ("mAP", "mINP")]
    summary = json.loads(run(*given, "--json").stdout)["differences"][0]
    own = dict(zip(heading, rows[0], strict=True))
    for name in ("first", "value", "difference", "p"):
        assert float(own[name]) == summary[name]
    for form in ("markdown", "latex"):
        assert len(run(*given, "--format", form).stdout.splitlines()) == {"markdown": 4}.get(
            form, 3
        )


@pytest.mark.usefixtures("saved")
def test_labels_do_no_harm_in_the_terminal_and_in_groups() -> None:
    for arguments in (("show", "=first"), ("compare", "=first", "_second", "--resamples", "20")):
        printed = run(*arguments, *(("--queries", "50") if arguments[0] == "compare" else ()))
        assert printed.exit_code == 0, printed.output
        assert "\x1b" not in printed.stdout
        assert "[red]markup[/red]" in printed.stdout
    text = Path("=first/groups.csv").read_text()
    cells = [row[0] for row in csv.reader(io.StringIO(text))]
    assert "'=1+1" in cells
    assert not any(re.match(r"[=+@\t-]", cell) for cell in cells)


def test_a_run_prints_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("distances.npy", np.array([[0.1, 0.2], [0.3, 0.4]]))
    np.save("ids.npy", np.array([1, 2]))
    given = ("evaluate", "--distances", "distances.npy", "--query-ids", "ids.npy", "--quiet")
    given += ("--gallery-ids", "ids.npy", "--protocol", "no-camera")
    assert run(*given, "--format", "csv").stdout.startswith("run,CMC@1,")
    assert json.loads(run(*given, "--format", "json").stdout)["metrics"]["mAP"] == 0.75
    for form, words in (("parquet", "streameval show"), ("word", "known: table")):
        refused = run(*given, "--format", form)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert words in refused.stderr


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_one_cell(name: str, label: str) -> None:
    rows = Table.of((name, f"{name} value"), [(label, number(0.5))])
    read = list(csv.reader(io.StringIO(as_csv(rows), newline="")))
    assert [[len(row) for row in read]] == [[2, 2]]
    assert read[1] == [harmless(label), "0.5"]
    for text, rule in ((as_markdown(rows), 3), (as_latex(rows), 2)):
        assert len(text.split("\n")) == rule + 1
    assert "<" not in as_markdown(rows)
    assert len(re.findall(r"(?<!\\)&", as_latex(rows))) == 2
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", as_markdown(rows))) == 9
    undefined = Table.of(("label", "value"), [("a", number(math.nan))])
    table = pq.read_table(io.BytesIO(as_parquet(undefined)))
    assert table["label"].to_pylist() == ["a"]


def test_numbers_are_no_formulas() -> None:
    assert [harmless(one) for one in ("-1", "+1.5", "-1+1", " =1")] == [
        "-1",
        "+1.5",
        "'-1+1",
        "' =1",
    ]
