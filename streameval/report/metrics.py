"""The list of all metrics, for ``streameval metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.metrics import METRICS, MetricOptions
from streameval.protocols.protocol import SINGLE_GALLERY_SHOT
from streameval.report.style import TITLES, Style, facts, render, wrapped

if TYPE_CHECKING:
    from rich.console import RenderableType

    from streameval.metrics import Metric


def metrics_summary() -> list[dict[str, Any]]:
    """Return every declaration as text, for ``--json``."""
    return [
        {
            "name": metric.name,
            "also": list(metric.also),
            "part": metric.part,
            "default": metric.default,
            "parameters": {name: one.expects for name, one in metric.parameters.items()},
            "examples": [one.name for one in metric.measures(MetricOptions())],
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
    blocks: list[RenderableType] = []
    for part, title in TITLES.items():
        blocks.append(style.text(title.upper()))
        for metric in METRICS:
            if metric.part == part:
                star = " *" if metric.default else ""
                blocks += [style.text(f"{metric.name}{star}"), facts(style, _lines(metric, style))]
        blocks.append("")
    blocks += [
        "* computed where no --metrics are given",
        style.text("over: a mean or a rate of these; without any of them there is no value"),
    ]
    return render(style, blocks)


def _lines(metric: Metric, style: Style) -> list[tuple[str, str]]:
    said = {
        "formula": style.formula(metric.formula),
        "over": ", ".join(metric.over),
        "source": metric.source,
        "needs": ", ".join(metric.needs),
    }
    under = single_shot_needs(metric)
    if under:
        said["needs"] += f"; under single gallery shot {', '.join(under)}, too"
    if metric.also:
        said["also"] = ", ".join(metric.also) + " (elsewhere)"
    if metric.parameters:
        said["where"] = "; ".join(
            f"{name} {one.expects}" for name, one in metric.parameters.items()
        )
    return [row for name, text in said.items() for row in wrapped(style, f"    {name}", text)]
