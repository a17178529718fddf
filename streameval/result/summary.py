"""summary.json: what it holds, read back and checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OutputError
from streameval.metrics import Metrics
from streameval.metrics.bounds import ListMetrics
from streameval.metrics.confidence import Resampling
from streameval.metrics.metric import FRACTION, TAU
from streameval.protocols.labels import CAMERA_PAIRS
from streameval.result.columns import group_name
from streameval.result.folder import FORMAT, STATISTICS, SUMMARY

if TYPE_CHECKING:
    from streameval.result import Evaluation


def summary_of(result: Evaluation) -> dict[str, Any]:
    """Return what ``summary.json`` holds; undefined and infinite values are None."""
    metrics = result.metrics
    told: dict[str, Any] = {
        "metrics": metrics.scalars,
        "details": details_of(metrics),
        "intervals": metrics.intervals,
        "counts": result.counts,
        "options": asdict(result.options) | {"range": result.range},
    }
    if isinstance(metrics, ListMetrics):
        told |= {"bounds": metrics.bounds, "k_to_close": metrics.places}
    written = {"streameval": version("streameval"), "format": FORMAT}
    told["provenance"] = {**written, **result.provenance}
    if result.group_by is not None:
        told["groups"] = _summary_of_groups(result)
    if result.chosen_confidence is not None:
        told["confidence"] = asdict(result.chosen_confidence)
    summary: dict[str, Any] = plain(told)
    return summary


def _summary_of_groups(result: Evaluation) -> dict[str, Any]:
    def cameras(label: Any) -> dict[str, Any]:
        pair = result.group_by == CAMERA_PAIRS
        return dict(zip(("query_cam", "gallery_cam"), label, strict=True)) if pair else {}

    def confidence(label: Any) -> dict[str, Any]:
        found = result.group_confidence.get(label)
        if found is None:
            return {}
        told = {name: value for name, value in asdict(found).items() if name != "how"}
        return {"confidence": told}

    values = {
        group_name(label): cameras(label)
        | {
            "metrics": metrics.scalars,
            "details": details_of(metrics),
            "counts": metrics.counts,
        }
        | confidence(label)
        for label, metrics in result.groups.items()
    }
    return {"by": result.group_by, "values": values}


def details_of(metrics: Metrics) -> dict[str, dict[str, Any]]:
    """Return what there is to say of scalars: of those alone of which there is anything."""
    said: dict[str, dict[str, Any]] = {}
    for name, detail in metrics.details.items():
        own: dict[str, Any] = {}
        if detail.reason:
            own["reason"] = detail.reason
        if detail.threshold is not None:
            own |= {"threshold": detail.threshold, "threshold_error": detail.threshold_error}
        if detail.kind not in (FRACTION, TAU):
            own["kind"] = detail.kind.name
        if detail.error:
            own["error"] = detail.error
        if own:
            said[name] = own
    return said


def read_summary(folder: Path) -> dict[str, Any]:
    """Read the summary of a saved result.

    Raises
    ------
    OutputError
        If there is none, or it is of a later format.
    """
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


def read_resampling(summary: Mapping[str, Any]) -> Resampling | None:
    """Return how the confidence intervals of a summary are made; None where it has none."""
    return Resampling(**summary["confidence"]["how"]) if "confidence" in summary else None


def check_counts(folder: Path, found: Mapping[str, int], written: Mapping[str, int]) -> None:
    """Check the counts of the statistics against those of the summary.

    Raises
    ------
    OutputError
    """
    for name, count in found.items():
        if written.get(name) != count:
            raise OutputError(
                f"{folder} is damaged: {STATISTICS} has {count} {name}, {SUMMARY} says "
                f"{written.get(name)}; evaluate again, or restore the folder"
            )


def plain(value: Any) -> Any:
    """Return what JSON can hold: NaN and infinite values as None, NumPy's as Python's own."""
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
