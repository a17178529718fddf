"""The command ``streameval compare``."""

from __future__ import annotations

import click

from streameval.cli.examples import examples
from streameval.cli.options import FORMATS, parse_level
from streameval.cli.printing import as_json, print_or_write


@click.command(
    epilog=examples(
        "compare result other",
        "compare result other --metrics mAP --format csv --out differences.csv",
    )
)
@click.argument("folders", metavar="DIR DIR [DIR...]", nargs=-1)
@click.option("--metrics", "names", metavar="NAMES", help="Metrics to compare, by name.")
@click.option(
    "--ci",
    metavar="LEVEL",
    type=float,
    default=95.0,
    show_default=True,
    help="Intervals of so many percent.",
)
@click.option(
    "--resamples",
    metavar="N",
    type=int,
    default=10_000,
    show_default=True,
    help="How often identities are drawn.",
)
@click.option(
    "--seed", metavar="N", type=int, default=0, show_default=True, help="Seed of the draws."
)
@click.option(
    "--queries",
    metavar="N",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Queries shown that got better, and worse.",
)
@click.option(
    "--despite",
    metavar="protocol|gallery|options",
    multiple=True,
    help="Compare runs that differ in this; repeatable.",
)
@click.option(
    "--format",
    "form",
    metavar=FORMATS,
    default="table",
    show_default=True,
    help="How it is written.",
)
@click.option("--json", "wants_json", is_flag=True, help="The same as --format json.")
@click.option("--out", metavar="FILE", help="Write to this new file, in place of stdout.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
def compare(
    folders: tuple[str, ...],
    names: str | None,
    ci: float,
    resamples: int,
    seed: int,
    queries: int,
    despite: tuple[str, ...],
    form: str,
    wants_json: bool,
    out: str | None,
    overwrite: bool,
) -> None:
    """Compare saved results on the same queries with the first of them.

    The difference of each metric, with its confidence interval and p-value, by a paired bootstrap
    over the identities of the queries; and the queries that got better and worse. Runs that differ
    in protocol, gallery or options are compared with --despite only.
    """
    from streameval.metrics.selection import split_names
    from streameval.report.compare import render_comparison
    from streameval.report.export import FORMATS as EXPORTS
    from streameval.report.export import JSON, TABLE, chosen_format, comparison_rows
    from streameval.report.style import Style, stdout_style
    from streameval.result import paired

    form = chosen_format(form, wants_json=wants_json, to_file=out is not None)
    how = parse_level(ci, resamples=resamples, seed=seed)
    comparison = paired.compare(
        *folders,
        metrics=None if names is None else split_names(names),
        level=0.95 if how is None else how.level,
        resamples=resamples,
        seed=seed,
        despite=despite,
    )
    style = stdout_style() if out is None else Style(plain=True)
    content: str | bytes
    if form == JSON:
        content = as_json(comparison.summary(queries))
    elif form == TABLE:
        content = render_comparison(comparison, style, queries)
    else:
        content = EXPORTS[form](comparison_rows(comparison))
    print_or_write(content, out, overwrite=overwrite)
