"""Provenance: what a result was made from, by what, where and when; and the manifest of a run."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from streameval.arrays.array import Array
from streameval.protocols.pairs import Pairs
from streameval.protocols.presets import note_of
from streameval.protocols.views import rows_at
from streameval.run.preparation import Prepared
from streameval.run.record import PLACES, Manifest
from streameval.run.session import cores
from streameval.source import Source
from streameval.statistics import WHOLE_FIELDS
from streameval.stretches import cumulated
from streameval.typing import AnyArray, JsonObject

PACKAGES = ("numpy", "numba", "scipy", "zarr", "zarrs", "pyarrow")
"""What numbers are computed and read with."""


def describe_run(prepared: Prepared, started: datetime, seconds: float) -> JsonObject:
    """Return what was evaluated and how, for a result.

    Parameters
    ----------
    prepared : Prepared
    started : datetime
        With its time zone.
    seconds : float
        That it took.
    """
    plan = prepared.plan
    return {
        "inputs": describe_source(prepared.source),
        "protocol": asdict(prepared.request.protocol),
        **note_of(prepared.request.preset),
        **_view_of(prepared),
        "plan": {
            "layout": plan.layout,
            "tasks": len(plan.tasks),
            "tile": list(plan.tile),
            **{name: getattr(plan, name) for name in ("threads", "workers", "memory")},
            "projected_peak": plan.peak,
        },
        "refined": [measure.name for measure in prepared.request.refine],
        "gallery": prepared.pairs.gallery,
        "label_fingerprints": dict(prepared.label_fingerprints),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "versions": dict(versions()),  # not shared between results
        "machine": machine(),
    }


def _view_of(prepared: Prepared) -> JsonObject:
    """Return which queries and items take part, where not all do."""
    view = prepared.view
    if view.whole:
        return {}
    sizes = {"queries": prepared.pairs.queries, "items": prepared.pairs.gallery}
    return {"view": {"name": view.name, **sizes, "of": list(prepared.source.shape)}}


def describe_source(source: Source) -> JsonObject:
    """Return where the distances come from."""
    inputs = source.inputs()
    filled = any(isinstance(item.data, Array) and item.data.fill_missing for item in inputs)
    marked: JsonObject = {"fill_missing": True} if filled else {}
    return {item.key: item.uri for item in inputs} | dict(source.options()) | marked


@cache  # each is read from a file
def versions() -> Mapping[str, str]:
    """Return the versions of Python and of the packages that numbers depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def machine() -> Mapping[str, Any]:
    """Return what this machine is; not whose, nor its name."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": cores(),
        "cores_in_all": os.cpu_count(),
        "memory": int(psutil.virtual_memory().total),
    }


@cache
def _processor() -> str:
    with suppress(OSError):  # not on every system
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def manifest(several: Sequence[Prepared]) -> Manifest:
    """Return what is counted, as JSON values: the content of the inputs, and options.

    Beside them, which do not decide, are the places of the inputs.

    Options that are read off the same counts, as the rule of average precision, are left out,
    unless the source's counts depend on them. No number depends on memory, threads or workers.
    Evaluations after the first are described beside it, by their numbers.
    """
    source = several[0].source
    inputs = {item.name: item.fingerprint() for item in source.inputs()}
    described: JsonObject = {}
    for number, prepared in enumerate(several):
        which = f" of evaluation {number}" if number else ""
        inputs[f"labels{which}"] = _label_hash(prepared)
        options = json.loads(json.dumps(_options(prepared), default=str))
        described |= {f"{name}{which}": value for name, value in options.items()}
    # Options first: the pairs, which are hashed as labels, change with them, too.
    places = {item.name: item.uri for item in source.inputs()}
    return {"options": described, "inputs": inputs, PLACES: places}


def _options(prepared: Prepared) -> JsonObject:
    """Return the options that what is counted depends on."""
    source, request, problem = prepared.source, prepared.request, prepared.problem
    used, has_range = prepared.range, problem.thresholds > 0 or problem.edges > 0
    options: JsonObject = {
        **source.options(),
        "protocol": asdict(request.protocol),
        "thresholds of the metrics": problem.thresholds,
        "histogram edges of the metrics": problem.edges,
        "refine": [measure.name for measure in request.refine],
        "counted by identity": sorted(request.fields_needed & WHOLE_FIELDS),
        "range": (asdict(used) if used else prepared.range_name) if has_range else None,
        "streameval": version("streameval"),
    }
    if source.depends_on_reading:
        options |= asdict(request.options)
    return options


def identity(described: Manifest) -> str:
    """Return a text that two evaluations have in common only where they count the same."""
    decides = {section: of for section, of in described.items() if section != PLACES}
    text = json.dumps(decides, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _label_hash(prepared: Prepared) -> str:
    """Return a digest of the pairs, and of the labels that results keep."""
    pairs, cams, counts = prepared.pairs, prepared.cams, prepared.counts
    digest = hashlib.blake2b(digest_size=16)

    def add(*arrays: AnyArray) -> None:
        for array in arrays:
            digest.update(f"{array.shape} {array.dtype.str}".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)

    def add_found(values: Callable[[Pairs], AnyArray], size: int, dtype: npt.DTypeLike) -> None:
        digest.update(f"{(size,)} {np.dtype(dtype).str}".encode())
        for queries in prepared.round_queries:
            block = values(pairs.block(*queries))
            digest.update(np.ascontiguousarray(block).view(np.uint8).data)

    listed, positives = int(counts.listed.sum()), int(counts.positive.sum())
    add(cumulated(counts.listed))
    add_found(lambda block: block.item, listed, np.int64)
    add_found(lambda block: block.positive, listed, np.bool_)
    add_found(lambda block: block.same_identity, listed, np.bool_)
    add(pairs.junk, pairs.classes.query, pairs.classes.code, pairs.classes.item)
    digest.update(repr(pairs.classes.clauses).encode())
    add(*prepared.columns.values())
    add(*(rows for rows in (prepared.view.queries, prepared.view.items) if rows is not None))
    if cams is not None:
        codes = cams.code
        add(cams.known)
        items = prepared.view.items
        add_found(lambda block: codes[rows_at(items, block.positives()[1])], positives, codes.dtype)
    add(*([] if prepared.identities is None else [prepared.identities.code]))
    add(*([] if prepared.groups is None else [prepared.groups]))
    return digest.hexdigest()
