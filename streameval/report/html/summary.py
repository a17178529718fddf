"""Metrics side by side with the best marked, and the differences of runs that are compared."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from streameval.metrics.extremes import ListMetrics
from streameval.metrics.kind import FRACTION
from streameval.metrics.selection import find_measure
from streameval.report.compare import p_text
from streameval.report.html.runs import Run, Runs
from streameval.report.html.table import Cell, Part, Row, Span, Table
from streameval.report.plots import shortened
from streameval.report.style import DASH, TITLES, interval_text, number_text, plural
from streameval.result import Evaluation
from streameval.result.paired import Comparison, Difference

ARROWS = {"higher": "↑", "lower": "↓", "neither": ""}
SHOWN = 5  # queries that got better, and worse


def metrics_table(runs: Runs) -> Table:
    """Return a row a metric, a column a run; the best value of runs that compare is marked."""
    details = {name: one for run in runs.all for name, one in run.result.metrics.details.items()}
    parts = []
    for part, title in TITLES.items():
        rows = tuple(
            _metric_row(name, runs) for name, detail in details.items() if detail.part == part
        )
        if rows:
            parts.append(Part(rows, title))
    return Table(("Metric", *(shortened(run.name) for run in runs.all)), tuple(parts))


def _metric_row(name: str, runs: Runs) -> Row:
    better = find_measure(name).metric.better
    cells = [_metric_cell(name, run) for run in runs.all]
    if runs.comparison is not None and better != "neither":
        values = [run.result.metrics.scalars.get(name, math.nan) for run in runs.all]
        known = [value for value in values if not math.isnan(value)]
        best = (max if better == "higher" else min)(known, default=math.nan)
        best_texts = {cell.text for cell, value in zip(cells, values, strict=True) if value == best}
        marked = [cell.text in best_texts for cell in cells]  # in the digits that are shown
        if len({cell.text for cell in cells}) > 1:
            cells = [
                replace(cell, mark="best") if is_best else cell
                for cell, is_best in zip(cells, marked, strict=True)
            ]
    return Row(name, tuple(cells), ARROWS[better])


def _metric_cell(name: str, run: Run) -> Cell:
    metrics = run.result.metrics
    if name not in metrics.scalars:
        return Cell("", "not computed")
    value, detail = metrics.scalars[name], metrics.details[name]
    kind = detail.kind
    if math.isnan(value):
        if isinstance(metrics, ListMetrics) and name in metrics.bounds:
            low, high = metrics.bounds[name]
            return Cell(interval_text(low, high, kind), "left open")
        return Cell(DASH, detail.reason)
    notes = []
    if name in metrics.intervals:
        notes.append(f"{interval_text(*metrics.intervals[name], kind)} by ties")
    if detail.error:
        notes.append(f"± {100 * detail.error:.2g} %")
    chosen = run.result.chosen_confidence
    if chosen is not None and name in chosen.intervals:
        between = interval_text(*chosen.intervals[name], kind)
        notes.append(f"{100 * chosen.how.level:g} %: {between}")
    return Cell(f"{number_text(value, kind)}{kind.unit}", " · ".join(notes))


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Return a table a run that is compared with the first: differences and their intervals."""
    return [_differences(comparison, run) for run in comparison.others]


def _differences(comparison: Comparison, run: str) -> Table:
    own = [one for one in comparison.differences if one.run == run and one.interval is not None]
    bounds = (abs(bound) for one in own if one.kind is FRACTION for bound in one.interval or ())
    scale = max(bounds, default=0.0) or 1.0
    rows = tuple(_difference_row(one, scale, comparison.how.level) for one in own)
    first = shortened(comparison.first)
    heads = ("Metric", first, shortened(run), "Difference", "Interval", "", "p", "p (Holm)")
    return Table(heads, (Part(rows),), f"{run} against {comparison.first}")


def without_interval(comparison: Comparison) -> list[str]:
    """Return the metrics of which there is no interval of the difference, and why."""
    names: dict[str, dict[str, None]] = {}
    for one in comparison.differences:
        if one.interval is None:
            names.setdefault(one.reason, {})[one.metric] = None
    return [f"{', '.join(own)}: {reason}" for reason, own in names.items()]


def _difference_row(one: Difference, scale: float, level: float) -> Row:
    def value(number: float, *, signed: bool = False) -> str:
        if math.isnan(number):
            return DASH
        return number_text(number, one.kind, signed=signed).replace("-", "−")

    between, span = DASH, None
    if one.interval is not None:
        between = " to ".join(value(bound, signed=True) for bound in one.interval)
        if one.kind is FRACTION:
            low, high = (bound / scale for bound in one.interval)
            span = Span(low, min(max(one.difference / scale, -1.0), 1.0), high)
    cells = (
        Cell(value(one.first)),
        Cell(value(one.value)),
        Cell(value(one.difference, signed=True)),
        Cell(between),
        Cell("", span=span),
        Cell(p_text(one.p)),
        Cell(p_text(one.p_holm), mark="differs" if one.p_holm <= 1 - level + 1e-12 else ""),
    )
    return Row(one.metric, cells, one.reason)


def method_of(comparison: Comparison) -> str:
    """Return in words how differences and their intervals are made."""
    how = comparison.how
    identities = comparison.results[comparison.first].identities().count
    tested = sum(not math.isnan(one.p) for one in comparison.differences)
    return (
        f"In percentage points (τ and ranks as they are). {100 * how.level:g} % intervals of the "
        "difference by a paired bootstrap of "
        f"{plural(identities, 'identity', 'identities')} of queries, "
        f"{how.resamples:,} resamples, seed {how.seed}; p corrected for "
        f"{plural(tested, 'comparison')} (Holm). Bold p: at most {1 - how.level:.3g} after "
        "the correction."
    )


def change_tables(comparison: Comparison) -> list[tuple[str, Table | None]]:
    """Return, for each run, how many queries changed, and those that did most."""
    found: list[tuple[str, Table | None]] = []
    for run in comparison.others:
        count = comparison.changes(run)["AP"]
        said = (
            f"{run}: {plural(count['better'], 'query', 'queries')} better by AP, "
            f"{count['worse']:,} worse, {count['same']:,} as before"
        )
        parts = tuple(
            Part(tuple(_changed_row(row) for row in rows), f"Got {side}")
            for side, rows in comparison.extremes(run, SHOWN).items()
            if rows
        )
        labels = _labels(comparison.results[comparison.first])
        both = shortened(comparison.first), shortened(run)
        scores = [f"{what} {name}" for what in ("AP", "First rank") for name in both]
        heads = ("Query", *labels, *scores)
        found.append((said, Table(heads, parts) if parts else None))
    return found


def _labels(result: Evaluation) -> list[str]:
    return [name for name in ("id", "cam") if name in result.columns]


def _changed_row(row: dict[str, Any]) -> Row:
    labels = [Cell(str(row[name]), wraps=True) for name in ("id", "cam") if name in row]
    scores = [Cell(f"{100 * row[name]:.2f} %") for name in ("AP_first", "AP")]
    ranks = [Cell(f"{row[name]:g}") for name in ("first_rank_first", "first_rank")]
    return Row(str(row["query"]), (*labels, *scores, *ranks))
