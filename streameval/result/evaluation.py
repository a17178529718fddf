"""Evaluation: the values, curves and per-query table of a run; saved and loaded whole."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.choices import AveragePrecision, CmcReading, TieRule, VerificationPrecision
from streameval.errors import InputError, check_path, check_type
from streameval.metrics.blocks import RankedQueries
from streameval.metrics.bounds import ListReading, compute_list_metrics
from streameval.metrics.compute import Metrics, compute_metrics, scalars_text
from streameval.metrics.confidence import Confidence, Identities, Resampling, confidence_of
from streameval.metrics.groups import CameraMatrix, PositiveCameras, camera_matrix
from streameval.metrics.metric import Measure
from streameval.metrics.options import MetricOptions
from streameval.metrics.retrieval import precision_recall
from streameval.metrics.selection import find_name, measures_of, with_changes
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
from streameval.result.saved import ResultFolder, load_result, summary_of, write_files
from streameval.statistics import RankStatistics, rows_of
from streameval.typing import FloatArray, JsonObject


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of an evaluation.

    Attributes
    ----------
    statistics : RankStatistics
        The counts, which all metrics are computed from.
    metrics : Metrics
        Scalars with their details, curves, columns a query.
    options : MetricOptions
        How these are computed.
    range : dict
        ``mode`` ("auto", "minmax", "given"), ``low``, ``high``: what τ = 0 and 1 stand for. None
        of both where nothing is read off it ("unused"), or lists don't tell it ("unknown").
    columns : dict of str to [Q] array
        Labels of the queries: ``id``, ``cam``, further ones, and ``group`` where one was given.
    provenance : dict
        What was evaluated, and how.
    group_by : str, optional
        The column whose labels `groups` are of, or ``cam-pair``.
    positive_cams : PositiveCameras, optional
        Camera of each positive of the statistics.
    lists : ListReading, optional
        Of lists of neighbours: how they are read. The statistics are the worst that they allow,
        or those of a system that finds nothing else; metrics may be intervals.
    resampling : Resampling, optional
        How the confidence intervals of the summary are made; it has none without.
    """

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

    @classmethod
    def compute(
        cls,
        statistics: RankStatistics,
        options: MetricOptions,
        *,
        range: JsonObject,
        columns: Columns,
        provenance: JsonObject,
        positive_cams: PositiveCameras | None = None,
        lists: ListReading | None = None,
        resampling: Resampling | None = None,
    ) -> Evaluation:
        """Compute the metrics of the options."""
        return cls(
            statistics,
            _metrics_of(statistics, options, lists),
            options,
            range,
            columns,
            provenance,
            positive_cams=positive_cams,
            lists=lists,
            resampling=resampling,
        )

    def with_options(
        self,
        options: MetricOptions | JsonObject | None = None,
        *,
        metrics: str | Iterable[str] | None = None,
        ties: TieRule | None = None,
        ap: AveragePrecision | None = None,
        vp: VerificationPrecision | None = None,
        cmc: CmcReading | None = None,
        false_rate_budget: int | None = None,
        max_rank: int | None = None,
    ) -> Evaluation:
        """Return the same evaluation under other metric options, without its distances.

        Parameters
        ----------
        options : MetricOptions or mapping, optional
            All options, or some of them by name; by default those of this evaluation.
        metrics : str or iterable of str, optional
            As `evaluate` takes them: ``"CMC@1,mAP"``.
        ties, ap, vp, cmc, false_rate_budget, max_rank
            Attributes of `MetricOptions` to change.

        Raises
        ------
        OptionError
            If there is no such option, a value can't be, or a metric that is named needs what was
            not counted.
        """
        base = options if isinstance(options, MetricOptions) else self.options
        changes: JsonObject = {
            "metrics": metrics,
            "ties": ties,
            "ap": ap,
            "vp": vp,
            "cmc": cmc,
            "false_rate_budget": false_rate_budget,
            "max_rank": max_rank,
        }
        changes |= options if isinstance(options, Mapping) else {}
        changed = with_changes(base, changes)
        return replace(
            self, options=changed, metrics=_metrics_of(self.statistics, changed, self.lists)
        )

    def grouped(self, by: str | npt.ArrayLike) -> Evaluation:
        """Return the same evaluation with the metrics of each group of queries.

        Parameters
        ----------
        by : str or [Q] array_like
            A column of labels, ``id``, ``cam`` or a further one; ``cam-pair``; or a label a query.

        Raises
        ------
        InputError
            If there is no such column, or not one label a query.
        """
        if isinstance(by, str):
            if by == CAMERA_PAIRS:
                check_not_of_lists(self.lists, CAMERA_PAIRS)
            check_group_column(by, self.columns, self.positive_cams)
            return replace(self, group_by=by)
        labels = group_labels(by, self.statistics.queries)
        return replace(self, columns={**self.columns, GROUP: labels}, group_by=GROUP)

    def confidence(
        self, level: float = 0.95, *, resamples: int = 1000, seed: int = 0
    ) -> Confidence:
        """Return confidence intervals of the metrics, by bootstrap over identities.

        No distance is computed again: see `streameval.metrics.confidence`.

        Parameters
        ----------
        level, resamples, seed : as of `Resampling`
            The same seed gives the same intervals, but for rounding.

        Raises
        ------
        OptionError
            If one of these can't be.
        InputError
            If the queries have no column ``id``, or the result is of lists of neighbours.
        """
        return self._confidence(Resampling(level, resamples, seed))

    def with_confidence(
        self, level: float = 0.95, *, resamples: int = 1000, seed: int = 0
    ) -> Evaluation:
        """Return the same evaluation with `confidence`, of these parameters, in its summary."""
        return replace(self, resampling=Resampling(level, resamples, seed))

    @cached_property
    def chosen_confidence(self) -> Confidence | None:
        """The intervals of the summary; None where `resampling` is."""
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

    def __repr__(self) -> str:
        queries = f"{self.statistics.queries} queries × {self.counts['gallery']} gallery items"
        return f"<Evaluation of {queries}: {scalars_text(self.metrics.scalars)}>"

    def __getitem__(self, name: str) -> float:
        """Return a metric by name, NaN where undefined; another tool's name will do: ``rank1``."""
        scalars = self.metrics.scalars
        found = find_name(name, scalars)
        if found is None:
            raise KeyError(f"no metric {name!r}; there are {', '.join(scalars)}")
        return scalars[found]

    @property
    def curves(self) -> Columns:
        """Every curve by name, [n] each.

        ``CMC`` at the ranks 1, 2, ..; ``mRP``, ``mVP``, ``mReP``, ``mFR`` at the T thresholds
        ``tau``; ``FAR`` and ``DIR@1`` at the distances ``ROC_tau``; and others of the metrics.
        """
        return self.metrics.curves

    @property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """The metrics that ties leave open: (least, greatest) over pessimistic and optimistic."""
        return self.metrics.intervals

    @cached_property
    def groups(self) -> Mapping[Any, Metrics]:
        """The metrics of each group of `group_by`; by ``cam-pair``, of (query cam, gallery cam)."""
        return metrics_of_groups(self)

    @cached_property
    def group_confidence(self) -> Mapping[Any, Confidence]:
        """The intervals of each group where the summary has any; pairs of cameras have none."""
        return confidence_of_groups(self)

    def camera_matrix(self, name: str) -> CameraMatrix:
        """Return a metric of every pair of a query's camera and a positive's.

        Parameters
        ----------
        name : str
            ``CMC@1``, ``mAP`` or another metric over Q+; or ``queries``, ``pairs_positive``.

        Raises
        ------
        InputError
            If there were no cameras of both sides.
        KeyError
            If the result has no such metric.
        """
        return camera_matrix(self.grouped(CAMERA_PAIRS).groups, name)

    def precision_recall(self, query: int) -> tuple[FloatArray, FloatArray]:
        """Return recall and precision at each positive of one query, both [G] float64.

        j/G and j/r_j, not interpolated, under the tie rule of the options; empty where the
        query has no positive.

        Raises
        ------
        InputError
            If there is no such query, or lists of neighbours leave open what is asked for.
        """
        check_type("query", query, Integral, "a whole number is needed")
        if not 0 <= query < self.statistics.queries:
            raise InputError(
                f"query {query} does not exist: there are {self.statistics.queries} queries, "
                "numbered from 0"
            )
        check_not_of_lists(self.lists, "precision and recall at each positive")
        start, stop = self.statistics.indptr[query : query + 2].tolist()
        recall, precision = self._precision_recall
        return recall[start:stop], precision[start:stop]

    @cached_property
    def _precision_recall(self) -> tuple[FloatArray, FloatArray]:
        return precision_recall(RankedQueries(self.statistics, self.options))

    @cached_property
    def per_query(self) -> Columns:
        """A column each, [Q]: the query's index, id, class, counts and values.

        ``query``; ``id``, ``cam``; ``class`` ("positive" for Q+, "negative" for Q−, "excluded");
        ``positives``, ``negatives``, ``ignored``, ``ties``, int64; ``nearest_positive`` and
        ``nearest_negative``, distances; ``first_rank``, ``AP``, ``INP`` and others of the metrics,
        float64, NaN where undefined. Labels beside id and cam are there as ``label:weather``.
        """
        index = {"query": np.arange(self.statistics.queries)}
        return {**index, **table_columns(self.columns), **self.metrics.per_query}

    @property
    def positives(self) -> Columns:
        """A column each, [P]: every positive, nearest first within its query.

        ``query``, gallery ``item`` and ``cam`` (where they are known), ``distance``; ``recall``
        and ``precision`` at it, as `precision_recall` returns.
        """
        check_not_of_lists(self.lists, "the table of positives")
        statistics, (recall, precision) = self.statistics, self._precision_recall
        columns = {
            "query": rows_of(statistics.indptr),
            "item": statistics.positive_item,
            "cam": None if self.positive_cams is None else self.positive_cams.labels,
            "distance": statistics.positive_distance,
            "recall": recall,
            "precision": precision,
        }
        return {name: values for name, values in columns.items() if values is not None}

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Numbers of queries by class, of gallery items, of pairs, and of ties.

        ``queries``, ``queries_positive`` (N), ``queries_negative`` (M), ``queries_excluded``,
        ``gallery``, ``pairs_positive``, ``pairs_ignored``, ``ties``.
        """
        gallery = int((self.statistics.valid + self.statistics.ignored)[0])
        return self.metrics.counts | {"gallery": gallery}

    def summary(self) -> JsonObject:
        """Return what ``summary.json`` holds; undefined and infinite values are None."""
        return summary_of(self)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the result as a folder, whole or not at all.

        Parameters
        ----------
        path : str or Path
        overwrite : bool
            Whether to replace a saved result; a folder that holds anything else is never replaced.

        Raises
        ------
        OutputError
            If the path exists and is not to be replaced, or cannot be written.
        """
        with ResultFolder(path, overwrite=overwrite) as folder:
            self.write(folder.partial)
            folder.put_in_place()

    def write(self, folder: Path) -> None:
        """Write the files of the result into an existing folder."""
        write_files(self, folder)

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read a saved result; its metrics are computed again from the statistics.

        Raises
        ------
        OutputError
            If the folder is no result, of a later format, or damaged.
        """
        check_path(path)
        return load_result(cls, Path(path))


Results = Mapping[str, Evaluation]
"""Results by the names that they are shown by."""


def _metrics_of(
    statistics: RankStatistics, options: MetricOptions, lists: ListReading | None
) -> Metrics:
    if lists is None:
        return compute_metrics(statistics, options)
    return compute_list_metrics(statistics, lists, options)
