"""Verifying a ledger: everything is read, and counted again from the segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, OutputError
from streameval.ledger.block import Block
from streameval.ledger.gallery import Gallery
from streameval.ledger.history import read_shares
from streameval.ledger.state import Near, Positives, State, no_statistics
from streameval.ledger.store import GALLERY, QUERIES, RECORD, WITHIN, Contents, LedgerStore
from streameval.ledger.trajectory import scalars_of
from streameval.run.session import Session
from streameval.statistics import FIELDS, IntArray, RankStatistics


def differences(store: LedgerStore, session: Session) -> Iterator[str]:
    """Yield what is not as it should be, a line each.

    Every snapshot is read, whose chunks have checksums; all data are compared with what they
    were; and all pairs of the newest snapshot are counted again, segment by segment.
    """
    damaged = False
    for line in _unreadable(store):
        damaged = True
        yield line
    if damaged:
        return
    contents = store.contents()
    state = contents.state()
    gallery = Gallery(store.location, contents, state, thorough=True)
    changed = False
    for line in _changed(gallery):
        changed = True
        yield line
    if not changed:
        yield from _recounted(state, contents, gallery, session)


def _unreadable(store: LedgerStore) -> Iterator[str]:
    """Read all arrays of all snapshots; those that are in several of them once."""
    seen: set[str] = set()
    for number, snapshot in enumerate(store.snapshots()):
        try:
            contents = Contents(store, store.readable(snapshot))
            head = contents.state().head
            parts: dict[str, Callable[[], object]] = {
                f"{QUERIES} {len(head.batches)}": partial(contents.read, QUERIES)
            }
            if head.next_segment:
                parts[f"{GALLERY} {head.rows}"] = contents.gallery
            for path in (RECORD, WITHIN):
                for record in head.records:
                    name = path.format(record.number)
                    parts[name] = partial(contents.read, name)
        except OutputError as error:
            yield f"snapshot {number}: {error}"
            continue
        for name in [name for name in parts if name not in seen]:
            seen.add(name)
            try:
                parts[name]()
            except OutputError as error:
                yield f"snapshot {number}, {name.partition(' ')[0]}: {error}"


def _changed(gallery: Gallery) -> Iterator[str]:
    """Read all data, and compare them with what they were."""
    try:
        gallery.features()
    except InputError as error:
        yield str(error)
    for segment in gallery.head.segments:
        try:
            gallery.array(segment)
        except InputError as error:
            yield str(error)


def _recounted(
    state: State, contents: Contents, gallery: Gallery, session: Session
) -> Iterator[str]:
    """Count everything again; compare it with the statistics, records and nearest negatives."""
    head, most, queries = state.head, state.near.distance.shape[1], gallery.queries
    parts = gallery.parts()
    statistics = no_statistics(head.queries, head.settings)
    near, positives = Near.none(head.queries, most), Positives.none()
    if parts:
        block = Block(head.settings, queries, gallery.features(), parts, session)
        positives = block.find_positives(0)
        differ = False
        for name in ("query", "segment", "index", "distance"):
            lines = [*_compare(f"{name} of positives", state.positives, positives, name)]
            differ |= bool(lines) and name != "distance"
            yield from lines
        if differ:
            return
        counted, nearest = block.count(positives, most, np.full(head.queries, np.inf))
        statistics, near = reduce(RankStatistics.merge, counted), near.merge(nearest, most)
        numbers = [part.segment.number for part in parts]
        _, shares = read_shares(contents, head, state.positives, numbers)
        for part, shard in zip(parts, counted, strict=True):
            share = shares[part.segment.number]
            share = replace(share, tied_before=shard.tied_before)  # in no record
            yield from _differences(f" of segment {part.segment.name!r}", share, shard)
    yield from _differences("", state.statistics, statistics)
    yield from _compare_near(state.near, near)
    metrics, counts = scalars_of(state, queries)
    for section, values in (("metrics", metrics), ("counts", counts)):
        for name, written in head.last[section].items():  # a later version may have more metrics
            if written != values.get(name):
                yield (
                    f"{name} of the trajectory is {written!r}, and is {values.get(name)!r} by its "
                    "counts"
                )


def _differences(what: str, kept: RankStatistics, counted: RankStatistics) -> Iterator[str]:
    for name, layout in FIELDS.items():
        if layout.merge != "same" and getattr(kept, name) is not None:
            yield from _compare(f"{name}{what}", kept, counted, name)


def _compare(what: str, kept: Any, counted: Any, name: str) -> Iterator[str]:
    yield from _compare_arrays(what, getattr(kept, name), getattr(counted, name))


def _compare_arrays(what: str, kept: npt.NDArray[Any], counted: npt.NDArray[Any]) -> Iterator[str]:
    if kept.shape != counted.shape:
        yield f"{what}: the ledger has {kept.shape}, a fresh count {counted.shape}"
        return
    at: IntArray = np.argwhere(kept != counted)
    if len(at):
        first = tuple(at[0].tolist())
        yield (
            f"{what}: {len(at)} of {kept.size} values differ; the first, at {first}, is "
            f"{kept[first].item()!r} in the ledger, and {counted[first].item()!r} counted afresh"
        )


def _compare_near(kept: Near, counted: Near) -> Iterator[str]:
    """Compare what both know: nearest negatives within the lesser reach."""
    reach = np.minimum(kept.reach, counted.reach)[:, None]
    known = [np.where(one.distance < reach, one.distance, np.inf) for one in (kept, counted)]
    yield from _compare_arrays("nearest negatives", known[0], known[1])
    owners = []
    for one, distance in zip((kept, counted), known, strict=True):
        owner = np.where(np.isfinite(distance), one.segment, -1)
        order = np.lexsort((owner, distance), axis=1)
        owners.append(np.take_along_axis(owner, order, axis=1))
    yield from _compare_arrays("segments of nearest negatives", owners[0], owners[1])
