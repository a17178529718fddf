"""The commands ``streameval metrics`` and ``streameval conventions``."""

from __future__ import annotations

import click

from streameval.cli import declared
from streameval.cli.examples import examples
from streameval.cli.printing import as_json, print_out


@click.command(
    epilog=examples(
        "metrics",
        "metrics --json",
    ),
)
@declared.json("the list")
def metrics(wants_json: bool) -> None:
    """List all metrics and their formulas.

    With the sources of the formulas, and the statistics that each metric needs.
    """
    from streameval.report.metric_list import metrics_summary, render_metrics
    from streameval.report.terminal import stdout_style

    text = as_json(metrics_summary()) if wants_json else render_metrics(stdout_style())
    print_out(text)


@click.command(
    epilog=examples(
        "conventions result",
        'conventions result --metrics "CMC@1,mAP"',
    ),
)
@click.argument("folder", metavar="DIR")
@declared.compared
@declared.json("the figures")
def conventions(folder: str, names: str | None, wants_json: bool) -> None:
    """Read a saved result as other tools do.

    Prints the metrics of each preset (see: evaluate --as), where they differ from this run, and
    which option makes the difference.
    """
    from streameval.metrics.selection import split_names
    from streameval.report.conventions import compare_conventions, render_conventions
    from streameval.report.terminal import stdout_style
    from streameval.result import Evaluation

    wanted = None if names is None else split_names(names)
    readings = compare_conventions(Evaluation.load(folder), wanted)
    if wants_json:
        print_out(as_json({name: reading.summary() for name, reading in readings.items()}))
    else:
        print_out(render_conventions(readings, stdout_style()))
