"""Evaluation: the values, curves and per-query table of a run; saved and loaded whole.

A saved result is a folder:

    summary.json       metrics, their tie intervals, counts, options, provenance
    curves.npz         every curve by name
    per_query.parquet  a row a query
    statistics.zarr    the RankStatistics, from which all of the above can be computed again

It is written beside its place and renamed into it, so that what is there is always whole.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
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
from streameval.statistics import FIELDS, RankStatistics

FORMAT = 1


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
        """Return what ``summary.json`` holds; undefined values are None."""
        return {
            "metrics": {name: _plain(value) for name, value in self.metrics.scalars.items()},
            "intervals": {
                name: [_plain(value) for value in bounds]
                for name, bounds in self.metrics.intervals.items()
            },
            "counts": dict(self.counts),
            "options": asdict(self.options) | {"range": dict(self.range)},
            "provenance": {
                "streameval": version("streameval"),
                "format": FORMAT,
                **self.provenance,
            },
        }

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the result as a folder, whole or not at all.

        Parameters
        ----------
        path : str or Path
        overwrite : bool
            Whether to replace a folder that is there.

        Raises
        ------
        OutputError
            If the path exists and is not to be replaced, or cannot be written.
        """
        target = check_output(path, overwrite=overwrite)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            try:
                self._write(partial)
                _put_in_place(partial, target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        except OSError as error:
            raise OutputError(f"the result can't be written to {target}: {error}") from error

    def _write(self, folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder.chmod(0o777 & ~_umask())  # mkdtemp keeps others out
        text = json.dumps(self.summary(), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
        np.savez(folder / "curves.npz", allow_pickle=False, **dict(self.curves))
        pq.write_table(pa.table(dict(self.per_query)), folder / "per_query.parquet")
        save_statistics(self.statistics, folder / "statistics.zarr")

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read a saved result; its metrics are computed again from the statistics.

        Raises
        ------
        OutputError
            If the folder is no result, or of a later format.
        """
        import pyarrow.parquet as pq

        folder = Path(path)
        try:
            summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
            written = summary["provenance"]["format"]
            if written > FORMAT:
                raise OutputError(
                    f"{folder} is a result of format {written}; this version reads up to {FORMAT}: "
                    "install a newer streameval"
                )
            options: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in summary["options"].items()
            }
            value_range = options.pop("range")
            query_id = pq.read_table(folder / "per_query.parquet", columns=["id"])["id"].to_numpy()
            return cls.compute(
                load_statistics(folder / "statistics.zarr"),
                MetricOptions(**options),
                range=value_range,
                query_id=query_id,
                provenance={
                    name: value
                    for name, value in summary["provenance"].items()
                    if name not in ("streameval", "format")
                },
            )
        except OutputError:
            raise
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise OutputError(
                f"{folder} is not a saved result of streameval ({error}); expected a folder "
                "written by --out or Evaluation.save"
            ) from error


def check_output(path: str | Path, *, overwrite: bool) -> Path:
    """Return the path where a result may be written.

    Raises
    ------
    OutputError
        If it exists and is not to be replaced, or is not a folder.
    """
    target = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a link
    if target.exists():
        if not target.is_dir():
            raise OutputError(f"{path} is a file; a folder to be made is expected")
        if not overwrite:
            raise OutputError(f"{path} exists already; choose another, or replace it: --overwrite")
        if any(target.iterdir()) and not (target / "summary.json").is_file():
            raise OutputError(
                f"{path} is a folder without a result in it; it is not replaced: choose another"
            )
    return target


def save_statistics(statistics: RankStatistics, path: Path) -> None:
    """Write statistics as a Zarr v3 group, an array a field."""
    import zarr

    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.attrs["format"] = FORMAT
    for name in FIELDS:
        values = getattr(statistics, name)
        array = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=tuple(max(min(size, 1 << 18), 1) for size in values.shape),
            config={"write_empty_chunks": True},
        )
        if values.size:
            array[...] = values


def load_statistics(path: Path) -> RankStatistics:
    """Read statistics written by `save_statistics`."""
    import zarr

    group = zarr.open_group(path, mode="r")
    fields: dict[str, Any] = {}
    for name in FIELDS:
        array = group[name]
        if not isinstance(array, zarr.Array):
            raise OutputError(f"{path} has no array {name}")
        fields[name] = np.asarray(array[...])
    return RankStatistics(**fields)


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename a finished folder to its place; a folder there steps aside first."""
    if not target.exists():
        partial.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(aside / target.name)
    try:
        partial.rename(target)
    except OSError:
        (aside / target.name).rename(target)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
