"""Indexes against the truth, as tables for the terminal and as a plot in a file (SVG)."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from streameval.errors import OutputError
from streameval.metrics.kind import FRACTION
from streameval.neighbors.comparison import CONFIDENCE, LISTED, Comparison, Difference, Outcome
from streameval.planning import format_bytes
from streameval.report.inputs import describe_inputs
from streameval.report.style import (
    DASH,
    Style,
    amount,
    duration,
    facts,
    number_text,
    plural,
    render,
    unruled_table,
)

if TYPE_CHECKING:
    from rich.table import Table

BAR = 24  # characters of the longest bar
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 440, 76, 36, 200, 60  # of the plot, pixels
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


Scale = Callable[[float], float]
"""A rate, or a difference, to pixels."""


def render_comparison(comparison: Comparison, style: Style) -> str:
    """Return a comparison as text: the settings, their differences, and bars of one metric."""
    exact = comparison.exact
    counts = exact.counts
    opening = [
        describe_inputs(exact.provenance["inputs"]),
        (
            "Queries",
            f"{counts['queries']:,}: {counts['queries_positive']:,} in Q+, "
            f"{counts['queries_negative']:,} in Q−; {plural(counts['gallery'], 'gallery item')}",
        ),
        (
            "Exact",
            f"{duration(exact.provenance['seconds'])}, on {plural(comparison.threads, 'thread')}; "
            f"lists of k = {comparison.k:,}, as deployed: what is not returned is not found",
        ),
    ]
    return render(
        style,
        [
            facts(style, opening),
            "",
            settings_table(comparison, style),
            "",
            style.text(
                f"Differences to the exact evaluation, in points of a percent, ± half of a "
                f"{CONFIDENCE:.0%} interval over queries"
            ),
            differences_table(comparison, style),
            "",
            bars_table(comparison, style),
        ],
    )


def settings_table(comparison: Comparison, style: Style) -> Table:
    """Return a row a setting: recall of neighbours, and what it takes."""
    table = unruled_table()
    columns = ("setting", f"recall@{comparison.k}", "built in", "queries/s", "size")
    for at, column in enumerate(columns):
        table.add_column(style.text(column), no_wrap=True, justify="right" if at else "left")
    for one in comparison.outcomes:
        built = DASH if math.isnan(one.build_seconds) else duration(one.build_seconds)
        size = format_bytes(one.index_bytes) if one.index_bytes else DASH
        cells = (f"{100 * one.recall:.2f} %", built, amount(one.queries_per_second), size)
        table.add_row(str(one.setting), *map(style.text, cells))
    return table


def differences_table(comparison: Comparison, style: Style) -> Table:
    """Return a row a metric: its exact value, and the difference of each setting."""
    table = unruled_table()
    table.add_column("metric", no_wrap=True)
    table.add_column("exact", no_wrap=True, justify="right")
    for one in comparison.outcomes:
        table.add_column(str(one.setting), no_wrap=True, justify="right")
    for name in comparison.outcomes[0].differences:
        row = [one.differences[name] for one in comparison.outcomes]
        cells = (style.text(difference_text(one)) for one in row)
        table.add_row(name, style.text(_value(row[0])), *cells)
    return table


def bars_table(comparison: Comparison, style: Style) -> Table:
    """Return a bar a setting: how much is lost of one metric."""
    table = unruled_table()
    name = plotted(comparison)
    lost = [max(0.0 - one.differences[name].value, 0.0) for one in comparison.outcomes]
    longest = max((one for one in lost if not math.isnan(one)), default=0.0) or 1.0
    table.add_column("lost of " + name, no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True, justify="right")
    for one, size in zip(comparison.outcomes, lost, strict=True):
        length = 0 if math.isnan(size) else round(BAR * size / longest)
        symbol = "#" if style.plain else "█"
        table.add_row(str(one.setting), symbol * length, style.text(f"{100 * size:.2f}"))
    return table


def plotted(comparison: Comparison) -> str:
    """Return the metric that is plotted: mAP beside that of the lists, else the first."""
    names = list(comparison.outcomes[0].differences)
    return next((one for one in names if one.startswith(f"{LISTED} (")), names[0])


def difference_text(one: Difference) -> str:
    """Return a difference with half of its interval, in points of a percent."""
    if math.isnan(one.value):
        return DASH
    if one.kind is not FRACTION:
        return number_text(one.value, one.kind, signed=True)
    reach = "" if math.isnan(one.high) else f" ± {50 * (one.high - one.low):.2f}"
    return f"{100 * one.value:+.2f}{reach}".replace("-", "−")


def _value(one: Difference) -> str:
    return DASH if math.isnan(one.exact) else number_text(one.exact, one.kind) + one.kind.unit


def write_plot(comparison: Comparison, path: str | Path) -> None:
    """Write a plot: queries a second against the difference of a metric, with its interval.

    Raises
    ------
    OutputError
        If it is no .svg, or can't be written.
    """
    if Path(path).suffix.lower() != ".svg":
        raise OutputError(f"{path} is to be a plot; expected a file NAME.svg")
    try:
        Path(path).write_text(plot(comparison), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror}") from error


def plot(comparison: Comparison) -> str:
    """Return the plot as SVG."""
    name = plotted(comparison)
    shown = [one for one in comparison.outcomes if not math.isnan(one.differences[name].value)]
    ends = [end for one in shown for end in _ends(one.differences[name])]
    low, high = min([*ends, 0.0]), max([*ends, 0.0])
    pad = (high - low or 0.01) * 0.08
    low, high = low - pad, high + pad
    rates = [math.log10(one.queries_per_second) for one in shown] or [0.0]
    first, last = math.floor(min(rates)), math.ceil(max(rates) + 1e-9)

    def x(rate: float) -> float:
        return LEFT + (rate - first) / max(last - first, 1) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, TOP - 16, f"Δ {name} of indexes, k = {comparison.k:,}", "start"),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "queries a second", "middle"),
    ]
    for power in range(first, last + 1):
        parts += [
            f'<line x1="{x(power):.1f}" x2="{x(power):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
            'stroke="#ddd"/>',
            _text(x(power), HEIGHT - BOTTOM + 18, f"{10.0**power:g}", "middle"),
        ]
    for step in range(6):
        value = low + (high - low) * step / 5
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            'stroke="#eee"/>',
            _text(LEFT - 6, y(value) + 4, f"{100 * value:+.2f} %".replace("-", "−"), "end"),
        ]
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(0):.1f}" y2="{y(0):.1f}" stroke="#888"/>'
    )
    for at, one in enumerate(shown):
        parts += _mark(one, one.differences[name], at, x, y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ends(one: Difference) -> tuple[float, ...]:
    return (one.value,) if math.isnan(one.high) else (one.low, one.high)


def _mark(one: Outcome, difference: Difference, at: int, x: Scale, y: Scale) -> list[str]:
    """Return a point with its interval, and its name at the side."""
    colour = COLOURS[at % len(COLOURS)]
    place = x(math.log10(one.queries_per_second))
    ends = [y(end) for end in _ends(difference)]
    row = TOP + 10 + 18 * at
    return [
        f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{ends[0]:.1f}" y2="{ends[-1]:.1f}" '
        f'stroke="{colour}"/>',
        f'<circle cx="{place:.1f}" cy="{y(difference.value):.1f}" r="4" fill="{colour}"/>',
        f'<circle cx="{WIDTH - RIGHT + 16}" cy="{row - 4}" r="4" fill="{colour}"/>',
        _text(WIDTH - RIGHT + 26, row, str(one.setting), "start"),
    ]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
