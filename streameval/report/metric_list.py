"""The list of all metrics, for ``streameval metrics``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streameval.metrics import METRICS, MetricOptions
from streameval.protocols.protocol import SINGLE_GALLERY_SHOT
from streameval.report.table import Table, facts
from streameval.report.terminal import Style, render

if TYPE_CHECKING:
    from streameval.metrics import Metric

PARTS: Mapping[str, str] = {
    "retrieval": "Retrieval",
    "open-set": "Open set",
    "gom": "GOM",
    "verification": "Verification",
}
"""Titles of the parts of the list."""


def metrics_summary() -> list[dict[str, Any]]:
    """Return every declaration as text, for ``--json``."""
    return [
        {
            "name": metric.name,
            "also": list(metric.also),
            "part": metric.part,
            "default": metric.default,
            "parameters": _parameters(metric),
            "examples": [measure.name for measure in metric.measures(MetricOptions())],
            "over": list(metric.over),
            "formula": metric.formula,
            "source": metric.source,
            "needs": list(metric.needs),
            "needs_single_shot": single_shot_needs(metric),
        }
        for metric in METRICS
    ]


def single_shot_needs(metric: Metric) -> list[str]:
    """Return the statistics that it needs under single gallery shot alone."""
    needs = metric.needs_under(MetricOptions(cmc=SINGLE_GALLERY_SHOT))
    return sorted(needs.difference(metric.needs))


def render_metrics(style: Style) -> str:
    """Return the list as text, part by part; a star marks what is computed by default."""
    blocks: list[str | Table] = []
    for part, title in PARTS.items():
        blocks.append(title.upper())
        for metric in METRICS:
            if metric.part == part:
                star = " *" if metric.default else ""
                blocks += [f"{metric.name}{star}", _declaration(metric, style)]
        blocks.append("")
    blocks += [
        "* computed where no --metrics are given",
        "over: a mean or a rate of these; without any of them there is no value",
    ]
    return render(style, blocks)


def _parameters(metric: Metric) -> dict[str, str]:
    return {name: parameter.expects for name, parameter in metric.parameters.items()}


def _declaration(metric: Metric, style: Style) -> Table:
    needs = ", ".join(metric.needs)
    more = single_shot_needs(metric)
    if more:
        needs += f"; under single gallery shot {', '.join(more)}, too"
    texts = {
        "formula": style.formula(metric.formula),
        "over": ", ".join(metric.over),
        "source": metric.source,
        "needs": needs,
    }
    if metric.also:
        texts["also"] = ", ".join(metric.also) + " (elsewhere)"
    if metric.parameters:
        texts["where"] = "; ".join(" ".join(pair) for pair in _parameters(metric).items())
    return facts([(f"    {name}", text) for name, text in texts.items()], wraps=True)
