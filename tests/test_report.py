"""What a person reads: the table with and without colours, numbers, progress."""

from __future__ import annotations

import io
import math
import re
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.metrics import FRACTION
from support.report import (
    BarProgress,
    LogProgress,
    ShownProgress,
    amount,
    duration,
    evaluation_blocks,
    interval_text,
    is_plain,
    make_bar,
    metrics_table,
    percent,
    render,
    show_progress,
)

import streameval as se


def evaluation(query: list[int], gallery: list[int], **more: Any) -> se.Evaluation:
    rng = np.random.default_rng(1)
    return se.evaluate(
        se.Distances(rng.integers(0, 5, (len(query), len(gallery))) / 4.0),
        query=se.Labels(id=np.array(query)),
        gallery=se.Labels(id=np.array(gallery)),
        protocol="no-camera",
        **more,
    )


def values(result: se.Evaluation) -> dict[str, tuple[str, str]]:
    """Return the value and the note of each metric, as the table has them."""
    rows = (row for row in metrics_table(result).rows if row[0].mark != "title")
    return {name.text: (value.text.rstrip(), value.note) for name, value in rows}


def test_every_scalar_has_its_row_in_its_part() -> None:
    result = evaluation([1, 2, 9], [1, 2, 1, 2, 3, 3])
    rows = metrics_table(result).rows
    titles = [row[0].text for row in rows if row[0].mark == "title"]
    assert titles == ["Retrieval", "Open set", "GOM"]
    assert len(rows) == len(titles) + len(result.metrics.scalars)
    assert set(values(result)) == set(result.metrics.scalars)
    assert values(result)["CMC@5"][0] == f"{100 * result['CMC@5']:.2f} %"


def test_ties_stand_beside_the_value() -> None:
    result = evaluation([1, 2, 9], [1, 2, 1, 2, 3, 3] * 4)
    low, high = result.intervals["mAP"]
    assert values(result)["mAP"][1] == f"{100 * low:.2f} – {100 * high:.2f} % by ties"
    assert "by ties" in render(evaluation_blocks(result), plain=True)


def test_what_is_undefined_says_why() -> None:
    closed = evaluation([1, 2], [1, 2, 1, 3])
    assert values(closed)["MFR"] == ("–", "no open-set queries: every identity is there")
    assert values(closed)["tau_nz"] == ("–", "")
    dir_notes = [note for name, (_, note) in values(closed).items() if name.startswith("DIR@")]
    assert dir_notes == ["no open-set queries: every identity is there", "", ""]
    with pytest.warns(se.StreamevalWarning):
        strangers = evaluation([8, 9], [1, 2, 1, 3])
    assert values(strangers)["CMC@1"] == ("–", "no query has a positive in the gallery")
    assert values(strangers)["mAP"] == ("–", "")  # said once a part


def test_both_styles_say_the_same() -> None:
    result = evaluation([1, 2, 9], [1, 2, 1, 2, 3, 3], range=(-1.0, 2.0))
    plain = render(evaluation_blocks(result, "somewhere"), plain=True)
    rich = render(evaluation_blocks(result, "somewhere"), plain=False)
    assert plain.isascii()
    assert "\x1b" not in plain
    assert all(line == line.rstrip() for line in plain.splitlines())
    for text in (plain, re.sub(r"\x1b\[[0-9;]*m", "", rich)):
        for said in ("Written to", "somewhere", "range -1 to 2 (given)", "2 in Q+"):
            assert said in text
        assert all(value in text for value, _ in values(result).values() if value != "–")


def test_long_lines_are_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert render(["word " * 100], plain=True).count("\n") == 1


@pytest.mark.parametrize("plain", [True, False])
def test_conventions_fit_a_terminal(plain: bool) -> None:
    options = se.MetricOptions(ties="pessimistic", ap="trapezoid", false_rate_budget=1_000_000)
    result = evaluation([1, 2], [1, 2, 3], options=options, range=(-1.23456e-7, 1.23456e10))
    text = re.sub(r"\x1b\[[0-9;]*m", "", render(evaluation_blocks(result), plain=plain))
    closing = text[text.index("Conventions") :].splitlines()
    assert all(len(line) <= 80 for line in closing)
    for said in ("ties pessimistic", "AP trapezoid", "range -1.23456e-07 to 1.23456e+10", "Run"):
        assert said in "\n".join(closing)


def test_the_table_fits_a_terminal() -> None:
    closed = evaluation([1, 2], [1, 2, 1, 3])
    with pytest.warns(se.StreamevalWarning):
        strangers = evaluation([8, 9], [1, 2, 1, 3])
    for result in (closed, strangers):
        text = re.sub(r"\x1b\[[0-9;]*m", "", render(evaluation_blocks(result), plain=False))
        assert all(len(line) <= 80 for line in text.splitlines())


def test_verification_says_where_and_within_what() -> None:
    result = evaluation([1, 2, 9], [1, 2, 1, 2, 3, 3] * 4)
    counts, edges = np.array([0, 20, 15, 21, 0]), np.array([0.0, 0.3, 0.6, 1.0])
    statistics = replace(result.statistics, impostor_histogram=counts, histogram_edges=edges)
    names = ("TAR|FAR=0.1", "TAR|FAR=0.01", "FNMR|FMR=1e-6", "EER", "AUC", "F1_best")
    whole = replace(result, statistics=statistics).with_options(metrics=names)
    assert values(whole)["TAR|FAR=0.01"][1] == "needs 100 impostor pairs, has 56"
    *_, error, threshold = values(whole)["EER"][1].split(" · ")
    assert error.startswith("± ")
    assert re.fullmatch(r"distance [\d.]+ ± [\d.]+", threshold)
    # The same reason is said again where another row is between.
    apart = replace(whole, metrics=whole.with_options(metrics=(*names, "TAR|FAR=0.001")).metrics)
    assert values(apart)["FNMR|FMR=1e-06"][1] == "needs 1,000,000 impostor pairs, has 56"
    for plain in (True, False):
        text = re.sub(r"\x1b\[[0-9;]*m", "", render(evaluation_blocks(whole), plain=plain))
        assert "16 genuine, 56 impostor pairs" in text
        assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("columns", [80, 60])
def test_bar_is_one_line(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = make_bar()
    rates = f"{amount(123_456_789_000_000)} · 123 million pairs/s · 123.4 GB/s"  # the longest
    task = bar.add_task("positives", total=123_456_789_000_000, rates=rates)
    bar.update(task, completed=98_765_432_100_000)
    console = Console(width=columns, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(bar.get_renderable())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 1
    assert len(lines[0].rstrip()) <= columns
    if columns == 80:
        assert "123 trillion · 123 million pairs/s · 123.4 GB/s" in lines[0]


def test_streams_that_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert is_plain()
    assert isinstance(show_progress(quiet=False), LogProgress)


def test_numbers_as_people_read_them() -> None:
    shares = (0.0, 1e-7, 6.01e-5, 0.00042, 0.0042, 0.664, 1.0)
    expected = "0.00 % 0.000010 % 0.0060 % 0.042 % 0.42 % 66.40 % 100.00 %"
    assert " ".join(percent(value) for value in shares) == expected
    assert interval_text(0.25, 0.5, FRACTION) == "25.00 – 50.00 %"
    assert interval_text(0.665186, 0.665188, FRACTION) == "66.5186 – 66.5188 %"
    assert interval_text(0.5, math.nextafter(0.5, 1), FRACTION) == "50.000000 – 50.000000 %"
    assert [amount(n) for n in (7, 795_821, 12_345_678, 4e9)] == [
        "7",
        "795,821",
        "12.3 million",
        "4 billion",
    ]
    assert [duration(s) for s in (0.4141, 59, 125, 3600 * 3 + 600)] == [
        "0.414 s",
        "59 s",
        "2 min 05 s",
        "3 h 10 min",
    ]


def test_log_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with LogProgress(every=0) as progress:
        progress.start("counting", 1000)
        progress.advance(250)
        progress.finish()
    line = r"counting: 25% of 1,000 pairs, [\d,.]+ ?\w* pairs/s, .* left\n"
    assert re.fullmatch(line, capsys.readouterr().err)


def test_log_lines_of_a_whole_job(capsys: pytest.CaptureFixture[str]) -> None:
    with LogProgress(every=0) as progress:
        progress.begin(2000, 8000)
        progress.start("range", 1000)
        progress.advance(1000)
        progress.finish()
        progress.start("counting", 1000)
        progress.advance(500)
        progress.advance(-100)  # lost with a worker
    lines = capsys.readouterr().err.splitlines()
    shares = [
        re.match(r"(\w+): (\d+)% of 2,000 pairs, .* pairs/s, .*B/s, .* left", x) for x in lines
    ]
    told = [match.groups() for match in shares if match]
    assert told == [("range", "50"), ("counting", "75"), ("counting", "70")]
    assert progress.rates(2.0) == "700 pairs/s, 2.8 kB/s"


def test_one_bar_for_all_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with BarProgress(after=0) as progress:
        progress.begin(3000, 8000)
        bars = []
        for label in ("range", "positives", "counting"):
            progress.start(label, 1000)
            progress.advance(1000)
            bars.append(progress._bar)
            progress.finish()
            task = bars[-1].tasks[0]  # type: ignore[union-attr]
            assert (task.description, task.total) == (label, 3000)
        assert task.completed == 3000
        progress.start("refining", 500)  # not foreseen
        assert task.total == 3500
    assert bars[0] is bars[1] is bars[2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(show_progress(quiet=False), BarProgress)
    assert type(show_progress(quiet=True)) is ShownProgress
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(show_progress(quiet=False), LogProgress)


def test_short_passes_show_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with BarProgress() as progress:
        for label in ("positives", "counting"):
            progress.start(label, 1000)
            progress.advance(1000)
            progress.finish()
        progress.start("counting", 1000)  # and one that an error ends
    assert "counting" not in shown.getvalue()
