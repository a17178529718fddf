"""Features re-ranked by their k-reciprocal neighbours, as a source."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from streameval.choices import RerankWith
from streameval.errors import OptionError, check_path, check_type, entry_point, refuse
from streameval.kernels.limits import Wanted
from streameval.kernels.tiles import Tile
from streameval.metrics.options import is_count, is_number
from streameval.output import TemporaryFolder
from streameval.planning.plan import Limits, Plan, Task, pieces
from streameval.planning.problem import Data, Holders, Problem
from streameval.planning.range import Range
from streameval.reranking.approximate import rank_by_index
from streameval.reranking.encoding import Parameters, Ranking
from streameval.reranking.everyone import SQUARED, Everyone, Gallery, squared
from streameval.reranking.gallery import QUERIES, encode_gallery, encode_queries, queries_plan
from streameval.reranking.greatest import GREATEST
from streameval.reranking.indexed import FactoryIndex, IndexedImages
from streameval.reranking.kept import MAPPED_BYTES, MAPPED_ROWS, Encodings
from streameval.reranking.reuse import KeptEncodings
from streameval.reranking.stages import NEIGHBORS, encode, encoding_plan, rank_all
from streameval.reranking.tiles import ENTRIES, Reranker
from streameval.run.job import Job, PairPart
from streameval.run.progress import Watch
from streameval.run.session import Session, open_session
from streameval.source import Input, PlanText
from streameval.sources.feature_source import STEPS, FeatureSource, with_stages
from streameval.sources.features import Features
from streameval.sources.tiled import Chosen, TiledSource
from streameval.typing import FloatArray, IntArray, JsonObject

if TYPE_CHECKING:
    from streameval.request import Request
    from streameval.run.preparation import Planned, Prepared

Rank = Callable[[int, Limits, Session, Path | None], Ranking]
"""Returns the nearest K images of each: see `stages.rank_all`."""


class Reranked(TiledSource):
    """Features re-ranked with k-reciprocal encoding.

    The distance is that of Zhong, Zheng, Cao and Li, "Re-ranking Person Re-identification with
    k-reciprocal Encoding" (CVPR 2017): (1 − λ) times the Jaccard distance of the encodings of query
    and item, plus λ times their squared distance relative to the query's greatest; over all queries
    and gallery items together, whatever their labels. It lies in [0, 1].

    Parameters
    ----------
    features : Features, Expanded or MultiQuery
        Under the metric cosine (squared distances of normalised rows), euclidean or sqeuclidean.
    k1 : int
        Images in a neighbourhood, beside the image itself; at least 2.
    k2 : int
        Images whose encodings are averaged; 1 averages none.
    lambda_ : float
        λ, in [0, 1].
    power : {2, 4}
        Power of the Euclidean distance. Tools that square squared distances once more have 4.
    with_ : {"all", "gallery"}
        Which images are neighbours: all queries and gallery items; or the gallery and the query
        itself, so that its result does not depend on other queries.
    folder : str or Path, optional
        Where the nearest images of all, and their encodings, are kept: an interrupted evaluation
        goes on with them. One of the same features finds encodings of the same k1, k2 and power
        there, and the nearest images where no more of them are needed. On a cluster of several
        machines all must see it.
    index : str, optional
        A FAISS factory string (``IVF1024,Flat``): the nearest images are those that an index of
        all images finds, and the greatest distance of a gallery item is that of a sample of 4,096
        images. The result is approximate, and says so.
    search : str
        Parameters of the search of that index: ``nprobe=16``.

    Raises
    ------
    OptionError
        If the metric is another, or an option is out of bounds.
    """

    encodings: Encodings | None = None
    _base: Features

    @entry_point
    def __init__(
        self,
        features: FeatureSource,
        k1: int = 20,
        k2: int = 6,
        lambda_: float = 0.3,
        *,
        power: Literal[2, 4] = 2,
        with_: RerankWith = "all",
        folder: str | Path | None = None,
        index: str | None = None,
        search: str = "",
    ) -> None:
        check_type("features", features, FeatureSource, "Features(query, gallery) is needed")
        refuse(
            OptionError,
            features.metric not in SQUARED
            and f"re-ranking needs squared distances, and the metric is {features.metric}; "
            f"expected one of {', '.join(SQUARED)}",
            not (is_count(k1) and k1 >= 2)
            and f"k1 is {k1!r}; a whole number of at least 2 is needed",
            not is_count(k2) and f"k2 is {k2!r}; a whole number of at least 1 is needed",
            not (is_number(lambda_) and 0 <= lambda_ <= 1)
            and f"lambda is {lambda_!r}; a number from 0 to 1 is needed",
            power not in (2, 4) and f"power is {power!r}; expected 2 or 4",
            with_ == "gallery"
            and index is not None
            and "got an index of all images, and each query is alone with the gallery: omit index, "
            "or with_='gallery'",
            with_ not in get_args(RerankWith)
            and f"with_ is {with_!r}; expected {' or '.join(get_args(RerankWith))}",
        )
        if folder is not None:
            check_path(folder, "folder")
        self.features = features
        self.folder = None if folder is None else Path(folder).absolute()
        self.with_ = with_
        self.parameters = Parameters(int(k1), int(k2), float(lambda_), int(power))
        self.index = FactoryIndex.of(index, search)

    def __repr__(self) -> str:
        index = "" if self.index is None else f", {self.index}"
        return f"Reranked({self.features!r}, {self.parameters}, with_={self.with_!r}{index})"

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self.features.shape

    def inputs(self) -> tuple[Input, ...]:
        """Return the features of both sides."""
        return self.features.inputs()

    def options(self) -> JsonObject:
        """Return the metric, and what it is re-ranked by."""
        given, options = self.parameters, self.features.options()
        step = {"name": "k-reciprocal", "k1": given.k1, "k2": given.k2, "lambda": given.lambda_}
        if given.power != 2:
            step["power"] = given.power
        if self.with_ != "all":
            step["with"] = self.with_
        if self.index is not None:
            step |= {"name": "approximate k-reciprocal", **self.index.step(sum(self.shape))}
        return {**options, STEPS: [*options.get(STEPS, ()), step]}

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return self.features.sides()

    def bounds(self) -> Range:
        """Return [0, 1]."""
        return Range(0.0, 1.0)

    def data(self) -> Data:
        """Return the sizes of the gallery's features."""
        return self.features.outline().data()

    def describe_plan(self, plan: Plan) -> PlanText:
        """Describe the blocks that are read and multiplied."""
        return self.features.outline().describe_plan(plan)

    def passes(self, planned: Planned) -> list[str]:
        """Return the names of the passes over the data, in order."""
        alone = self.with_ == "gallery"
        averaging = ["averaging"] if alone or self.parameters.k2 > 1 else []
        found = [NEIGHBORS] if self.index is None else ["index", NEIGHBORS, GREATEST]
        own = [*found, "encoding", *averaging, *([QUERIES] if alone else [])]
        return [*self.features.making, *own, *super().passes(planned)]

    def check(self, request: Request) -> Reranked:
        """Return the source as it is evaluated, checked against the request."""
        super().check(request)
        made = copy(self)
        made.features = self.features.check(request)
        if self.index is not None:
            IndexedImages(made.features.outline(), self.index).check_index()
        return made

    def plan(self, problem: Problem, limits: Limits) -> Plan:
        """Return how the counting is cut; the stages before it fit, too.

        Raises
        ------
        BudgetError
            If no plan fits the limits.
        """
        alone = replace(limits, cut=None, tile=None)
        everyone, _ = self._ranked(self.features.outline())
        beside = self._beside(limits) | everyone.held()  # workers keep it open
        stages = [
            *everyone.plans(self._most, alone),
            encoding_plan(everyone, self.parameters, alone),
        ]
        if self.with_ == "gallery":
            stages.append(queries_plan(everyone, self.shape[0], self.parameters, alone))
        counting = super().plan(replace(problem, beside=beside), limits)
        return with_stages(counting, [*self.features.stages(alone), *stages])

    def _ranked(self, features: Features) -> tuple[Everyone, Rank]:
        """Return the images that are ranked among themselves, and what ranks them."""
        if self.index is not None:
            indexed = IndexedImages(features, self.index)
            return indexed, partial(rank_by_index, indexed)
        exact = Gallery(features) if self.with_ == "gallery" else Everyone(features)
        return exact, partial(rank_all, exact)

    @property
    def _most(self) -> int:
        """Nearest images that are looked for of each."""
        return max(min(self.parameters.neighbors, sum(self.shape) - 1), 1)

    def _beside(self, limits: Limits) -> Holders:
        """Return what is held of encodings while pairs are counted, by what holds them."""
        threads = limits.threads if limits.workers is None else limits.workers.threads
        images = sum(self.shape)
        # Mapped, and by image; columns, and a row spread over all images.
        entries = 24 * ENTRIES + 20 * images
        return {"encodings": 8 * images + threads * max(entries, MAPPED_BYTES + 16 * images)}

    def begin(self, prepared: Prepared, session: Session) -> None:
        """Do nothing: `ready` has told the progress."""

    def ready(self, session: Session, limits: Limits) -> Reranked:
        """Return the source with the encodings of all images."""
        limits = replace(limits, cut=None, tile=None)
        session.guards[self.features] = session.guard(self)  # what they read is the same
        features = self.features.ready(session, limits)
        made = copy(self)
        made.features, made._base = features, squared(features)
        if self.with_ == "gallery":
            made.encodings = self._encoded_alone(features, session, limits)
        else:
            made.encodings = self._encoded(features, session, limits)
        session.guards[made] = session.guard(features)
        return made

    def _encoded(self, features: Features, session: Session, limits: Limits) -> Encodings:
        """Return the encodings of all images: those that are kept, or new ones."""
        everyone, rank = self._ranked(features)
        folder = self.folder or session.record.file("reranking")
        kept = found = None
        if folder is not None:
            kept = KeptEncodings(folder, self.features, everyone, self.parameters)
            found = kept.found()
        if found is not None:
            session.progress.begin(math.prod(self.shape), 0)
            return found
        session.progress.begin(everyone.work() + 2 * sum(self.shape) + math.prod(self.shape), 0)
        ranking = rank(self.parameters.neighbors, limits, session, folder)
        write = partial(encode, everyone, ranking, self.parameters, session)
        greatest = ranking.greatest[: self.shape[0]].copy()
        if kept is not None:
            return kept.make(write, greatest)
        temporary = TemporaryFolder(session.scratch)
        return Encodings.of_all(write(temporary), greatest, temporary)

    def _encoded_alone(self, features: Features, session: Session, limits: Limits) -> Encodings:
        """Return the encodings of queries, each alone with the gallery, and of the gallery."""
        (gallery, rank), (queries, items) = self._ranked(features), self.shape
        folder = self.folder or session.record.file("reranking")
        kept = None if folder is None else folder / self.with_
        session.progress.begin(gallery.work() + 2 * items + queries * (items + 1), 0)
        ranking = rank(self.parameters.neighbors, limits, session, kept)
        scratch = session.scratch
        if self.folder is not None:  # which the workers of a cluster see
            scratch = self.folder / self.with_ / "encodings"
            scratch.parent.mkdir(parents=True, exist_ok=True)
        place = TemporaryFolder(scratch)
        encoded = encode_gallery(gallery, ranking, self.parameters, session, place)
        return encode_queries(squared(features), encoded, session, place)

    def first_bad_row(self, stop: int) -> None:
        """Raise InputError for the first row that can't be evaluated, if any."""
        self.features.check_every_row()

    def tiles(
        self,
        job: Job,
        task: Task,
        watch: Watch,
        *,
        check: bool = True,
        wanted: Wanted | None = None,
    ) -> Iterator[Tile]:
        """Yield the tiles of a task; the values are overwritten by the next tile."""
        by = self._reranker(task.queries[0])
        for tile in self._base.tiles(job, task, watch, check=check):
            yield by.reranked(tile)

    def _reranker(self, first: int) -> Reranker:
        if self.encodings is None:
            raise RuntimeError("images are not encoded yet")
        return Reranker(self.encodings, self.parameters, first)

    def pair_parts(self, plan: Plan, indptr: IntArray, item: IntArray) -> list[Chosen]:
        """Cut listed pairs into parts whose gallery rows take little memory."""
        return self._base.pair_parts(plan, indptr, item)

    def pair_distances(self, job: Job, part: PairPart) -> FloatArray:
        """Return the canonical distances of listed pairs, [p] float64."""
        distance, by = self._base.pair_distances(job, part), self._reranker(part.queries[0])
        for rows in pieces((0, len(distance)), MAPPED_ROWS):
            own = slice(*rows)
            distance[own] = by.distances(part.query[own], part.item[own], distance[own])
        return distance

    def distance_blocks(
        self, queries: Sequence[int], block_bytes: int
    ) -> Iterator[tuple[int, FloatArray]]:
        """Yield the distances of a few queries, gallery block by gallery block."""
        if self.encodings is None:
            with open_session({}) as session:
                yield from self.ready(session, session.limits(self)).distance_blocks(
                    queries, block_bytes
                )
            return
        by = self._reranker(0)
        for first, block in self._base.distance_blocks(queries, block_bytes):
            item = first + np.arange(block.shape[1])
            yield (
                first,
                np.stack(
                    [
                        by.distances(np.full(len(item), query), item, row)
                        for query, row in zip(queries, block, strict=True)
                    ]
                ),
            )
