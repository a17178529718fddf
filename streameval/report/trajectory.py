"""Trajectories of ledgers as a figure: metrics against the size of the gallery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streameval.errors import InputError, OptionError
from streameval.metrics.selection import find_name
from streameval.report.plots import COLOURS, DASHES, drawing, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from streameval.ledger import Snapshot

MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def plot_trajectories(ledgers: Mapping[str, Sequence[Snapshot]], metrics: Sequence[str]) -> Figure:
    """Return a figure of metrics against the size of the gallery, a mark a snapshot.

    Snapshots are joined in the order of time: where the gallery shrinks, a line goes back.

    Parameters
    ----------
    ledgers : mapping of str to sequence of Snapshot
        Their trajectories, by the names of the legend.
    metrics : sequence of str

    Raises
    ------
    OptionError
        If a ledger has no such metric, or matplotlib is not installed.
    InputError
        If a metric has no value in any snapshot.
    """
    with drawing() as (figure, axes):
        at = 0
        for name, trajectory in ledgers.items():
            for metric in metrics:
                parts = [shortened(name)] if len(ledgers) > 1 else []
                parts += [metric] if len(metrics) > 1 or not parts else []
                _draw(axes, _points(name, trajectory, metric), at, ": ".join(parts))
                at += 1
        axes.set_xlabel("gallery items")
        axes.set_ylabel(metrics[0] if len(metrics) == 1 else "value")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.legend(loc="best")
    return figure


def _points(name: str, trajectory: Sequence[Snapshot], metric: str) -> list[tuple[int, float]]:
    """Return sizes of the gallery, and the metric's values where it has one."""
    known = trajectory[-1].metrics
    found = find_name(metric, known)
    if found is None:
        raise OptionError(
            f"the trajectory of {name} has no metric {metric!r}; there are {', '.join(known)}"
        )
    values = [(one.gallery, one.metrics.get(found)) for one in trajectory]
    points = [(size, float(value)) for size, value in values if value is not None]
    if not points:
        raise InputError(
            f"{metric} has no value in any snapshot of {name}: append segments to the ledger, or "
            "plot another metric"
        )
    return points


def _draw(axes: Axes, points: Sequence[tuple[int, float]], at: int, label: str) -> None:
    sizes, values = zip(*points, strict=True)
    axes.plot(
        sizes,
        values,
        color=COLOURS[at % len(COLOURS)],
        linestyle=DASHES[at % len(DASHES)],
        marker=MARKERS[at % len(MARKERS)],
        markersize=4,
        gid=f"curve-{at}",
        label=label,
    )
