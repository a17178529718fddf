"""The result as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from streameval.metrics.extremes import ListMetrics
from streameval.metrics.groups import NOT_BY_QUERY
from streameval.metrics.kind import TAU
from streameval.planning import format_bytes
from streameval.protocols.protocol import CAMERA_PAIRS
from streameval.report.bounds import (
    bounds_table,
    describe_reading,
)
from streameval.report.camera_pairs import camera_tables
from streameval.report.inputs import describe_inputs
from streameval.report.style import (
    DASH,
    TITLES,
    Style,
    aligned,
    amount,
    duration,
    facts,
    interval_text,
    number_text,
    packed,
    percent,
    plural,
    render,
    stdout_style,
    unruled_table,
    value_text,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from streameval.metrics import Detail, Metrics
    from streameval.metrics.confidence import Confidence
    from streameval.metrics.kind import Kind
    from streameval.result import Evaluation

__all__ = ["render_evaluation", "stdout_style"]


GROUPS_ROOM = 58  # characters: what a terminal of 80 columns leaves beside label and number


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes
    ----------
    name, value, ties, remark : str
        ``ties`` is the interval that ties leave open.
    confidence : str
        The confidence interval.
    """

    name: str
    value: str
    ties: str = ""
    remark: str = ""
    confidence: str = ""


def render_evaluation(evaluation: Evaluation, style: Style, *, saved: str | None = None) -> str:
    """Return the result as text: what was evaluated, the metrics, and how they were read.

    Parameters
    ----------
    evaluation : Evaluation
    style : Style
    saved : str, optional
        Where it was written.
    """
    closing = [
        *packed("Conventions", _conventions(evaluation)),
        *packed("Run", _run(evaluation)),
    ]
    confidence = evaluation.chosen_confidence
    if confidence is not None:
        how = confidence.how
        said = [
            f"{100 * how.level:g} % intervals",
            f"bootstrap of {plural(confidence.identities, 'identity', 'identities')} of queries",
            f"{how.resamples:,} resamples",
            f"seed {how.seed}",
        ]
        closing += [*packed("Confidence", said), *_without_interval(confidence)]
    if saved is not None:
        closing.append(("Written to", saved))
    groups: list[RenderableType] = []
    if evaluation.group_by is not None:
        by_pair = evaluation.group_by == CAMERA_PAIRS
        groups = (
            camera_tables(evaluation, style)
            if by_pair
            else ["", groups_table(evaluation, style), *_without_groups(evaluation, style)]
        )
    return render(
        style,
        [
            facts(style, _opening(evaluation)),
            "",
            _table(evaluation, style),
            *_intervals(evaluation, style),
            *groups,
            "",
            facts(style, closing),
        ],
    )


def describe_protocol(protocol: Mapping[str, Any]) -> str:
    """Return a protocol and its options in words, from a result's provenance."""
    junk = ", ".join(str(one) for one in protocol["junk_ids"]) or "none"
    said = f"{protocol['name']} · CMC {protocol['cmc']} · junk ids {junk}"
    if protocol["self_match"]:
        said += f" · a query's own image ignored, by {protocol['self_match']}"
    return said


def _intervals(evaluation: Evaluation, style: Style) -> list[RenderableType]:
    """Return the table of what lists leave open, where they do."""
    metrics = evaluation.metrics
    table = bounds_table(metrics, style) if isinstance(metrics, ListMetrics) else None
    return [] if table is None else ["", table]


def rows_of(evaluation: Evaluation) -> dict[str, list[Row]]:
    """Return the lines of the table by the title of their part."""
    metrics, confidence = evaluation.metrics, evaluation.chosen_confidence
    parts: dict[str, list[Row]] = {title: [] for title in TITLES.values()}
    said: dict[str, str] = {}  # the reason of the row above in a part, not to be repeated
    for name, value in metrics.scalars.items():
        detail = metrics.details[name]
        title = TITLES[detail.part]
        interval = metrics.intervals.get(name)
        bounds = metrics.bounds.get(name) if isinstance(metrics, ListMetrics) else None
        if bounds is not None and detail.open:
            row = Row(name, aligned(interval_text(*bounds, detail.kind), detail.kind))
        elif math.isnan(value):
            row = Row(name, DASH, remark="" if detail.reason == said.get(title) else detail.reason)
        else:
            ties = "" if interval is None else interval_text(*interval, detail.kind)
            place = _distance(value, evaluation.range) if detail.kind is TAU else _at(detail)
            row = Row(name, aligned(value_text(value, detail.kind), detail.kind), ties, place)
        if confidence is not None:
            row = replace(row, confidence=_confidence(confidence, name, detail.kind))
        parts[title].append(row)
        said[title] = detail.reason if math.isnan(value) and bounds is None else ""
    return {title: rows for title, rows in parts.items() if rows}


def _confidence(confidence: Confidence, name: str, kind: Kind) -> str:
    if name not in confidence.intervals:
        return DASH if name in confidence.reasons else ""
    return aligned(interval_text(*confidence.intervals[name], kind), kind)


def _without_interval(confidence: Confidence) -> list[tuple[str, str]]:
    """Return why metrics have no interval, for `facts`."""
    names: dict[str, list[str]] = {}
    for name, reason in confidence.reasons.items():
        names.setdefault(reason, []).append(name)
    return [
        row
        for reason, own in names.items()
        for row in packed("No interval", [f"{', '.join(own)}: {reason}"])
    ]


def _at(detail: Detail) -> str:
    """Return where a metric is reached, and how far both may be off."""
    parts = [f"± {percent(detail.error, 4)}"] if detail.error else []
    if detail.threshold is not None and math.isfinite(detail.threshold):
        bound = detail.threshold_error
        within = f" ± {bound:.2g}" if 0 < bound < math.inf else ""
        parts.append(f"distance {detail.threshold:.4g}{within}")
    return ", ".join(parts)


def _distance(tau: float, value_range: Mapping[str, Any]) -> str:
    low, high = value_range["low"], value_range["high"]
    return f"distance {low + tau * (high - low):.4g}"


def _opening(evaluation: Evaluation) -> list[tuple[str, str]]:
    counts, provenance = evaluation.counts, evaluation.provenance
    ties = plural(counts["ties"], "tie") if counts["ties"] else "no ties"
    return [
        describe_inputs(provenance["inputs"]),
        ("Protocol", describe_protocol(provenance["protocol"])),
        (
            "Queries",
            f"{counts['queries']:,}: {counts['queries_positive']:,} in Q+, "
            f"{counts['queries_negative']:,} in Q−, {counts['queries_excluded']:,} excluded",
        ),
        (
            "Gallery",
            f"{plural(counts['gallery'], 'item')} · "
            f"{plural(counts['pairs_positive'], 'positive pair')} · "
            f"{counts['pairs_ignored']:,} ignored · {ties}",
        ),
        *(describe_reading(provenance["lists"]) if "lists" in provenance else []),
    ]


def _conventions(evaluation: Evaluation) -> list[str]:
    options, used = evaluation.options, evaluation.range
    return [
        f"CMC {options.cmc}",
        f"ties {options.ties}",
        f"AP {options.ap}",
        f"VP {options.vp}",
        f"false-rate budget {options.false_rate_budget:,}",
    ] + ([] if used["low"] is None else [_range(used)])


def _range(used: Mapping[str, Any]) -> str:
    return f"range {used['low']:.6g} to {used['high']:.6g} ({used['mode']})"


def _run(evaluation: Evaluation) -> list[str]:
    counts, provenance = evaluation.counts, evaluation.provenance
    if "ledger" in provenance:
        ledger = provenance["ledger"]
        return [f"snapshot {ledger['snapshot']} of ledger {ledger['path']}"]
    plan, seconds = provenance["plan"], provenance["seconds"]
    rate = counts["queries"] * counts["gallery"] / max(seconds, 1e-3)
    memory = f"{format_bytes(plan['projected_peak'])} of {format_bytes(plan['memory'])}"
    return [
        duration(seconds),
        f"{amount(rate)} pairs/s",
        *([plural(plan["workers"], "worker")] if plan.get("workers") else []),
        plural(plan["threads"], "thread"),
        f"memory projected {memory}",
    ]


def _table(evaluation: Evaluation, style: Style) -> Table:
    from rich import box
    from rich.table import Table

    colours = (lambda name: "") if style.plain else (lambda name: name)
    table = Table(
        box=None if style.plain else box.ROUNDED,
        show_header=False,
        pad_edge=not style.plain,
        padding=(0, 3 if style.plain else 1, 0, 0 if style.plain else 1),
        border_style=colours("dim"),
    )
    parts, confidence = rows_of(evaluation), evaluation.chosen_confidence
    remarks = any(row.ties or row.remark for rows in parts.values() for row in rows)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right", style=colours("bold"))
    if confidence is not None:
        table.add_column(no_wrap=True, justify="right")
    if remarks:
        table.add_column(no_wrap=True, style=colours("dim"))
    for title, rows in parts.items():
        if style.plain and table.row_count:
            table.add_row()
        over = _over(title, evaluation)
        heading = [] if confidence is None else [f"{100 * confidence.how.level:g} %"]
        table.add_row(style.text(title), "", *heading, style.text(over), style=colours("bold cyan"))
        for row in rows:
            remark = f"{row.ties} by ties" if row.ties else ""
            remark = " · ".join(one for one in (remark, row.remark) if one)
            interval = [] if confidence is None else [style.text(row.confidence)]
            table.add_row(f"  {row.name}", style.text(row.value), *interval, style.text(remark))
        table.add_section()
    return table


def groups_table(evaluation: Evaluation, style: Style) -> Table:
    """Return a row a group of queries: their number, and the scores in percent that fit.

    With the confidence intervals, where the summary has them.
    """
    table = unruled_table()
    names, intervals = _scores_of_groups(evaluation), evaluation.group_confidence
    for column in (str(evaluation.group_by), "queries", *names):
        table.add_column(style.text(column), no_wrap=True, justify="right")
    for label, metrics in evaluation.groups.items():
        cells = (_cell(metrics, name, intervals.get(label)) for name in names)
        table.add_row(
            style.text(str(label)), f"{metrics.counts['queries']:,}", *map(style.text, cells)
        )
    return table


def _scores_of_groups(evaluation: Evaluation) -> list[str]:
    """Return the metrics that there is room for beside a group."""
    scores = [name for name, one in evaluation.metrics.details.items() if one.kind.is_score]
    cell = len("100.00 (100.00–100.00)" if evaluation.resampling is not None else "100.00")
    widths = accumulate(max(len(name), cell) + 2 for name in scores)
    return [name for name, width in zip(scores, widths, strict=True) if width <= GROUPS_ROOM]


def _cell(metrics: Metrics, name: str, confidence: Confidence | None) -> str:
    """Return a score with its confidence interval, if there is one; or its bounds."""
    value, kind = metrics.scalars[name], metrics.details[name].kind

    def between(low: float, high: float) -> str:
        return f"{number_text(low, kind)}–{number_text(high, kind)}"

    if not math.isnan(value):
        found = None if confidence is None else confidence.intervals.get(name)
        return number_text(value, kind) + ("" if found is None else f" ({between(*found)})")
    if isinstance(metrics, ListMetrics) and name in metrics.bounds:
        return between(*metrics.bounds[name])
    return DASH


def _without_groups(evaluation: Evaluation, style: Style) -> list[RenderableType]:
    """Return a line on the metrics without room, and one on those without groups, if any."""
    shown, there = len(_scores_of_groups(evaluation)), len(evaluation.metrics.scalars)
    said = []
    if shown < there:
        said.append(
            f"{shown} of {there} metrics of each group; --json, and groups.csv of --out, have all"
        )
    names = {
        name: None
        for metrics in evaluation.groups.values()
        for name, detail in metrics.details.items()
        if detail.reason == NOT_BY_QUERY
    }
    if names:
        said.append(f"{', '.join(names)}: {NOT_BY_QUERY}")
    return [style.text(line) for line in said]


def _over(title: str, evaluation: Evaluation) -> str:
    counts = evaluation.counts
    if title == "Verification":
        impostors = int(evaluation.statistics.negatives.sum())
        return f"{counts['pairs_positive']:,} genuine, {impostors:,} impostor pairs"
    positive = plural(counts["queries_positive"], "query", "queries")
    negative = f"{counts['queries_negative']:,}"
    both = f"{positive} of Q+, {negative} of Q−"
    return f"{positive} of Q+" if title == "Retrieval" else both
