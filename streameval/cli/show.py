"""The command ``streameval show``."""

from __future__ import annotations

from dataclasses import replace

import click

from streameval.cli import declared
from streameval.cli.effect import check_effect
from streameval.cli.examples import examples
from streameval.cli.options import parse_level
from streameval.cli.printing import as_json, print_or_write
from streameval.errors import InputError, OptionError


@click.command(
    epilog=examples(
        "show result --ci 95",
        'show result other --format latex --metrics "CMC@1,mAP"',
    )
)
@click.argument("folders", metavar="DIR [DIR...]", nargs=-1)
@click.option("--metrics", "names", metavar="NAMES", help="Other metrics, by name.")
@declared.ci
@click.option(
    "--config", "wants_config", is_flag=True, help="Print the options of the run, for --config."
)
@declared.table
def show(
    folders: tuple[str, ...],
    names: str | None,
    ci: float | None,
    wants_config: bool,
    form: str,
    wants_json: bool,
    out: str | None,
    overwrite: bool,
) -> None:
    """Show saved results, as evaluate printed them, or as rows of a table.

    Metrics and confidence intervals are computed from what is saved, without any distance. The
    formats csv, markdown, latex and parquet have a row a result; json has the summary of one
    result, or an object of the summaries of several. --config prints what evaluate --config takes
    to repeat the run, from the folder that it was run in.
    """
    from streameval.metrics.selection import split_names
    from streameval.report.evaluation import render_evaluation, results_table
    from streameval.report.export import FORMATS as EXPORTS
    from streameval.report.export import JSON, TABLE, chosen_format
    from streameval.report.terminal import Style, stdout_style
    from streameval.result import Evaluation
    from streameval.result.comparable import warn_of_others

    if not folders:
        raise OptionError("got no result to show: give the folder of one, as evaluate --out wrote")
    check_effect("overwrite", when=out is not None, remedy="give --out FILE")
    asked = ("names", "ci", "form", "wants_json")
    check_effect(*asked, when=not wants_config, remedy="leave --config out")
    form = chosen_format(form, wants_json=wants_json, to_file=out is not None)
    resampling = parse_level(ci)
    if wants_config:
        print_or_write(_config(folders), out, overwrite=overwrite)
        return
    results: dict[str, Evaluation] = {}
    for folder in folders:
        result = Evaluation.load(folder)
        if names is not None:
            result = result.with_options(metrics=split_names(names))
        results[folder] = result if ci is None else replace(result, resampling=resampling)
    warn_of_others(results)
    content: str | bytes
    if form == JSON:
        summaries = {name: one.summary() for name, one in results.items()}
        content = as_json(summaries if len(summaries) > 1 else summaries[folders[0]])
    elif form == TABLE:
        style = stdout_style() if out is None else Style(plain=True)
        several = len(results) > 1
        content = "\n".join(
            render_evaluation(one, style, saved=name if several else None)
            for name, one in results.items()
        )
    else:
        content = EXPORTS[form](results_table(results))
    print_or_write(content, out, overwrite=overwrite)


def _config(folders: tuple[str, ...]) -> str:
    """Return the options of the run of a saved result, as a config file."""
    from pathlib import Path

    from streameval.cli.config import as_toml
    from streameval.result.summary import read_summary

    if len(folders) != 1:
        raise OptionError(f"--config is of one result; got {len(folders)}")
    given = read_summary(Path(folders[0]))["provenance"].get("given")
    if given is None:
        raise InputError(
            f"{folders[0]} does not hold the options of its run: it is of Python, of a ledger, or "
            "of an older version; write a config by hand"
        )
    return f"# streameval evaluate --config, in the folder of that run\n{as_toml(given)}"
