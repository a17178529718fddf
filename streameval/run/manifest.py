"""What has to be the same where a run goes on with the work of another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.fingerprint import fingerprint, of_file
from streameval.metrics.options import MetricOptions
from streameval.metrics.selection import required_fields
from streameval.neighbors.source import Neighbors
from streameval.run.checkpoint import Manifest
from streameval.run.preparation import Prepared, resolve_options
from streameval.sources.sources import Features
from streameval.statistics import SHOT_FIELDS


def manifest(prepared: Prepared, options: MetricOptions) -> Manifest:
    """Return what is counted, as JSON values: the content of the inputs, options and plan.

    Options that are read off the same counts, as the rule of average precision, are left out; of
    lists of neighbours all are there, as ``k="auto"`` depends on them.
    A plan for a cluster depends on the workers that there happen to be, and goes on with
    others.
    """
    source, pairs = prepared.source, prepared.pairs
    metric: str | None = None
    inputs: dict[str, Any] = {}
    features = source.features if isinstance(source, Neighbors) else source
    if isinstance(features, Features):
        inputs = {
            "query features": fingerprint(features.query),
            "gallery features": fingerprint(features.gallery),
        }
        metric = features.metric
    elif features is not None:
        inputs = {"distances": fingerprint(features.matrix)}
    options = resolve_options(options, prepared.protocol, prepared.refine)
    reading: dict[str, Any] = {"shots": sorted(required_fields(options) & SHOT_FIELDS)}
    if isinstance(source, Neighbors):
        for name in ("lists", "distances"):
            array = getattr(source, name)
            if isinstance(array, Array):
                inputs[f"neighbours, {name}"] = fingerprint(array)
        told = ["k", "search", "train_rows", "missing", "tighten", "rerank", "width"]
        if source.path is None:
            told.append("index")
        else:
            inputs["index"] = of_file(source.path)
        reading = asdict(options) | {"lists": {name: str(getattr(source, name)) for name in told}}
    inputs["labels"] = _hash(
        [pairs.indptr, pairs.item, pairs.positive, pairs.same_identity, pairs.junk]
        + [one for one in (pairs.query_camera, pairs.gallery_camera) if one is not None]
        + list(prepared.query_columns.values())
        + ([] if prepared.positive_cams is None else [prepared.positive_cams.labels])
        + ([] if prepared.identities is None else [prepared.identities.code])
        + ([] if prepared.groups is None else [prepared.groups])
    )
    plan = prepared.plan
    mine = {"memory": plan.memory, "threads": plan.threads} if prepared.workers is None else {}
    chosen: dict[str, Any] = {
        "options": {
            "metric": metric,
            "protocol": asdict(prepared.protocol),
            "range": None if prepared.range is None else asdict(prepared.range),
            "thresholds": prepared.problem.thresholds,
            "histogram edges": prepared.problem.edges,
            "refine": [measure.name for measure in prepared.refine],
            **reading,
            "streameval": version("streameval"),
        },
        "plan": {"on": "threads" if prepared.workers is None else "workers", **mine},
    }
    described: dict[str, Any] = json.loads(json.dumps(chosen, default=str))
    # Options first: the pairs, which are hashed as labels, change with them, too.
    return {"options": described["options"], "inputs": inputs, "plan": described["plan"]}


def identity(described: Manifest) -> str:
    """Return a text that two evaluations have in common only where they count the same."""
    same = {section: described[section] for section in ("inputs", "options")}
    return hashlib.blake2b(json.dumps(same, sort_keys=True).encode(), digest_size=16).hexdigest()


def _hash(arrays: Iterable[np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.shape} {array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()
