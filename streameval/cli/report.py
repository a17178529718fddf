"""The command ``streameval report``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streameval.cli import declared
from streameval.cli.effect import check_effect
from streameval.cli.examples import examples
from streameval.cli.options import by_name, parse_level
from streameval.cli.printing import print_out
from streameval.errors import OptionError
from streameval.output import write_new

if TYPE_CHECKING:
    from streameval.rankings import RankedList
    from streameval.report.html import Images
    from streameval.report.html.runs import Runs


@click.command(
    epilog=examples(
        "report result -o report.html",
        "report result other --label old --label new --despite gallery -o both.html",
    )
)
@click.argument("folders", metavar="DIR [DIR...]", nargs=-1)
@declared.figure("An .html file.", "results")
@click.option(
    "--images",
    metavar="TEMPLATE",
    help="Where images are: 'images/{side}/{row:06d}.jpg', or a column of the label tables.",
)
@declared.queries("Hardest queries shown.")
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="Images of each ranked list.",
)
@declared.differences
def report(
    folders: tuple[str, ...],
    out: str,
    labels: tuple[str, ...],
    images: str | None,
    queries: int,
    top: int,
    ci: float,
    resamples: int,
    seed: int,
    despite: tuple[str, ...],
    overwrite: bool,
) -> None:
    """Write saved results as one HTML file that opens offline.

    Metrics side by side, the differences of runs that can be compared, curves, the hardest
    queries, options, the data and where all came from. With --images also the ranked lists of the
    hardest queries as pictures: their distances are computed again from what was evaluated.
    """
    from streameval.report.html import render_report, runs_of

    if not folders:
        raise OptionError(
            "got no result to report: give the folder of one, as evaluate --out wrote"
        )
    check_effect("top", when=images is not None, remedy="give --images TEMPLATE")
    named = by_name(folders, labels, "results")
    if not out.lower().endswith((".html", ".htm")):
        raise OptionError(f"{out} is no .html by its ending: a report is one such file")
    how = parse_level(ci, resamples=resamples, seed=seed)
    if how is None:
        raise OptionError("--ci is missing")
    runs = runs_of(folders, tuple(named), how, despite)
    pictures = lists = None
    if images is not None:
        pictures, lists = ranked_pictures(runs, images, queries, top)
    page = render_report(runs, queries=queries, images=pictures, lists=lists)
    write_new(out, page, overwrite=overwrite)
    print_out(f"{out}\n")


def ranked_pictures(
    runs: Runs, template: str, queries: int, top: int
) -> tuple[dict[str, Images], dict[str, dict[int, RankedList]]]:
    """Return the images of each run, and the ranked lists of its hardest queries.

    Raises
    ------
    InputError
        If what a run was evaluated from is not there any more, or has changed.
    """
    from streameval.rankings import nearest_items, reopen
    from streameval.report.html import Images, hardest_queries

    pictures: dict[str, Images] = {}
    lists: dict[str, dict[int, RankedList]] = {}
    for group in runs.of_same_queries:
        chosen = hardest_queries(group, queries)
        for run in group:
            inputs = reopen(run.result, run.name)
            pictures[run.name] = Images(template, inputs)
            ranked = nearest_items(run.result, inputs, chosen, top, run.name)
            lists[run.name] = dict(zip(chosen, ranked, strict=True))
    return pictures, lists
