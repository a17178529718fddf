"""The command ``streameval compare-index``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import options
from streameval.cli.config import takes_config
from streameval.cli.help import examples
from streameval.cli.inputs import check_labels, keywords, read_inputs
from streameval.cli.options import check_effect
from streameval.cli.printing import print_answer
from streameval.cli.signals import Interruption
from streameval.cli.types import Index, Integer, Path


@takes_config
@click.command(
    "compare-index",
    epilog=examples(
        "compare-index Flat HNSW16@efSearch=32 -k 20 \\\n"
        "    --query query.npy --gallery gallery.npy \\\n"
        "    --query-labels query.csv --gallery-labels gallery.csv"
    ),
)
@click.argument(
    "settings", metavar="INDEX[@NAME=N,..]...", type=Index("INDEX"), nargs=-1, required=True
)
@options.features(required=True)
@options.labels()
@options.metric
@click.option("-k", type=Integer("K"), required=True, help="Items of a list.")
@click.option("--rerank", is_flag=True, help="Rank lists by canonical distances.")
@click.option("--train-rows", type=options.COUNT, help="Gallery rows to train on.")
@options.pairs()
@options.self_match()
@options.value_range("auto", "minmax")
@options.metrics()
@options.memory
@options.threads
@click.option("--plot", type=Path("FILE.svg"), help="Plot speed against what is lost.")
@options.overwrite("a plot")
@options.json("all figures")
@options.quiet
def compare_index(settings: tuple[str, ...], **values: Any) -> None:
    """Compare settings of FAISS indexes with the exact evaluation.

    A setting is an index and the parameters of its search: IVF1024,PQ16@nprobe=16,
    HNSW32@efSearch=64, or FILE.faiss. Prints, for each, the recall of the k nearest neighbours,
    the difference of every metric with its confidence interval, the time to build it, queries a
    second and its size.
    """
    from streameval.report.terminal import show_progress

    check_labels(values)
    with show_progress(quiet=values["quiet"]) as progress, Interruption(progress.close):
        from streameval.metrics.options import MetricOptions
        from streameval.neighbors import comparison
        from streameval.report.comparison import check_plot, render_index_comparison, write_plot

        plot, overwrite = values["plot"], values["overwrite"]
        check_effect("overwrite", when=plot is not None, remedy="give --plot FILE.svg")
        if plot is not None:
            check_plot(plot, overwrite=overwrite)
        inputs = read_inputs(values) | {"progress": progress}
        inputs["options"] = MetricOptions(metrics=values["metrics"] or ())
        features = inputs.pop("source")
        compared = comparison.compare_index(
            features, settings, **keywords(comparison.compare_index, inputs)
        )
        progress.close()
        if plot is not None:
            write_plot(compared, plot, overwrite=overwrite)
        print_answer(
            values, compared.summary, lambda style: render_index_comparison(compared, style)
        )
