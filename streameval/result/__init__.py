"""Evaluation: the values, curves and per-query table of a run; saved and loaded whole.

A saved result is a folder:

    summary.json       metrics, their tie intervals, counts, options, provenance
    curves.npz         every curve by name
    per_query.parquet  a row a query
    statistics.zarr    the RankStatistics, from which all of the above can be computed again

What has no finite value, being undefined or infinite, is null in the summary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import OutputError
from streameval.metrics import MetricOptions, Metrics, compute_metrics
from streameval.protocol import AnyArray
from streameval.result.folder import (
    CURVES,
    FORMAT,
    PER_QUERY,
    STATISTICS,
    SUMMARY,
    ResultFolder,
    load_statistics,
    save_statistics,
)
from streameval.statistics import RankStatistics


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of an evaluation.

    Attributes
    ----------
    statistics : RankStatistics
    metrics : Metrics
    options : MetricOptions
    range : dict
        ``mode`` ("auto", "minmax", "given"), ``low``, ``high``: what τ = 0 and 1 stand for.
    query_id : [Q] array
        Identities of the queries, for the per-query table.
    provenance : dict
        What was evaluated, and how.
    """

    statistics: RankStatistics
    metrics: Metrics
    options: MetricOptions
    range: Mapping[str, Any]
    query_id: AnyArray
    provenance: Mapping[str, Any]

    @classmethod
    def compute(
        cls,
        statistics: RankStatistics,
        options: MetricOptions,
        *,
        range: Mapping[str, Any],
        query_id: AnyArray,
        provenance: Mapping[str, Any],
    ) -> Evaluation:
        """Compute all metrics of the statistics."""
        metrics = compute_metrics(statistics, options)
        return cls(statistics, metrics, options, range, query_id, provenance)

    def with_options(self, **changes: Any) -> Evaluation:
        """Return the same evaluation under other metric options, without its distances.

        Parameters
        ----------
        **changes
            Attributes of `MetricOptions`, as ``ties="optimistic"``.
        """
        return self.compute(
            self.statistics,
            replace(self.options, **changes),
            range=self.range,
            query_id=self.query_id,
            provenance=self.provenance,
        )

    def __getitem__(self, name: str) -> float:
        """Return a metric by name, a fraction in [0, 1]; NaN where undefined."""
        if name not in self.metrics.scalars:
            raise KeyError(f"no metric {name!r}; there are {', '.join(self.metrics.scalars)}")
        return self.metrics.scalars[name]

    @property
    def curves(self) -> Mapping[str, npt.NDArray[Any]]:
        """Every curve by name: CMC, tau, mRP, mVP, mReP, mFR, FAR, DIR@1 and more."""
        return self.metrics.curves

    @property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """The metrics that ties leave open: between the pessimistic and the optimistic rule."""
        return self.metrics.intervals

    @cached_property
    def per_query(self) -> Mapping[str, npt.NDArray[Any]]:
        """A column each, [Q]: the query's index, id, class, counts and values."""
        own = {"query": np.arange(len(self.query_id)), "id": self.query_id}
        return own | self.metrics.per_query

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Numbers of queries by class, of gallery items, of pairs, and of ties."""
        gallery = int((self.statistics.valid + self.statistics.ignored)[0])
        return self.metrics.counts | {"gallery": gallery}

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` holds; undefined and infinite values are None."""
        summary: dict[str, Any] = _plain(
            {
                "metrics": self.metrics.scalars,
                "intervals": self.metrics.intervals,
                "counts": self.counts,
                "options": asdict(self.options) | {"range": self.range},
                "provenance": {
                    "streameval": version("streameval"),
                    "format": FORMAT,
                    **self.provenance,
                },
            }
        )
        return summary

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
        import pyarrow as pa
        import pyarrow.parquet as pq

        text = json.dumps(self.summary(), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / SUMMARY).write_text(text + "\n", encoding="utf-8")
        np.savez(folder / CURVES, allow_pickle=False, **dict(self.curves))
        pq.write_table(pa.table(dict(self.per_query)), folder / PER_QUERY)
        save_statistics(self.statistics, folder / STATISTICS)

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read a saved result; its metrics are computed again from the statistics.

        Raises
        ------
        OutputError
            If the folder is no result, is of a later format, or is damaged: a part of the
            statistics is missing, or its counts are not those of the summary.
        """
        import pyarrow.parquet as pq

        folder = Path(path)
        summary = _read_summary(folder)
        statistics = load_statistics(folder / STATISTICS)
        try:
            options: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in summary["options"].items()
            }
            value_range = options.pop("range")
            query_id = pq.read_table(folder / PER_QUERY, columns=["id"])["id"].to_numpy()
            loaded = cls.compute(
                statistics,
                MetricOptions(**options),
                range=value_range,
                query_id=query_id,
                provenance={
                    name: value
                    for name, value in summary["provenance"].items()
                    if name not in ("streameval", "format")
                },
            )
            _check_counts(folder, loaded.counts, summary["counts"])
        except (MemoryError, OutputError):
            raise
        except Exception as error:  # an option or a column of another kind, a file that is cut
            raise OutputError(
                f"{folder} is damaged ({type(error).__name__}: {error}); evaluate again, or "
                "restore the folder"
            ) from error
        if len(query_id) != loaded.counts["queries"]:
            raise OutputError(
                f"{folder} is damaged: {PER_QUERY} has {len(query_id)} rows, {SUMMARY} says "
                f"{loaded.counts['queries']} queries; evaluate again, or restore the folder"
            )
        return loaded


def _read_summary(folder: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        written = summary["provenance"]["format"]
        later = written > FORMAT
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise OutputError(
            f"{folder} is not a saved result of streameval ({error}); expected a folder "
            "written by --out or Evaluation.save"
        ) from error
    if later:
        raise OutputError(
            f"{folder} is a result of format {written}; this version reads up to {FORMAT}: "
            "install a newer streameval"
        )
    return summary


def _check_counts(folder: Path, found: Mapping[str, int], written: Mapping[str, int]) -> None:
    for name, count in found.items():
        if written.get(name) != count:
            raise OutputError(
                f"{folder} is damaged: {STATISTICS} has {count} {name}, {SUMMARY} says "
                f"{written.get(name)}; evaluate again, or restore the folder"
            )


def _plain(value: Any) -> Any:
    """Return what JSON can hold: NaN and infinite values as None, NumPy's as Python's own."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
