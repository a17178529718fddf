"""The command ``streameval report``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streameval.cli import options
from streameval.cli.help import examples
from streameval.cli.inputs import by_name, parse_level
from streameval.cli.options import check_effect
from streameval.cli.printing import print_out
from streameval.cli.types import Value
from streameval.errors import OptionError
from streameval.output import write_new

if TYPE_CHECKING:
    from streameval.rankings import RankedList
    from streameval.report.page import Runs
    from streameval.report.ranked_lists import Pictures


@click.command(
    epilog=examples(
        "report result -o report.html",
        "report result other --label old --label new --despite gallery -o both.html",
    )
)
@options.folders
@options.figure("An .html file.", "results")
@click.option(
    "--images",
    type=Value("TEMPLATE"),
    help="Where images are: 'images/{side}/{row:06d}.jpg', or a column of the label tables.",
)
@options.queries("Hardest queries shown.")
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(1, 100),
    default=10,
    help="Images of each ranked list.",
)
@options.differences
def report(folders: tuple[str, ...], out: str, queries: int, **values: Any) -> None:
    """Write saved results as one HTML file that opens offline.

    Metrics side by side, the differences of runs that can be compared, curves, the hardest
    queries, options, the data and where all came from. With --images also the ranked lists of the
    hardest queries as pictures: their distances are computed again from what was evaluated.
    """
    from streameval.report.page import render_report, runs_of

    images = values["images"]
    check_effect("top", when=images is not None, remedy="give --images TEMPLATE")
    names = by_name(folders, values["labels"], "results")
    if not out.lower().endswith((".html", ".htm")):
        raise OptionError(f"{out} is no .html by its ending: a report is one such file")
    resampling = parse_level(values["ci"], resamples=values["resamples"], seed=values["seed"])
    runs = runs_of(folders, tuple(names), resampling, values["despite"])
    pictures = None
    if images is not None:
        pictures = ranked_pictures(runs, images, queries, values["top"])
    page = render_report(runs, queries=queries, pictures=pictures)
    write_new(out, page, overwrite=values["overwrite"])
    print_out(f"{out}\n")


def ranked_pictures(runs: Runs, template: str, queries: int, top: int) -> Pictures:
    """Return the images of each run, and the ranked lists of its hardest queries.

    Raises
    ------
    InputError
        If the inputs of a run are gone, or have changed.
    """
    from streameval.rankings import nearest_items, reopen
    from streameval.report.ranked_lists import Images, Pictures, hardest_queries

    images: dict[str, Images] = {}
    lists: dict[str, dict[int, RankedList]] = {}
    for group in runs.of_same_queries:
        chosen = hardest_queries(list(group.values()), queries)
        for name, result in group.items():
            inputs = reopen(result, name)
            images[name] = Images(template, inputs)
            ranked = nearest_items(result, inputs, chosen, top, name)
            lists[name] = dict(zip(chosen, ranked, strict=True))
    return Pictures(images, lists)
