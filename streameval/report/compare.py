"""Runs compared, as tables for the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from streameval.report.style import (
    DASH,
    Style,
    facts,
    number_text,
    packed,
    percent,
    plural,
    render,
    unruled_table,
    value_text,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from streameval.result.paired import Comparison, Difference

LABEL_ROOM = 24  # characters of a query's label


def render_comparison(comparison: Comparison, style: Style, queries: int) -> str:
    """Return a comparison as text: a table a run, and the queries that changed most.

    Parameters
    ----------
    comparison : Comparison
    style : Style
    queries : int
        How many that got better, and how many that got worse, are shown.
    """
    first, how = comparison.first, comparison.how
    result = comparison.results[first]
    identities = plural(result.identities().count, "identity", "identities")
    blocks: list[RenderableType] = [
        facts(style, [("Compared with", first), *(("Note", one) for one in comparison.remarks)])
    ]
    for run in comparison.others:
        blocks += ["", facts(style, [("Run", run)]), _table(comparison, run, style)]
        blocks += ["", facts(style, _changes(comparison, run))]
        for side, rows in comparison.extremes(run, queries).items():
            if rows:
                heading = f"Queries that got {side}, by AP"
                blocks += ["", style.text(heading), _queries(rows, style)]
    tested = sum(not math.isnan(one.p) for one in comparison.differences)
    said = [
        f"{100 * how.level:g} % intervals of the difference",
        f"paired bootstrap of {identities} of queries",
        f"{how.resamples:,} resamples",
        f"seed {how.seed}",
        f"p corrected for {plural(tested, 'comparison')} (Holm)",
    ]
    return render(style, [*blocks, "", facts(style, packed("Method", said))])


def _table(comparison: Comparison, run: str, style: Style) -> Table:
    table = unruled_table()
    table.add_column("metric", no_wrap=True)
    for name in ("first", "this run", "difference", "interval", "p", "p (Holm)"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("", no_wrap=True)
    for one in comparison.differences:
        if one.run == run:
            cells = (one.metric, *_cells(one), one.reason)
            table.add_row(*map(style.text, cells))
    return table


def _cells(one: Difference) -> tuple[str, ...]:
    def value(number: float) -> str:
        if math.isnan(number):
            return DASH
        return value_text(number, one.kind)

    def change(number: float) -> str:
        if math.isnan(number):
            return DASH
        return number_text(number, one.kind, signed=True)

    between = DASH
    if one.interval is not None:
        between = " to ".join(map(change, one.interval))
    return (
        value(one.first),
        value(one.value),
        change(one.difference),
        between,
        p_text(one.p),
        p_text(one.p_holm),
    )


def p_text(p: float) -> str:
    """Return a p-value in three digits."""
    return DASH if math.isnan(p) else f"{p:.3g}"


def _changes(comparison: Comparison, run: str) -> list[tuple[str, str]]:
    names = {"AP": "By AP", "first_rank": "By first rank"}
    return [
        (
            names[by],
            f"{plural(count['better'], 'query', 'queries')} better, {count['worse']:,} worse, "
            f"{count['same']:,} as before",
        )
        for by, count in comparison.changes(run).items()
    ]


def _queries(rows: list[dict[str, Any]], style: Style) -> Table:
    table = unruled_table()
    labels = [name for name in ("id", "cam") if name in rows[0]]
    for name in ("query", *labels, "AP first", "AP", "first rank", "now"):
        table.add_column(name, no_wrap=True, justify="right")
    for row in rows:
        cells = [
            str(row["query"]),
            *(shortened(row[name]) for name in labels),
            percent(row["AP_first"]),
            percent(row["AP"]),
            f"{row['first_rank_first']:g}",
            f"{row['first_rank']:g}",
        ]
        table.add_row(*map(style.text, cells))
    return table


def shortened(label: Any) -> str:
    """Return a label in a column's width."""
    text = str(label)
    return text if len(text) <= LABEL_ROOM else f"{text[: LABEL_ROOM - 1]}…"
