"""The commands ``streameval plot`` and ``streameval ledger plot``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import options
from streameval.cli.help import examples
from streameval.cli.inputs import by_name
from streameval.cli.options import check_effect
from streameval.cli.types import Choice, Metrics
from streameval.output import write_new


def _curves() -> tuple[str, ...]:
    from streameval.report.figures import CAMERAS, CURVES

    return (*CURVES, CAMERAS)


@click.command(
    epilog=examples(
        "plot result -o mrep.pdf",
        "plot result other --curve CMC --label old --label new -o cmc.svg",
    )
)
@options.folders
@click.option("--curve", type=Choice(_curves), default="mReP", help="What is plotted.")
@click.option("--metric", type=Metrics("METRIC"), default="mAP", help="Of camera-pairs.")
@options.figure("A .png, .svg or .pdf file.", "legend")
def plot(folders: tuple[str, ...], out: str, **values: Any) -> None:
    """Plot a curve of saved results, a line a result.

    mReP marks its maximum at tau_max, mFR where it leaves 0 at tau_nz; DIR-FAR has a logarithmic
    axis; pairs are densities of genuine and impostor distances (of results with a histogram);
    camera-pairs is a heat map of one result.
    """
    from streameval.report import figures
    from streameval.result import Evaluation
    from streameval.result.same_task import warn_of_others

    curve = values["curve"]
    check_effect("metric", when=curve == figures.CAMERAS, remedy=f"give --curve {figures.CAMERAS}")
    names = by_name(folders, values["labels"], "results")
    figures.file_type(out)
    results = {name: Evaluation.load(folder) for name, folder in names.items()}
    warn_of_others(results)
    figure = figures.plot(results, curve, metric=values["metric"])
    write_new(out, figures.figure_bytes(figure, out), overwrite=values["overwrite"])


@click.command("plot", epilog=examples("ledger plot L --metric mAP -o trajectory.svg"))
@options.places("paths", options.LEDGER, "ledger", "one, as ledger create made")
@click.option(
    "--metric", "metrics", type=Metrics("METRIC"), multiple=True, help="Repeatable.  [default: mAP]"
)
@options.figure("A .png, .svg or .pdf file.", "legend")
def plot_ledgers(paths: tuple[str, ...], out: str, **values: Any) -> None:
    """Plot metrics of ledgers against the size of the gallery."""
    from streameval.ledger import Ledger
    from streameval.report import figures
    from streameval.report.ledger import plot_trajectories

    names = by_name(paths, values["labels"], "ledgers")
    figures.file_type(out)
    ledgers = {name: Ledger(path).trajectory for name, path in names.items()}
    figure = plot_trajectories(ledgers, tuple(dict.fromkeys(values["metrics"])) or ("mAP",))
    write_new(out, figures.figure_bytes(figure, out), overwrite=values["overwrite"])
