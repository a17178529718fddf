"""The hardest queries, and their ranked lists as pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streameval.metrics.blocks import RankedQueries, Totals
from streameval.rankings import Item, Kind, RankedList
from streameval.report.figures import shortened
from streameval.report.pictures import Images, Thumbnail
from streameval.report.table import Cell, Table
from streameval.result import Evaluation
from streameval.statistics import FloatArray

SIGNS: Mapping[Kind, str] = {Kind.MATCH: "✓", Kind.MISMATCH: "✗", Kind.IGNORED: "–"}
LABELS = ("id", "cam")


@dataclass(frozen=True)
class Picture:
    """An item of a ranked list, as shown.

    Attributes
    ----------
    image : Thumbnail
    kind : {"query", "match", "mismatch", "ignored"}
    lines : tuple of str
        Below it: rank, distance, labels.
    line : bool
        Whether the line of τ_max stands before it.
    far : bool
        Whether others lie between it and the one before.
    """

    image: Thumbnail
    kind: str
    lines: tuple[str, ...]
    line: bool = False
    far: bool = False


@dataclass(frozen=True)
class Strip:
    """The ranked list of one query and one run, as shown."""

    run: str
    about: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class QueryPictures:
    """The ranked lists of one query, a strip a run."""

    query: int
    about: str
    picture: Picture
    strips: tuple[Strip, ...]


@dataclass(frozen=True)
class Pictures:
    """Images and ranked lists, of each run.

    Attributes
    ----------
    images : mapping of str to Images
    lists : mapping of str to mapping of int to RankedList
        By run and query.
    """

    images: Mapping[str, Images]
    lists: Mapping[str, Mapping[int, RankedList]]

    def of_query(self, query: int, results: Mapping[str, Evaluation]) -> QueryPictures:
        """Return the ranked lists of a query, in some results on the same queries."""
        first, *_ = results
        columns = results[first].columns
        labels = [f"{name} {columns[name][query]}" for name in LABELS if name in columns]
        picture = Picture(self.images[first].thumbnail("query", query), "query", ("query",))
        strips = tuple(
            _strip(name, result, self.lists[name][query], self.images[name])
            for name, result in results.items()
        )
        return QueryPictures(query, " · ".join(labels), picture, strips)


def hardest_queries(results: Sequence[Evaluation], most: int) -> list[int]:
    """Return the queries of Q+ of the lowest AP, by its mean over results on the same queries.

    Equal ones are in the order of the queries. Of lists of neighbours it is the least AP that
    they allow.
    """
    mean: FloatArray = np.mean([_average_precision(result) for result in results], axis=0)
    known = np.flatnonzero(~np.isnan(mean))
    hardest: list[int] = known[np.argsort(mean[known], kind="stable")][:most].tolist()
    return hardest


def queries_table(results: Mapping[str, Evaluation], queries: Sequence[int]) -> Table:
    """Return a row a query: its labels, and what each result makes of it."""
    first = next(iter(results.values()))
    columns = {name: first.columns[name] for name in LABELS if name in first.columns}
    scores = [(_average_precision(result), _first_rank(result)) for result in results.values()]
    heads = ["Query", *columns, "positives"]
    for name in results:
        of = f" {shortened(name)}" if len(results) > 1 else ""
        heads += [f"AP{of}", f"First rank{of}"]
    rows = []
    for query in queries:
        cells: list[str | Cell] = [str(query)]
        cells += [Cell(str(labels[query]), wraps=True) for labels in columns.values()]
        cells.append(f"{first.statistics.positives[query]:,}")
        for precision, rank in scores:
            cells += [f"{100 * precision[query]:.2f} %", f"{rank[query]:,g}"]
        rows.append(cells)
    return Table.of(heads, rows)


def _average_precision(result: Evaluation) -> FloatArray:
    ranked = RankedQueries(result.statistics, result.options)
    return Totals.of(ranked).of_all_queries(ranked.average_precision)


def _first_rank(result: Evaluation) -> FloatArray:
    ranked = RankedQueries(result.statistics, result.options)
    return Totals.of(ranked).of_all_queries(ranked.ranks.first_rank())


def _strip(run: str, result: Evaluation, ranked: RankedList, images: Images) -> Strip:
    limit = tau_max_distance(result)
    beyond = [limit is not None and item.distance > limit for item in ranked.items]
    pictures = [
        _picture(item, images, line=late and not any(beyond[:at]))
        for at, (item, late) in enumerate(zip(ranked.items, beyond, strict=True))
    ]
    about, match = "", ranked.next_match
    if match is not None:
        last = max((item.rank or 0 for item in ranked.items), default=0)
        line = not any(beyond) and limit is not None and match.distance > limit
        pictures.append(_picture(match, images, line=line, far=(match.rank or 0) > last + 1))
    if limit is not None:
        within = "" if any(picture.line for picture in pictures) else "; all shown are within it"
        about = f"τ_max: distance {limit:.4g}{within}"
    return Strip(run, about, tuple(pictures))


def _picture(item: Item, images: Images, *, line: bool, far: bool = False) -> Picture:
    rank = "ignored" if item.rank is None else f"{item.rank:,}"
    lines = f"{SIGNS[item.kind]} {rank}", f"{item.distance:.4g}", images.label("gallery", item.row)
    thumbnail = images.thumbnail("gallery", item.row)
    return Picture(thumbnail, item.kind.name.lower(), lines, line, far)


def tau_max_distance(result: Evaluation) -> float | None:
    """Return the distance that τ_max of a result stands for; None where it has none."""
    tau = result.metrics.scalars.get("tau_max", math.nan)
    thresholds = result.statistics.thresholds
    if math.isnan(tau) or not len(thresholds):
        return None
    return float(thresholds[round(tau * (len(thresholds) - 1))])
