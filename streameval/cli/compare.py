"""The command ``streameval compare``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import options
from streameval.cli.help import examples
from streameval.cli.inputs import parse_level
from streameval.cli.options import check_effect
from streameval.cli.printing import print_table


@click.command(
    epilog=examples(
        "compare result other",
        "compare result other --metrics mAP --format csv --out differences.csv",
    )
)
@click.argument("folders", metavar="DIR DIR [DIR...]", type=options.DIR, nargs=-1)
@options.metrics()
@options.differences
@options.queries("Queries shown that got better, and worse.")
@options.table
def compare(folders: tuple[str, ...], queries: int, **values: Any) -> None:
    """Compare saved results on the same queries with the first of them.

    The difference of each metric, with its confidence interval and p-value, by a paired bootstrap
    over the identities of the queries; and the queries that got better and worse. Runs that differ
    in protocol, gallery or options are compared with --despite only.
    """
    from streameval.report.comparison import comparison_table, render_comparison
    from streameval.result.comparison import compare

    check_effect("overwrite", when=values["out"] is not None, remedy="give --out FILE")
    shown = values["json"] or values["format"] in ("json", "table")
    check_effect("queries", when=shown, remedy="give --format table, or json")
    draws = {name: values[name] for name in ("resamples", "seed")}
    comparison = compare(
        *folders,
        metrics=values["metrics"],
        level=parse_level(values["ci"], **draws).level,
        despite=values["despite"],
        **draws,
    )
    print_table(
        values,
        lambda: comparison.summary(queries),
        lambda style: render_comparison(comparison, style, queries),
        lambda: comparison_table(comparison),
    )
