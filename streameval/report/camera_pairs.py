"""Camera pairs as matrices for the terminal: a row a camera of queries, a column a gallery's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from streameval.metrics.camera_pairs import CameraMatrix, camera_matrix
from streameval.metrics.kind import COUNT, FRACTION, Kind
from streameval.report.style import DASH, Style, number_text, unruled_table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from streameval.result import Evaluation

ROOM = 7  # cameras side by side: what a terminal of 80 columns holds
SHOWN = 2  # metrics: all are in the summary


def camera_tables(evaluation: Evaluation, style: Style) -> list[RenderableType]:
    """Return the number of queries, CMC and mAP of every pair of cameras, as tables.

    Where CMC or mAP is not among the metrics, the first ones are shown.
    """
    cells = evaluation.groups
    scores = {
        name: detail.kind
        for metrics in cells.values()
        for name, detail in metrics.details.items()
        if detail.kind.is_score
    }
    usual = [
        *[name for name in scores if name.startswith("CMC@")][:1],
        *[name for name in scores if name == "mAP"],
    ]
    names = list(dict.fromkeys([*usual, *scores]))[:SHOWN]
    tables = _tables("Queries", camera_matrix(cells, "queries"), COUNT, style)
    for name in names:
        kind = scores[name]
        title = f"{name} in percent" if kind is FRACTION else name
        tables += _tables(title, camera_matrix(cells, name), kind, style)
    return tables


def _tables(title: str, matrix: CameraMatrix, kind: Kind, style: Style) -> list[RenderableType]:
    """Return a matrix under its title, in parts of as many columns as fit side by side."""
    tables: list[RenderableType] = []
    for start in range(0, len(matrix.gallery_cams), ROOM):
        columns = slice(start, start + ROOM)
        heading = f"{title}, by camera of positives"
        tables += ["", style.text(heading), _table(matrix, columns, kind, style)]
    return tables


def _table(matrix: CameraMatrix, columns: slice, kind: Kind, style: Style) -> Table:
    table = unruled_table()
    table.add_column("query cam", no_wrap=True, justify="right")
    for camera in matrix.gallery_cams[columns].tolist():
        table.add_column(style.text(str(camera)), no_wrap=True, justify="right")
    for camera, row in zip(matrix.query_cams.tolist(), matrix.values[:, columns], strict=True):
        cells = (DASH if math.isnan(value) else number_text(value, kind) for value in row.tolist())
        table.add_row(style.text(str(camera)), *map(style.text, cells))
    return table
