"""The commands ``streameval show`` and ``streameval conventions``: saved results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from streameval.cli import options
from streameval.cli.help import examples
from streameval.cli.inputs import parse_level
from streameval.cli.options import check_effect
from streameval.cli.printing import chosen_format, print_answer, print_or_write, print_table
from streameval.errors import InputError, OptionError


@click.command(
    epilog=examples("show result --ci 95", 'show result other --format latex --metrics "CMC@1,mAP"')
)
@options.folders
@options.metrics("Other metrics, by name.")
@options.intervals
@click.option("--config", is_flag=True, help="Print the options of the run, for --config.")
@options.table
def show(folders: tuple[str, ...], **values: Any) -> None:
    """Show saved results, as evaluate printed them, or as rows of a table.

    Metrics and confidence intervals are computed from what is saved, without any distance. The
    formats csv, markdown, latex and parquet have a row a result; json has the summary of one
    result, or an object of the summaries of several. --config prints what evaluate --config takes
    to repeat the run, from the folder that it was run in.
    """
    from streameval.report.evaluation import render_evaluation, results_table
    from streameval.result import Evaluation
    from streameval.result.same_task import warn_of_others

    to_file = values["out"] is not None
    check_effect("overwrite", when=to_file, remedy="give --out FILE")
    readings = ("metrics", "ci", "format", "json")
    check_effect(*readings, when=not values["config"], remedy="leave --config out")
    chosen_format(values)
    resampling = None if values["ci"] is None else parse_level(values["ci"])
    if values["config"]:
        print_or_write(_config(folders), values)
        return
    results: dict[str, Evaluation] = {}
    for folder in folders:
        result = Evaluation.load(folder)
        if values["metrics"] is not None:
            result = result.with_options(metrics=values["metrics"])
        results[folder] = replace(result, resampling=resampling or result.resampling)
    warn_of_others(results)
    several = len(results) > 1
    print_table(
        values,
        lambda: (
            {name: result.summary() for name, result in results.items()}
            if several
            else results[folders[0]].summary()
        ),
        lambda style: "\n".join(
            render_evaluation(result, style, saved=name if several else None)
            for name, result in results.items()
        ),
        lambda: results_table(results),
    )


def _config(folders: tuple[str, ...]) -> str:
    """Return the options of the run of a saved result, as a config file."""
    from pathlib import Path

    from streameval.cli.config import as_toml
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


@click.command(epilog=examples("conventions result", 'conventions result --metrics "CMC@1,mAP"'))
@click.argument("folder", metavar="DIR", type=options.DIR)
@options.metrics()
@options.json("the figures")
def conventions(folder: str, **values: Any) -> None:
    """Read a saved result as other tools do.

    Prints the metrics of each preset (see: evaluate --as), where they differ from this run, and
    which option makes the difference.
    """
    from streameval.report.conventions import compare_conventions, render_conventions
    from streameval.result import Evaluation

    readings = compare_conventions(Evaluation.load(folder), values["metrics"])
    print_answer(
        values,
        lambda: {name: reading.summary() for name, reading in readings.items()},
        lambda style: render_conventions(readings, style),
    )
