"""The command ``streameval compare``."""

from __future__ import annotations

import click

from streameval.cli import declared
from streameval.cli.effect import check_effect
from streameval.cli.examples import examples
from streameval.cli.options import parse_level
from streameval.cli.printing import as_json, print_or_write


@click.command(
    epilog=examples(
        "compare result other",
        "compare result other --metrics mAP --format csv --out differences.csv",
    )
)
@click.argument("folders", metavar="DIR DIR [DIR...]", nargs=-1)
@declared.compared
@declared.differences
@declared.queries("Queries shown that got better, and worse.")
@declared.table
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
    from streameval.report.export import FORMATS as EXPORTS
    from streameval.report.export import JSON, TABLE, chosen_format
    from streameval.report.run_comparison import comparison_table, render_comparison
    from streameval.report.terminal import Style, stdout_style
    from streameval.result import paired

    form = chosen_format(form, wants_json=wants_json, to_file=out is not None)
    check_effect("overwrite", when=out is not None, remedy="give --out FILE")
    check_effect("queries", when=form in (JSON, TABLE), remedy="give --format table, or json")
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
        content = EXPORTS[form](comparison_table(comparison))
    print_or_write(content, out, overwrite=overwrite)
