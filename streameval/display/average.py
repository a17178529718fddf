"""An average of runs: its metrics for a terminal, and a row a run for programs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streameval.display.evaluation import (
    aligned,
    conventions,
    metrics_by_part,
    results_table,
    value_cell,
)
from streameval.display.provenance import describe_difference, describe_protocol, describe_range
from streameval.display.table import Blocks, Cell, Table, facts, number, plural, value_text

if TYPE_CHECKING:
    from streameval.result.average import Average


def average_blocks(average: Average, saved: str | None = None) -> Blocks:
    """Return an average in words and tables: metrics, and the first of them for each run."""
    first, runs = average.first, average.runs.values()
    opening = [
        ("Average of", plural(len(runs), "run")),
        ("Protocol", describe_protocol(first.provenance.get("protocol"))),
        ("Distance", first.provenance.get("inputs", {}).get("metric", "")),
        *(("Note", remark) for remark in average.remarks),
    ]
    ranges = {describe_range(one.range) for one in runs}
    used = ranges.pop() if len(ranges) == 1 else f"of each run ({first.range['mode']})"
    differences = sorted(filter(None, {describe_difference(one.provenance) for one in runs}))
    table = next(average_table(average).cut())
    left_out = len(average.names) - len(table.heads[1:])
    shown: Blocks = [
        facts(opening),
        "",
        _metrics_table(average),
        "",
        "In percent, except τ:",
        table,
    ]
    if average.galleries:
        shown += ["", *_cells_blocks(average)]
    if left_out:
        shown.append(f"{plural(left_out, 'more metric')} of each run: --json, or --format csv")
    closing = [("Conventions", conventions(first.options, used)), ("Written to", saved)]
    shown += ["", facts(closing)]
    if differences:
        shown.append(facts([("Differences", one) for one in differences], wraps=True))
    return shown


def _cells_blocks(average: Average) -> Blocks:
    """Return the first metric by the labels of queries and galleries, and its means."""
    name = average.names[0]
    cells, kind = average.cells(name), average.mean.details[name].kind
    rows = [
        (Cell(label), *(number(value, kind) for value in values.tolist()))
        for label, values in zip(cells.queries, cells.values, strict=True)
    ]
    title = f"{cells.metric} by {cells.by} of the queries (rows) and of the gallery, in percent:"
    means = [
        ("Mean", value_text(cells.mean, kind)),
        (f"… of another {cells.by}", value_text(cells.mean_of_others, kind)),
    ]
    return [title, Table.of((cells.by, *cells.galleries), rows), "", facts(means)]


def _metrics_table(average: Average) -> Table:
    """Return mean and standard deviation part by part; a reason is given once in a row."""
    mean = average.mean
    rows: list[list[object]] = []
    for title, names in metrics_by_part(average.runs.values()):
        rows.append([Cell(title, mark="title")])
        said = ""
        for name in names:
            cell, detail = value_cell(mean, name), mean.details[name]
            note = "" if detail.reason and detail.reason == said else cell.note
            texts = cell.text, value_text(average.std[name], detail.kind)
            value, deviation = (aligned(text, detail.kind) for text in texts)
            rows.append([name, Cell(value, note), deviation])
            said = detail.reason
    return Table.of(("", "mean", "std"), rows)


def average_table(average: Average) -> Table:
    """Return a row a run, and rows of the mean and the standard deviation; a column a metric."""
    runs = {name: replace(run, resampling=None) for name, run in average.runs.items()}
    kinds = [detail.kind for detail in average.mean.details.values()]
    table = results_table(runs)
    rows = (
        (Cell(name), *map(number, values.values(), kinds))
        for name, values in (("mean", average.mean), ("std", average.std))
    )
    return replace(table, rows=(*table.rows, *rows))
