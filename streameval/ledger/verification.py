"""Verifying a ledger: everything is read, and counted again from the segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import chain

import numpy as np

from streameval.errors import InputError, OutputError
from streameval.ledger.gallery import Gallery
from streameval.ledger.state import Near, Positives, State, no_statistics
from streameval.ledger.store import GALLERY, Contents, LedgerStore
from streameval.ledger.sums import recorded, sum_of
from streameval.ledger.trajectory import scalars_of
from streameval.run.session import Session
from streameval.statistics import FIELDS, RankStatistics
from streameval.typing import AnyArray

SHARE = 8  # of the budget, for the statistics of segments


def differences(store: LedgerStore, session: Session) -> list[str]:
    """Return what is not as it should be, a line each.

    Every snapshot is read, whose chunks have checksums; all data are compared with what they
    were; and all pairs of the newest snapshot are counted again, segment by segment.
    """
    damaged = list(_unreadable(store))
    if damaged:
        return damaged
    gallery = Gallery(store.location, store.contents(), session, thorough=True)
    return list(_changed(gallery)) or list(_recounted(gallery, session.memory // SHARE))


def _unreadable(store: LedgerStore) -> Iterator[str]:
    """Read all arrays of all snapshots; those that are in several of them once."""
    seen: set[tuple[str, str]] = set()
    for number, snapshot in enumerate(store.snapshots()):
        try:
            contents = Contents(store, store.readable(snapshot))
            known = contents.known()
        except OutputError as error:
            yield f"snapshot {number}: {error}"
            continue
        for name, digests in known.items():
            key = name, digests or str(number)
            if key not in seen:
                seen.add(key)
                try:
                    contents.gallery() if name == GALLERY else contents.read_bytes(name)
                except OutputError as error:
                    yield f"snapshot {number}, {name}: {error}"


def _changed(gallery: Gallery) -> Iterator[str]:
    """Read all data, and compare them with what they were."""
    reads: list[Callable[[], object]] = [gallery.features]
    reads += [partial(gallery.array, segment) for segment in gallery.head.segments]
    for read in reads:
        try:
            read()
        except InputError as error:
            yield str(error)


def _recounted(gallery: Gallery, most: int) -> Iterator[str]:
    """Count everything again; compare it with the statistics, records and nearest negatives.

    Segments are counted some at a time, whose statistics take so many bytes at most.
    """
    state, head = gallery.state, gallery.head
    parts = gallery.parts()
    fresh = gallery.block(parts).find_positives(0) if parts else Positives.none()
    lines = {
        name: list(_compare(f"{name} of positives", values, getattr(fresh, name)))
        for name, values in vars(state.positives).items()
        if name != "serial"
    }
    yield from chain.from_iterable(lines.values())
    if any(lines[name] for name in ("query", "segment", "index")):
        return
    statistics = no_statistics(head.queries, fresh, head.settings)
    near = State.empty(head, head.queries).near
    nearest, sums = recorded(gallery.contents, head, state.positives)
    each = sum(values.nbytes for values in statistics.arrays().values()) + 3 * near.distance.nbytes
    step = max(most // each, 1)
    for begin in range(0, len(parts), step):
        group = parts[begin : begin + step]
        shards, negatives = gallery.block(group).count(fresh, near.distance.shape[1])
        statistics, near = reduce(RankStatistics.merge, shards, statistics), near.merge(negatives)
        for part, shard in zip(group, shards, strict=True):
            number = part.segment.number
            same = np.array_equal(nearest[number], shard.nearest_negative)
            if not same or sums[number] != sum_of(state.positives.serial, shard):
                _, shares = gallery.contents.shares(head, state.positives, [number])
                share = replace(shares[number], tied_before=shard.tied_before)  # in no record
                yield from _differences(f" of segment {part.segment.name!r}", share, shard)
    yield from _differences("", state.statistics, statistics)
    yield from _nearest_differences(state.near, near)
    metrics, counts = scalars_of(state, gallery.queries)
    for section, values in {"metrics": metrics, "counts": counts}.items():
        for name, written in head.last[section].items():  # a later version may have more metrics
            if written != values.get(name):
                yield (
                    f"{name} of the trajectory is {written!r}, and is {values.get(name)!r} by its "
                    "counts"
                )


def _differences(what: str, kept: RankStatistics, counted: RankStatistics) -> Iterator[str]:
    for name, values in kept.arrays().items():
        if FIELDS[name].merge != "same":
            yield from _compare(f"{name}{what}", values, getattr(counted, name))


def _compare(what: str, kept: AnyArray, counted: AnyArray) -> Iterator[str]:
    if kept.shape != counted.shape:
        yield f"{what}: the ledger has {kept.shape}, a fresh count {counted.shape}"
        return
    at = np.argwhere(kept != counted)
    if len(at):
        first = tuple(at[0].tolist())
        yield (
            f"{what}: {len(at)} of {kept.size} values differ; the first, at {first}, is "
            f"{kept[first].item()!r} in the ledger, and {counted[first].item()!r} counted afresh"
        )


def _nearest_differences(kept: Near, counted: Near) -> Iterator[str]:
    """Compare what both know: nearest negatives within the lesser reach."""
    reach, width = np.minimum(kept.reach, counted.reach), kept.distance.shape[1]
    sides = []
    for near in (kept, counted):
        known = replace(near, reach=reach).sorted(width)
        order = np.lexsort((known.segment, known.distance), axis=1)
        sides.append((known.distance, np.take_along_axis(known.segment, order, axis=1)))
    for what, pair in zip(("", "segments of "), zip(*sides, strict=True), strict=True):
        yield from _compare(f"{what}nearest negatives", *pair)
