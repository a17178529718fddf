"""The commands ``streameval plot`` and ``streameval ledger plot``."""

from __future__ import annotations

import click

from streameval.cli import declared
from streameval.cli.effect import check_effect
from streameval.cli.examples import examples
from streameval.cli.options import by_name
from streameval.errors import OptionError
from streameval.output import write_new


@click.command(
    epilog=examples(
        "plot result -o mrep.pdf",
        "plot result other --curve CMC --label old --label new -o cmc.svg",
    )
)
@click.argument("folders", metavar="DIR [DIR...]", nargs=-1)
@click.option(
    "--curve",
    metavar="mReP|mFR|mRP|mVP|CMC|precision-recall|DIR-FAR|pairs|camera-pairs",
    default="mReP",
    show_default=True,
    help="What is plotted.",
)
@click.option(
    "--metric", metavar="METRIC", default="mAP", show_default=True, help="Of camera-pairs."
)
@declared.figure("A .png, .svg or .pdf file.", "legend")
def plot(
    folders: tuple[str, ...],
    curve: str,
    metric: str,
    labels: tuple[str, ...],
    out: str,
    overwrite: bool,
) -> None:
    """Plot a curve of saved results, a line a result.

    mReP marks its maximum at tau_max, mFR where it leaves 0 at tau_nz; DIR-FAR has a logarithmic
    axis; pairs are densities of genuine and impostor distances (of results with a histogram);
    camera-pairs is a heat map of one result.
    """
    from streameval.report.curves import plot as draw
    from streameval.report.figures import figure_bytes, file_type
    from streameval.result import Evaluation
    from streameval.result.comparable import warn_of_others

    if not folders:
        raise OptionError("got no result to plot: give the folder of one, as evaluate --out wrote")
    check_effect("metric", when=curve == "camera-pairs", remedy="give --curve camera-pairs")
    named = by_name(folders, labels, "results")
    file_type(out)
    results = {name: Evaluation.load(folder) for name, folder in named.items()}
    warn_of_others(results)
    figure = draw(results, curve, metric=metric)
    write_new(out, figure_bytes(figure, out), overwrite=overwrite)


@click.command("plot", epilog=examples("ledger plot L --metric mAP -o trajectory.svg"))
@click.argument("paths", metavar="L [L...]", nargs=-1)
@click.option(
    "--metric", "metrics", metavar="METRIC", multiple=True, help="Repeatable.  [default: mAP]"
)
@declared.figure("A .png, .svg or .pdf file.", "legend")
def plot_ledgers(
    paths: tuple[str, ...],
    metrics: tuple[str, ...],
    labels: tuple[str, ...],
    out: str,
    overwrite: bool,
) -> None:
    """Plot metrics of ledgers against the size of the gallery."""
    from streameval.ledger import Ledger
    from streameval.report.figures import figure_bytes, file_type
    from streameval.report.ledger import plot_trajectories

    if not paths:
        raise OptionError("got no ledger to plot: give one, as ledger create made")
    named = by_name(paths, labels, "ledgers")
    file_type(out)
    ledgers = {name: Ledger(path).trajectory for name, path in named.items()}
    figure = plot_trajectories(ledgers, tuple(dict.fromkeys(metrics)) or ("mAP",))
    write_new(out, figure_bytes(figure, out), overwrite=overwrite)
