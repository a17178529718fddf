"""Groups of queries, and pairs of cameras, as tables."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from streameval.metrics.bounds import ListMetrics
from streameval.metrics.groups import NOT_BY_QUERY, camera_matrix
from streameval.metrics.metric import COUNT, FRACTION, Kind
from streameval.protocols.labels import CAMERA_PAIRS
from streameval.report.numbers import DASH, number_text
from streameval.report.table import Table, number

if TYPE_CHECKING:
    from streameval.metrics import Metrics
    from streameval.metrics.confidence import Confidence
    from streameval.result import Evaluation

GROUPS_ROOM = 58  # characters: what a terminal of 80 columns leaves beside label and number
CAMERAS_ROOM = 7  # cameras side by side: what a terminal of 80 columns holds
MATRICES = 2  # metrics shown by pairs of cameras: all are in the summary


def group_blocks(evaluation: Evaluation) -> list[str | Table]:
    """Return the tables of the groups, or pairs of cameras, of a result; nothing without any."""
    if evaluation.group_by is None:
        return []
    if evaluation.group_by == CAMERA_PAIRS:
        return _camera_tables(evaluation)
    return ["", _groups_table(evaluation), *_left_out(evaluation)]


def _groups_table(evaluation: Evaluation) -> Table:
    """Return a row a group: its queries, and the scores that fit, with their intervals."""
    names, intervals = _scores_that_fit(evaluation), evaluation.group_confidence
    rows = (
        (
            str(label),
            f"{metrics.counts['queries']:,}",
            *(_group_score(metrics, name, intervals.get(label)) for name in names),
        )
        for label, metrics in evaluation.groups.items()
    )
    heads = (str(evaluation.group_by), "queries", *names)
    return Table.of(heads, rows, align="r" * len(heads))


def _scores_that_fit(evaluation: Evaluation) -> list[str]:
    scores = [name for name, one in evaluation.metrics.details.items() if one.kind.is_score]
    cell = len("100.00 (100.00–100.00)" if evaluation.resampling is not None else "100.00")
    widths = accumulate(max(len(name), cell) + 2 for name in scores)
    return [name for name, width in zip(scores, widths, strict=True) if width <= GROUPS_ROOM]


def _group_score(metrics: Metrics, name: str, confidence: Confidence | None) -> str:
    """Return a score with its confidence interval, if there is one; or its bounds."""
    value, kind = metrics.scalars[name], metrics.details[name].kind

    def between(low: float, high: float) -> str:
        return f"{number_text(low, kind)}–{number_text(high, kind)}"

    if not math.isnan(value):
        interval = None if confidence is None else confidence.intervals.get(name)
        return number_text(value, kind) + ("" if interval is None else f" ({between(*interval)})")
    if isinstance(metrics, ListMetrics) and name in metrics.bounds:
        return between(*metrics.bounds[name])
    return DASH


def _left_out(evaluation: Evaluation) -> list[str]:
    """Return a line on the metrics without room, and one on those without groups, if any."""
    shown, there = len(_scores_that_fit(evaluation)), len(evaluation.metrics.scalars)
    lines = []
    if shown < there:
        lines.append(
            f"{shown} of {there} metrics of each group; --json, and groups.csv of --out, have all"
        )
    names = {
        name: None
        for metrics in evaluation.groups.values()
        for name, detail in metrics.details.items()
        if detail.reason == NOT_BY_QUERY
    }
    return [*lines, f"{', '.join(names)}: {NOT_BY_QUERY}"] if names else lines


def _camera_tables(evaluation: Evaluation) -> list[str | Table]:
    """Return the number of queries, CMC and mAP of every pair of cameras, as matrices.

    Where CMC or mAP is not among the metrics, the first ones are shown.
    """
    scores: dict[str, Kind] = {
        name: detail.kind
        for metrics in evaluation.groups.values()
        for name, detail in metrics.details.items()
        if detail.kind.is_score
    }
    usual = [name for name in scores if name.startswith("CMC@")][:1]
    usual += [name for name in scores if name == "mAP"]
    names = list(dict.fromkeys([*usual, *scores]))[:MATRICES]
    blocks = _matrix_blocks(evaluation, "queries", COUNT, "Queries")
    for name in names:
        title = f"{name} in percent" if scores[name] is FRACTION else name
        blocks += _matrix_blocks(evaluation, name, scores[name], title)
    return blocks


def _matrix_blocks(evaluation: Evaluation, name: str, kind: Kind, title: str) -> list[str | Table]:
    """Return a row a camera of queries, a column a camera of positives: as many as fit."""
    matrix = camera_matrix(evaluation.groups, name)
    rows = (
        (str(cam), *(number(value, kind) for value in values))
        for cam, values in zip(matrix.query_cams.tolist(), matrix.values.tolist(), strict=True)
    )
    heads = ("query cam", *map(str, matrix.gallery_cams.tolist()))
    whole = Table.of(heads, rows, align="r" * len(heads))
    blocks: list[str | Table] = []
    for table in whole.cut(CAMERAS_ROOM):
        blocks += ["", f"{title}, by camera of positives", table]
    return blocks
