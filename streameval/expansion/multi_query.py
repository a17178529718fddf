"""Queries fused with further images of them, as a source."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_args

import numpy as np

from streameval.arrays.fingerprint import of_labels
from streameval.choices import Fuse
from streameval.errors import InputError, OptionError, entry_point, refuse
from streameval.expansion.derived import DerivedFeatures
from streameval.expansion.sums import RowSums
from streameval.expansion.written import MadeArray, block_bytes, write_rows, writing_plan
from streameval.labels.columns import LabelsLike, labels_of
from streameval.planning.plan import Limits, Plan, pieces
from streameval.protocols.agreement import Agreement, Matches
from streameval.protocols.labels import Labels
from streameval.run.session import Session
from streameval.source import Input
from streameval.sources.feature_source import FeatureSource
from streameval.sources.features import Features
from streameval.sources.tiled import ArrayLike, open_matrix, working_dtype
from streameval.stretches import rows_of
from streameval.typing import FloatArray, IntArray, JsonObject, Span

if TYPE_CHECKING:
    from streameval.request import Request

FUSES = get_args(Fuse)
BLOCK_ROWS = 1024  # queries that are fused together, at most
PAIRS = 1 << 16  # and further images that they have, unless one has more
LABELS = "multi_query_labels"
COLUMNS = ("id", "cam")  # by which further images belong to a query


class MultiQuery(DerivedFeatures):
    """Features whose queries are fused with further images of their identity and camera.

    Each element becomes the mean, or the greatest, of those of the query and of the further images:
    Zheng, Shen, Tian, Wang, Wang and Tian, "Scalable Person Re-identification: A Benchmark" (ICCV
    2015). Under cosine, rows are divided by their norms first. Sums are in float64, the query
    first, then in order of rows, and rounded once, to float32. A query without further images stays
    as it is.

    Parameters
    ----------
    features : Features, Expanded or MultiQuery
    more : str, Path or [M, D] array
        Features of the further images, as `Features` takes them. The queries themselves should not
        be among them: they would count twice.
    labels : Labels, mapping or table
        Identities and cameras of the further images, as `evaluate` takes them.
    fuse : {"mean", "max"}
    folder : str or Path, optional
        Where new features are written. On a cluster of several machines all must see it.
    fill_missing : bool
        As of `Features`.

    Raises
    ------
    InputError
        If the array can't be one of features, its width is another, or labels don't fit it.
    OptionError
        If `fuse` is unknown.
    """

    _matches: Matches | None = None

    @entry_point
    def __init__(
        self,
        features: FeatureSource,
        more: ArrayLike,
        labels: LabelsLike,
        fuse: Fuse = "mean",
        *,
        folder: str | Path | None = None,
        fill_missing: bool = False,
    ) -> None:
        super().__init__(features, folder)
        refuse(
            OptionError, fuse not in FUSES and f"fuse is {fuse!r}; expected {' or '.join(FUSES)}"
        )
        what = "multi-query features"
        self.more = open_matrix(more, what, "one row an image", fill_missing=fill_missing)
        self.labels, self.fuse = labels_of(labels, "labels", COLUMNS), fuse
        width, (rows, own) = features.outline().width, self.more.shape
        if own != width:
            raise InputError(
                f"{what} {self.more.uri} are {self.more.shape}, and the features have {width} "
                "columns: both need the same number"
            )
        if len(self.labels) != rows:
            raise InputError(
                f"{what} {self.more.uri} have {rows} rows, and {self.labels.source} "
                f"{len(self.labels)} ids: one id an image is needed"
            )
        _check_cams(self.labels)

    def __repr__(self) -> str:
        return f"MultiQuery({self.features!r}, {self.more!r}, fuse={self.fuse!r})"

    def step(self) -> JsonObject:
        """Return its name, and how images are fused."""
        return {"name": "multi-query", "fuse": self.fuse}

    def options(self) -> JsonObject:
        """Return the metric, the steps, and fingerprints of the labels of further images."""
        known = self.features.options().get(LABELS, ())
        own = [of_labels(self.labels.columns[name]) for name in COLUMNS]
        return {**super().options(), LABELS: [*known, *own]}

    def inputs(self) -> tuple[Input, ...]:
        """Return the features of both sides, and those of the further images."""
        more = Input("multi_query", "multi-query features", self.more, by_workers=False)
        return (*self.features.inputs(), more)

    @property
    def making(self) -> list[str]:
        """The names of the passes that make the features, in order."""
        return [*self.features.making, "fusing"]

    def check(self, request: Request) -> Self:
        """Return the source as it is evaluated: with the further images of each query.

        Raises
        ------
        InputError
            If queries have no cameras, or labels of another kind.
        """
        made = super().check(request)
        if request.query is not None:
            _check_cams(request.query)
            agreement = Agreement(request.query, self.labels, COLUMNS)
            made._matches = Matches(agreement, len(self.labels))
        return made

    def stages(self, limits: Limits) -> list[Plan]:
        """Return the plans of the passes that make the features.

        Raises
        ------
        BudgetError
            If one does not fit the limits.
        """
        others = self._others(self.features.outline())
        (queries, _), rows, most = self.shape, len(self.labels), PAIRS
        if self._matches is not None:
            most = max(most, int(self._matches.count(0, queries).max(initial=0)))
        held = {"multi-query": 16 * rows + 32 * queries + limits.threads * 100 * most}
        writing = writing_plan(self.shape, held, others.data(), rows + queries, limits)
        return [*self.features.stages(limits), writing]

    def _others(self, features: Features) -> Features:
        """Return features with the further images as the gallery."""
        others = copy(features)
        others.gallery, others.dtype = self.more, np.dtype(working_dtype(self.more))
        return others

    def check_every_row(self) -> None:
        """Raise InputError for the first row that can't be evaluated, if any."""
        super().check_every_row()
        others = self._others(self.features.outline())
        others.first_bad_row(others.shape[1])

    def make(self, features: Features, array: MadeArray, session: Session, limits: Limits) -> None:
        """Write the queries, fused."""
        if self._matches is None:
            raise RuntimeError("the labels of the queries are not known yet")
        session.progress.begin(self.shape[0], 0)
        room = block_bytes(limits)
        step = max(min(room // (8 * features.width), BLOCK_ROWS), 1)
        spans = list(self._spans(self._matches, step))
        made_of = features, self._others(features), self._matches
        make = partial(self._rows, *made_of, max(room // (16 * features.width), 1))
        write_rows("fusing", array, make, spans, self, session)

    def _spans(self, matches: Matches, step: int) -> Iterator[Span]:
        """Yield blocks of queries with few further images, or of one query."""
        for first, last in pieces((0, self.shape[0]), step):
            count = np.cumsum(matches.count(first, last))
            start = first
            while start < last:
                before = count[start - first - 1] if start > first else 0
                within = int(np.searchsorted(count, before + PAIRS, side="right"))
                stop = max(first + within, start + 1)
                yield start, stop
                start = stop

    def _rows(
        self, features: Features, others: Features, matches: Matches, step: int, span: Span
    ) -> FloatArray:
        """Return some of the fused rows, [m, D] float64, of so many further images at a time."""
        queries = features.read_query(*span)
        rows = RowSums(queries, normalised=self.normalised)
        indptr, item = matches.of(*span)
        into, order = rows_of(indptr), np.argsort(item, kind="stable")
        for part in (order[slice(*piece)] for piece in pieces((0, len(order)), step)):
            self._fuse(rows, others, into[part], item[part])
        if self.fuse == "mean":
            rows.values /= (np.diff(indptr) + 1)[:, None]
        single = np.diff(indptr) == 0
        rows.values[single] = queries.rows[single]
        return rows.values

    def _fuse(self, rows: RowSums, others: Features, into: IntArray, item: IntArray) -> None:
        """Take images, in order of rows, up into queries."""
        taken, place = np.unique(item, return_inverse=True)
        vectors = others.take_gallery(taken)
        if self.fuse == "max":
            rows.raise_to(vectors, into, place)
        else:
            rows.add(vectors, into, place, np.ones(len(item)))


def _check_cams(labels: Labels) -> None:
    if labels.cam is None:
        raise InputError(
            f"{labels.source} have no cam: further images of a query are those of its identity and "
            "camera, so that all need both"
        )
