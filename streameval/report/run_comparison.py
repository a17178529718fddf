"""Runs compared with the first of them, as tables: metrics, and the queries that changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.metrics.metric import FRACTION, Kind
from streameval.report.numbers import DASH, number_text, percent, plural, value_text
from streameval.report.table import Cell, Part, Row, Span, Table, facts, number
from streameval.report.terminal import Style, render

if TYPE_CHECKING:
    from streameval.result.comparison import Comparison, Difference

PROBABILITY = Kind("probability", digits=4)
LABELS = ("id", "cam")


def render_comparison(comparison: Comparison, style: Style, queries: int) -> str:
    """Return a comparison as text: a table a run, and the queries that changed most.

    Parameters
    ----------
    comparison : Comparison
    style : Style
    queries : int
        How many that got better, and how many that got worse, are shown.
    """
    opening = [("Compared with", comparison.first)]
    opening += [("Note", remark) for remark in comparison.remarks]
    blocks: list[str | Table] = [facts(opening)]
    for run in comparison.others:
        blocks += ["", facts([("Run", run)])]
        blocks += [differences_table(comparison, run, ("first", "this run"))]
        blocks += ["", facts(_changes(comparison, run))]
        scores = ("AP first", "AP", "first rank", "now")
        changed = changed_queries(comparison, run, queries, scores)
        for part in changed.parts:
            heading = f"Queries that got {part.title}, by AP"
            blocks += ["", heading, replace(changed, parts=(replace(part, title=""),))]
    level, identities, resamples, tested = _method(comparison)
    method = [
        f"{level} intervals of the difference",
        f"paired bootstrap of {identities}",
        resamples,
        f"seed {comparison.how.seed}",
        f"p corrected for {tested} (Holm)",
    ]
    return render(style, [*blocks, "", facts([("Method", method)])])


def describe_method(comparison: Comparison) -> str:
    """Return in words how differences and their intervals are made, for a page."""
    level, identities, resamples, tested = _method(comparison)
    how = comparison.how
    return (
        f"In percentage points (τ and ranks as they are). {level} intervals of the difference by "
        f"a paired bootstrap of {identities}, {resamples}, seed {how.seed}; p corrected for "
        f"{tested} (Holm). Bold p: at most {1 - how.level:.3g} after the correction."
    )


def _method(comparison: Comparison) -> tuple[str, str, str, str]:
    how = comparison.how
    count = comparison.results[comparison.first].identities().count
    tested = sum(not math.isnan(one.p) for one in comparison.differences)
    return (
        f"{100 * how.level:g} %",
        f"{plural(count, 'identity', 'identities')} of queries",
        f"{how.resamples:,} resamples",
        plural(tested, "comparison"),
    )


def differences_table(
    comparison: Comparison, run: str, heads: tuple[str, str], *, drawn: bool = False
) -> Table:
    """Return the differences of a run from the first, and their intervals.

    Parameters
    ----------
    comparison : Comparison
    run : str
    heads : (str, str)
        What the first and this run are called.
    drawn : bool
        Whether intervals are drawn, and only metrics that have one are there.
    """
    rows = [one for one in comparison.differences if one.run == run]
    if not drawn:
        names = ("metric", *heads, "difference", "interval", "p", "p (Holm)")
        return Table.of(names, map(_difference_row, rows))
    rows = [one for one in rows if one.interval is not None]
    shares = (one.interval or () for one in rows if one.kind is FRACTION)
    scale = max((abs(end) for ends in shares for end in ends), default=0.0) or 1.0
    limit = 1 - comparison.how.level + 1e-12
    return Table.of(
        ("Metric", *heads, "Difference", "Interval", "", "p", "p (Holm)"),
        (_drawn_row(one, scale, limit) for one in rows),
        f"{run} against {comparison.first}",
    )


def _difference_row(one: Difference) -> Row:
    interval = DASH
    if one.interval is not None:
        interval = " to ".join(number_text(end, one.kind, signed=True) for end in one.interval)
    return (
        Cell(one.metric, one.reason),
        Cell(_value(one.first, one.kind)),
        Cell(_value(one.value, one.kind)),
        number(one.difference, one.kind, signed=True),
        Cell(interval),
        Cell(_p_text(one.p)),
        Cell(_p_text(one.p_holm)),
    )


def _drawn_row(one: Difference, scale: float, limit: float) -> Row:
    *cells, p, p_holm = _difference_row(one)
    span = None
    if one.interval is not None and one.kind is FRACTION:
        low, high = (end / scale for end in one.interval)
        span = Span(low, min(max(one.difference / scale, -1.0), 1.0), high)
    mark = replace(p_holm, mark="differs") if one.p_holm <= limit else p_holm
    return (*cells, Cell(span=span), p, mark)


def _value(value: float, kind: Kind) -> str:
    return DASH if math.isnan(value) else value_text(value, kind)


def _p_text(p: float) -> str:
    return DASH if math.isnan(p) else f"{p:.3g}"


def without_interval(comparison: Comparison) -> list[str]:
    """Return the metrics of which there is no interval of the difference, and why."""
    names: dict[str, dict[str, None]] = {}
    for one in comparison.differences:
        if one.interval is None:
            names.setdefault(one.reason, {})[one.metric] = None
    return [f"{', '.join(some)}: {reason}" for reason, some in names.items()]


def _changes(comparison: Comparison, run: str) -> list[tuple[str, str]]:
    names = {"AP": "By AP", "first_rank": "By first rank"}
    changes = comparison.changes(run)
    return [(names[by], describe_change(count)) for by, count in changes.items()]


def describe_change(count: dict[str, int], by: str = "") -> str:
    """Return in words how many queries changed."""
    better = f"{plural(count['better'], 'query', 'queries')} better{by}"
    return f"{better}, {count['worse']:,} worse, {count['same']:,} as before"


def changed_queries(comparison: Comparison, run: str, most: int, scores: Sequence[str]) -> Table:
    """Return the queries that changed most: a part of those that got better, one of the others.

    Parameters
    ----------
    comparison : Comparison
    run : str
    most : int
        Queries of each part.
    scores : sequence of str
        Heads of AP of both runs, and of the first rank of both.
    """
    labels = [name for name in LABELS if name in comparison.results[comparison.first].columns]
    parts = (
        Part(tuple(_changed_row(row, labels) for row in rows), side)
        for side, rows in comparison.extremes(run, most).items()
    )
    heads = ("query", *labels, *scores)
    return Table(heads, tuple(part for part in parts if part.rows), align="r" * len(heads))


def _changed_row(query: dict[str, Any], labels: Sequence[str]) -> Row:
    return (
        Cell(str(query["query"])),
        *(Cell(str(query[name]), wraps=True) for name in labels),
        *(Cell(percent(query[name])) for name in ("AP_first", "AP")),
        *(Cell(f"{query[name]:g}") for name in ("first_rank_first", "first_rank")),
    )


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
