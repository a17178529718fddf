"""The result as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.planning import format_bytes
from streameval.report.style import (
    DASH,
    Style,
    amount,
    duration,
    facts,
    packed,
    percent,
    percent_interval,
    plural,
    render,
    stdout_style,
)

if TYPE_CHECKING:
    from rich.table import Table

    from streameval.result import Evaluation

__all__ = ["render_evaluation", "stdout_style"]

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Retrieval": ("CMC@", "mAP", "mINP"),
    "Open set": ("DIR@",),
    "GOM": ("mVP_max", "mReP_max", "tau_max", "MREP", "MFR", "tau_nz"),
}
"""Titles of the table's parts, and how the names of their metrics begin."""
OTHERS = "Other"
THRESHOLDS = ("tau_max", "tau_nz")
OVER_NEGATIVE = ("MFR", "tau_nz", "DIR@")


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes
    ----------
    name, value, ties, remark : str
        ``ties`` is the interval that ties leave open.
    """

    name: str
    value: str
    ties: str = ""
    remark: str = ""


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
    if saved is not None:
        closing.append(("Written to", saved))
    return render(
        style,
        [
            facts(style, _opening(evaluation)),
            "",
            _table(evaluation, style),
            "",
            facts(style, closing),
        ],
    )


def describe_inputs(inputs: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the inputs are, and their names, from a result's provenance."""
    if "distances" in inputs:
        return "Distances", str(inputs["distances"])
    columns = plural(inputs["width"], "column")
    return "Features", f"{inputs['query']} × {inputs['gallery']} · {inputs['metric']}, {columns}"


def describe_protocol(protocol: Mapping[str, Any]) -> str:
    """Return a protocol and its options in words, from a result's provenance."""
    junk = ", ".join(str(one) for one in protocol["junk_ids"]) or "none"
    said = f"{protocol['name']} · CMC {protocol['cmc']} · junk ids {junk}"
    if protocol["self_match"]:
        said += f" · a query's own image ignored, by {protocol['self_match']}"
    return said


def rows_of(evaluation: Evaluation) -> dict[str, list[Row]]:
    """Return the lines of the table by the title of their part."""
    parts: dict[str, list[Row]] = {title: [] for title in (*GROUPS, OTHERS)}
    for name, value in evaluation.metrics.scalars.items():
        title = next((t for t, starts in GROUPS.items() if name.startswith(starts)), OTHERS)
        interval = evaluation.intervals.get(name)
        if math.isnan(value):
            reason = why_undefined(name, evaluation.counts)
            said = any(row.remark == reason for row in parts[title])
            row = Row(name, DASH, remark="" if said else reason)
        elif name in THRESHOLDS:
            ties = "" if interval is None else f"{interval[0]:.2f} – {interval[1]:.2f}"
            row = Row(name, f"{value:.2f}  ", ties, _distance(value, evaluation.range))
        else:
            ties = "" if interval is None else percent_interval(*interval)
            row = Row(name, percent(value), ties)
        parts[title].append(row)
    return {title: rows for title, rows in parts.items() if rows}


def why_undefined(name: str, counts: Mapping[str, int]) -> str:
    """Return in words why a metric has no value."""
    if counts["queries_negative"] == 0 and name.startswith(OVER_NEGATIVE):
        return "no open-set queries: every identity is there"
    if counts["queries_positive"] == 0:
        return "no query has a positive in the gallery"
    if name == "tau_nz":
        return "no query of Q− returns anything, even at τ = 1"
    return "undefined"


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
    ]


def _conventions(evaluation: Evaluation) -> list[str]:
    options, used = evaluation.options, evaluation.range
    return [
        f"ties {options.ties}",
        f"AP {options.ap}",
        f"VP {options.vp}",
        f"false-rate budget {options.false_rate_budget:,}",
        f"range {used['low']:.6g} to {used['high']:.6g} ({used['mode']})",
    ]


def _run(evaluation: Evaluation) -> list[str]:
    counts, provenance = evaluation.counts, evaluation.provenance
    plan, seconds = provenance["plan"], provenance["seconds"]
    rate = counts["queries"] * counts["gallery"] / max(seconds, 1e-3)
    memory = f"{format_bytes(plan['projected_peak'])} of {format_bytes(plan['memory'])}"
    return [
        duration(seconds),
        f"{amount(rate)} pairs/s",
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
    parts = rows_of(evaluation)
    remarks = any(row.ties or row.remark for rows in parts.values() for row in rows)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right", style=colours("bold"))
    if remarks:
        table.add_column(no_wrap=True, style=colours("dim"))
    for title, rows in parts.items():
        if style.plain and table.row_count:
            table.add_row()
        over = _over(title, evaluation.counts)
        table.add_row(style.text(title), "", style.text(over), style=colours("bold cyan"))
        for row in rows:
            remark = f"{row.ties} by ties" if row.ties else ""
            remark = " · ".join(one for one in (remark, row.remark) if one)
            table.add_row(f"  {row.name}", style.text(row.value), style.text(remark))
        table.add_section()
    return table


def _over(title: str, counts: Mapping[str, int]) -> str:
    positive = plural(counts["queries_positive"], "query", "queries")
    negative = f"{counts['queries_negative']:,}"
    both = f"{positive} of Q+, {negative} of Q−"
    return f"{positive} of Q+" if title == "Retrieval" else both
