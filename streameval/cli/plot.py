"""The command ``streameval plot``."""

from __future__ import annotations

import click

from streameval.cli.examples import examples
from streameval.cli.printing import write_out
from streameval.errors import OptionError


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
@click.option("--metric", metavar="NAME", default="mAP", show_default=True, help="Of camera-pairs.")
@click.option("--label", "labels", metavar="TEXT", multiple=True, help="Names for the legend.")
@click.option("-o", "--out", metavar="FILE", required=True, help="A .png, .svg or .pdf file.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
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
    from streameval.report import plots
    from streameval.result import Evaluation

    if not folders:
        raise OptionError("got no result to plot: give the folder of one, as evaluate --out wrote")
    if labels and len(labels) != len(folders):
        raise OptionError(f"got {len(labels)} --label for {len(folders)} results: one each")
    names = labels or folders
    if len(set(names)) != len(names):
        raise OptionError("two results are called the same: name them by --label")
    plots.file_type(out)
    results = {name: Evaluation.load(folder) for name, folder in zip(names, folders, strict=True)}
    figure = plots.plot(results, curve, metric=metric)
    write_out(out, plots.figure_bytes(figure, out), overwrite=overwrite)
