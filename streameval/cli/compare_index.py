"""The command ``streameval compare-index``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import declared
from streameval.cli.config import takes_config
from streameval.cli.examples import examples
from streameval.cli.options import (
    check_label_options,
    label_options,
    open_features,
    open_labels,
    open_protocol,
    parse_junk_ids,
    parse_range,
)
from streameval.cli.printing import as_json, print_out
from streameval.cli.signals import Interruption
from streameval.errors import OptionError


@takes_config
@click.command(
    "compare-index",
    epilog=examples(
        "compare-index Flat HNSW16@efSearch=32 -k 20 \\\n"
        "    --query query.npy --gallery gallery.npy \\\n"
        "    --query-labels query.csv --gallery-labels gallery.csv",
    ),
)
@click.argument("settings", metavar="INDEX[@NAME=N,..]...", nargs=-1, required=True)
@declared.features(required=True)
@declared.labels()
@declared.metric
@click.option("-k", "depth", metavar="K", type=int, required=True, help="Items of a list.")
@click.option("--rerank", is_flag=True, help="Rank lists by canonical distances.")
@click.option("--train-rows", metavar="N", type=int, help="Gallery rows to train on.")
@declared.pairs()
@declared.self_match
@declared.tau_range
@declared.compared
@declared.own_memory
@declared.threads
@click.option("--plot", metavar="FILE.svg", help="Plot speed against what is lost.")
@click.option("--json", is_flag=True, help="Print all figures as JSON, and nothing else.")
@declared.quiet
def compare_index(settings: tuple[str, ...], **given: Any) -> None:
    """Compare settings of FAISS indexes with the exact evaluation.

    A setting is an index and the parameters of its search: IVF1024,PQ16@nprobe=16,
    HNSW32@efSearch=64, or FILE.faiss. Prints, for each, the recall of the k nearest neighbours,
    the difference of every metric with its confidence interval, the time to build it, queries a
    second and its size.
    """
    from streameval.report.progress import show_progress

    labels = {side: label_options(given, side) for side in ("query", "gallery")}
    with show_progress(quiet=given["quiet"]) as progress, Interruption(progress.close):
        from streameval.metrics.options import MetricOptions
        from streameval.metrics.selection import split_names
        from streameval.neighbors import comparison
        from streameval.report.index_comparison import render_comparison, write_plot
        from streameval.report.terminal import stdout_style

        for side, own in labels.items():
            check_label_options(side, *own)
        if given["depth"] < 1:
            raise OptionError(f"-k is {given['depth']}; expected a positive integer")
        query, gallery = open_labels(labels["query"], labels["gallery"], None)
        names = () if given["names"] is None else split_names(given["names"])
        compared = comparison.compare_index(
            open_features(given["query"], given["gallery"], given["metric"]),
            settings,
            k=given["depth"],
            query=query,
            gallery=gallery,
            options=MetricOptions(metrics=names),
            rerank=given["rerank"],
            train_rows=given["train_rows"],
            protocol=open_protocol(given["protocol"]),
            junk_ids=parse_junk_ids(given["junk_id"], gallery),
            self_match=given["self_match"],
            range=None if given["range"] is None else parse_range(given["range"]),
            memory=given["memory"],
            threads=given["threads"],
            progress=progress,
        )
        progress.close()
        if given["plot"] is not None:
            write_plot(compared, given["plot"])
        text = (
            as_json(compared.summary())
            if given["json"]
            else render_comparison(compared, stdout_style())
        )
        print_out(text)
