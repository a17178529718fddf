"""Problems on disk, cut finely, and clusters on 127.0.0.1 to work on them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import zarr
from distributed import Client, LocalCluster
from support.planning import Task
from support.run import Prepared, connection_module
from support.runs import prepare

import streameval as se

QUERIES, GALLERY, WIDTH, IDENTITIES = 120, 3000, 24, 160


def write_inputs(folder: Path, seed: int = 0) -> Path:
    """Write features of both sides, a matrix of distances, and labels; copies make for ties."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((IDENTITIES, WIDTH), dtype=np.float32)
    sides = {"q": rng.integers(0, IDENTITIES, QUERIES), "g": rng.integers(-1, 140, GALLERY)}
    for side, ids in sides.items():
        features = centres[ids] + rng.standard_normal((len(ids), WIDTH), dtype=np.float32)
        features[::7] = features[0]
        np.save(folder / f"{side}.npy", features)
        np.save(folder / f"{side}id.npy", ids)
        np.save(folder / f"{side}cam.npy", rng.integers(0, 4, len(ids)))
    stored = zarr.create_array(
        folder / "d.zarr", shape=(QUERIES, GALLERY), chunks=(16, 500), dtype="f4"
    )
    stored[...] = rng.integers(1, 400, (QUERIES, GALLERY)) / 512
    return folder


def labels(folder: Path) -> dict[str, se.Labels]:
    """Return the labels of both sides."""
    return {
        name: se.read_labels(folder / f"{side}id.npy", folder / f"{side}cam.npy")
        for name, side in (("query", "q"), ("gallery", "g"))
    }


def prepared(folder: Path, kind: str, *, items: int = 60, **options: Any) -> Prepared:
    """Prepare an evaluation of a kind of source, cut into many tasks.

    Parameters
    ----------
    folder : Path
    kind : {"features", "strips", "rectangles"}
    items : int
        So many are in a task of features.
    **options
        Of `prepare`.
    """
    source: Any = (
        se.Features(folder / "q.npy", folder / "g.npy", options.pop("metric", "cosine"))
        if kind == "features"
        else se.Distances(folder / "d.zarr")
    )
    whole = prepare(source, **labels(folder), **options)
    step = {"features": (50, items), "strips": (16, GALLERY), "rectangles": (32, 500)}[kind]
    if whole.problem.identities is not None:  # tasks see the whole gallery
        step = (step[0], GALLERY)
    tasks = tuple(
        Task((q, min(q + step[0], QUERIES)), (g, min(g + step[1], GALLERY)))
        for q in range(0, QUERIES, step[0])
        for g in range(0, GALLERY, step[1])
    )
    return replace(whole, plan=replace(whole.plan, layout=kind, tasks=tasks))


HERE = {"processes": False, "protocol": "tcp://", "memory_limit": None}
"""Options of a cluster whose workers are threads of this process."""


@contextmanager
def cluster(workers: int, **options: Any) -> Iterator[tuple[LocalCluster, Client]]:
    """Run a cluster of workers of one thread, usually processes of their own, on 127.0.0.1."""
    with (
        dask.config.set(connection_module.LASTING),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            **{"memory_limit": "2GB", **options},
        ) as running,
        Client(running, set_as_default=False) as client,
    ):
        yield running, client
