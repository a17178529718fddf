"""The command ``streameval show``."""

from __future__ import annotations

from dataclasses import replace

import click

from streameval.cli.options import parse_level
from streameval.cli.printing import as_json, print_out


@click.command
@click.argument("folder", metavar="DIR")
@click.option("--metrics", "names", metavar="NAMES", help="Other metrics, by name.")
@click.option(
    "--ci", metavar="LEVEL", type=float, help="Confidence intervals of so many percent: 95."
)
@click.option("--json", "wants_json", is_flag=True, help="Print the summary as JSON.")
def show(folder: str, names: str | None, ci: float | None, wants_json: bool) -> None:
    """Show a saved result, as evaluate printed it.

    Metrics and confidence intervals are computed from what is saved, without any distance.
    """
    from streameval.metrics.selection import split_names
    from streameval.report.terminal import render_evaluation, stdout_style
    from streameval.result import Evaluation

    resampling = parse_level(ci)
    result = Evaluation.load(folder)
    if names is not None:
        result = result.with_options(metrics=split_names(names))
    if resampling is not None:
        result = replace(result, resampling=resampling)
    print_out(
        as_json(result.summary()) if wants_json else render_evaluation(result, stdout_style())
    )
