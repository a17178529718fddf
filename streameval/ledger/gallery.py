"""Labels and data of a ledger's segments and queries; data are checked to be unchanged."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property, reduce
from pathlib import Path

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.composed import SelectedArray
from streameval.arrays.fingerprint import content
from streameval.arrays.identity import check_unchanged
from streameval.arrays.identity import state as files_state
from streameval.arrays.remote import is_remote
from streameval.arrays.uri import open_array
from streameval.errors import InputError
from streameval.ledger.block import Block, Part, joined
from streameval.ledger.head import Head, Place, Segment, Settings
from streameval.ledger.state import State
from streameval.ledger.store import Contents
from streameval.ledger.trajectory import Change, Forecast
from streameval.metrics.groups import PositiveCameras
from streameval.planning.plan import pieces, plural
from streameval.planning.range import UNIT_TOLERANCE
from streameval.protocols.labels import Labels, missing
from streameval.protocols.presets import note_of
from streameval.run.session import Session
from streameval.sources.distances import Distances
from streameval.sources.features import Features
from streameval.sources.tiled import open_matrix
from streameval.statistics import RankStatistics
from streameval.typing import AnyArray, IntArray, JsonObject

_ROWS = 4096  # of features that are checked at a time


def open_input(uri: str | Path, what: str, *, fill_missing: bool) -> Array:
    """Open a matrix that can be opened again, from anywhere."""
    if not isinstance(uri, str | Path):
        raise InputError(
            f"{what} is an array in memory, and a ledger reads its data again later: save it, and "
            "give the path"
        )
    text = str(uri)
    if not is_remote(text):
        path = text.rpartition("::")[0] or text
        whole = Path(path).absolute()
        whole = whole.resolve() if ".." in whole.parts else whole
        text = f"{whole}{text[len(path) :]}"
    meaning = "rows of features or of distances"
    return open_matrix(text, what, meaning, fill_missing=fill_missing)


def place_of(array: Array) -> Place:
    """Return the place of an array, with fingerprints of its content and its files."""
    files, filled = files_state(array), array.fill_missing
    return Place(array.uri, content(array), files, fill_missing=filled)


def check_columns(labels: Labels) -> None:
    """Raise InputError for labels that a ledger can't keep: those of floats."""
    for name, values in labels.columns.items():
        if values.dtype.kind == "f":
            raise InputError(
                f"{labels.source} has floats in column {name}, as numbers with missing ones are, "
                "and a ledger keeps integers and strings: give the column as strings, a missing "
                "label as an empty one"
            )


def check_queries(labels: Labels, array: Array | None, settings: Settings) -> None:
    """Raise InputError for queries that no gallery can be evaluated with: none is ever removed."""
    if not len(labels):
        raise InputError(f"{labels.source} has no ids: at least one query is needed")
    check_columns(labels)
    if array is None:
        return
    if array.shape[0] != len(labels):
        raise InputError(
            f"{array.uri} has {array.shape[0]} rows, and {labels.source} {len(labels)} ids: one id "
            "a query is needed"
        )
    if settings.metric is None:
        Distances(array)
        return
    source, used = Features(array, array, settings.metric), settings.range
    for start, stop in pieces((0, len(labels)), _ROWS):
        _, norms = source.read_query(start, stop)
        others = np.flatnonzero(np.abs(norms - 1) > UNIT_TOLERANCE)
        if used is not None and used.unit and len(others):
            raise InputError(
                f"{array.uri} row {start + others[0]} is of length {norms[others[0]]:.6g}, and the "
                f"range [{used.low!r}, {used.high!r}] is that of vectors of length 1: scale them "
                "to length 1, or create a ledger with --range LO,HI"
            )


class Gallery:
    """Labels and data of a ledger's segments and queries, each read once.

    The path is for messages; a session counts, and is not needed to look things up. A thorough
    gallery compares the content of all data, and not only their files' times.
    """

    def __init__(
        self,
        path: str,
        contents: Contents,
        session: Session | None = None,
        *,
        thorough: bool = False,
    ) -> None:
        self.contents, self.state = contents, contents.state()
        self._path, self._session, self._thorough = path, session, thorough
        self._opened: dict[tuple[str, str], Array] = {}

    @property
    def head(self) -> Head:
        """Everything of the ledger but its arrays."""
        return self.state.head

    @cached_property
    def queries(self) -> Labels:
        """The labels of all queries."""
        return self.contents.queries()

    @cached_property
    def _columns(self) -> dict[str, AnyArray]:
        return self.contents.gallery()

    def labels(self, segment: Segment) -> Labels:
        """Return the labels of all items of a segment, including forgotten ones."""
        source = f"segment {segment.name}"
        if not segment.size:
            return Labels(np.empty(0, np.int64), source=source)
        items = slice(segment.begin, segment.end)
        return Labels.of({name: self._columns[name][items] for name in segment.columns}, source)

    def forgotten(self, segment: Segment) -> IntArray:
        """Return the indices of the forgotten items of a segment, ascending."""
        ends = np.searchsorted(self.state.forgotten, [segment.begin, segment.end])
        return self.state.forgotten[slice(*ends)] - segment.begin

    @cached_property
    def positive_items(self) -> IntArray:
        """Return the gallery index of each positive, without forgotten items, [P] int64."""
        positives = self.state.positives
        item, begin = np.empty(len(positives), np.int64), 0
        for segment in self.head.segments:
            inside = positives.segment == segment.number
            index = positives.index[inside]
            item[inside] = begin + index - np.searchsorted(self.forgotten(segment), index)
            begin += segment.items
        return item

    def positive_cameras(self) -> PositiveCameras | None:
        """Return the camera of each positive, where both sides have cameras."""
        segments, positives = self.head.segments, self.state.positives
        own = self.queries.cam
        if own is None or any("cam" not in part.columns for part in segments if part.items):
            return None
        if not len(positives):
            return PositiveCameras.of(own[:0])
        number = np.searchsorted([segment.number for segment in segments], positives.segment)
        begin = np.array([segment.begin for segment in segments])
        cams = self._columns["cam"][begin[number] + positives.index]
        some = missing(own).any() or missing(cams).any()
        if some:
            return None
        items, first = np.unique(self.positive_items, return_index=True)
        return PositiveCameras.of(cams[first], items)

    def provenance(self) -> JsonObject:
        """Return the provenance of an evaluation of the ledger, as JSON values."""
        head = self.head
        settings = head.settings
        gallery = f"{plural(len(head.segments), 'segment')} of {self._path}"
        inputs: JsonObject = {"distances": gallery}
        if settings.metric is not None:
            features = (batch.place.uri for batch in head.batches if batch.place is not None)
            inputs = {"query": ", ".join(features), "gallery": gallery, "metric": settings.metric}
        return {
            "inputs": inputs,
            "protocol": asdict(settings.protocol),
            **note_of(settings.preset),
            "ledger": {
                "path": self._path,
                "snapshot": len(head.happened) - 1,
                "segments": [segment.name for segment in head.segments],
            },
            "gallery": head.gallery,
        }

    def forget(self, part: Part) -> Segment:
        """Mark further items of a segment as forgotten; return the segment without them."""
        segment, rows = part.segment, part.index(np.arange(len(part.labels)))
        gone = np.union1d(self.state.forgotten, segment.begin + rows)
        self.state = replace(self.state, forgotten=gone)
        return replace(segment, forgotten=segment.forgotten + len(rows))

    def part(self, segment: Segment, rows: IntArray | None = None) -> Part:
        """Return some items of a segment; all that are in the gallery by default."""
        labels, array = self.labels(segment), self.array(segment)
        if rows is None and segment.forgotten:
            rows = np.setdiff1d(np.arange(segment.size), self.forgotten(segment))
        if rows is None:
            return Part(segment, labels, array)
        axis = int(self.head.settings.metric is None)
        return Part(segment, labels.take(rows), SelectedArray(array, rows, axis), rows)

    def parts(self) -> list[Part]:
        """Return the items of all segments, without empty ones; see `part`."""
        return [self.part(segment) for segment in self.head.segments if segment.items]

    def block(
        self, parts: Sequence[Part], queries: IntArray | None = None, *, ranks: bool = False
    ) -> Block:
        """Return some queries against parts of segments; see `Block`.

        With `ranks`, nothing is counted but negatives ahead of positives.
        """
        if self._session is None:
            raise RuntimeError("nothing is counted without a session")
        settings = self.head.settings
        if ranks:
            settings = replace(settings, range=None, thresholds=0, edges=0)
        return Block(settings, self.queries, self.features(), parts, self._session, queries)

    def count(self, queries: IntArray, serial: int = 0) -> tuple[State, dict[int, RankStatistics]]:
        """Count some queries against the whole gallery.

        Returns their state, the serials of its positives beginning with `serial`, and their
        statistics by number of a segment.
        """
        nothing, parts = State.empty(self.head, len(queries)), self.parts()
        if not parts:
            return nothing, {}
        block = self.block(parts, queries)
        positives = block.find_positives(serial)
        counted, nearest = block.count(positives, nothing.near.distance.shape[1])
        state = replace(
            nothing,
            positives=positives,
            statistics=reduce(RankStatistics.merge, counted),
            near=nothing.near.merge(nearest),
        )
        return state, {part.segment.number: of for part, of in zip(parts, counted, strict=True)}

    def features(self) -> Array | None:
        """Return the features of all queries; None where distances are stored."""
        if self.head.settings.metric is None:
            return None
        arrays = [
            self._open(batch.place, "queries", "--query URI")
            for batch in self.head.batches
            if batch.place
        ]
        widths = [array.shape[1] for array in arrays]
        if len(set(widths)) > 1:
            raise InputError(
                f"query features {arrays[-1].uri} are {arrays[-1].shape}, those of the ledger have "
                f"{widths[0]} columns: as many are needed"
            )
        return joined(arrays, 0, "query features")

    def array(self, segment: Segment) -> Array:
        """Return the features of a segment, or its distances from all queries."""
        stored = self.head.settings.metric is None
        side = "distances" if stored else "gallery"
        option = f"--name {shlex.quote(segment.name)} --{side} URI"
        blocks: list[Array] = []
        for place in segment.places:
            array = self._open(place, f"segment {segment.name!r}", option)
            if stored and array.shape[1] != segment.size:
                columns = np.arange(place.column, place.column + segment.size)
                array = SelectedArray(array, columns, 1)
            blocks.append(array)
        return joined(blocks, 0, segment.name)

    def place(self, array: Array) -> Place:
        """Return the place of an array that is added; `settled` checks that it has not changed."""
        place = place_of(array)
        self._opened[place.uri, place.content] = array
        return place

    def _open(self, place: Place, what: str, option: str) -> Array:
        known = place.uri, place.content  # another segment's place may be the same
        if known in self._opened:
            return self._opened[known]
        moved = (
            f"where it has moved, say so: streameval ledger move {shlex.quote(self._path)} {option}"
        )
        try:
            array = open_array(place.uri, fill_missing=place.fill_missing)
        except InputError as error:
            raise InputError(
                f"{what} of {self._path} can't be read: {error}. Nothing has been changed in the "
                f"ledger: put it back, or, {moved}"
            ) from error
        if (self._thorough or files_state(array) != place.files) and content(
            array
        ) != place.content:
            raise InputError(
                f"{what} of {self._path}, {place.uri}, has changed since it came. Nothing has been "
                f"changed in the ledger: restore it; or, {moved}; or remove the segment, and "
                "append it anew"
            )
        self._opened[known] = array
        return array

    def settled(self, after: State) -> State:
        """Return the state after a change, with new times of files whose content is unchanged."""
        for array in self._opened.values():
            check_unchanged(array)

        def put(place: Place) -> Place:
            opened = self._opened.get((place.uri, place.content))
            files = place.files if opened is None else files_state(opened)
            return place if files == place.files else replace(place, files=files)

        return replace(after, head=after.head.with_places(put))


def move(gallery: Gallery, name: str | None, place: Place) -> Change:
    """Return the state with the new place of the data of a segment, or (None) of queries.

    Every place that holds the same content is moved.
    """
    head = gallery.head
    if name is None:
        known = [batch.place.content for batch in head.batches if batch.place is not None]
        lacking = "holds none of the queries' data as they were when they came"
        remedy = "give the same data"
    else:
        first, *_ = places = head.find_segment(name).places
        known = [old.content for old in places]
        lacking = f"does not hold what segment {name!r} held when it came ({first.uri})"
        remedy = "give the same data, or remove the segment and append it anew"
    if place.content not in known:
        raise InputError(f"{place.uri} {lacking}: nothing has been changed; {remedy}")
    head = head.with_places(
        lambda old: (
            replace(place, start=old.start, stop=old.stop, column=old.column)
            if old.content == place.content
            else old
        )
    )
    return replace(gallery.state, head=head), name or "queries", Forecast()
