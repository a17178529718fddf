"""Verifying a ledger: everything is read, and counted again from the segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, OutputError
from streameval.ledger.appending import near_of, plus_counted
from streameval.ledger.counting import Block
from streameval.ledger.head import Head
from streameval.ledger.snapshots import scalars_of
from streameval.ledger.sources import Gallery
from streameval.ledger.state import Near, Positives, State, Taken, Totals
from streameval.ledger.store import GALLERY, QUERIES, RECORD, Reader, Store
from streameval.protocols.protocol import Labels
from streameval.run.session import Session
from streameval.statistics import IntArray


def differences(store: Store, session: Session) -> Iterator[str]:
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
    reader = store.reader()
    state = reader.state()
    gallery = Gallery(store.location, reader, state, thorough=True)
    changed = False
    for line in _changed(gallery):
        changed = True
        yield line
    if not changed:
        yield from _recounted(state, reader, gallery, session)


def _unreadable(store: Store) -> Iterator[str]:
    """Read all arrays of all snapshots; those that are in several of them once."""
    seen: set[str] = set()
    for number, snapshot in enumerate(store.snapshots()):
        try:
            reader = store.reader(snapshot)
            head = reader.state().head
            parts: dict[str, Callable[[], object]] = {
                f"{QUERIES} {len(head.batches)}": partial(reader.read, QUERIES)
            }
            if head.next_segment:
                parts[f"{GALLERY} {head.rows}"] = reader.gallery
            for record in head.records:
                parts[RECORD.format(record.number)] = partial(reader.record, record.number)
        except OutputError as error:
            yield f"snapshot {number}: {error}"
            continue
        for name in [one for one in parts if one not in seen]:
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


def _recounted(state: State, reader: Reader, gallery: Gallery, session: Session) -> Iterator[str]:
    """Count everything again, and compare it with totals, records and nearest negatives."""
    head, most = state.head, state.near.distance.shape[1]
    parts = gallery.parts()
    added = _added(reader, head)
    positives, totals = Positives.none(), Totals.none(head.queries, head.settings)
    near = Near.none(head.queries, most)
    if parts:
        queries: Labels = gallery.queries()
        block = Block(head.settings, queries, gallery.features(), parts, session)
        positives = block.find_positives(0)
        for name in ("query", "segment", "index", "distance"):
            yield from _compare(f"{name} of positives", state.positives, positives, name)
        if any(_differ(state.positives, positives, name) for name in ("query", "segment", "index")):
            return
        counted = block.count(positives, most, np.full(head.queries, np.inf))
        for part, one in zip(parts, counted, strict=True):
            positives = plus_counted(positives, one)
            totals = totals.plus(Totals.of(one))
            near = near.with_more(near_of(part.segment.number, one), most)
            what = f"segment {part.segment.name!r}"
            taken = added[part.segment.number]
            closer, tied = taken.of_positives(state.positives.serial)
            found = {"closer": closer, "tied": tied}
            for name, values in found.items():
                yield from _compare_arrays(f"{name} of {what}", values, getattr(one, name))
            for name in ("per_query", "within", "nearest", "histogram"):
                yield from _compare(f"{name} of {what}", taken.totals, Totals.of(one), name)
    for name in ("closer", "tied", "before"):
        yield from _compare(name, state.positives, positives, name)
    for name in ("per_query", "within", "nearest", "histogram"):
        yield from _compare(name, state.totals, totals, name)
    yield from _compare_near(state.near, near)
    metrics, counts = scalars_of(state, gallery.queries())
    last = head.last
    for name, value in {**metrics, **counts}.items():
        written = {**last["metrics"], **last["counts"]}.get(name)
        if written != value:
            yield f"{name} of the trajectory is {written!r}, and is {value!r} by its counts"


def _added(reader: Reader, head: Head) -> dict[int, Taken]:
    """Return what the records say of each segment, each record read once."""
    added = {
        segment.number: Taken(Totals.none(head.queries, head.settings)) for segment in head.segments
    }
    for record in head.records:
        arrays = reader.record(record.number)
        for number, taken in added.items():
            if number in record.segments:
                taken.add(record, arrays, number)
            else:
                taken.add_cells(arrays["cells"], number)
    return added


def _differ(one: Any, other: Any, name: str) -> bool:
    return not np.array_equal(getattr(one, name), getattr(other, name))


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
