"""Record the fixed evaluations exactly, and compare new results with the recording.

::

    python -m tests.recorded.record [FILE] [--threads N] [--tile ROWS,ITEMS]  # writes FILE
    python -m tests.recorded.record --check [FILE]                            # compares with it

A float is recorded as `float.hex` without trailing zeros, an array as a digest of its dtype, shape
and bytes (curves also with a value). Every recorded name must exist and have an equal value; new
names (fields, metrics, curves, columns, options) are allowed.

Logarithms differ between processors and math libraries in their last bits. They are used by nDCG
and by ties="expected", whose values may differ by a relative error of `CLOSE`; of their arrays,
values are recorded instead of a digest.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import streameval as se

from . import evaluations

FILE = Path(__file__).with_name("evaluations.json")
CLOSE = 1e-13
SAMPLES = 1
SHARED = 12  # characters of JSON from which repeated values are stored once

KEPT_PROVENANCE = ("protocol", "refined", "gallery", "label_fingerprints")
SECTIONS = ("metrics", "details", "intervals", "bounds", "k_to_close", "groups")
"""Parts of a summary that repeat the contents of the result."""


def number(value: Any) -> Any:
    """Return a number or None in an exact JSON representation."""
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    whole, _, exponent = float(value).hex().partition("p")
    return f"{whole.rstrip('0').rstrip('.')}p{exponent}" if exponent else whole


def digest(array: np.ndarray) -> str:
    """Return a digest of dtype, shape and values; the dtype of strings is ignored."""
    if array.dtype.kind in "USOT":
        text = json.dumps([list(array.shape), array.tolist()]).encode()
        return "text " + hashlib.blake2b(text, digest_size=6).hexdigest()
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digits = hashlib.blake2b(native.tobytes(), digest_size=6).hexdigest()
    return f"{native.dtype.str.lstrip('<|=')} {'x'.join(map(str, native.shape))} {digits}"


def samples(array: np.ndarray, most: int = SAMPLES) -> list[Any]:
    """Return evenly spaced values of a numeric array."""
    flat = array.reshape(-1)
    if not flat.size or array.dtype.kind in "USOT":
        return []
    where = np.unique(np.linspace(0, flat.size - 1, most + 2).astype(int)[1:-1])
    return [number(value) for value in flat[where]]


def array_of(array: Any, *, close: bool = False, shown: int = 0) -> Any:
    """Return the record of an array: its digest, or values if it is computed with logarithms."""
    array = np.asarray(array)
    if close and array.dtype.kind == "f":
        return [f"{array.dtype.str[1:]} {'x'.join(map(str, array.shape))}", *samples(array, 9)]
    return [digest(array), *samples(array, shown)] if shown else digest(array)


def is_close(name: str, result: se.Evaluation) -> bool:
    """Return whether a metric, curve or column is computed with logarithms."""
    return "nDCG" in name or result.options.ties == "expected"


def metric_of(metrics: Any, name: str) -> Any:
    """Return the record of a metric: its value, or (name, value) pairs if there is more."""
    detail = metrics.details[name]
    pairs: list[list[Any]] = [["value", number(metrics.scalars[name])]]
    for field in dataclasses.fields(detail):
        value = getattr(detail, field.name)
        if field.name == "kind":  # recorded when "is it a τ" was all that was known of it
            if value.name == "tau":
                pairs.append(["is_tau", True])
            continue
        if field.default is not dataclasses.MISSING and value != field.default:
            pairs.append([field.name, value if isinstance(value, str) else number(value)])
    for table in ("intervals", "bounds", "places"):
        ends = getattr(metrics, table, {}).get(name)
        if ends is not None:
            pairs.append([table, list(map(number, ends))])
    return pairs if len(pairs) > 1 else pairs[0][1]


def metrics_of(metrics: Any, result: se.Evaluation) -> dict[str, Any]:
    """Return the record of the metrics of a result."""
    assert set(metrics.details) == set(metrics.scalars)
    return {
        "metrics": {name: metric_of(metrics, name) for name in metrics.scalars},
        "part": {name: detail.part for name, detail in metrics.details.items()},
        "curves": {
            name: array_of(curve, close=is_close(name, result), shown=SAMPLES)
            for name, curve in metrics.curves.items()
        },
    }


def summary_of(result: se.Evaluation) -> dict[str, Any]:
    """Return the summary without provenance that depends on the machine or the time.

    Parts that repeat the contents of the result are checked against it and left out.
    """
    summary = result.summary()
    scalars = {
        name: None if math.isnan(value) else value for name, value in result.metrics.scalars.items()
    }
    assert summary["metrics"] == scalars
    assert summary["intervals"] == {name: list(ends) for name, ends in result.intervals.items()}
    assert summary["counts"] == dict(result.counts)
    if "groups" in summary:
        values = summary["groups"]["values"].values()
        for written, group in zip(values, result.groups.values(), strict=True):
            assert written["metrics"].keys() == group.scalars.keys()
            for name, value in group.scalars.items():
                assert written["metrics"][name] == (value if math.isfinite(value) else None)
    provenance = {
        name: value for name, value in summary["provenance"].items() if name in KEPT_PROVENANCE
    }
    left_out = (*SECTIONS, "counts", "provenance")
    kept = {name: value for name, value in summary.items() if name not in left_out}
    return {
        **kept,
        "provenance": provenance,
        "keys": dict.fromkeys(summary, True),
        "grouped": summary.get("groups", {}).get("by"),
    }


def group_table(result: se.Evaluation) -> dict[str, Any]:
    """Return the metrics and counts of all groups: for each name, a list with a value a group."""
    groups = list(result.groups.values())
    names = dict.fromkeys(name for group in groups for name in group.scalars)
    counts = dict.fromkeys(name for group in groups for name in group.counts)
    return {
        "labels": [str(label) for label in result.groups],
        "metrics": {
            name: [metric_of(group, name) if name in group.scalars else None for group in groups]
            for name in names
        },
        "counts": {name: [number(group.counts.get(name)) for group in groups] for name in counts},
    }


def recorded(result: se.Evaluation) -> dict[str, Any]:
    """Return the record of a result."""
    statistics = {
        field.name: getattr(result.statistics, field.name)
        for field in dataclasses.fields(result.statistics)
    }
    record: dict[str, Any] = {
        "statistics": {
            name: array_of(values) for name, values in statistics.items() if values is not None
        },
        **metrics_of(result.metrics, result),
        "counts": {name: number(count) for name, count in result.counts.items()},
        "per_query": {
            name: array_of(column, close=is_close(name, result))
            for name, column in result.per_query.items()
        },
        "range": {
            name: value if isinstance(value, str) else number(value)
            for name, value in result.range.items()
        },
        "summary": summary_of(result),
    }
    if result.lists is None:
        record["positives"] = {
            name: array_of(column, close=is_close(name, result))
            for name, column in result.positives.items()
        }
    if result.group_by is not None:
        record["groups"] = group_table(result)
    plain: dict[str, Any] = json.loads(json.dumps(record, default=str))
    return plain


def run(name: str, folder: Path) -> dict[str, Any]:
    """Run a case in an empty folder; return the record of its result and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", se.StreamevalWarning)
        record = recorded(evaluations.CASES[name](folder))
    messages = [
        str(warning.message).replace(str(folder), "FOLDER").partition(" are NaN: ")[0]
        for warning in caught
        if issubclass(warning.category, se.StreamevalWarning)
    ]
    return {**record, "warnings": messages}


def differences(old: Any, new: Any, where: str = "", *, close: bool = False) -> Iterator[str]:
    """Yield a line for each recorded value that is missing or differs."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name, value in old.items():
            place = f"{where} / {name}" if where else name
            if name not in new:
                yield f"{place} is missing; it was {_short(value)}"
            else:
                yield from differences(value, new[name], place, close=close or "nDCG" in name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{where} [{index}]", close=close)
    elif old != new and not (close and _near(old, new)):
        yield f"{where} was {_short(old)} and is {_short(new)}"


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference between two records of a case."""
    close = old["summary"]["options"]["ties"] == "expected"
    return list(differences(old, new, close=close))


def _near(old: Any, new: Any) -> bool:
    try:
        return math.isclose(float.fromhex(old), float.fromhex(new), rel_tol=CLOSE)
    except (TypeError, ValueError):
        return False


def _short(value: Any) -> str:
    if isinstance(value, str) and "0x" in value:
        return f"{value} ({float.fromhex(value)!r})"
    text = json.dumps(value)
    return text if len(text) < 120 else f"{text[:117]}..."


def load(path: Path = FILE) -> dict[str, Any]:
    """Read the records of all cases."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    shared: list[Any] = []
    for value in stored["shared"]:
        shared.append(_expanded(value, shared))
    return {name: _expanded(record, shared) for name, record in stored["cases"].items()}


def save(path: Path, records: Mapping[str, Any]) -> None:
    """Write records, one case a line; repeated values are stored once and referred to as "$N"."""
    counts: Counter[str] = Counter()
    for record in records.values():
        _count(record, counts)
    place: dict[str, str] = {}
    shared: list[str] = []
    for text in sorted((text for text in counts if counts[text] > 1), key=len):
        value = json.loads(text)
        shared.append(_text(_compacted(value, place)))
        place[text] = f"${len(shared) - 1}"
    cases = (
        f"{json.dumps(name)}: {_text(_compacted(record, place))}"
        for name, record in records.items()
    )
    path.write_text(
        '{"shared": [\n' + ",\n".join(shared) + '\n],\n"cases": {\n' + ",\n".join(cases) + "\n}}\n",
        encoding="utf-8",
    )


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _count(value: Any, counts: Counter[str]) -> None:
    """Count the parts of a value; parts of a repeated part are not counted again."""
    assert not (isinstance(value, str) and value.startswith("$"))
    text = _text(value)
    if len(text) >= SHARED:
        counts[text] += 1
        if counts[text] > 1:
            return
    for part in _parts(value):
        _count(part, counts)


def _compacted(value: Any, place: Mapping[str, str]) -> Any:
    """Return a value with references to shared parts."""
    text = _text(value)
    if text in place:
        return place[text]
    if isinstance(value, dict):
        return {name: _compacted(part, place) for name, part in value.items()}
    return [_compacted(part, place) for part in value] if isinstance(value, list) else value


def _expanded(value: Any, shared: list[Any]) -> Any:
    """Return a value with the shared parts in place of references."""
    if isinstance(value, str) and value.startswith("$"):
        return shared[int(value[1:])]
    if isinstance(value, dict):
        return {name: _expanded(part, shared) for name, part in value.items()}
    return [_expanded(part, shared) for part in value] if isinstance(value, list) else value


def main() -> int:
    parser = argparse.ArgumentParser(description="Record the fixed evaluations, or compare.")
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--check", action="store_true", help="compare with FILE, write nothing")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tile", help="ROWS,ITEMS")
    parser.add_argument("--only", default="", help="run only cases whose name contains this")
    arguments = parser.parse_args()
    if arguments.threads:
        evaluations.RUN_OPTIONS["threads"] = arguments.threads
    if arguments.tile:
        rows, items = map(int, arguments.tile.split(","))
        evaluations.TILE["tile"] = rows, items
    records, seconds, differing = {}, {}, 0
    stored = load(arguments.file) if arguments.check else {}
    for name in evaluations.CASES:
        if arguments.only not in name:
            continue
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            records[name] = run(name, Path(folder))
        seconds[name] = time.perf_counter() - started
        for line in compared(stored[name], records[name]) if arguments.check else ():
            differing += 1
            print(f"{name}: {line}")  # noqa: T201
    if not arguments.check:
        save(arguments.file, records)
        assert load(arguments.file) == records
    slow = sorted(seconds, key=lambda name: -seconds[name])[:5]
    print(  # noqa: T201
        f"{len(records)} cases of {se.__file__}, {sum(seconds.values()):.1f} s; the slowest: "
        + ", ".join(f"{name} {seconds[name]:.1f} s" for name in slow)
    )
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
