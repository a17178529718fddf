"""The folder of a saved result: where it may be, and its files, written and read.

    summary.json       metrics, their details and tie intervals, counts, options, provenance
    curves.npz         every curve by name
    per_query.parquet  a row a query
    statistics.zarr    the RankStatistics, from which all of the above can be computed again
    best.zarr          of lists of neighbours read as bounds: the best that they allow, the
                       statistics being the worst
    positives.parquet  a row a positive: query, gallery item, camera, distance, recall, precision
    groups.csv         a row a group: its labels, counts and metrics; where there are groups

What has no finite value, being undefined or infinite, is null in the summary.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streameval.errors import OptionError, OutputError, check_path, entry_points
from streameval.metrics.bounds import ListReading
from streameval.metrics.compute import Metrics
from streameval.metrics.confidence import Resampling
from streameval.metrics.groups import PositiveCameras
from streameval.metrics.metric import FRACTION, TAU
from streameval.metrics.options import MetricOptions
from streameval.output import ESCAPED, NewFolder, as_json, check_new, refused
from streameval.protocols.labels import CAMERA_PAIRS
from streameval.result.groups import check_group_column, label_columns, write_groups
from streameval.result.stored import FORMAT, damaged, load_statistics, reading, save_statistics
from streameval.statistics import RankStatistics
from streameval.typing import JsonObject

if TYPE_CHECKING:
    from streameval.result import Evaluation

T = TypeVar("T")
"""Values by name, as JSON holds them."""

SUMMARY, CURVES, PER_QUERY = "summary.json", "curves.npz", "per_query.parquet"
STATISTICS, POSITIVES, GROUPS = "statistics.zarr", "positives.parquet", "groups.csv"
BEST = "best.zarr"
_ROWS = 1 << 18  # of the table of positives, at a time
ENTRIES = (SUMMARY, CURVES, PER_QUERY, STATISTICS, POSITIVES, GROUPS, BEST)


def check_output(path: str | Path, *, overwrite: bool) -> Path:
    """Return the path where a result may be written.

    Raises OutputError if it exists and is not to be replaced, or is no folder of a result and
    nothing else.
    """
    check_path(path)
    if not str(path):
        raise OutputError("the name of the output folder is empty; give a folder to be made")
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise OutputError(
            f"the name of the output folder, {path}, is no UTF-8, and what writes tables and "
            "arrays takes no other; give another name"
        ) from error
    with refused(f"no result can be written to {path}", "give a folder that can be made"):
        target = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a link
        with suppress(FileNotFoundError):
            target.lstat()
            _check_replaceable(path, target, overwrite=overwrite)
    return target


def _check_replaceable(path: str | Path, target: Path, *, overwrite: bool) -> None:
    if not target.is_dir():
        raise OutputError(f"{path} is a file; a folder to be made is expected")
    check_new(path, overwrite=overwrite)
    here = Path.cwd()
    if target.resolve() in (here, *here.parents):
        raise OutputError(
            f"{path} is the current folder, or one that it is in; it is not replaced: choose "
            "another, or run this elsewhere"
        )
    found = sorted(entry.name for entry in target.iterdir())
    if found and SUMMARY not in found:
        raise OutputError(
            f"{path} is a folder without a result in it ({found[0]} is); it is not replaced: "
            "choose another"
        )
    runs = [name for name in run_folders(saved_runs(target)).values() if name in found]
    foreign = [name for name in found if name not in (*ENTRIES, *runs)]
    if foreign:
        raise OutputError(
            f"{path} holds {foreign[0]}, which is no part of a result ({', '.join(ENTRIES)}); "
            "it is not replaced: move that elsewhere, or choose another"
        )
    for name in runs:
        _check_replaceable(Path(path) / name, target / name, overwrite=True)


def saved_runs(folder: Path, *keys: str) -> list[str]:
    """Return the names of the results that a folder has a folder of each of; none for others.

    The summary has these names under one of the keys: ``runs`` of an average, ``protocols`` of
    evaluations in one pass. Either by default.
    """
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        known = [summary[key] for key in keys or ("runs", "protocols") if key in summary]
        return [str(name) for names in known for name in names]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


def run_folders(names: Iterable[str]) -> dict[str, str]:
    """Return the folder of each run of an average: its name, with - for a slash and its like.

    Raises OptionError if a name leaves nothing, or two runs have the same folder.
    """
    folders: dict[str, str] = {}
    for name in names:
        folder = re.sub(r"[^\w.@=+,() -]+", "-", name).strip("-. ")
        if not folder or folder.casefold() in ENTRIES:
            raise OptionError(f"a run called {name!r} has no folder of its name: name it otherwise")
        for other, place in folders.items():
            if place.casefold() == folder.casefold():
                raise OptionError(
                    f"the runs {other} and {name} have the same folder, {folder}: name them "
                    "otherwise"
                )
        folders[name] = folder
    return folders


class ResultFolder(NewFolder):
    """A result being written: a context that leaves nothing but a whole result in its place.

    Raises OutputError as `check_output` does.
    """

    failure = "the result can't be written to {}"

    def __init__(self, path: str | Path, *, overwrite: bool) -> None:
        super().__init__(check_output(path, overwrite=overwrite))


@entry_points
class Saves:
    """Base class of what is saved to a folder: its files are those that `write` writes."""

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the result to a folder, which appears only when it is complete.

        Parameters
        ----------
        path : str or Path
        overwrite : bool
            Whether to replace a saved result. A folder with other content is never replaced.

        Raises
        ------
        OutputError
            If the path exists and may not be replaced, or cannot be written.
        OptionError
            If two results in it would have the same folder.
        """
        with ResultFolder(path, overwrite=overwrite) as folder:
            folder.fill(self.write)

    def write(self, folder: Path) -> None:
        """Write the files of the result into an existing folder."""
        raise NotImplementedError


def write_together(results: Mapping[str, Saves], summary: JsonObject, folder: Path) -> None:
    """Write each of some results into a folder of its name, and a summary beside them."""
    for name, place in run_folders(results).items():
        (folder / place).mkdir()
        results[name].write(folder / place)
    (folder / SUMMARY).write_bytes(as_json(summary).encode(errors=ESCAPED))


def least_bytes(queries: int, positives: int) -> int:
    """Return about the least that the files of a result take; many take four times as much."""
    return 20_000 + 20 * queries + 8 * positives


def write_files(result: Evaluation, folder: Path) -> None:
    """Write the files of a result into a folder that is there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / SUMMARY).write_bytes(as_json(result.summary()).encode(errors=ESCAPED))
    np.savez(folder / CURVES, allow_pickle=False, **dict(result.curves))
    pq.write_table(pa.table(dict(result.per_query)), folder / PER_QUERY)
    save_statistics(result.statistics, folder / STATISTICS)
    if result.lists is not None and result.lists.best is not None:
        save_statistics(result.lists.best, folder / BEST)
    if "positive_item" in result.statistics.held and result.lists is None:
        tables = (pa.table(dict(block)) for block in result.positive_blocks())
        first = next(tables)
        with pq.ParquetWriter(folder / POSITIVES, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
    if result.group_by is not None:
        with (folder / GROUPS).open("w", encoding="utf-8", newline="") as file:
            write_groups(file, result)


def load_result(kind: type[Evaluation], folder: Path) -> Evaluation:
    """Read a saved result; its metrics are computed again from the statistics."""
    import pyarrow.parquet as pq

    summary = read_summary(folder)
    statistics = load_statistics(folder / STATISTICS)
    with reading(folder):
        options: JsonObject = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in summary["options"].items()
        }
        value_range = options.pop("range")
        provenance = dict(summary["provenance"])
        for written in ("streameval", "format"):
            provenance.pop(written, None)
        table = pq.read_table(folder / PER_QUERY)
        labels = label_columns(table.column_names)
        columns = {name: table[column].to_numpy() for name, column in labels.items()}
        confidence = summary.get("confidence")
        loaded = kind.compute(
            statistics,
            MetricOptions(**options),
            range=value_range,
            columns=columns,
            provenance=provenance,
            positive_cams=_read_positive_cams(folder, statistics),
            lists=_read_lists(folder, provenance.get("lists"), table),
        )
        loaded = replace(
            loaded,
            group_by=summary.get("groups", {}).get("by"),
            resampling=None if confidence is None else Resampling(**confidence["how"]),
        )
        if loaded.group_by == CAMERA_PAIRS:
            check_group_column(CAMERA_PAIRS, columns, loaded.positive_cams)
        for name, count in loaded.counts.items():
            told = summary["counts"].get(name)
            if told != count:
                raise damaged(folder, f"{STATISTICS} has {count} {name}, {SUMMARY} says {told}")
    rows, queries = table.num_rows, loaded.counts["queries"]
    if rows != queries:
        raise damaged(folder, f"{PER_QUERY} has {rows} rows, {SUMMARY} says {queries} queries")
    return loaded


def read_summary(folder: Path) -> JsonObject:
    """Read the summary of a saved result; raise OutputError if there is none of a known format."""
    if saved_runs(folder):
        raise OutputError(
            f"{folder} is an average of runs; give the folders of runs that are in it, or read all "
            "of it in Python: Average.load"
        )
    try:
        summary: JsonObject = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
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


def _read_positive_cams(folder: Path, statistics: RankStatistics) -> PositiveCameras | None:
    """Read the cameras of the items that are positives; None where the result has none."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = folder / POSITIVES
    if not path.exists() or "cam" not in pq.read_schema(path).names:
        return None
    file = pq.ParquetFile(path)
    rows, positives = file.metadata.num_rows, int(statistics.indptr[-1])
    if rows != positives:
        raise damaged(folder, f"{POSITIVES} has {rows} rows, and there are {positives} positives")
    known: dict[Any, int] = {}  # the number of each camera, from 1
    number, begin = np.zeros(0, np.uint8), 0  # by gallery item; 0 where it is no positive
    for batch in file.iter_batches(_ROWS, columns=["cam"]):
        cams, end = pc.dictionary_encode(batch["cam"]), begin + len(batch)
        items = statistics.stretch("positive_item", begin, end)
        own = [known.setdefault(cam, len(known) + 1) for cam in cams.dictionary.to_pylist()]
        kind, size = np.min_scalar_type(len(known)), int(items.max()) + 1
        if size > len(number) or kind != number.dtype:
            more = np.zeros(max(size - len(number), 0), kind)
            number = np.concatenate([number, more], dtype=kind)
        numbers = np.array(own, number.dtype)[cams.indices]
        new = number[items] == 0
        number[items[new]] = numbers[new]
        for odd in items[number[items] != numbers][:1]:
            raise damaged(folder, f"{POSITIVES} has two cameras of gallery item {odd}")
        begin = end
    item, (cameras, code) = np.flatnonzero(number), np.unique([*known], return_inverse=True)
    return PositiveCameras(cameras, code.astype(number.dtype)[number[item] - 1], item)


def _read_lists(folder: Path, told: JsonObject | None, table: Any) -> ListReading | None:
    """Return how the lists of a saved result are read; None where it is of none."""
    if told is None:
        return None
    effective, missing = (
        table[name].to_numpy().astype(np.int64) for name in ("effective_k", "missing_positives")
    )
    best = load_statistics(folder / BEST) if told["missing"] == "bounds" else None
    return ListReading(told["missing"], told["k"], effective, missing, told["tightened"], best)


def summary_of(result: Evaluation) -> JsonObject:
    """Return what ``summary.json`` holds; undefined and infinite values are None."""
    metrics = result.metrics
    told: JsonObject = {
        "metrics": metrics.scalars,
        "details": details_of(metrics),
        "intervals": metrics.intervals,
        "counts": result.counts,
        "options": asdict(result.options) | {"range": result.range},
    }
    if result.lists is not None:
        told |= {"bounds": metrics.bounds, "k_to_close": metrics.places}
    written = {"streameval": version("streameval"), "format": FORMAT}
    told["provenance"] = {**written, **result.provenance}
    if result.group_by is not None:
        told["groups"] = _summary_of_groups(result)
    if result.chosen_confidence is not None:
        told["confidence"] = asdict(result.chosen_confidence)
    return plain(told)


def _summary_of_groups(result: Evaluation) -> JsonObject:
    values: dict[str, JsonObject] = {}
    for label, metrics in result.groups.items():
        cams = label if result.group_by == CAMERA_PAIRS else ()
        pair = dict(zip(("query_cam", "gallery_cam"), cams, strict=False))
        name = " → ".join(map(str, pair.values())) if pair else str(label)
        values[name] = pair | {
            "metrics": metrics.scalars,
            "details": details_of(metrics),
            "counts": metrics.counts,
        }
        if label in result.group_confidence:
            confidence = asdict(result.group_confidence[label])
            del confidence["how"]
            values[name]["confidence"] = confidence
    return {"by": result.group_by, "values": values}


def details_of(metrics: Metrics) -> dict[str, JsonObject]:
    """Return what there is to say of scalars: of those alone of which there is anything."""
    said: dict[str, JsonObject] = {}
    for name, detail in metrics.details.items():
        own: JsonObject = {"reason": detail.reason} if detail.reason else {}
        if detail.threshold is not None:
            own |= {"threshold": detail.threshold, "threshold_error": detail.threshold_error}
        if detail.kind not in (FRACTION, TAU):
            own["kind"] = detail.kind.name
        if detail.error:
            own["error"] = detail.error
        if own:
            said[name] = own
    return said


def plain(value: T) -> T:
    """Return what JSON can hold: NaN and infinite values as None, NumPy's as Python's own."""
    held: Any = value.item() if isinstance(value, np.generic) else value
    if isinstance(held, Mapping):
        held = {name: plain(one) for name, one in held.items()}
    elif isinstance(held, list | tuple):
        held = list(map(plain, held))
    elif isinstance(held, float) and not math.isfinite(held):
        held = None
    result: T = held
    return result
