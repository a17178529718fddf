"""An evaluation shown in Python and notebooks: text, HTML, DataFrames, figures, progress."""

from __future__ import annotations

import builtins
import copy
import pickle
import re
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.cli import main
from support.report import BarProgress, LogProgress, NotebookProgress, show_progress

import streameval as se

QUERIES, GALLERY = 24, 90


@pytest.fixture
def labels() -> dict[str, Any]:
    draw = np.random.default_rng(5)
    return {
        "query": se.Labels(id=draw.integers(0, 8, QUERIES), cam=draw.integers(0, 3, QUERIES)),
        "gallery": se.Labels(id=draw.integers(0, 6, GALLERY), cam=draw.integers(0, 3, GALLERY)),
    }


@pytest.fixture
def features() -> se.Features:
    draw = np.random.default_rng(6)
    query, gallery = (draw.integers(-2, 3, (rows, 3)).astype("f4") for rows in (QUERIES, GALLERY))
    return se.Features(query, gallery, metric="euclidean")


@pytest.fixture
def result(features: se.Features, labels: dict[str, Any]) -> se.Evaluation:
    return se.evaluate(features, **labels)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Evaluate by the command, into a folder `out`; return what it printed."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(7)
    for side, rows in (("query", QUERIES), ("gallery", GALLERY)):
        np.save(f"{side}.npy", draw.normal(size=(rows, 4)))
        np.save(f"{side}_ids.npy", draw.integers(0, 9, rows))
    inputs = [
        f"--{name}={name.replace('-', '_')}.npy"
        for side in ("query", "gallery")
        for name in (side, f"{side}-ids")
    ]
    done = CliRunner().invoke(main, ["evaluate", *inputs, "--protocol=no-camera", "--out=out"])
    assert done.exit_code == 0, done.output
    return done.stdout


class Page(HTMLParser):
    """Tags of a page, which are to be closed in order; and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_result_holds_labels_of_its_own(features: se.Features, labels: dict[str, Any]) -> None:
    ids, groups = labels["query"].id.copy(), np.arange(QUERIES) % 2
    query = {"id": ids, "cam": labels["query"].cam}
    given = se.evaluate(features, query=query, gallery=labels["gallery"], group_by=groups)
    grouped = given.grouped(groups)
    ids[:], groups[:] = 0, 0
    assert given.columns["id"].tolist() == labels["query"].id.tolist()
    assert list(given.groups) == list(grouped.groups) == [0, 1]


def test_a_copy_is_shown_alike(result: se.Evaluation) -> None:
    for made in (result, result.with_confidence(resamples=50).grouped("cam")):
        for copied in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
            assert str(copied) == str(made)
            np.testing.assert_equal(dict(copied.metrics), dict(made.metrics))


def test_printed_it_is_what_the_commands_print(saved: str) -> None:
    result = se.Evaluation.load("out")
    shown = CliRunner().invoke(main, ["show", "out"]).stdout
    assert f"{result}\n" == shown
    assert f"{result}\n" == saved.replace("Written to   out\n", "")
    assert "\n" not in repr(result)


def test_printed_in_a_notebook_it_is_the_same(
    result: se.Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = str(result)
    shell = type("ZMQInteractiveShell", (), {})()  # by which rich knows a notebook
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    assert str(result) == text


def test_without_provenance_it_is_shown_all_the_same(result: se.Evaluation) -> None:
    bare = se.Evaluation.compute(
        result.statistics, result.options, range=result.range, columns={}, provenance={}
    )
    for shown in (str(bare), bare._repr_html_()):
        assert "mAP" in shown
        assert "Features" not in shown


def test_metrics_are_a_mapping(result: se.Evaluation) -> None:
    metrics = result.metrics
    assert isinstance(metrics, Mapping)
    np.testing.assert_equal(dict(metrics), metrics.scalars)
    assert [*metrics] == [*metrics.scalars]
    assert len(metrics) == len(metrics.scalars)
    assert "mAP" in metrics
    assert "nothing" not in metrics
    assert 3 not in metrics
    assert "mAP" in result
    assert "nothing" not in result
    assert [*result] == [*metrics]
    assert metrics["mAP"] == metrics["map"] == result["mAP"] == metrics.get("mAP")
    assert metrics["rank1"] == metrics["CMC@1"]
    assert {cam: one["mAP"] for cam, one in result.grouped("cam").groups.items()}.keys() == {
        0,
        1,
        2,
    }
    with pytest.raises(KeyError, match="no metric 'nothing'; there are CMC@1"):
        metrics["nothing"]


def test_html_is_whole_and_says_what_its_cells_are_of(result: se.Evaluation) -> None:
    shown = result.grouped("cam").with_confidence(resamples=20)
    page = Page(shown._repr_html_())
    text = " ".join(page.text)
    for name in shown.metrics:
        assert name in text
    assert {tag for tag, _ in page.tags} <= {
        *("div", "p", "table", "thead", "tbody", "tr", "th", "td", "small")
    }
    heads = [attributes for tag, attributes in page.tags if tag == "th"]
    assert {one.get("scope") for one in heads} == {"row", "col", "rowgroup"}
    styles = " ".join(attributes.get("style") or "" for _, attributes in page.tags)
    assert "color" not in styles  # it has the colours of the notebook, dark or light
    assert "background" not in styles
    assert page.tags[0][1]["style"] == "overflow-x: auto"


def test_labels_are_text_in_html(result: se.Evaluation) -> None:
    bad = np.array(["<script>alert(1)</script>", "a & b", "\x1b[31m\u202e"] * 8)
    page = Page(result.grouped(bad)._repr_html_())
    assert "script" not in {tag for tag, _ in page.tags}
    assert "<script>alert(1)</script>" in page.text
    assert "a & b" in page.text
    assert "\x1b" not in "".join(page.text)


def test_tables_as_dataframes(result: se.Evaluation) -> None:
    pandas = pytest.importorskip("pandas")
    metrics = result.to_pandas()
    assert isinstance(metrics, pandas.DataFrame)
    np.testing.assert_equal(metrics["value"].to_dict(), result.metrics.scalars)
    for name, (least, greatest) in result.metrics.intervals.items():
        assert (metrics["least"][name], metrics["greatest"][name]) == (least, greatest)
    assert metrics["reason"]["DIR@1|FAR=0.001"].startswith("needs 1,000 queries of Q−")
    assert metrics[["low", "high"]].isna().all(axis=None)
    chosen = result.with_confidence(resamples=20)
    assert chosen.chosen_confidence is not None
    ends = tuple(chosen.to_pandas("metrics").loc["mAP", ["low", "high"]])
    assert ends == chosen.chosen_confidence.intervals["mAP"]
    for name in ("per_query", "positives"):
        frame = result.to_pandas(name)  # type: ignore[arg-type]
        columns = getattr(result, name)
        assert [*frame.columns] == [*columns]
        for column, values in columns.items():
            np.testing.assert_array_equal(frame[column].to_numpy(), values)


def test_dataframes_that_cannot_be(result: se.Evaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(se.OptionError, match="table is 'rows'; known: metrics, per_query, pos"):
        result.to_pandas("rows")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(se.OptionError, match="pip install pandas"):
        result.to_pandas()


def test_a_figure_shows_itself(result: se.Evaluation) -> None:
    figures = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")
    figure = result.plot("CMC", label="mine")
    assert isinstance(figure, figures.Figure)
    (line,) = figure.axes[0].get_lines()
    np.testing.assert_array_equal(line.get_ydata(), result.curves["CMC"])
    assert line.get_label() == "mine"
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert "matplotlib.pyplot" not in type(figure).__module__
    assert len(result.plot("camera-pairs", metric="CMC@1").axes) == 2
    with pytest.raises(se.OptionError, match="curve is 'cmc'; known: mReP"):
        result.plot("cmc")


class Shell:
    """What a notebook shows, in place of IPython: each display by its number."""

    kernel = object()

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shown: list[list[dict[str, str]]] = []
        display = ModuleType("IPython.display")
        display.display = self.display  # type: ignore[attr-defined]
        ipython = ModuleType("IPython")
        ipython.get_ipython = lambda: self  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> SimpleNamespace:
        assert raw
        assert display_id
        states = [data]
        self.shown.append(states)
        return SimpleNamespace(update=lambda data, *, raw: states.append(data))


def test_progress_in_a_notebook_is_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch)
    with NotebookProgress(every=0) as progress:
        progress.begin(200, 8000)
        for label in ("range & all", "counting"):
            progress.start(label, 100)
            progress.advance(60)
            progress.advance(40)
            progress.finish()
    (states,) = shell.shown
    shares = [re.match(r"(.+): (\d+)% of 200 pairs, ", one["text/plain"]) for one in states]
    told = [(one[1], int(one[2])) for one in shares if one]
    assert told == [
        *(("range & all", share) for share in (0, 30, 50)),
        *(("counting", share) for share in (50, 80, 100)),
    ]
    for state in states:
        page = Page(state["text/html"])
        assert [tag for tag, _ in page.tags] == ["label", "progress"]
    assert page.tags[1][1] == {"max": "200", "value": "200"}


def test_progress_that_is_drawn_seldom_ends_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch)
    with NotebookProgress(every=1e9) as progress:
        progress.begin(100, 0)
        progress.start("counting", 100)
        for _ in range(10):
            progress.advance(10)
    (states,) = shell.shown
    assert [one["text/plain"].split(" of")[0] for one in states] == [
        "counting: 0%",
        "counting: 100%",
    ]


def test_a_pause_is_shown_at_once_and_is_in_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    shell = Shell(monkeypatch)
    with NotebookProgress(every=1e9) as progress:
        progress.begin(100, 0)
        progress.start("counting", 100)
        progress.pause("compiling")
        now += 50
        progress.resume()
        now += 10
        progress.advance(40)
        assert progress.line() == "counting: 40% of 100 pairs, 4 pairs/s, 15 s left"
    (states,) = shell.shown
    assert [one["text/plain"].split(":")[0] for one in states] == ["counting", "compiling"]


def test_progress_where_it_is_asked_for(
    features: se.Features, labels: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(monkeypatch)
    assert isinstance(show_progress(quiet=False), NotebookProgress)
    expected = se.evaluate(features, **labels)
    assert shell.shown == []
    found = se.evaluate(features, **labels, progress=True)
    assert found.statistics.equals(expected.statistics)
    (states,) = shell.shown
    assert "100% of" in states[-1]["text/plain"]
    monkeypatch.delattr(Shell, "kernel")  # IPython in a terminal
    assert isinstance(show_progress(quiet=False), LogProgress | BarProgress)
    with pytest.raises(se.OptionError, match="progress is of type int; an object of a subclass"):
        se.evaluate(features, **labels, progress=3)  # type: ignore[arg-type]
