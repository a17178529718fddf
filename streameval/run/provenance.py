"""Provenance: what a result was made from, by what, where and when."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from streameval.run.preparation import Prepared
from streameval.run.sizes import cores
from streameval.source import Source

PACKAGES = ("numpy", "numba", "scipy", "zarr", "zarrs", "pyarrow")
"""What numbers are computed and read with."""


def describe_run(prepared: Prepared, started: datetime, seconds: float) -> dict[str, Any]:
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
        "plan": {
            "layout": plan.layout,
            "tasks": len(plan.tasks),
            "tile": list(plan.tile),
            "threads": plan.threads,
            "workers": plan.workers,
            "memory": plan.memory,
            "projected_peak": plan.peak,
        },
        "refined": [measure.name for measure in prepared.request.refine],
        "gallery": prepared.source.shape[1],
        "label_fingerprints": dict(prepared.label_fingerprints),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "versions": versions(),
        "machine": machine(),
    }


def describe_source(source: Source) -> dict[str, Any]:
    """Return where the distances come from."""
    return {item.key: item.uri for item in source.inputs()} | dict(source.options())


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


def _processor() -> str:
    with suppress(OSError):  # not on every system
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
