"""Labels and data of a ledger's segments and queries; data are checked to be unchanged."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.array import Array
from streameval.arrays.composed import JoinedArray, SelectedArray
from streameval.arrays.fingerprint import content
from streameval.arrays.fingerprint import state as files_state
from streameval.arrays.remote import is_remote
from streameval.arrays.uri import open_array
from streameval.errors import InputError, OptionError
from streameval.ledger.block import Part
from streameval.ledger.head import Head, Place, Segment
from streameval.ledger.state import Positives, State
from streameval.ledger.store import Contents
from streameval.metrics.camera_pairs import PositiveCameras
from streameval.protocols.labels import AnyArray, Labels
from streameval.statistics import IntArray


def open_matrix(uri: str | Path, what: str) -> Array:
    """Open a matrix that can be opened again, from anywhere.

    Raises
    ------
    InputError
        If it lies in memory, or can't be opened.
    """
    if not isinstance(uri, str | Path):
        raise InputError(
            f"{what} is an array in memory, and a ledger reads its data again later: save it, and "
            "give the path"
        )
    text = str(uri)
    if not is_remote(text):
        path, separator, key = text.rpartition("::")
        text = f"{_absolute(path)}::{key}" if separator else _absolute(text)
    array = open_array(text)
    if len(array.shape) != 2:
        raise InputError(f"{what} {uri} has shape {array.shape}; a 2-d array is needed")
    return array


def _absolute(path: str) -> str:
    """Return an absolute path, without ``..``."""
    whole = Path(path).absolute()
    return str(whole.resolve() if ".." in whole.parts else whole)


def place_of(array: Array) -> Place:
    """Return the place of an array, with fingerprints of its content and its files."""
    files = files_state(array)  # before it is read: a change since is seen later
    return Place(array.uri, content(array), files)


def check_same(array: Array, place: Place) -> None:
    """Raise InputError if the files of an array have changed since `place_of` read it."""
    if files_state(array) != place.files:
        raise InputError(
            f"{place.uri} has changed while it was read: nothing has been changed in the ledger; "
            "run this again when it is written"
        )


class Gallery:
    """Labels and data of a ledger's segments and queries, each read once.

    Parameters
    ----------
    path : str
        Of the ledger, for messages.
    contents : Contents
    state : State
    thorough : bool
        Whether the content of all data is compared, and not only their files' times.

    Attributes
    ----------
    head : Head
    gone : [f] int64
        Forgotten items, ascending, as indices into all items that were ever appended.
    """

    def __init__(
        self, path: str, contents: Contents, state: State, *, thorough: bool = False
    ) -> None:
        self.head, self.gone = state.head, state.forgotten
        self._path, self._contents, self._thorough = path, contents, thorough
        self._arrays: dict[tuple[str, str], Array] = {}
        self._opened: list[tuple[Array, Place, str]] = []
        self._labels: dict[str, AnyArray] | None = None

    @cached_property
    def queries(self) -> Labels:
        """The labels of all queries."""
        return self._contents.queries()

    def labels(self, segment: Segment) -> Labels:
        """Return the labels of all items of a segment, including forgotten ones."""
        if not segment.size:
            return Labels(np.empty(0, np.int64), source=f"segment {segment.name}")
        if self._labels is None:
            self._labels = self._contents.gallery()
        items = slice(segment.begin, segment.begin + segment.size)
        columns = {name: self._labels[name][items] for name in segment.columns}
        return Labels.of(columns, f"segment {segment.name}")

    def forgotten(self, segment: Segment) -> IntArray:
        """Return the indices of the forgotten items of a segment, ascending."""
        ends = np.searchsorted(self.gone, [segment.begin, segment.begin + segment.size])
        return self.gone[slice(*ends)] - segment.begin

    def items(self, positives: Positives) -> IntArray:
        """Return the gallery index of each positive, without forgotten items, [P] int64."""
        item, begin = np.empty(len(positives), np.int64), 0
        for segment in self.head.segments:
            inside = positives.segment == segment.number
            index = positives.index[inside]
            item[inside] = begin + index - np.searchsorted(self.forgotten(segment), index)
            begin += segment.items
        return item

    def cameras(self, positives: Positives) -> PositiveCameras | None:
        """Return the camera of each positive, where both sides have cameras."""
        segments = [segment for segment in self.head.segments if segment.items]
        columns = [self.labels(segment).cam for segment in segments]
        cams = [cam for cam in columns if cam is not None]
        if self.queries.cam is None or len(cams) < len(segments):
            return None
        if not segments:
            return PositiveCameras.of(np.empty(0, self.queries.cam.dtype))
        begin = np.cumsum([0, *map(len, cams)])
        number = np.searchsorted([segment.number for segment in segments], positives.segment)
        return PositiveCameras.of(np.concatenate(cams)[begin[number] + positives.index])

    def provenance(self) -> dict[str, Any]:
        """Return the provenance of an evaluation of the ledger, as JSON values."""
        head, count = self.head, len(self.head.segments)
        features = [batch.place.uri for batch in head.batches if batch.place is not None]
        gallery = f"{count} segment{'' if count == 1 else 's'} of {self._path}"
        inputs: dict[str, Any] = {"distances": gallery}
        if head.settings.metric is not None:
            inputs = {"query": ", ".join(features), "gallery": gallery}
            inputs |= {"metric": head.settings.metric}
        return {
            "inputs": inputs,
            "protocol": asdict(head.settings.protocol),
            "ledger": {
                "path": self._path,
                "snapshot": len(head.happened) - 1,
                "segments": [segment.name for segment in head.segments],
            },
            "gallery": head.gallery,
        }

    def forget(self, items: IntArray) -> None:
        """Mark further items as forgotten; indices count all items that were ever appended."""
        self.gone = np.union1d(self.gone, items)

    def part(self, segment: Segment, rows: IntArray | None = None) -> Part:
        """Return some items of a segment; all that are in the gallery by default.

        Raises
        ------
        InputError
            If its data have changed, or are gone.
        """
        labels = self.labels(segment)
        if rows is None and segment.forgotten:
            rows = np.setdiff1d(np.arange(segment.size), self.forgotten(segment))
        if rows is not None:
            labels = labels.take(rows)
        return Part(segment, labels, self.array(segment), rows)

    def parts(self) -> list[Part]:
        """Return the items of all segments, without empty ones; see `part`."""
        return [self.part(segment) for segment in self.head.segments if segment.items]

    def features(self) -> Array | None:
        """Return the features of all queries; None where distances are stored.

        Raises
        ------
        InputError
            If they have changed, or are gone, or those that came later are of another width.
        """
        if self.head.settings.metric is None:
            return None
        places = [batch.place for batch in self.head.batches]
        arrays = [self._open(place, "queries", "--query URI") for place in places if place]
        widths = [array.shape[1] for array in arrays]
        if len(set(widths)) > 1:
            raise InputError(
                f"query features {arrays[-1].uri} are {arrays[-1].shape}, those of the ledger have "
                f"{widths[0]} columns: as many are needed"
            )
        return arrays[0] if len(arrays) == 1 else JoinedArray(arrays, 0, "query features")

    def array(self, segment: Segment) -> Array:
        """Return the features of a segment, or its distances from all queries.

        Raises
        ------
        InputError
            If they have changed, or are gone.
        """
        stored = self.head.settings.metric is None
        option = (
            f"--name {shlex.quote(segment.name)} {'--distances' if stored else '--gallery'} URI"
        )
        what = f"segment {segment.name!r}"
        arrays = [self._open(place, what, option) for place in segment.places]
        if not stored:
            return arrays[0]
        blocks: list[Array] = []
        for place, array in zip(segment.places, arrays, strict=True):
            columns = np.arange(place.column, place.column + segment.size)
            whole = array.shape[1] == segment.size
            blocks.append(array if whole else SelectedArray(array, None, columns))
        return blocks[0] if len(blocks) == 1 else JoinedArray(blocks, 0, segment.name)

    def _open(self, place: Place, what: str, option: str) -> Array:
        known = place.uri, place.content  # another segment's place may be the same
        if known in self._arrays:
            return self._arrays[known]
        moved = (
            f"where it has moved, say so: streameval ledger move {shlex.quote(self._path)} {option}"
        )
        try:
            array = open_array(place.uri)
        except InputError as error:
            raise InputError(
                f"{what} of {self._path} can't be read: {error}. Nothing has been changed in the "
                f"ledger: put it back, or, {moved}"
            ) from error
        files = files_state(array)
        same = not self._thorough and files == place.files
        if not same and content(array) != place.content:
            raise InputError(
                f"{what} of {self._path}, {place.uri}, has changed since it came. Nothing has been "
                f"changed in the ledger: restore it; or, {moved}; or remove the segment, and "
                "append it anew"
            )
        self._arrays[known] = array
        self._opened.append((array, place, files))
        return array

    def settled(self, after: State) -> State:
        """Return the state after a change, with new times of files whose content is unchanged.

        Raises
        ------
        InputError
            If data have changed since they were opened.
        """
        newer: dict[tuple[str, str], str] = {}
        for array, place, files in self._opened:
            check_same(array, replace(place, files=files))
            if files != place.files:
                newer[place.uri, place.content] = files
        if not newer:
            return after

        def put(place: Place) -> Place:
            return replace(place, files=newer.get((place.uri, place.content), place.files))

        return replace(after, head=after.head.with_places(put))


def find_segment(head: Head, name: str) -> Segment:
    """Return the segment of a name.

    Raises
    ------
    OptionError
        If there is none.
    """
    for segment in head.segments:
        if segment.name == name:
            return segment
    known = ", ".join(segment.name for segment in head.segments) or "none"
    raise OptionError(f"there is no segment {name!r}; there are {known}")


def move(state: State, name: str | None, place: Place) -> State:
    """Return the state with the new place of a segment's data, or (None) of queries' data.

    Distances of queries that came later belong to all segments: each gets the new place.

    Raises
    ------
    OptionError
        If there is no such segment.
    InputError
        If what is there is not what came.
    """
    head = state.head

    def put(old: Place) -> Place:
        if old.content != place.content:
            return old
        return replace(old, uri=place.uri, files=place.files)

    if name is not None:
        segment = find_segment(head, name)
        if all(old.content != place.content for old in segment.places):
            raise InputError(
                f"{place.uri} does not hold what segment {name!r} held when it came "
                f"({segment.places[0].uri}): nothing has been changed; give the same data, or "
                "remove the segment and append it anew"
            )
    elif all(batch.place is None or batch.place.content != place.content for batch in head.batches):
        raise InputError(
            f"{place.uri} holds none of the queries' data as they were when they came: nothing has "
            "been changed; give the same data"
        )
    after = head.with_places(put)
    if name is not None:
        after = replace(after, batches=head.batches)
    elif head.settings.metric is not None:
        after = replace(after, segments=head.segments)
    return replace(state, head=after)
