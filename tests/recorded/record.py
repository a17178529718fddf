"""Record fixed evaluations, bit by bit and by name, and compare with what was recorded.

::

    python -m tests.recorded.record [FILE] [--threads N] [--tile ROWS,ITEMS]  # writes FILE
    python -m tests.recorded.record --check [FILE]                            # compares with it

A float is recorded as `float.hex` says it, but for zeros at its end; an array as a digest of its
dtype, shape and bytes, of curves with some of their values. Whatever is recorded must be there and
be equal; further names (fields, metrics, curves, columns, options) may come.

What is computed with logarithms (nDCG, and what is expected of ties) depends on the vector unit of
a processor in its last bits: it is recorded by its values alone, and may differ by `CLOSE`.
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import streameval as se

from . import evaluations

FILE = Path(__file__).with_name("evaluations.json")
CLOSE = 1e-13
SAMPLES = 1
SHARED = 12  # characters of JSON from which on what is there twice is written once

KEPT_PROVENANCE = ("protocol", "refined", "gallery", "label_fingerprints")
SECTIONS = ("metrics", "details", "intervals", "bounds", "k_to_close", "groups")
"""Parts of a summary that say again what a result holds."""


def number(value: Any) -> Any:
    """Return a number, or None, as JSON holds it exactly."""
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    whole, _, exponent = float(value).hex().partition("p")
    return f"{whole.rstrip('0').rstrip('.')}p{exponent}" if exponent else whole


def digest(array: np.ndarray) -> str:
    """Return a digest of dtype, shape and bytes; of texts, of these themselves."""
    if array.dtype.kind in "USOT":
        told = json.dumps([list(array.shape), array.tolist()]).encode()
        return "text " + hashlib.blake2b(told, digest_size=6).hexdigest()
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    own = hashlib.blake2b(plain.tobytes(), digest_size=6).hexdigest()
    return f"{plain.dtype.str.lstrip('<|=')} {'x'.join(map(str, plain.shape))} {own}"


def samples(array: np.ndarray, most: int = SAMPLES) -> list[Any]:
    """Return some values of an array of numbers, evenly spread."""
    flat = array.reshape(-1)
    if not flat.size or array.dtype.kind in "USOT":
        return []
    where = np.unique(np.linspace(0, flat.size - 1, most + 2).astype(int)[1:-1])
    return [number(value) for value in flat[where]]


def array_of(array: Any, *, close: bool = False, shown: int = 0) -> Any:
    """Return what is recorded of an array: its digest, or of one that may differ, its values."""
    array = np.asarray(array)
    if close and array.dtype.kind == "f":
        return [f"{array.dtype.str[1:]} {'x'.join(map(str, array.shape))}", *samples(array, 9)]
    return [digest(array), *samples(array, shown)] if shown else digest(array)


def is_close(name: str, result: se.Evaluation) -> bool:
    """Return whether a value is computed with logarithms."""
    return "nDCG" in name or result.options.ties == "expected"


def metric_of(metrics: Any, name: str) -> Any:
    """Return what is recorded of a metric: its value; or pairs, where there is more to say."""
    detail = metrics.details[name]
    said: list[list[Any]] = [["value", number(metrics.scalars[name])]]
    for one in dataclasses.fields(detail):
        value = getattr(detail, one.name)
        if one.default is not dataclasses.MISSING and value != one.default:
            said.append([one.name, value if isinstance(value, str) else number(value)])
    for more in ("intervals", "bounds", "places"):
        ends = getattr(metrics, more, {}).get(name)
        if ends is not None:
            said.append([more, list(map(number, ends))])
    return said if len(said) > 1 else said[0][1]


def metrics_of(metrics: Any, result: se.Evaluation) -> dict[str, Any]:
    """Return what is recorded of the metrics of a result."""
    assert set(metrics.details) == set(metrics.scalars)
    return {
        "metrics": {name: metric_of(metrics, name) for name in metrics.scalars},
        "part": {name: one.part for name, one in metrics.details.items()},
        "curves": {
            name: array_of(curve, close=is_close(name, result), shown=SAMPLES)
            for name, curve in metrics.curves.items()
        },
    }


def summary_of(result: se.Evaluation) -> dict[str, Any]:
    """Return the summary without what depends on the machine and on the time.

    Parts that say again what the result holds are checked against it, and named.
    """
    summary = result.summary()
    scalars = {
        name: None if math.isnan(one) else one for name, one in result.metrics.scalars.items()
    }
    assert summary["metrics"] == scalars
    assert summary["intervals"] == {name: list(two) for name, two in result.intervals.items()}
    assert summary["counts"] == dict(result.counts)
    if "groups" in summary:
        values = summary["groups"]["values"].values()
        for told, group in zip(values, result.groups.values(), strict=True):
            assert told["metrics"].keys() == group.scalars.keys()
            for name, one in group.scalars.items():
                assert told["metrics"][name] == (one if math.isfinite(one) else None)
    provenance = {
        name: value for name, value in summary["provenance"].items() if name in KEPT_PROVENANCE
    }
    kept = {name: one for name, one in summary.items() if name not in (*SECTIONS, "provenance")}
    del kept["counts"]
    return {
        **kept,
        "provenance": provenance,
        "keys": dict.fromkeys(summary, True),
        "grouped": summary.get("groups", {}).get("by"),
    }


def group_table(result: se.Evaluation) -> dict[str, Any]:
    """Return the metrics and counts of all groups: by name, a list of what the groups have."""
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
    """Return all that is recorded of a result, as JSON holds it."""
    statistics = {
        one.name: getattr(result.statistics, one.name)
        for one in dataclasses.fields(result.statistics)
    }
    told: dict[str, Any] = {
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
        told["positives"] = {
            name: array_of(column, close=is_close(name, result))
            for name, column in result.positives.items()
        }
    if result.group_by is not None:
        told["groups"] = group_table(result)
    plain: dict[str, Any] = json.loads(json.dumps(told, default=str))
    return plain


def run(name: str, folder: Path) -> dict[str, Any]:
    """Run a case in an empty folder; return what is to be recorded."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", se.StreamevalWarning)
        told = recorded(evaluations.CASES[name](folder))
    said = [
        str(one.message).replace(str(folder), "FOLDER").partition(" are NaN: ")[0]
        for one in caught
        if issubclass(one.category, se.StreamevalWarning)
    ]
    return {**told, "warnings": said}


def differences(was: Any, now: Any, where: str = "", *, close: bool = False) -> Iterator[str]:
    """Say, a line each, what was recorded and is not there, or is another."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for name, one in was.items():
            at = f"{where} / {name}" if where else name
            if name not in now:
                yield f"{at} is gone; was {_short(one)}"
            else:
                yield from differences(one, now[name], at, close=close or "nDCG" in name)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for at, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(one, other, f"{where} [{at}]", close=close)
    elif was != now and not (close and _near(was, now)):
        yield f"{where} was {_short(was)}, and is {_short(now)}"


def compared(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs between two recordings of one case, a line each."""
    close = was["summary"]["options"]["ties"] == "expected"
    return list(differences(was, now, close=close))


def _near(was: Any, now: Any) -> bool:
    try:
        one, other = float.fromhex(was), float.fromhex(now)
    except (TypeError, ValueError):
        return False
    return math.isclose(one, other, rel_tol=CLOSE)


def _short(value: Any) -> str:
    if isinstance(value, str) and "0x" in value:
        return f"{value} ({float.fromhex(value)!r})"
    told = json.dumps(value)
    return told if len(told) < 120 else f"{told[:117]}..."


def possible(name: str) -> bool:
    """Return whether the packages that a case needs are installed."""
    return all(find_spec(package) is not None for package in evaluations.NEEDS[name])


def load(path: Path = FILE) -> dict[str, Any]:
    """Read what was recorded, by case."""
    read = json.loads(path.read_text(encoding="utf-8"))
    shared: list[Any] = []
    for one in read["shared"]:
        shared.append(_with_shared(one, shared))
    return {name: _with_shared(one, shared) for name, one in read["cases"].items()}


def save(path: Path, told: Mapping[str, Any]) -> None:
    """Write what is recorded, a line a case; what is there more than once, once."""
    found: Counter[str] = Counter()
    for one in told.values():
        _count(one, found)
    place: dict[str, str] = {}
    shared: list[str] = []
    for text in sorted((one for one in found if found[one] > 1), key=lambda text: len(text)):
        own = _text(_shared(json.loads(text), place, own=True))
        place[text] = f"${len(shared)}"
        shared.append(own)
    lines = (f"{json.dumps(name)}: {_text(_shared(one, place))}" for name, one in told.items())
    path.write_text(
        '{"shared": [\n' + ",\n".join(shared) + '\n],\n"cases": {\n' + ",\n".join(lines) + "\n}}\n",
        encoding="utf-8",
    )


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _count(value: Any, found: Counter[str]) -> None:
    """Count the parts of a value that are long enough, but not again those of a part."""
    assert not (isinstance(value, str) and value.startswith("$"))
    text = _text(value)
    if len(text) >= SHARED:
        found[text] += 1
        if found[text] > 1:
            return
    for one in _parts(value):
        _count(one, found)


def _shared(value: Any, place: Mapping[str, str], *, own: bool = False) -> Any:
    """Return a value with `place` for what is shared; `own`: for its parts alone."""
    text = "" if own else _text(value)
    if text in place:
        return place[text]
    if isinstance(value, dict):
        return {name: _shared(one, place) for name, one in value.items()}
    return [_shared(one, place) for one in value] if isinstance(value, list) else value


def _with_shared(value: Any, shared: list[Any]) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return shared[int(value[1:])]
    if isinstance(value, dict):
        return {name: _with_shared(one, shared) for name, one in value.items()}
    return [_with_shared(one, shared) for one in value] if isinstance(value, list) else value


def main() -> int:
    parser = argparse.ArgumentParser(description="Record fixed evaluations, or compare with these.")
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tile", help="ROWS,ITEMS")
    parser.add_argument("--only", default="", help="cases with this in their name")
    given = parser.parse_args()
    if given.threads:
        evaluations.HOW["threads"] = given.threads
    if given.tile:
        rows, items = map(int, given.tile.split(","))
        evaluations.TILE["tile"] = rows, items
    told, seconds, faults = {}, {}, 0
    was = load(given.file) if given.check else {}
    for name in evaluations.CASES:
        if given.only not in name or not possible(name):
            continue
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            told[name] = run(name, Path(folder))
        seconds[name] = time.perf_counter() - started
        for line in compared(was[name], told[name]) if given.check else ():
            faults += 1
            print(f"{name}: {line}")  # noqa: T201
    if not given.check:
        save(given.file, told)
        assert load(given.file) == told
    slow = sorted(seconds, key=lambda name: -seconds[name])[:5]
    print(  # noqa: T201
        f"{len(told)} cases of {se.__file__}, {sum(seconds.values()):.1f} s; the slowest: "
        + ", ".join(f"{name} {seconds[name]:.1f} s" for name in slow)
    )
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
