"""Runs side by side and against the first of them; indexes against the exact evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streameval.errors import OutputError
from streameval.metrics.metric import FRACTION, Kind
from streameval.metrics.selection import find_measure
from streameval.neighbors.comparison import CONFIDENCE, LISTED
from streameval.neighbors.comparison import Difference as IndexDifference
from streameval.output import check_new, write_new
from streameval.planning.plan import format_bytes
from streameval.report.evaluation import PARTS, by_reason, score_of
from streameval.report.figures import drawing, figure_bytes, look, set_log
from streameval.report.provenance import describe_inputs, describe_queries
from streameval.report.table import (
    DASH,
    Cell,
    Facts,
    Part,
    Table,
    amount,
    duration,
    facts,
    number,
    number_text,
    percent,
    plural,
    value_text,
)
from streameval.report.terminal import Style, render
from streameval.result import Evaluation, Results
from streameval.result.comparison import Comparison, Difference

if TYPE_CHECKING:
    from streameval.neighbors.comparison import Comparison as IndexComparison

PROBABILITY = Kind("probability", digits=4)
LABELS = ("id", "cam")
ARROWS = {"higher": "↑", "lower": "↓", "neither": ""}
BAR = 24  # characters of the longest bar


def compared_metrics(results: Results, heads: tuple[str, ...], *, mark: bool) -> Table:
    """Return a row a metric, a column a result; the best value of a row may be marked."""
    every = list(results.values())
    details = {name: one for result in every for name, one in result.metrics.details.items()}
    parts = (
        Part.of(
            (
                _compared_row(name, every, mark=mark)
                for name, detail in details.items()
                if detail.part == part
            ),
            title,
        )
        for part, title in PARTS.items()
    )
    return Table(("Metric", *heads), tuple(part for part in parts if part.rows))


def _compared_row(name: str, results: list[Evaluation], *, mark: bool) -> list[Cell]:
    better = find_measure(name).metric.better
    cells = [_compared_cell(name, result) for result in results]
    if mark and better != "neither" and len({cell.text for cell in cells}) > 1:
        values = [cell.value for cell in cells if cell.value is not None]
        best = (max if better == "higher" else min)(values, default=math.nan)
        texts = {cell.text for cell in cells if cell.value == best}  # in the digits that are shown
        cells = [replace(cell, mark="best") if cell.text in texts else cell for cell in cells]
    return [Cell(name, ARROWS[better]), *cells]


def _compared_cell(name: str, result: Evaluation) -> Cell:
    value = result.metrics.scalars.get(name)
    if value is None:
        return Cell("", "not computed")
    score = score_of(result, name)
    if math.isnan(value):
        return Cell(score.value, score.remark if score.value == DASH else "left open")
    notes = [f"{score.ties} by ties" if score.ties else "", score.error]
    chosen = result.chosen_confidence
    if chosen is not None and name in chosen.intervals:
        notes.append(f"{100 * chosen.how.level:g} %: {score.confidence}")
    return Cell(score.value, " · ".join(filter(None, notes)), value=value)


def render_comparison(comparison: Comparison, style: Style, queries: int) -> str:
    """Return a comparison as text, with so many queries that got better, and worse."""
    opening = [("Note", remark) for remark in comparison.remarks]
    blocks: list[str | Table] = [facts([("Compared with", comparison.first), *opening])]
    for run in comparison.others:
        blocks += ["", facts([("Run", run)])]
        blocks += [differences_table(comparison, run, ("first", "this run"))]
        changes = zip(("By AP", "By first rank"), comparison.changes(run).values(), strict=True)
        blocks += ["", facts([(name, describe_change(count)) for name, count in changes])]
        scores = ("AP first", "AP", "first rank", "now")
        changed = changed_queries(comparison, run, queries, scores)
        for part in changed.parts:
            heading = f"Queries that got {part.title}, by AP"
            blocks += ["", heading, replace(changed, parts=(replace(part, title=""),))]
    return render(style, [*blocks, "", facts([("Method", _method(comparison))])])


def describe_method(comparison: Comparison) -> str:
    """Return in words how differences and their intervals are made, for a page."""
    intervals, bootstrap, resamples, seed, tests = _method(comparison)
    return (
        f"In percentage points (τ and ranks as they are). {intervals} by a {bootstrap}, "
        f"{resamples}, {seed}; {tests}. Bold p: at most {1 - comparison.how.level:.3g} after the "
        "correction."
    )


def _method(comparison: Comparison) -> list[str]:
    how = comparison.how
    count = comparison.results[comparison.first].identities().count
    tested = sum(not math.isnan(one.p) for one in comparison.differences)
    return [
        f"{100 * how.level:g} % intervals of the difference",
        f"paired bootstrap of {plural(count, 'identity', 'identities')} of queries",
        f"{how.resamples:,} resamples",
        f"seed {how.seed}",
        f"p corrected for {plural(tested, 'comparison')} (Holm)",
    ]


def differences_table(comparison: Comparison, run: str, heads: tuple[str, str]) -> Table:
    """Return the differences of a run from the first, and their intervals.

    `heads` are what the first and this run are called.
    """
    names = ("metric", *heads, "difference", "interval", "p", "p (Holm)")
    return Table.of(
        names, (_difference_row(one) for one in comparison.differences if one.run == run)
    )


def drawn_differences(comparison: Comparison, run: str, heads: tuple[str, str]) -> Table:
    """Return the differences that have an interval, with the intervals drawn."""
    known = [one for one in comparison.differences if one.run == run and one.interval]
    ends = (map(abs, one.interval or ()) for one in known if one.kind is FRACTION)
    scale = max((end for pair in ends for end in pair), default=0.0) or 1.0
    limit = 1 - comparison.how.level + 1e-12
    rows = []
    for one in known:
        *cells, p, p_holm = _difference_row(one)
        mark: Literal["", "differs"] = "differs" if one.p_holm <= limit else ""
        span = None
        if one.kind is FRACTION and one.interval is not None:
            low, high = (end / scale for end in one.interval)
            span = low, min(max(one.difference / scale, -1.0), 1.0), high
        rows.append((*cells, Cell(span=span), p, Cell(p_holm, mark=mark)))
    names = ("Metric", *heads, "Difference", "Interval", "", "p", "p (Holm)")
    return Table.of(names, rows, f"{run} against {comparison.first}")


def _difference_row(one: Difference) -> list[Any]:
    ends = [number_text(end, one.kind, signed=True) for end in one.interval or ()]
    return [
        Cell(one.metric, one.reason),
        value_text(one.first, one.kind),
        value_text(one.value, one.kind),
        number_text(one.difference, one.kind, signed=True),
        " to ".join(ends) or DASH,
        *(DASH if math.isnan(p) else f"{p:.3g}" for p in (one.p, one.p_holm)),
    ]


def without_interval(comparison: Comparison) -> list[str]:
    """Return the metrics of which there is no interval of the difference, and why."""
    missing = (one for one in comparison.differences if one.interval is None)
    return by_reason((one.metric, one.reason) for one in missing)


def describe_change(count: dict[str, int], by: str = "") -> str:
    """Return in words how many queries changed."""
    better = f"{plural(count['better'], 'query', 'queries')} better{by}"
    return f"{better}, {count['worse']:,} worse, {count['same']:,} as before"


def changed_queries(comparison: Comparison, run: str, most: int, scores: Sequence[str]) -> Table:
    """Return the queries that changed most: a part of those that got better, one of the others.

    `scores` are the heads of AP of both runs, and of the first rank of both; each part has at
    `most` so many queries.
    """
    labels = [name for name in LABELS if name in comparison.results[comparison.first].columns]

    def row(query: dict[str, Any]) -> tuple[object, ...]:
        return (
            query["query"],
            *(Cell(str(query[name]), wraps=True) for name in labels),
            *(percent(query[name]) for name in ("AP_first", "AP")),
            *(f"{query[name]:g}" for name in ("first_rank_first", "first_rank")),
        )

    sides = comparison.extremes(run, most).items()
    parts = tuple(Part.of(map(row, rows), side) for side, rows in sides if rows)
    heads = ("query", *labels, *scores)
    return Table(heads, parts, align="r" * len(heads))


def comparison_table(comparison: Comparison) -> Table:
    """Return a row a metric of each run that is compared with the first, for programs."""
    heads = ("metric", "compared with", "run", "first", "value", "difference", "low", "high")
    rows = []
    for one in comparison.differences:
        values = (one.first, one.value, one.difference, *(one.interval or (None, None)))
        rows.append(
            (
                *(one.metric, comparison.first, one.run),
                *(number(value, one.kind) for value in values),
                *(number(p, PROBABILITY) for p in (one.p, one.p_holm)),
            )
        )
    return Table.of((*heads, "p", "p (Holm)"), rows, align="lll" + "r" * 7)


def render_index_comparison(comparison: IndexComparison, style: Style) -> str:
    """Return a comparison as text: the settings, their differences, and bars of one metric."""
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
    tables = (settings, "", heading, differences, "", _bars(comparison))
    return render(style, [facts(opening), "", *tables])


def _index_change(one: IndexDifference) -> str:
    """Return a difference with half of its interval, in points of a percent."""
    text = number_text(one.value, one.kind, signed=True)
    if one.kind is not FRACTION or math.isnan(one.value + one.high):
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
