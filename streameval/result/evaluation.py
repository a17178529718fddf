"""Evaluation: the values, curves and per-query table of a run; shown, saved and loaded whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from streameval.choices import AveragePrecision, CmcReading, TieRule, VerificationPrecision
from streameval.display.shown import Shown
from streameval.errors import check_path, entry_points
from streameval.metrics.bounds import ListReading, compute_list_metrics
from streameval.metrics.compute import Metrics, compute_metrics
from streameval.metrics.confidence import Resampling
from streameval.metrics.groups import PositiveCameras
from streameval.metrics.options import MetricOptions
from streameval.metrics.selection import with_changes
from streameval.result.frames import TABLES, to_pandas
from streameval.result.groups import Columns, with_mean_groups
from streameval.result.saved import Saves, load_result, summary_of, write_files
from streameval.result.values import EvaluationValues
from streameval.statistics import RankStatistics
from streameval.typing import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from streameval.display.table import Blocks, Table


@entry_points
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Shown, Saves, EvaluationValues):
    """The result of an evaluation.

    Attributes
    ----------
    statistics : RankStatistics
        The counts from which all metrics are computed.
    metrics : Metrics
        Scalars with their details, curves, and per-query columns.
    options : MetricOptions
        Options of the metrics.
    range : dict
        ``mode`` ("auto", "minmax", "given"), and the distances ``low`` and ``high`` of τ = 0 and
        τ = 1. Both are None if no metric uses τ ("unused"), or if lists of neighbours do not
        determine the range ("unknown").
    columns : dict of str to [Q] array
        Labels of the queries: ``id``, ``cam``, other columns, and ``group`` if given.
    provenance : dict
        Inputs and conditions of the evaluation.
    group_by : str, optional
        The column that defines `groups`, or ``cam-pair``.
    positive_cams : PositiveCameras, optional
        Camera of each positive of the statistics.
    lists : ListReading, optional
        How lists of neighbours are read. The statistics are then the worst that the lists allow,
        or those of a system that finds nothing else. Metrics may be intervals.
    resampling : Resampling, optional
        Parameters of the confidence intervals in the summary. Without it, there are none.
    """

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
        threads: int = 1,
    ) -> Evaluation:
        """Compute the metrics of the options."""
        statistics, lists = with_mean_groups(statistics, lists, options.average, columns)
        if len(statistics.spans) > 1:  # they did not fit the memory, as what threads keep might not
            threads = 1
        return cls(
            statistics,
            _metrics_of(statistics, options, lists, threads),
            options,
            range,
            columns,
            provenance,
            positive_cams=positive_cams,
            lists=lists,
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
        """Return the same evaluation with other metric options; needs no distances.

        Parameters
        ----------
        options : MetricOptions or mapping, optional
            All options, or some of them by name. By default, those of this evaluation.
        metrics : str or iterable of str, optional
            Metrics to compute, as for `evaluate`: ``"CMC@1,mAP"``.
        ties, ap, vp, cmc, false_rate_budget, max_rank
            Attributes of `MetricOptions` to change.

        Raises
        ------
        OptionError
            If an option or a value is unknown, or a metric needs statistics that were not
            counted.
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
        statistics, lists = with_mean_groups(
            self.statistics, self.lists, changed.average, self.columns
        )
        metrics = _metrics_of(statistics, changed, lists)
        return replace(self, statistics=statistics, lists=lists, options=changed, metrics=metrics)

    def with_confidence(
        self, level: float = 0.95, *, resamples: int = 1000, seed: int = 0
    ) -> Evaluation:
        """Return the same evaluation with confidence intervals in its summary."""
        return replace(self, resampling=Resampling(level, resamples, seed))

    def _blocks(self, saved: str | None = None) -> Blocks:
        from streameval.display.evaluation import evaluation_blocks

        return evaluation_blocks(self, saved)

    def _table(self, name: str) -> Table:
        from streameval.display.evaluation import results_table

        return results_table({name: self})

    def to_pandas(
        self, table: Literal["metrics", "per_query", "positives"] = "metrics"
    ) -> DataFrame:
        """Return a table of the evaluation as a DataFrame.

        Parameters
        ----------
        table : {"metrics", "per_query", "positives"}
            ``metrics`` has one row per metric: its ``value``; its confidence interval, ``low`` and
            ``high`` (see `with_confidence`); its bounds under ties or lists of neighbours,
            ``least`` and ``greatest``; the distance (``threshold``) at which it is reached; and
            the ``reason`` if it is NaN. ``per_query`` has one row per query, ``positives`` one
            per positive.

        Raises
        ------
        OptionError
            If there is no such table, or pandas is not installed.
        """
        return to_pandas(self, table, TABLES)

    def plot(self, curve: str = "CMC", *, metric: str = "mAP", label: str = "this run") -> Figure:
        """Plot a curve, as ``streameval plot`` does.

        Parameters
        ----------
        curve : str
            ``CMC``, ``mReP``, ``mFR``, ``mRP``, ``mVP``, ``precision-recall``, ``DIR-FAR``,
            ``pairs``; or ``camera-pairs``, a heat map of a metric.
        metric : str
            Metric of the heat map.
        label : str
            Name in the legend.

        Returns
        -------
        matplotlib.figure.Figure
            Save it with ``figure.savefig("cmc.pdf")``; ``figure.axes[0]`` are its axes.

        Raises
        ------
        OptionError
            If there is no such curve, or matplotlib is not installed.
        InputError
            If the result does not have the curve.
        """
        from streameval.display.figures import plot

        return plot({str(label): self}, curve, metric=metric)

    def summary(self) -> JsonObject:
        """Return the content of ``summary.json``; undefined and infinite values are None."""
        return summary_of(self)

    def write(self, folder: Path) -> None:
        """Write the files of the result into an existing folder."""
        write_files(self, folder)

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Load a saved result, and compute its metrics again from the statistics.

        Raises
        ------
        OutputError
            If the folder is not a result, is damaged, or has a later format.
        """
        check_path(path)
        return load_result(cls, Path(path))


Results = Mapping[str, Evaluation]
"""Results by the names that they are shown by."""


def _metrics_of(
    statistics: RankStatistics,
    options: MetricOptions,
    lists: ListReading | None,
    threads: int = 1,
) -> Metrics:
    if lists is None:
        return compute_metrics(statistics, options, threads)
    return compute_list_metrics(statistics, lists, options)
