"""Indexes against the exact evaluation: tables, and a figure of speed and accuracy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from streameval.display.figures import drawing, figure_bytes, look, set_log
from streameval.display.provenance import describe_inputs, describe_queries
from streameval.display.table import (
    DASH,
    Blocks,
    Facts,
    Table,
    amount,
    duration,
    facts,
    number_text,
    plural,
)
from streameval.errors import OutputError
from streameval.metrics.metric import FRACTION
from streameval.neighbors.comparison import CONFIDENCE, LISTED
from streameval.neighbors.comparison import Difference as IndexDifference
from streameval.output import check_new, write_new
from streameval.planning.plan import format_bytes

if TYPE_CHECKING:
    from streameval.neighbors.comparison import Comparison as IndexComparison

BAR = 24  # characters of the longest bar


def index_blocks(comparison: IndexComparison) -> Blocks:
    """Return a comparison of indexes: the settings, their differences, and bars of one metric."""
    exact, outcomes = comparison.exact, comparison.outcomes
    opening: Facts = [
        describe_inputs(exact.provenance["inputs"]),
        (
            "Queries",
            f"{describe_queries(exact.counts)}; {plural(exact.counts['gallery'], 'gallery item')}",
        ),
        (
            "Exact",
            f"{duration(exact.provenance['seconds'])}, on {plural(comparison.threads, 'thread')}; "
            f"lists of k = {comparison.k:,}, as deployed: what is not returned is not found",
        ),
    ]
    settings = Table.of(
        ("setting", f"recall@{comparison.k}", "built in", "queries/s", "size"),
        (
            (
                outcome.setting,
                f"{100 * outcome.recall:.2f} %",
                DASH if math.isnan(outcome.build_seconds) else duration(outcome.build_seconds),
                amount(outcome.queries_per_second),
                format_bytes(outcome.index_bytes) if outcome.index_bytes else DASH,
            )
            for outcome in outcomes
        ),
    )
    heading = (
        f"Differences to the exact evaluation, in points of a percent, ± half of a "
        f"{CONFIDENCE:.0%} interval over queries"
    )
    differences = Table.of(
        ("metric", "exact", *(str(outcome.setting) for outcome in outcomes)),
        (
            (
                name,
                number_text(first.exact, first.kind)
                + ("" if math.isnan(first.exact) else first.kind.unit),
                *(_index_change(outcome.differences[name]) for outcome in outcomes),
            )
            for name, first in outcomes[0].differences.items()
        ),
    )
    return [facts(opening), "", settings, "", heading, differences, "", _bars(comparison)]


def _index_change(one: IndexDifference) -> str:
    """Return a difference with half of its interval, in points of a percent."""
    text = number_text(one.value, one.kind, signed=True)
    if one.kind != FRACTION or math.isnan(one.value + one.high):
        return text
    return f"{text} ± {50 * (one.high - one.low):.2f}"


def _bars(comparison: IndexComparison) -> Table:
    """Return a bar a setting: how much is lost of one metric."""
    name = _plotted(comparison)
    lost = [max(0.0 - outcome.differences[name].value, 0.0) for outcome in comparison.outcomes]
    longest = max((size for size in lost if not math.isnan(size)), default=0.0) or 1.0
    rows = (
        (
            outcome.setting,
            "" if math.isnan(size) else "█" * round(BAR * size / longest),
            f"{100 * size:.2f}",
        )
        for outcome, size in zip(comparison.outcomes, lost, strict=True)
    )
    return Table.of((f"lost of {name}", "", ""), rows, align="llr")


def _plotted(comparison: IndexComparison) -> str:
    """Return the metric that is plotted: mAP beside that of the lists, else the first."""
    names = list(comparison.outcomes[0].differences)
    return next((name for name in names if name.startswith(f"{LISTED} (")), names[0])


def check_plot(path: str | Path, *, overwrite: bool) -> None:
    """Refuse a path that is not one of a new SVG, with an OutputError."""
    if Path(path).suffix.lower() != ".svg":
        raise OutputError(f"{path} is to be a plot; expected a file NAME.svg")
    check_new(path, overwrite=overwrite)


def write_plot(comparison: IndexComparison, path: str | Path, *, overwrite: bool) -> None:
    """Write a figure: queries a second against the difference of a metric, with its interval.

    Raises OutputError if it can't be written, OptionError if matplotlib is not installed.
    """
    name, outcomes = _plotted(comparison), comparison.outcomes
    with drawing() as (figure, axes):
        for at, outcome in enumerate(outcomes):
            change = outcome.differences[name]
            low, value, high = (
                change.kind.scale * end for end in (change.low, change.value, change.high)
            )
            if not math.isnan(value):
                reach = None if math.isnan(high) else [[value - low], [high - value]]
                shown = look(at, str(outcome.setting), marked=True)
                shown |= {"linestyle": "none", "elinewidth": 1}
                axes.errorbar(outcome.queries_per_second, value, reach, **shown)
        set_log(axes)
        powers = [math.log10(outcome.queries_per_second) for outcome in outcomes]
        axes.set_xlim(10.0 ** math.floor(min(powers)), 10.0 ** math.ceil(max(powers) + 1e-9))
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.set(
            xlabel="queries a second",
            ylabel=f"difference of {name}, percentage points",
            title=f"Indexes against the exact evaluation, k = {comparison.k:,}",
        )
        axes.legend(loc="best")
    write_new(path, figure_bytes(figure, str(path)), overwrite=overwrite)
