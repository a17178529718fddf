"""Runs side by side and against the first of them; indexes against the exact evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streameval.display.evaluation import metrics_by_part, score_of
from streameval.display.figures import drawing, figure_bytes, look, set_log, shortened
from streameval.display.provenance import describe_inputs, describe_queries
from streameval.display.table import (
    DASH,
    Blocks,
    Cell,
    Facts,
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
from streameval.errors import OutputError
from streameval.metrics.metric import FRACTION, Kind
from streameval.metrics.selection import find_measure
from streameval.neighbors.comparison import CONFIDENCE, LISTED
from streameval.neighbors.comparison import Difference as IndexDifference
from streameval.output import check_new, write_new
from streameval.planning.plan import format_bytes
from streameval.result import Evaluation, Results
from streameval.result.comparison import Comparison

if TYPE_CHECKING:
    from streameval.neighbors.comparison import Comparison as IndexComparison

PROBABILITY = Kind("probability", digits=4)
LABELS = ("id", "cam")
ARROWS = {"higher": "↑", "lower": "↓", "neither": ""}
BAR = 24  # characters of the longest bar


def compared_metrics(results: Results, *, mark: bool) -> Table:
    """Return a row a metric, a column a result; the best value of a row may be marked."""
    every = list(results.values())
    rows: list[list[Cell]] = []
    for title, names in metrics_by_part(every):
        rows.append([Cell(title, mark="title")])
        rows += [_compared_row(name, every, mark=mark) for name in names]
    return Table.of(("Metric", *map(shortened, results)), rows)


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
    if name not in result.metrics.scalars:
        return Cell("", "not computed")
    cell, _, interval = score_of(result, name)
    chosen = result.chosen_confidence
    if chosen is not None and name in chosen.intervals:
        notes = cell.note, f"{100 * chosen.how.level:g} %: {interval}"
        return replace(cell, note=" · ".join(filter(None, notes)))
    is_open = cell.value is None and cell.text != DASH
    return replace(cell, note="left open") if is_open else cell


def comparison_blocks(comparison: Comparison, queries: int) -> Blocks:
    """Return a comparison in words and tables, with so many queries that got better, and worse."""
    opening = [("Note", remark) for remark in comparison.remarks]
    blocks: Blocks = [facts([("Compared with", comparison.first), *opening])]
    for run in comparison.others:
        table = differences_table(comparison, run, ("first", "this run"))
        by_ap, by_rank = map(describe_change, comparison.changes(run).values())
        changes = facts([("By AP", by_ap), ("By first rank", by_rank)])
        blocks += ["", facts([("Run", run)]), table, "", changes]
        heads = ("AP first", "AP", "first rank", "now")
        for changed in changed_queries(comparison, run, queries, heads):
            blocks += ["", changed.title, changed]
    return [*blocks, "", facts([("Method", _method(comparison))])]


def describe_method(comparison: Comparison) -> str:
    """Return in words how differences and their intervals are made, for a page."""
    return (
        f"In percentage points (τ and ranks as they are). {'; '.join(_method(comparison))}. "
        f"Bold p: at most {1 - comparison.how.level:.3g} after the correction."
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
    """Return the differences of a run from the first, and their intervals, which a page draws.

    `heads` are what the first and this run are called.
    """
    own = [one for one in comparison.differences if one.run == run]
    ends = [end for one in own if one.kind == FRACTION for end in one.interval or ()]
    scale = max(map(abs, ends), default=0.0) or 1.0
    limit = 1 - comparison.how.level + 1e-12
    rows = []
    for one in own:
        texts = [number_text(end, one.kind, signed=True) for end in one.interval or ()]
        span = None
        if one.kind == FRACTION and one.interval is not None:
            low, high = one.interval
            span = tuple(np.clip([low, one.difference, high], -scale, scale) / scale)
        p, p_holm = (DASH if math.isnan(p) else f"{p:.3g}" for p in (one.p, one.p_holm))
        rows.append(
            (
                Cell(one.metric, one.reason),
                value_text(one.first, one.kind),
                value_text(one.value, one.kind),
                number_text(one.difference, one.kind, signed=True),
                Cell(" to ".join(texts) or DASH, span=span),
                p,
                Cell(p_holm, mark="differs" if one.p_holm <= limit else ""),
            )
        )
    names = ("metric", *heads, "difference", "interval", "p", "p (Holm)")
    return Table.of(names, rows, f"{run} against {comparison.first}")


def describe_change(count: dict[str, int]) -> str:
    """Return in words how many queries changed."""
    better = f"{plural(count['better'], 'query', 'queries')} better"
    return f"{better}, {count['worse']:,} worse, {count['same']:,} as before"


def changed_queries(
    comparison: Comparison, run: str, most: int, heads: Sequence[str]
) -> Iterator[Table]:
    """Yield the queries that changed most: a table of those that got better, and one of the others.

    `heads` are of AP of both runs, and of the first rank of both; each table has at `most` so many
    queries, and one without any is left out.
    """
    labels = [name for name in LABELS if name in comparison.results[comparison.first].columns]
    for side, queries in comparison.extremes(run, most).items():
        rows = [
            (
                query["query"],
                *(Cell(str(query[name]), wraps=True) for name in labels),
                *(percent(query[name]) for name in ("AP_first", "AP")),
                *(f"{query[name]:g}" for name in ("first_rank_first", "first_rank")),
            )
            for query in queries
        ]
        if rows:
            title = f"Queries that got {side}, by AP"
            yield Table.of(("query", *labels, *heads), rows, title, align="r")


def comparison_table(comparison: Comparison) -> Table:
    """Return a row a metric of each run that is compared with the first, for programs."""
    heads = ("metric", "compared with", "run", "first", "value", "difference", "low", "high")
    rows = (
        (
            one.metric,
            comparison.first,
            one.run,
            *(number(value, one.kind) for value in (one.first, one.value, one.difference)),
            *(number(end, one.kind) for end in one.interval or (None, None)),
            *(number(p, PROBABILITY) for p in (one.p, one.p_holm)),
        )
        for one in comparison.differences
    )
    return Table.of((*heads, "p", "p (Holm)"), rows, align="lll")


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
