"""A ledger for the terminal: its segments, its trajectory, a metric against the gallery's size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.metrics.selection import find_measure, find_name
from streameval.report.style import (
    DASH,
    Style,
    amount,
    duration,
    facts,
    number_text,
    packed,
    percent,
    plural,
    render,
    unruled_table,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from streameval.ledger import Snapshot
    from streameval.ledger.head import Head
    from streameval.ledger.trajectory import Forecast

PLOT_ROWS, PLOT_COLUMNS = 10, 60
SHOWN = ("CMC@1", "mAP", "mINP", "mReP_max", "DIR@1|FAR=0.01")
ROOM = 3  # metrics beside a snapshot
SIDES = {"positive": "Q+", "negative": "Q−", "excluded": "excluded"}


def ledger_summary(path: str, head: Head) -> dict[str, Any]:
    """Return what ``show --json`` prints."""
    settings, last = head.settings, head.last
    return {
        "ledger": path,
        "metric": settings.metric,
        "protocol": settings.protocol.name,
        "range": None if settings.range is None else [settings.range.low, settings.range.high],
        "queries": head.queries,
        "gallery": head.gallery,
        "metrics": last["metrics"],
        "counts": last["counts"],
        "segments": [
            {
                "name": segment.name,
                "items": segment.items,
                "forgotten": segment.forgotten,
                "places": [place.uri for place in segment.places],
            }
            for segment in head.segments
        ],
        "trajectory": list(head.trajectory),
    }


def forecast_summary(forecast: Forecast) -> dict[str, Any]:
    """Return what ``append --dry-run --json`` prints."""
    return asdict(forecast) | {"pairs": forecast.pairs, "share": forecast.share}


def render_forecast(name: str, forecast: Forecast, style: Style) -> str:
    """Return what an append would count, as text."""
    queries = plural(forecast.queries, "query", "queries")
    rows = [
        ("Append", f"{name}, {plural(forecast.items, 'item')}"),
        ("Counts", f"{amount(forecast.segment)} pairs of the segment"),
        (
            "Again",
            f"{amount(forecast.rescanned)} pairs of old segments, for {queries} whose new "
            "positives are beyond the nearest negatives that are kept",
        ),
        ("Share", f"{percent(forecast.share)} of a full evaluation, as far as can be told"),
    ]
    return render(style, [facts(style, rows)])


def render_change(snapshot: Snapshot, style: Style) -> str:
    """Return what a change has done, as text."""
    done = [
        plural(snapshot.gallery, "gallery item"),
        plural(snapshot.segments, "segment"),
        plural(snapshot.queries, "query", "queries"),
    ]
    counted = [f"{amount(snapshot.pairs)} pairs"]
    if snapshot.rescanned:
        counted.append(f"{amount(snapshot.rescanned)} of them of old segments")
    counted.append(duration(snapshot.seconds))
    rows = [
        (f"Snapshot {snapshot.number}", f"{snapshot.change} {snapshot.name}".strip()),
        *packed("Holds", done),
        *packed("Counted", counted),
        *packed("Sides", _sides(snapshot.counts, snapshot.sides)),
        *packed(
            "Metrics",
            [f"{name} {_value(name, snapshot.metrics)}" for name in _shown(snapshot.metrics)],
        ),
    ]
    return render(style, [facts(style, rows)])


def _sides(counts: Mapping[str, int], sides: Mapping[str, int]) -> list[str]:
    """Say how many queries are on each side, and how many have changed."""
    said = [f"{counts[f'queries_{side}']:,} {name}" for side, name in SIDES.items()]
    for change, count in sides.items():
        one, _, other = change.partition(">")
        said.append(f"{count:,} from {SIDES[one]} to {SIDES[other]}")
    return said


def _shown(metrics: Mapping[str, float | None], room: int = len(SHOWN)) -> list[str]:
    """Return the names of metrics that are shown beside a snapshot."""
    return [*(name for name in SHOWN if name in metrics), *metrics][: min(room, len(metrics))]


def _value(name: str, metrics: Mapping[str, float | None]) -> str:
    value = metrics.get(name)
    return DASH if value is None else number_text(value, find_measure(name).metric.kind)


def render_ledger(path: str, head: Head, style: Style, plotted: str | None = None) -> str:
    """Return a ledger as text: what it is, its segments, its trajectory and a plot.

    Parameters
    ----------
    path : str
    head : Head
    style : Style
    plotted : str, optional
        The metric to plot; one of the first by default.

    Raises
    ------
    OptionError
        If there is no such metric.
    """
    last = head.last
    usual = "mAP" if "mAP" in last["metrics"] else _shown(last["metrics"])[0]
    name = usual if plotted is None else find_name(plotted, last["metrics"])
    if name is None:
        raise OptionError(
            f"the trajectory has no metric {plotted!r}; there are {', '.join(last['metrics'])}"
        )
    settings = head.settings
    used = settings.range
    limits = "no range" if used is None else f"range {used.low:g} to {used.high:g}"
    rows = [
        ("Ledger", path),
        ("Kind", f"features, {settings.metric}" if settings.metric else "stored distances"),
        ("Protocol", f"{settings.protocol.name} · {limits}"),
        *packed("Queries", [f"{head.queries:,}", *_sides(last["counts"], {})]),
        ("Gallery", f"{plural(head.gallery, 'item')} in {plural(len(head.segments), 'segment')}"),
    ]
    blocks: list[RenderableType] = [facts(style, rows), ""]
    if head.segments:
        blocks += [_segments(head, style), ""]
    blocks += [
        _trajectory(head, style),
        "",
        *(style.text(line) for line in _plot(head, name, style)),
    ]
    return render(style, blocks)


def _table(style: Style, titles: Sequence[str]) -> Table:
    table = unruled_table()
    for number, title in enumerate(titles):
        words = number < 1 or title in ("change", "name", "place")
        table.add_column(style.text(title), no_wrap=True, justify="left" if words else "right")
    return table


def _segments(head: Head, style: Style) -> RenderableType:
    table = _table(style, ("segment", "items", "forgotten", "place"))
    for one in head.segments:
        cells = one.name, f"{one.items:,}", f"{one.forgotten:,}", one.places[0].uri
        table.add_row(*map(style.text, cells))
    return table


def _trajectory(head: Head, style: Style) -> RenderableType:
    names = _shown(head.last["metrics"], ROOM)
    titles = ("snapshot", "change", "name", "gallery", "Q+", "Q−", "excluded", *names)
    table = _table(style, titles)
    for entry in head.trajectory:
        counts = entry["counts"]
        cells = (
            str(entry["number"]),
            entry["change"],
            entry["name"],
            f"{entry['gallery']:,}",
            *(f"{counts[f'queries_{side}']:,}" for side in SIDES),
            *(_value(name, entry["metrics"]) for name in names),
        )
        table.add_row(*map(style.text, cells))
    return table


def _plot(head: Head, name: str, style: Style) -> list[str]:
    """Return a metric against the size of the gallery, a character a cell."""
    points = [
        (entry["gallery"], entry["metrics"][name])
        for entry in head.trajectory
        if entry["metrics"].get(name) is not None
    ]
    if not points:
        return [f"{name} has no value in any snapshot"]
    sizes, values = zip(*points, strict=True)
    low, high = min(values), max(values)
    if high - low < 1e-9:
        low, high = low - 0.005, high + 0.005
    widest = max(*sizes, 1)
    mark, kind = "*" if style.plain else "●", find_measure(name).metric.kind
    grid = [[" "] * (PLOT_COLUMNS + 1) for _ in range(PLOT_ROWS)]
    for size, value in points:
        row = math.floor((high - value) / (high - low) * (PLOT_ROWS - 1) + 0.5)
        grid[row][round(size / widest * PLOT_COLUMNS)] = mark
    lines = [f"{name} against the size of the gallery"]
    for number, row in enumerate(grid):
        value = high - (high - low) * number / (PLOT_ROWS - 1)
        label = number_text(value, kind).rjust(8) if number in (0, PLOT_ROWS - 1) else " " * 8
        lines.append(f"{label} |{''.join(row)}".rstrip())
    lines.append(" " * 9 + "+" + "-" * PLOT_COLUMNS)
    lines.append(" " * 10 + "0" + f"{widest:,}".rjust(PLOT_COLUMNS - 1))
    return lines
