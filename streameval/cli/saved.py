"""The commands that read saved results.

They are show, verify, conventions, compare, average, plot and report.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.cli.config import as_toml
from streameval.cli.inputs import by_name, parse_level
from streameval.cli.options import DIR, check_effect, command, places
from streameval.cli.output import (
    chosen_format,
    print_answer,
    print_lines,
    print_or_write,
    print_out,
)
from streameval.errors import InputError, OptionError
from streameval.output import write_new

if TYPE_CHECKING:
    from streameval.display.table import Blocks

folders = places("folders", DIR, "result", "the folder of one, as evaluate --out wrote")


@command(
    "metrics ci run_config TABLE",
    "show result --ci 95",
    'show result other --format latex --metrics "CMC@1,mAP"',
)
@folders
def show(folders: tuple[str, ...], **values: Any) -> None:
    """Print saved results, with further metrics and intervals.

    Metrics and confidence intervals are computed from the saved counts, without the distances.
    The formats csv, markdown, latex and parquet have one row per result. json is the summary of
    one result, or an object of several summaries. Of protocols or trials that were evaluated
    together, all are shown. --config prints a file that repeats the run: give it to evaluate
    --config, in the folder of that run.
    """
    from streameval.display.evaluation import evaluation_blocks, results_table
    from streameval.display.shown import blocks_of, table_of
    from streameval.result import Evaluation
    from streameval.result.same_task import warn_of_others
    from streameval.result.saved import saved_runs
    from streameval.result.several import load_together

    check_effect("overwrite", values["text_file"] is not None, "give --out FILE")
    readings = "metrics ci format json"
    check_effect(readings, not values["config"], "leave --config out")
    chosen_format(values)
    resampling = None if values["ci"] is None else parse_level(values)
    if values["config"]:
        print_or_write(run_config(folders), values)
        return
    if len(folders) == 1 and saved_runs(Path(folders[0])):
        check_effect("metrics ci", False, "give the folder of one of its runs")
        together = load_together(Path(folders[0]))
        print_answer(
            values,
            together.summary,
            lambda: blocks_of(together),
            lambda: table_of(together, folders[0]),
        )
        return
    results: dict[str, Evaluation] = {}
    for folder in folders:
        result = Evaluation.load(folder)
        if values["metrics"] is not None:
            result = result.with_options(metrics=values["metrics"])
        results[folder] = replace(result, resampling=resampling or result.resampling)
    warn_of_others(results)

    def summaries() -> dict[str, Any]:
        every = {name: result.summary() for name, result in results.items()}
        return every if len(every) > 1 else every[folders[0]]

    def blocks() -> Blocks:
        shown: Blocks = []
        for name, result in results.items():
            shown += ["", *evaluation_blocks(result, name if len(results) > 1 else None)]
        return shown[1:]

    print_answer(values, summaries, blocks, lambda: results_table(results))


def run_config(folders: tuple[str, ...]) -> str:
    """Return the options of the run of a saved result, as a config file."""
    from streameval.result.saved import read_summary

    if len(folders) != 1:
        raise OptionError(f"--config is of one result; got {len(folders)}")
    given = read_summary(Path(folders[0]))["provenance"].get("given")
    if given is None:
        raise InputError(
            f"{folders[0]} does not hold the options of its run: it is of Python, of a ledger, or "
            "of an older version; write a config by hand"
        )
    return f"# streameval evaluate --config, in the folder of that run\n{as_toml(given)}"


@command("json", "verify result")
@click.argument("folder", metavar="DIR", type=DIR)
def verify(folder: str, **values: Any) -> None:
    """Read the inputs of a saved result again, and report any difference.

    A result of features or distances keeps a digest of what was read. verify tells whether the
    same is there still.
    """
    from streameval.display.table import plural
    from streameval.result import Evaluation
    from streameval.result.verification import differences

    result = Evaluation.load(folder)
    found = list(differences(result, folder))
    inputs = list(result.provenance["read"])
    same = f"{folder}: {' and '.join(inputs)} hold what was read"
    print_lines(values, {"inputs": inputs, "differences": found}, *found or [same])
    if found:
        raise InputError(
            f"{plural(len(found), 'input')} of {folder} changed: put back what was evaluated, or "
            "evaluate again"
        )


@command("metrics json", "conventions result", 'conventions result --metrics "CMC@1,mAP"')
@click.argument("folder", metavar="DIR", type=DIR)
def conventions(folder: str, **values: Any) -> None:
    """Show a saved result under the conventions of other tools.

    Prints the metrics of each preset (see evaluate --as), and which options make them differ from
    this run.
    """
    from streameval.report.conventions import compare_conventions, conventions_blocks
    from streameval.result import Evaluation

    readings = compare_conventions(Evaluation.load(folder), values["metrics"])
    print_answer(
        values,
        lambda: {name: reading.summary() for name, reading in readings.items()},
        lambda: conventions_blocks(readings),
    )


@command(
    "metrics level DRAWS queries TABLE",
    "compare result other",
    "compare result other --metrics mAP --format csv --out differences.csv",
)
@click.argument("folders", metavar="DIR DIR [DIR...]", type=DIR, nargs=-1)
def compare(folders: tuple[str, ...], queries: int, **values: Any) -> None:
    """Compare saved results on the same queries with the first.

    Prints the difference of each metric with its confidence interval and p-value, from a paired
    bootstrap over the identities of the queries, and the queries that improved and worsened. Runs
    that differ in protocol, gallery or options need --despite.
    """
    from streameval.display.comparison import comparison_blocks, comparison_table
    from streameval.result.comparison import compare

    check_effect("overwrite", values["text_file"] is not None, "give --out FILE")
    shown = chosen_format(values) in ("json", "table")
    check_effect("queries", shown, "give --format table, or json")
    how = asdict(parse_level(values))
    comparison = compare(*folders, metrics=values["metrics"], despite=values["despite"], **how)
    print_answer(
        values,
        lambda: comparison.summary(queries),
        lambda: comparison_blocks(comparison, queries),
        lambda: comparison_table(comparison),
    )


@command(
    "metrics labels TABLE",
    "average result other",
    'average result other --label "split 1" --label "split 2" --metrics "CMC@1,mAP"',
)
@folders
def average(folders: tuple[str, ...], **values: Any) -> None:
    """Average saved results under the same rules: mean and standard deviation.

    The results may be of other queries, galleries and features, such as the splits of a data set.
    Protocol, distance and options must be the same. The standard deviation has n - 1 in the
    denominator. The formats csv, markdown, latex and parquet have one row per result, then the
    rows mean and std.
    """
    from streameval.display.average import average_blocks, average_table
    from streameval.result.average import average

    check_effect("overwrite", values["text_file"] is not None, "give --out FILE")
    chosen_format(values)
    names = by_name(folders, values["labels"], "results")
    averaged = average(names, metrics=values["metrics"])
    print_answer(
        values,
        averaged.summary,
        lambda: average_blocks(averaged),
        lambda: average_table(averaged),
    )


@command(
    "curve plotted_metric FIGURE",
    "plot result -o mrep.pdf",
    "plot result other --curve CMC --label old --label new -o cmc.svg",
)
@folders
def plot(folders: tuple[str, ...], out: str, **values: Any) -> None:
    """Plot a curve of saved results to a .png, .svg or .pdf file.

    Each result is a line. mReP marks tau_max, and mFR marks tau_nz. DIR-FAR has a logarithmic
    axis. pairs shows the densities of genuine and impostor distances, and needs results with a
    histogram. camera-pairs is a heat map of one result.
    """
    from streameval.display import figures
    from streameval.result import Evaluation
    from streameval.result.same_task import warn_of_others

    curve = values["curve"]
    check_effect("metric", curve == figures.CAMERAS, f"give --curve {figures.CAMERAS}")
    names = by_name(folders, values["labels"], "results")
    figures.file_type(out)
    results = {name: Evaluation.load(folder) for name, folder in names.items()}
    warn_of_others(results)
    figure = figures.plot(results, curve, metric=values["metric"])
    write_new(out, figures.figure_bytes(figure, out), overwrite=values["overwrite"])


@command(
    "FIGURE images queries top level DRAWS",
    "report result -o report.html",
    "report result other --label old --label new --despite gallery -o both.html",
)
@folders
def report(folders: tuple[str, ...], out: str, queries: int, **values: Any) -> None:
    """Write a report on saved results: one HTML file.

    The file opens offline. It contains metrics side by side, differences of comparable runs,
    curves, the hardest queries, options, data and provenance. With --images, it also shows the
    ranked lists of the hardest queries as pictures; their distances are computed again from the
    inputs of the run.
    """
    from streameval.report.page import render_report, runs_of
    from streameval.report.ranked_lists import Pictures

    images = values["images"]
    check_effect("top", images is not None, "give --images TEMPLATE")
    names = by_name(folders, values["labels"], "results")
    if not out.lower().endswith((".html", ".htm")):
        raise OptionError(f"{out} is no .html by its ending: a report is one such file")
    runs = runs_of(names, parse_level(values), values["despite"])
    pictures = None
    if images is not None:
        pictures = Pictures.of(runs.of_same_queries, images, queries, values["top"])
    page = render_report(runs, queries=queries, pictures=pictures)
    write_new(out, page, overwrite=values["overwrite"])
    print_out(f"{out}\n")
