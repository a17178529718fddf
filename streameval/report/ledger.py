"""A ledger: its segments, its trajectory, a metric against the gallery's size; and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING

from streameval.display.figures import drawing, look, shortened
from streameval.display.table import (
    Blocks,
    Cell,
    Table,
    amount,
    duration,
    facts,
    number,
    number_text,
    percent,
    plural,
)
from streameval.errors import InputError, OptionError
from streameval.metrics.selection import find_measure, find_name
from streameval.typing import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from streameval.ledger import Snapshot
    from streameval.ledger.head import Head
    from streameval.ledger.trajectory import Forecast

PLOT_ROWS, PLOT_COLUMNS = 10, 60
SHOWN = ("CMC@1", "mAP", "mINP", "mReP_max", "DIR@1|FAR=0.01")
ROOM = 3  # metrics beside a snapshot
SIDES = {"positive": "Q+", "negative": "Q−", "excluded": "excluded"}


def ledger_summary(path: str, head: Head) -> JsonObject:
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
        "trajectory": head.trajectory,
    }


def forecast_summary(forecast: Forecast) -> JsonObject:
    """Return what ``append --dry-run --json`` prints."""
    return asdict(forecast) | {"pairs": forecast.pairs, "share": forecast.share}


def forecast_blocks(name: str, forecast: Forecast) -> Blocks:
    """Return in words what an append would count."""
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
    return [facts(rows)]


def change_blocks(snapshot: Snapshot) -> Blocks:
    """Return in words what a change has done."""
    done = [
        plural(snapshot.gallery, "gallery item"),
        plural(snapshot.segments, "segment"),
        plural(snapshot.queries, "query", "queries"),
    ]
    counted = [
        f"{amount(snapshot.pairs)} pairs",
        f"{amount(snapshot.rescanned)} of them of old segments" if snapshot.rescanned else "",
        duration(snapshot.seconds),
    ]
    changes = [
        f"{count:,} from {' to '.join(SIDES[side] for side in change.split('>'))}"
        for change, count in snapshot.sides.items()
    ]
    values = snapshot.metrics
    rows = [
        (f"Snapshot {snapshot.number}", f"{snapshot.change} {snapshot.name}".strip()),
        ("Holds", done),
        ("Counted", counted),
        ("Sides", _sides(snapshot.counts) + changes),
        ("Metrics", [f"{name} {_value(name, values).text}" for name in _shown(values)]),
    ]
    return [facts(rows)]


def _sides(counts: Mapping[str, int]) -> list[str]:
    """Return in words how many queries are on each side."""
    return [f"{counts[f'queries_{side}']:,} {name}" for side, name in SIDES.items()]


def _shown(metrics: Mapping[str, float | None], room: int = len(SHOWN)) -> list[str]:
    """Return the names of metrics that are shown beside a snapshot."""
    first = (name for name in SHOWN if name in metrics)
    return list(dict.fromkeys([*first, *metrics]))[:room]


def _value(name: str, metrics: Mapping[str, float | None]) -> Cell:
    return number(metrics.get(name), find_measure(name).metric.kind)


def ledger_blocks(path: str, head: Head, plotted: str | None = None) -> Blocks:
    """Return a ledger in words and tables: what it is, its segments, its trajectory and a plot.

    `plotted` is the metric to plot, one of the first by default; refused with an OptionError
    if there is none.
    """
    last, settings = head.last, head.settings
    usual = "mAP" if "mAP" in last["metrics"] else _shown(last["metrics"])[0]
    name = _known_name(usual if plotted is None else plotted, path, last["metrics"])
    used = settings.range
    limits = "no range" if used is None else f"range {used.low:g} to {used.high:g}"
    rows = [
        ("Ledger", path),
        ("Kind", f"features, {settings.metric}" if settings.metric else "stored distances"),
        ("Protocol", f"{settings.protocol.name} · {limits}"),
        ("Queries", [f"{head.queries:,}", *_sides(last["counts"])]),
        ("Gallery", f"{plural(head.gallery, 'item')} in {plural(len(head.segments), 'segment')}"),
    ]
    segments = (
        (segment.name, f"{segment.items:,}", f"{segment.forgotten:,}", segment.places[0].uri)
        for segment in head.segments
    )
    heads = ("segment", "items", "forgotten", "place")
    listed = (Table.of(heads, segments, align="lrrl"), "") if head.segments else ()
    return [facts(rows), "", *listed, _trajectory(head), "", *_plot(head, name)]


def _known_name(metric: str, ledger: str, known: Mapping[str, float | None]) -> str:
    """Return the name of a metric of a trajectory; refuse one that is not there."""
    name = find_name(metric, known)
    if name is None:
        raise OptionError(
            f"the trajectory of {ledger} has no metric {metric!r}; there are {', '.join(known)}"
        )
    return name


def _trajectory(head: Head) -> Table:
    names = _shown(head.last["metrics"], ROOM)
    rows = (
        (
            *(entry["number"], entry["change"], entry["name"], f"{entry['gallery']:,}"),
            *(f"{entry['counts'][f'queries_{side}']:,}" for side in SIDES),
            *(_value(name, entry["metrics"]) for name in names),
        )
        for entry in head.trajectory
    )
    heads = ("snapshot", "change", "name", "gallery", *SIDES.values(), *names)
    return Table.of(heads, rows, align="lll")


def _plot(head: Head, name: str) -> list[str]:
    """Return a metric against the size of the gallery, a character a cell."""
    points = _points(head, name)
    if not points:
        return [f"{name} has no value in any snapshot"]
    sizes, values = zip(*points, strict=True)
    low, high = min(values), max(values)
    if high - low < 1e-9:
        low, high = low - 0.005, high + 0.005
    widest, last = max(*sizes, 1), PLOT_ROWS - 1
    grid = [[" "] * (PLOT_COLUMNS + 1) for _ in range(PLOT_ROWS)]
    for size, value in points:
        row = math.floor((high - value) / (high - low) * last + 0.5)
        grid[row][round(size / widest * PLOT_COLUMNS)] = "●"
    kind = find_measure(name).metric.kind
    labels = {0: number_text(high, kind), last: number_text(low, kind)}
    return [
        f"{name} against the size of the gallery",
        *(f"{labels.get(at, ''):>8} |{''.join(row)}".rstrip() for at, row in enumerate(grid)),
        " " * 9 + "+" + "-" * PLOT_COLUMNS,
        " " * 10 + "0" + f"{widest:,}".rjust(PLOT_COLUMNS - 1),
    ]


def _points(head: Head, name: str) -> list[tuple[int, float]]:
    """Return sizes of the gallery and values of a metric, where it has one."""
    values = ((entry["gallery"], entry["metrics"].get(name)) for entry in head.trajectory)
    return [(size, float(value)) for size, value in values if value is not None]


def plot_trajectories(ledgers: Mapping[str, Head], metrics: Sequence[str]) -> Figure:
    """Return a figure of metrics against the size of the gallery, a mark a snapshot.

    Snapshots are joined in the order of time: where the gallery shrinks, a line goes back. Raises
    OptionError if a ledger has no such metric, InputError if it has no value in any snapshot.
    """
    with drawing() as (figure, axes):
        for at, ((name, head), metric) in enumerate(product(ledgers.items(), metrics)):
            points = _points(head, _known_name(metric, name, head.last["metrics"]))
            if not points:
                raise InputError(
                    f"{metric} has no value in any snapshot of {name}: append segments to the "
                    "ledger, or plot another metric"
                )
            parts = [shortened(name)] if len(ledgers) > 1 else []
            parts += [metric] if len(metrics) > 1 or not parts else []
            shown = look(at, "", marked=True) | {"label": ": ".join(parts)}
            axes.plot(*zip(*points, strict=True), **shown)
        axes.set(xlabel="gallery items", ylabel=metrics[0] if len(metrics) == 1 else "value")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.legend(loc="best")
    return figure
