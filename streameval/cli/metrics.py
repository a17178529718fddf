"""The command ``streameval metrics``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import options
from streameval.cli.help import examples
from streameval.cli.printing import print_answer


@click.command(epilog=examples("metrics", "metrics --json"))
@options.json("the list")
def metrics(**values: Any) -> None:
    """List all metrics and their formulas.

    With the sources of the formulas, and the statistics that each metric needs.
    """
    from streameval.report.conventions import metrics_summary, render_metrics

    print_answer(values, metrics_summary, render_metrics)
