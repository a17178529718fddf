"""Indexes against the exact evaluation, as tables for the terminal and as a figure."""

from __future__ import annotations

import math
from pathlib import Path

from streameval.errors import OutputError
from streameval.metrics.metric import FRACTION
from streameval.neighbors.comparison import CONFIDENCE, LISTED, Comparison, Difference
from streameval.output import write_new
from streameval.planning import format_bytes
from streameval.report.figures import drawing, figure_bytes, look, marker, set_log, shortened
from streameval.report.numbers import DASH, amount, duration, number_text, plural
from streameval.report.provenance import describe_inputs, describe_queries
from streameval.report.table import Table, facts
from streameval.report.terminal import Style, render

BAR = 24  # characters of the longest bar


def render_comparison(comparison: Comparison, style: Style) -> str:
    """Return a comparison as text: the settings, their differences, and bars of one metric."""
    exact = comparison.exact
    counts = exact.counts
    opening = [
        describe_inputs(exact.provenance["inputs"]),
        ("Queries", f"{describe_queries(counts)}; {plural(counts['gallery'], 'gallery item')}"),
        (
            "Exact",
            f"{duration(exact.provenance['seconds'])}, on {plural(comparison.threads, 'thread')}; "
            f"lists of k = {comparison.k:,}, as deployed: what is not returned is not found",
        ),
    ]
    heading = (
        f"Differences to the exact evaluation, in points of a percent, ± half of a "
        f"{CONFIDENCE:.0%} interval over queries"
    )
    tables = _settings(comparison), _differences(comparison), _bars(comparison)
    return render(style, [facts(opening), "", tables[0], "", heading, tables[1], "", tables[2]])


def _settings(comparison: Comparison) -> Table:
    """Return a row a setting: recall of neighbours, and what it takes."""
    rows = (
        (
            str(outcome.setting),
            f"{100 * outcome.recall:.2f} %",
            DASH if math.isnan(outcome.build_seconds) else duration(outcome.build_seconds),
            amount(outcome.queries_per_second),
            format_bytes(outcome.index_bytes) if outcome.index_bytes else DASH,
        )
        for outcome in comparison.outcomes
    )
    heads = ("setting", f"recall@{comparison.k}", "built in", "queries/s", "size")
    return Table.of(heads, rows)


def _differences(comparison: Comparison) -> Table:
    """Return a row a metric: its exact value, and the difference of each setting."""
    settings = [str(outcome.setting) for outcome in comparison.outcomes]
    rows = []
    for name, first in comparison.outcomes[0].differences.items():
        unit = "" if math.isnan(first.exact) else first.kind.unit
        changes = (_change(outcome.differences[name]) for outcome in comparison.outcomes)
        rows.append((name, number_text(first.exact, first.kind) + unit, *changes))
    return Table.of(("metric", "exact", *settings), rows)


def _change(one: Difference) -> str:
    """Return a difference with half of its interval, in points of a percent."""
    text = number_text(one.value, one.kind, signed=True)
    if one.kind is not FRACTION or math.isnan(one.value + one.high):
        return text
    return f"{text} ± {50 * (one.high - one.low):.2f}"


def _bars(comparison: Comparison) -> Table:
    """Return a bar a setting: how much is lost of one metric."""
    name = plotted(comparison)
    lost = [max(0.0 - outcome.differences[name].value, 0.0) for outcome in comparison.outcomes]
    longest = max((size for size in lost if not math.isnan(size)), default=0.0) or 1.0
    rows = (
        (
            str(outcome.setting),
            "" if math.isnan(size) else "█" * round(BAR * size / longest),
            f"{100 * size:.2f}",
        )
        for outcome, size in zip(comparison.outcomes, lost, strict=True)
    )
    return Table.of((f"lost of {name}", "", ""), rows, align="llr")


def plotted(comparison: Comparison) -> str:
    """Return the metric that is plotted: mAP beside that of the lists, else the first."""
    names = list(comparison.outcomes[0].differences)
    return next((name for name in names if name.startswith(f"{LISTED} (")), names[0])


def check_plot(path: str | Path) -> None:
    """Check that a path is one of a figure.

    Raises
    ------
    OutputError
    """
    if Path(path).suffix.lower() != ".svg":
        raise OutputError(f"{path} is to be a plot; expected a file NAME.svg")


def write_plot(comparison: Comparison, path: str | Path) -> None:
    """Write a figure: queries a second against the difference of a metric, with its interval.

    Raises
    ------
    OutputError
        If it can't be written.
    OptionError
        If matplotlib is not installed.
    """
    name = plotted(comparison)
    with drawing() as (figure, axes):
        for at, outcome in enumerate(comparison.outcomes):
            change = outcome.differences[name]
            low, value, high = (
                change.kind.scale * end for end in (change.low, change.value, change.high)
            )
            if not math.isnan(value):
                reach = None if math.isnan(high) else [[value - low], [high - value]]
                shown = look(at) | marker(at) | {"label": shortened(str(outcome.setting))}
                shown["linestyle"] = "none"
                axes.errorbar([outcome.queries_per_second], [value], reach, elinewidth=1, **shown)
        set_log(axes)
        powers = [math.log10(outcome.queries_per_second) for outcome in comparison.outcomes]
        axes.set_xlim(10.0 ** math.floor(min(powers)), 10.0 ** math.ceil(max(powers) + 1e-9))
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.set_xlabel("queries a second")
        axes.set_ylabel(f"difference of {name}, percentage points")
        axes.set_title(f"Indexes against the exact evaluation, k = {comparison.k:,}", fontsize=10)
        axes.legend(loc="best")
    write_new(path, figure_bytes(figure, str(path)), overwrite=True)
