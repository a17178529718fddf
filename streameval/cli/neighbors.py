"""The options of lists of neighbours, and what they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from streameval.cli.declared import together
from streameval.errors import OptionError
from streameval.output import check_new

if TYPE_CHECKING:
    from streameval.kernels.canonical import Metric
    from streameval.metrics.extremes import Missing
    from streameval.neighbors.source import Depth, Neighbors

list_options = together(
    click.option(
        "--neighbors",
        metavar="URI",
        help="Lists of neighbours: gallery indices, [queries, k], or a file with distances, too.",
    ),
    click.option("--neighbor-distances", metavar="URI", help="Their distances, [queries, k]."),
    click.option(
        "--index",
        metavar="SPEC|FILE.faiss",
        help="Lists by a FAISS index of the features: Flat, IVF1024,PQ16, HNSW32; or a file.",
    ),
    click.option("-k", "depth", metavar="K|auto", help="Items of a list."),
    click.option(
        "--search", metavar="NAME=N,..", help="Parameters of the search: nprobe=16, efSearch=64."
    ),
    click.option(
        "--train-rows",
        metavar="N",
        type=int,
        help="Gallery rows that an index is trained on.  [default: 64 a centroid, up to 128 MB]",
    ),
    click.option(
        "--save-index", metavar="FILE.faiss", help="Keep the index that is built, in a new file."
    ),
    click.option(
        "--missing",
        metavar="bounds|never",
        help="What is not returned: no closer than what is, or never found.  [default: bounds; "
        "never of an approximate index]",
    ),
    click.option(
        "--tighten", is_flag=True, help="Compute the distances of positives not returned."
    ),
    click.option("--rerank", is_flag=True, help="With never: rank by canonical distances."),
    click.option(
        "--close-to",
        metavar="W",
        type=float,
        help="Of -k auto: the widest interval that will do.  [default: 0]",
    ),
)


def open_neighbors(given: Any) -> Neighbors | None:
    """Return the lists of neighbours that the options name; None where they name none.

    Raises
    ------
    OptionError
        If the options conflict, or one is missing.
    InputError
        If lists, features or an index can't be evaluated.
    OutputError
        If the index is to be kept in a file that is there.
    """
    of_lists = {
        "--neighbor-distances": given.neighbor_distances,
        "-k": given.depth,
        "--search": given.search,
        "--train-rows": given.train_rows,
        "--save-index": given.save_index,
        "--missing": given.missing,
        "--tighten": given.tighten or None,
        "--rerank": given.rerank or None,
        "--close-to": given.close_to,
    }
    if given.neighbors is None and given.index is None:
        named = [name for name, value in of_lists.items() if value is not None]
        if named:
            raise OptionError(
                f"{named[0]} is for lists of neighbours: give --neighbors URI, or --index SPEC and "
                "features"
            )
        return None
    if given.distances is not None or (given.neighbors is not None and given.index is not None):
        other = "--index" if given.index is not None else "--neighbors"
        first = "--distances" if given.distances is not None else "--neighbors"
        raise OptionError(f"got {first} and {other}: choose one of them")
    if given.close_to is not None and given.depth != "auto":
        raise OptionError("--close-to is for -k auto: give that, or leave it out")
    if given.save_index is not None:
        check_new(given.save_index, overwrite=given.overwrite or given.resume)
    from streameval.neighbors.source import Neighbors
    from streameval.sources.sources import Features

    features = None
    if (given.query is None) != (given.gallery is None):
        missing = "--gallery" if given.gallery is None else "--query"
        raise OptionError(f"features of both sides are needed: {missing} is missing")
    if given.query is not None:
        metric = cast("Metric", given.metric or "cosine")  # checked there
        features = Features(given.query, given.gallery, metric)
    elif given.metric is not None:
        raise OptionError(
            f"got --metric {given.metric} and lists without features: they hold their distances "
            "already; leave --metric out, or give --query and --gallery"
        )
    return Neighbors(
        given.neighbors,
        given.neighbor_distances,
        features=features,
        index=given.index,
        k=parse_depth(given.depth),
        search=given.search or "",
        train_rows=given.train_rows,
        save_index=given.save_index,
        missing=cast("Missing | None", given.missing),  # checked there
        tighten=given.tighten,
        rerank=given.rerank,
        width=given.close_to or 0.0,
    )


def parse_depth(text: str | None) -> Depth | None:
    """Return the k of an option.

    Raises
    ------
    OptionError
    """
    if text is None or text == "auto":
        return cast("Depth | None", text)
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(f"-k is {text!r}; expected a positive integer, or auto")
    return int(text)
