"""Measure every figure: ``python -m benchmarks [--quick] [--only NAME] [--json [FILE]]``."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from benchmarks import (
    cliffs,
    cluster,
    confidence,
    expansion,
    features,
    guards,
    labels,
    ledger,
    lists,
    many,
    memory,
    one_pass,
    overview,
    ranks,
    reranking,
    scaling,
    single_shot,
    startup,
    stored,
)
from benchmarks.figure import ROUNDS, Bench, Case, Outcome, chosen, run
from benchmarks.table import SIGNS, build_table, describe, machine

GROUPS: tuple[tuple[Case, ...], ...] = (
    overview.CASES,
    features.CASES,
    ranks.CASES,
    stored.CASES,
    scaling.CASES,
    memory.CASES,
    labels.CASES,
    guards.CASES,
    cliffs.CASES,
    single_shot.CASES,
    one_pass.CASES,
    reranking.CASES,
    expansion.CASES,
    confidence.CASES,
    startup.CASES,
    cluster.CASES,
    ledger.CASES,
    lists.CASES,
    many.CASES,
)
CASES: tuple[Case, ...] = tuple(case for group in GROUPS for case in group)
STDOUT = "-"
TABLE_WIDTH = 220


@contextmanager
def data_folder(given: Path | None) -> Iterator[Path]:
    """Give the folder of the inputs; one that is not given is temporary."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="streameval-benchmarks-") as folder:
            yield Path(folder)
    else:
        given.mkdir(parents=True, exist_ok=True)
        yield given


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Smaller sizes, in under two minutes.")
@click.option("--only", metavar="NAME", help="Figures whose name has this part, or fits this glob.")
@click.option(
    "--json",
    "json_file",
    metavar="[FILE]",
    is_flag=False,
    flag_value=STDOUT,
    help="Write JSON to a file, or to stdout in place of the table.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where inputs are generated, and features kept for the next run; else a temporary folder.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=ROUNDS,
    show_default=True,
    help="How often each side is measured.",
)
@click.option("--list", "only_list", is_flag=True, help="List the figures, and measure nothing.")
def main(
    quick: bool,
    only: str | None,
    json_file: str | None,
    data: Path | None,
    rounds: int,
    only_list: bool,
) -> None:
    """Measure streameval against the machine's limits and against peers, side by side."""
    cases = chosen(CASES, only)
    if not cases:
        raise click.UsageError(f"no figure is called {only!r}; see --list")
    if only_list:
        for case in cases:
            for figure in case.figures:
                bound = f"{SIGNS[figure.direction]} {figure.bound:g}"
                click.echo(f"{figure.name}  {bound}  {' / '.join(figure.sides)}")
        return
    begin = time.monotonic()
    with data_folder(data) as folder:
        outcomes = measure(cases, Bench(folder, quick=quick, rounds=rounds))
    facts = machine()
    if json_file is not None:
        report = {
            "machine": facts,
            "quick": quick,
            "seconds": time.monotonic() - begin,
            "figures": [outcome.to_json() for outcome in outcomes],
        }
        text = json.dumps(report, indent=1)
        if json_file == STDOUT:
            click.echo(text)
            return
        Path(json_file).write_text(text + "\n")
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    console.print(describe(facts), highlight=False)
    console.print(build_table(outcomes))
    measured = [outcome for outcome in outcomes if outcome.met is not None]
    console.print(
        f"{sum(outcome.met is True for outcome in measured)} of {len(measured)} figures met, "
        f"{len(outcomes) - len(measured)} skipped, in {time.monotonic() - begin:.0f} s",
        highlight=False,
    )


def measure(cases: list[Case], bench: Bench) -> list[Outcome]:
    """Measure the cases one after the other, and say each reading on stderr as it is there."""
    outcomes: list[Outcome] = []
    for case in cases:
        begin = time.monotonic()
        click.echo(f"{case.figures[0].name} … ", err=True, nl=False)
        own = run(case, bench)
        outcomes += own
        readings = [f"{each.reading.value:.3g}" for each in own if each.reading is not None]
        click.echo(f"{', '.join(readings)} in {time.monotonic() - begin:.1f} s", err=True)
    return outcomes


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
