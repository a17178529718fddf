"""Evaluation: the values, curves and per-query table of a run; saved and loaded whole.

saved       its files: written, and read back
folder      where they may be written, whole or not at all; the statistics
summary     what ``summary.json`` holds
columns     the labels of queries: in tables, and for groups
groups, positives, cells   the tables by group and by positive; cells of spreadsheets
comparable  whether results are of the same task
paired      one against another, on the same queries
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, OptionError, check_path, check_type
from streameval.metrics import Measure, MetricOptions, Metrics, compute_metrics
from streameval.metrics.bounds import ListReading, compute_list_metrics
from streameval.metrics.camera_pairs import (
    CameraMatrix,
    PositiveCameras,
    camera_matrix,
    metrics_by_camera_pair,
)
from streameval.metrics.compute import scalars_text
from streameval.metrics.confidence import Confidence, confidence_of
from streameval.metrics.groups import confidence_by_group, list_metrics_by_group, metrics_by_group
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.resampling import Identities, Resampling
from streameval.metrics.retrieval import precision_recall
from streameval.metrics.selection import available_fields, find_name, measures_of, names_of
from streameval.protocols.protocol import CAMERA_PAIRS, AnyArray
from streameval.result.columns import (
    GROUP,
    check_camera_pairs,
    check_group_column,
    group_labels,
    table_columns,
)
from streameval.result.folder import ResultFolder
from streameval.result.positives import positive_columns
from streameval.result.saved import load_result, write_files
from streameval.result.summary import summary_of
from streameval.statistics import FloatArray, RankStatistics


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
    range: Mapping[str, Any]
    columns: Mapping[str, AnyArray]
    provenance: Mapping[str, Any]
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
        range: Mapping[str, Any],
        columns: Mapping[str, AnyArray],
        provenance: Mapping[str, Any],
        group_by: str | None = None,
        positive_cams: PositiveCameras | None = None,
        lists: ListReading | None = None,
        resampling: Resampling | None = None,
    ) -> Evaluation:
        """Compute the metrics of the options."""
        metrics: Metrics
        if lists is None:
            metrics = compute_metrics(statistics, options)
        else:
            metrics = compute_list_metrics(statistics, lists, options)
        return cls(
            statistics,
            metrics,
            options,
            range,
            columns,
            provenance,
            group_by,
            positive_cams,
            lists,
            resampling,
        )

    def with_options(self, **changes: Any) -> Evaluation:
        """Return the same evaluation under other metric options, without its distances.

        Parameters
        ----------
        **changes
            Attributes of `MetricOptions`, as ``ties="optimistic"``; metrics as `evaluate` takes
            them, ``metrics="CMC@1,mAP"``.

        Raises
        ------
        OptionError
            If there is no such option, a value can't be, or a metric that is named needs what was
            not counted.
        """
        known = [one.name for one in fields(MetricOptions)]
        for name in changes:
            if name not in known:
                raise OptionError(f"unknown option {name!r}; known options: {', '.join(known)}")
        if changes.get("metrics") is not None:
            changes["metrics"] = names_of(changes["metrics"], "metrics")
        return self.compute(
            self.statistics,
            replace(self.options, **changes),
            range=self.range,
            columns=self.columns,
            provenance=self.provenance,
            group_by=self.group_by,
            positive_cams=self.positive_cams,
            lists=self.lists,
            resampling=self.resampling,
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
                check_camera_pairs(self.columns, self.positive_cams)
            else:
                check_group_column(by, self.columns)
            return replace(self, group_by=by)
        labels = group_labels(by, self.statistics.queries)
        return replace(self, columns={**self.columns, GROUP: labels}, group_by=GROUP)

    def confidence(
        self, level: float = 0.95, *, resamples: int = 1000, seed: int = 0
    ) -> Confidence:
        """Return confidence intervals of the metrics, by bootstrap over identities.

        No distance is computed again: see `streameval.metrics.resampling`.

        Parameters
        ----------
        level : float
            Share of the resamples inside an interval, in (0, 1).
        resamples : int
            How often as many identities as there are are drawn, with replacement.
        seed : int
            Of the draws; the same seed gives the same intervals, but for rounding.

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
        """Return the same evaluation with `confidence` in its summary.

        Raises
        ------
        OptionError
            If one of the parameters can't be.
        """
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
        return measures_of(self.options, available_fields(self.statistics))

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
        """Return a metric by name, a fraction in [0, 1]; NaN where undefined.

        A name of another tool will do where it stands for one metric: ``rank1`` for ``CMC@1``.

        Raises
        ------
        KeyError
            If the result has no such metric.
        """
        scalars = self.metrics.scalars
        found = find_name(name, scalars)
        if found is None:
            raise KeyError(f"no metric {name!r}; there are {', '.join(scalars)}")
        return scalars[found]

    @property
    def curves(self) -> Mapping[str, npt.NDArray[Any]]:
        """Every curve by name, [n] each: CMC, tau, mRP, mVP, mReP, mFR, FAR, DIR@1 and more.

        ``CMC`` is at the ranks 1, 2, ..; those of GOM at the T thresholds ``tau``; ``FAR`` and
        ``DIR@1`` where ``ROC_tau``, distances, are.
        """
        return self.metrics.curves

    @property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """The metrics that ties leave open: (least, greatest) of pessimistic and optimistic ties.

        Empty where nothing is tied.
        """
        return self.metrics.intervals

    @cached_property
    def groups(self) -> Mapping[Any, Metrics]:
        """The metrics of the queries of each label of the column `group_by`; none without one.

        By ``cam-pair``, labels are (query camera, gallery camera): see `metrics_by_camera_pair`.
        """
        if self.group_by is None:
            return {}
        if self.group_by == CAMERA_PAIRS and self.positive_cams is not None:
            return metrics_by_camera_pair(
                self.statistics, self.columns["cam"], self.positive_cams, self.options
            )
        labels = self.columns[self.group_by]
        if self.lists is not None:
            return list_metrics_by_group(self.statistics, self.lists, labels, self.options)
        return metrics_by_group(self.statistics, labels, self.options)

    @cached_property
    def group_confidence(self) -> Mapping[Any, Confidence]:
        """The intervals of each group where the summary has any; pairs of cameras have none."""
        if self.resampling is None or self.group_by in (None, CAMERA_PAIRS):
            return {}
        check_not_of_lists(self.lists, "a confidence interval")
        self.identities()  # there are none without
        return confidence_by_group(
            self.statistics,
            self.groups,
            self.columns[str(self.group_by)],
            self.columns["id"],
            self.options,
            self.resampling,
        )

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
        own = slice(*self.statistics.indptr[query : query + 2].tolist())
        recall, precision = self._precision_recall
        return recall[own], precision[own]

    @cached_property
    def _precision_recall(self) -> tuple[FloatArray, FloatArray]:
        return precision_recall(RankedQueries(self.statistics, self.options))

    @cached_property
    def per_query(self) -> Mapping[str, npt.NDArray[Any]]:
        """A column each, [Q]: the query's index, id, class, counts and values.

        ``query``; ``id``, ``cam``; ``class`` ("positive" for Q+, "negative" for Q−, "excluded");
        ``positives``, ``negatives``, ``ignored``, ``ties``, int64; ``nearest_positive`` and
        ``nearest_negative``, distances; ``first_rank``, ``AP``, ``INP`` and others of the metrics,
        float64, NaN where undefined. Labels beside id and cam are there as ``label:weather``.
        """
        index = {"query": np.arange(self.statistics.queries)}
        return {**index, **table_columns(self.columns), **self.metrics.per_query}

    @property
    def positives(self) -> Mapping[str, npt.NDArray[Any]]:
        """A column each, [P]: every positive, nearest first within its query.

        ``query``, gallery ``item`` and ``cam`` (where they are known), ``distance``; ``recall``
        and ``precision`` at it, as `precision_recall` returns.
        """
        check_not_of_lists(self.lists, "the table of positives")
        return positive_columns(self.statistics, self.positive_cams, self._precision_recall)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Numbers of queries by class, of gallery items, of pairs, and of ties.

        ``queries``, ``queries_positive`` (N), ``queries_negative`` (M), ``queries_excluded``,
        ``gallery``, ``pairs_positive``, ``pairs_ignored``, ``ties``.
        """
        gallery = int((self.statistics.valid + self.statistics.ignored)[0])
        return self.metrics.counts | {"gallery": gallery}

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` holds; undefined and infinite values are None."""
        return summary_of(self)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the result as a folder, whole or not at all.

        Parameters
        ----------
        path : str or Path
        overwrite : bool
            Whether to replace a result that is there; a folder that holds anything else too is
            never replaced.

        Raises
        ------
        OutputError
            If the path exists and is not to be replaced, or cannot be written.
        """
        with ResultFolder(path, overwrite=overwrite) as folder:
            self.write(folder.partial)
            folder.put_in_place()

    def write(self, folder: Path) -> None:
        """Write the files of the result into a folder that is there, as `save` does."""
        write_files(self, folder)

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read a saved result; its metrics are computed again from the statistics.

        Raises
        ------
        OutputError
            If the folder is no result, is of a later format, or is damaged: a part of the
            statistics is missing, or its counts are not those of the summary.
        """
        check_path(path)
        return load_result(cls, Path(path))


def check_not_of_lists(lists: ListReading | None, what: str) -> None:
    """Refuse what asks of every positive where it stands.

    Raises
    ------
    InputError
        If lists of neighbours may leave some out.
    """
    if lists is not None:
        raise InputError(
            f"{what} needs the place of every positive, and lists of neighbours may leave some "
            "out: evaluate the features or distances"
        )
