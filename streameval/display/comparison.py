"""Runs side by side, and against the first of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.display.evaluation import metrics_by_part, score_of
from streameval.display.figures import shortened
from streameval.display.table import (
    DASH,
    Blocks,
    Cell,
    Table,
    facts,
    number,
    number_text,
    percent,
    plural,
    value_text,
)
from streameval.metrics.metric import FRACTION, Kind
from streameval.metrics.selection import find_measure

if TYPE_CHECKING:
    from streameval.result import Evaluation, Results
    from streameval.result.comparison import Comparison

PROBABILITY = Kind("probability", digits=4)
LABELS = ("id", "cam")
ARROWS = {"higher": "↑", "lower": "↓", "neither": ""}


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


def comparison_blocks(comparison: Comparison, queries: int = 5) -> Blocks:
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
