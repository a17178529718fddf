"""summary.json: what it can hold, read back and checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streameval.errors import OutputError
from streameval.metrics import Metrics
from streameval.metrics.resampling import Resampling
from streameval.result.folder import FORMAT, STATISTICS, SUMMARY


def details_of(metrics: Metrics) -> dict[str, dict[str, Any]]:
    """Return what there is to say of scalars: of those alone of which there is anything."""
    said: dict[str, dict[str, Any]] = {}
    for name, detail in metrics.details.items():
        own: dict[str, Any] = {}
        if detail.reason:
            own["reason"] = detail.reason
        if detail.threshold is not None:
            own |= {"threshold": detail.threshold, "threshold_error": detail.threshold_error}
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
