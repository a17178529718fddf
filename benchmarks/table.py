"""The outcomes as a table, and the machine they were measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table
from threadpoolctl import threadpool_info

from benchmarks.figure import Figure, Outcome

PACKAGES = ("streameval", "numpy", "numba", "zarr", "zarrs", "faiss-cpu")
LINE = 70
SIGNS = {"at most": "≤", "at least": "≥"}


def machine() -> dict[str, Any]:
    """Return the processor, the cores that may be used, and the versions of what is measured."""
    model = platform.processor() or platform.machine()
    features: set[str] = set()
    information = Path("/proc/cpuinfo")
    if information.exists():
        fields = [line.partition(":") for line in information.read_text().splitlines()]
        named = {name.strip(): value.strip() for name, _, value in reversed(fields)}
        model = named.get("model name", model)
        features = set(named.get("flags", "").split())
    return {
        "processor": model,
        "avx512": "avx512f" in features,
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "blas": [
            f"{library['internal_api']} {library['version']} {library.get('architecture', '')}"
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe(facts: Mapping[str, Any]) -> str:
    """Return the machine in two lines."""
    packages = ", ".join(f"{name} {own}" for name, own in facts["packages"].items() if own)
    avx512 = ", AVX-512" if facts["avx512"] else ""
    return (
        f"{facts['processor']}{avx512}, {facts['cores']} cores, "
        f"{facts['memory'] / 2**30:.0f} GiB; {'; '.join(facts['blas'])}\n"
        f"Python {facts['python']}, {packages}"
    )


def build_table(outcomes: Sequence[Outcome]) -> Table:
    """Return a row a figure."""
    table = Table(title_justify="left", pad_edge=False)
    table.add_column("figure", no_wrap=True)
    for column in ("measured", "bound"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("met")
    table.add_column("of")
    table.add_column("medians", no_wrap=True)
    table.add_column("of rounds: median (least–greatest)", no_wrap=True)
    table.add_column("n", justify="right")
    group = None
    for outcome in outcomes:
        own = outcome.figure.name.partition("/")[0]
        if group is not None and own != group:
            table.add_section()
        group = own
        table.add_row(*_row(outcome))
    return table


def _row(outcome: Outcome) -> list[str]:
    figure, reading = outcome.figure, outcome.reading
    if reading is None:
        return [
            figure.name,
            "–",
            _bound(figure),
            "–",
            f"[dim]{escape(_skipped(outcome))}[/dim]",
        ]
    sides = list(reading.medians)
    if figure.kind == "line":
        of = f"off a line, {sides[0]}…{sides[-1]}"
        sides = [sides[0], sides[-1]]
    else:
        compared = 2 if figure.kind == "ratio" else 1
        of = ", beside ".join([" / ".join(sides[:compared]), *sides[compared:]])
    return [
        figure.name,
        _figure(figure, reading.value),
        _bound(figure),
        "[green]yes[/green]" if outcome.met else "[red]no[/red]",
        of,
        ", ".join(_amount(reading.medians[side], figure.unit) for side in sides),
        f"{_figure(figure, reading.pairwise)} "
        f"({_figure(figure, reading.low)}–{_figure(figure, reading.high)})",
        str(len(next(iter(outcome.samples.values())))),
    ]


def _skipped(outcome: Outcome) -> str:
    """Return why, cut to a line; the JSON has it all."""
    reason = f"skipped: {outcome.skipped}"
    return reason if len(reason) <= LINE else f"{reason[: LINE - 1]}…"


def _bound(figure: Figure) -> str:
    aim = f" (aim {_figure(figure, figure.aim)})" if figure.aim is not None else ""
    return f"{SIGNS[figure.direction]} {_figure(figure, figure.bound)}{aim}"


def _figure(figure: Figure, value: float) -> str:
    if figure.kind == "line":
        return f"{100 * value:.1f} %"
    if figure.kind == "value":
        return _amount(value, figure.unit)
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _amount(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:.3f} s" if value < 100 else f"{value:.0f} s"
    if unit == "B":
        return f"{value / 1e6:,.0f} MB"
    return f"{value:g}"
