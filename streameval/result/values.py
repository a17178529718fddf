"""The values of an evaluation: all that is read off its counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, check_type, entry_points
from streameval.metrics.blocks import RankedQueries
from streameval.metrics.bounds import ListReading
from streameval.metrics.compute import Metrics, scalars_text
from streameval.metrics.confidence import Confidence, Identities, Resampling, confidence_of
from streameval.metrics.groups import CameraMatrix, PositiveCameras, camera_matrix
from streameval.metrics.metric import Measure
from streameval.metrics.options import MetricOptions
from streameval.metrics.retrieval import precision_recall
from streameval.metrics.selection import measures_of
from streameval.protocols.labels import CAMERA_PAIRS
from streameval.result.groups import (
    GROUP,
    Columns,
    check_group_column,
    check_not_of_lists,
    confidence_of_groups,
    group_labels,
    metrics_of_groups,
    table_columns,
)
from streameval.statistics import RankStatistics
from streameval.stretches import rows_of
from streameval.typing import FloatArray, JsonObject


@entry_points
@dataclass(frozen=True, eq=False)
class EvaluationValues:
    """Counts, and the values that are read off them; the attributes are those of `Evaluation`."""

    statistics: RankStatistics
    metrics: Metrics
    options: MetricOptions
    range: JsonObject
    columns: Columns
    provenance: JsonObject
    group_by: str | None = None
    positive_cams: PositiveCameras | None = None
    lists: ListReading | None = None
    resampling: Resampling | None = None

    def __repr__(self) -> str:
        queries = f"{self.statistics.queries} queries × {self.counts['gallery']} gallery items"
        return f"<Evaluation of {queries}: {scalars_text(self.metrics.scalars)}>"

    def __getitem__(self, name: str) -> float:
        """Return a metric by its name here or in another tool (``rank1``); NaN if undefined."""
        return self.metrics[name]

    def __contains__(self, name: object) -> bool:
        return name in self.metrics

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    @property
    def curves(self) -> Columns:
        """Every curve by name, [n] each.

        ``CMC`` at the ranks 1, 2, ..; ``mRP``, ``mVP``, ``mReP``, ``mFR`` at the T thresholds
        ``tau``; ``FAR`` and ``DIR@1`` at the distances ``ROC_tau``; and curves of other metrics.
        """
        return self.metrics.curves

    @property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """Metrics that depend on the order of ties: (lowest, highest) value."""
        return self.metrics.intervals

    @cached_property
    def groups(self) -> Mapping[Any, Metrics]:
        """Metrics of each group; for ``cam-pair``, the keys are (query cam, gallery cam)."""
        return metrics_of_groups(self)

    @cached_property
    def group_confidence(self) -> Mapping[Any, Confidence]:
        """Confidence intervals of each group, if the summary has them; camera pairs have none."""
        return confidence_of_groups(self)

    def camera_matrix(self, name: str) -> CameraMatrix:
        """Return a metric as a matrix of query cameras and gallery cameras.

        Parameters
        ----------
        name : str
            ``CMC@1``, ``mAP`` or another metric over Q+; or ``queries``, ``pairs_positive``.

        Raises
        ------
        InputError
            If a side has no cameras.
        KeyError
            If the result has no such metric.
        """
        return camera_matrix(self.grouped(CAMERA_PAIRS).groups, name)

    def precision_recall(self, query: int) -> tuple[FloatArray, FloatArray]:
        """Return recall and precision at each positive of one query, both [G] float64.

        The values are j/G and j/r_j, not interpolated, under the tie rule of the options. They
        are empty if the query has no positive.

        Raises
        ------
        InputError
            If there is no such query, or the result is of lists of neighbours.
        """
        check_type("query", query, Integral, "a whole number is needed")
        if not 0 <= query < self.statistics.queries:
            raise InputError(
                f"query {query} does not exist: there are {self.statistics.queries} queries, "
                "numbered from 0"
            )
        check_not_of_lists(self.lists, "precision and recall at each positive")
        own = self.statistics.block(int(query), int(query) + 1)
        return precision_recall(RankedQueries(own, self.options))

    @cached_property
    def per_query(self) -> Columns:
        """Per-query columns, [Q] each: index, labels, class, counts and values.

        ``query``; ``id``, ``cam``; ``class`` ("positive" for Q+, "negative" for Q−, "excluded");
        ``positives``, ``negatives``, ``ignored``, ``ties``, int64; ``nearest_positive`` and
        ``nearest_negative``, distances; ``first_rank``, ``AP``, ``INP`` and columns of other
        metrics, float64, NaN if undefined. Other label columns are named ``label:weather``.
        """
        index = {"query": np.arange(self.statistics.queries)}
        return {**index, **table_columns(self.columns), **self.metrics.per_query}

    @property
    def positives(self) -> Columns:
        """Columns of all positives, [P] each, nearest first within a query.

        ``query``, gallery ``item`` and ``cam`` (if known), ``distance``; ``recall`` and
        ``precision`` at the positive, as in `precision_recall`.
        """
        blocks = list(self.positive_blocks())
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}

    def positive_blocks(self) -> Iterator[Columns]:
        """Yield `positives` of one block of queries after the other."""
        check_not_of_lists(self.lists, "the table of positives")
        for start, stop in self.statistics.spans:
            block = self.statistics.block(start, stop)
            cams = self.positive_cams
            recall, precision = precision_recall(RankedQueries(block, self.options))
            columns = {
                "query": rows_of(block.indptr) + start,
                "item": block.positive_item,
                "cam": None if cams is None else cams.known[cams.codes(block)],
                "distance": block.positive_distance,
                "recall": recall,
                "precision": precision,
            }
            yield {name: values for name, values in columns.items() if values is not None}

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Numbers of queries by class, gallery items, pairs and ties.

        ``queries``, ``queries_positive`` (N), ``queries_negative`` (M), ``queries_excluded``,
        ``gallery``, ``pairs_positive``, ``pairs_ignored``, ``ties``.
        """
        first = self.statistics.block(0, 1)
        gallery = int((first.valid + first.ignored)[0])
        return self.metrics.counts | {"gallery": gallery}

    def grouped(self, by: str | npt.ArrayLike) -> Self:
        """Return the same evaluation with metrics of groups of queries.

        Parameters
        ----------
        by : str or [Q] array_like
            A label column (``id``, ``cam`` or another), ``cam-pair``, or one label per query.

        Raises
        ------
        InputError
            If there is no such column, or the number of labels differs from Q.
        """
        if isinstance(by, str):
            if by == CAMERA_PAIRS:
                check_not_of_lists(self.lists, CAMERA_PAIRS)
            check_group_column(by, self.columns, self.positive_cams)
            return replace(self, group_by=by)
        labels = group_labels(by, self.statistics.queries).copy()
        return replace(self, columns={**self.columns, GROUP: labels}, group_by=GROUP)

    def confidence(
        self, level: float = 0.95, *, resamples: int = 1000, seed: int = 0
    ) -> Confidence:
        """Return confidence intervals of the metrics, from a bootstrap over identities.

        No distance is computed again.

        Parameters
        ----------
        level, resamples, seed : as of `Resampling`
            The same seed gives the same intervals up to rounding.

        Raises
        ------
        OptionError
            If a parameter is invalid.
        InputError
            If the queries have no column ``id``, or the result is of lists of neighbours.
        """
        return self._confidence(Resampling(level, resamples, seed))

    @cached_property
    def chosen_confidence(self) -> Confidence | None:
        """Confidence intervals of the summary; None without `resampling`."""
        return None if self.resampling is None else self._confidence(self.resampling)

    def _confidence(self, how: Resampling) -> Confidence:
        check_not_of_lists(self.lists, "a confidence interval")
        measures = [one for one in self.measures() if not math.isnan(self[one.name])]
        return confidence_of(self.statistics, self.options, measures, self.identities(), how)

    def measures(self) -> list[Measure]:
        """Return the metrics that the options ask for and the statistics allow."""
        return measures_of(self.options, self.statistics)

    def identities(self) -> Identities:
        """Return the identities of the queries.

        Raises
        ------
        InputError
            If the queries have no column ``id``.
        """
        if "id" not in self.columns:
            raise InputError(
                "the queries have no column id, and the bootstrap draws identities: evaluate with "
                "identities of the queries"
            )
        return Identities(self.columns["id"])
