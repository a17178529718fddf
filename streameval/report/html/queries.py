"""The hardest queries: those of the lowest average precision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streameval.metrics.ranked import RankedQueries
from streameval.report.html.runs import Run
from streameval.report.html.table import Cell, Part, Row, Table
from streameval.report.plots import shortened
from streameval.statistics import FloatArray


def hardest_queries(runs: Sequence[Run], most: int) -> list[int]:
    """Return the queries of Q+ of the lowest AP, by its mean over runs on the same queries.

    Equal ones are in the order of the queries. Of lists of neighbours it is the least AP that
    they allow.
    """
    mean: FloatArray = np.mean([_average_precision(run) for run in runs], axis=0)
    known = np.flatnonzero(~np.isnan(mean))
    hardest: list[int] = known[np.argsort(mean[known], kind="stable")][:most].tolist()
    return hardest


def queries_table(runs: Sequence[Run], queries: Sequence[int]) -> Table:
    """Return a row a query: its labels, and what each run makes of it."""
    columns = runs[0].result.columns
    labels = [name for name in ("id", "cam") if name in columns]
    precision = [_average_precision(run) for run in runs]
    first_rank = [_first_rank(run) for run in runs]
    heads = ["Query", *labels, "positives"]
    for run in runs:
        of = f" {shortened(run.name)}" if len(runs) > 1 else ""
        heads += [f"AP{of}", f"First rank{of}"]
    rows = []
    for query in queries:
        cells = [Cell(str(columns[name][query]), wraps=True) for name in labels]
        cells.append(Cell(f"{runs[0].result.statistics.positives[query]:,}"))
        for own, rank in zip(precision, first_rank, strict=True):
            cells += [Cell(f"{100 * own[query]:.2f} %"), Cell(f"{rank[query]:,g}")]
        rows.append(Row(str(query), tuple(cells)))
    return Table(tuple(heads), (Part(tuple(rows)),))


def _average_precision(run: Run) -> FloatArray:
    ranked = RankedQueries(run.result.statistics, run.result.options)
    return ranked.of_all_queries(ranked.average_precision)


def _first_rank(run: Run) -> FloatArray:
    ranked = RankedQueries(run.result.statistics, run.result.options)
    return ranked.of_all_queries(ranked.ranks.first_rank())
