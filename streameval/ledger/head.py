"""Everything of a ledger but its arrays: settings, queries, segments, records, trajectory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from streameval.arrays.array import Array
from streameval.errors import OptionError, OutputError, refuse
from streameval.metrics.options import MetricOptions
from streameval.planning.range import Range
from streameval.protocols.protocol import Protocol
from streameval.request import Terms
from streameval.run.preparation import BINS, THRESHOLDS
from streameval.run.session import parse_bytes
from streameval.sources.distances import Distances
from streameval.sources.features import Features
from streameval.typing import FloatArray

FORMAT = 3  # of what is written
UNDIGESTED = 2  # the format before, which is read, too: its arrays have no digests
MOST_NEAR = 4096  # nearest negatives that are kept of a query
NEAR_BYTES = 12  # of each


@dataclass(frozen=True)
class Settings:
    """Settings of a ledger, fixed when it is created.

    Attributes
    ----------
    metric : str or None
        Of features; None where stored distances are appended.
    protocol : Protocol
    options : MetricOptions
    range : Range or None
        None where nothing is counted that needs one.
    thresholds, edges : int
        Thresholds, and edges of the histogram of impostors; 0 where there are none.
    keep : int
        Bytes for the nearest negatives of all queries.
    preset : str or None
        Name of the tool whose conventions these are.
    """

    metric: str | None
    protocol: Protocol
    options: MetricOptions
    range: Range | None
    thresholds: int
    edges: int
    keep: int
    preset: str | None = None

    @classmethod
    def of(cls, array: Array | None, metric: str | None, terms: Terms, keep: str | int) -> Settings:
        """Return what is asked for; OptionError if it can't be kept up to date as a gallery grows.

        `array` holds the features of the queries, if any.
        """
        chosen = terms.protocol
        refuse(
            OptionError,
            array is None
            and metric is not None
            and f"got metric {metric} without query features: give them, or leave it out where "
            "distances are stored",
            chosen.lists
            and f"protocol {chosen.name} takes its pairs from lists of the whole gallery, which a "
            "ledger does not have beforehand: choose a protocol by identity and camera",
            chosen.self_match == "index"
            and "self_match by index means that query i is gallery item i, which no longer holds "
            "once the gallery grows: match by key",
            chosen.selects
            and f"protocol {chosen.name} selects who takes part ({'; '.join(chosen.selections)}), "
            "and a ledger ranks all that is appended: append the selection alone, under another "
            "protocol, or evaluate the whole gallery",
            chosen.by_identity
            and f"protocol {chosen.name} {chosen.by_identity.does}, which is no sum over segments: "
            "choose market1501 or separate-camera, or evaluate the whole gallery",
            terms.options.unmatched == "error"
            and "unmatched is error, and no query has a positive before a ledger has a gallery: "
            "choose exclude or miss",
        )
        needs, used = terms.fields_needed, terms.range if isinstance(terms.range, Range) else None
        thresholds = THRESHOLDS if "negatives_within" in needs or used else 0
        edges = BINS + 1 if "impostor_histogram" in needs else 0
        features = None if array is None else Features(array, array, metric or "cosine")
        if terms.range == "auto" and features is not None and (thresholds or edges):
            used = features.bounds()
        if used is None and (thresholds or edges):
            raise OptionError(
                f"range is {terms.range}, the least and greatest distance of the data, which moves "
                "when the gallery grows: give a range that stays (--range LO,HI), or metrics that "
                "need none (--metrics CMC@1,mAP,mINP)"
            )
        return cls(
            None if features is None else features.metric,
            chosen,
            terms.options,
            used,
            thresholds,
            edges,
            parse_bytes(keep, "keep"),
            terms.preset,
        )

    @property
    def limits(self) -> tuple[FloatArray, FloatArray | None]:
        """Thresholds [T] that are counted at, and edges of the histogram [E] or None."""
        return (self.range or Range(0.0, 1.0)).limits(self.thresholds, self.edges)

    def source(self, query: Array | None, gallery: Array) -> Features | Distances:
        """Return the source of distances: features of both sides, or stored distances."""
        if self.metric is None or query is None:
            return Distances(gallery)
        return Features(query, gallery, self.metric)

    def near(self, queries: int) -> int:
        """Return the number of nearest negatives that are kept of each query."""
        return max(1, min(MOST_NEAR, self.keep // (NEAR_BYTES * max(queries, 1))))


@dataclass(frozen=True)
class Place:
    """Where the data of a segment, or of queries, lie.

    Attributes
    ----------
    uri : str
    content : str
        Fingerprint of all values of the array.
    files : str
        Fingerprint of the files' sizes and times.
    start, stop : int
        Of a stored matrix, the queries that its rows are of.
    column : int
        And the column in which the segment begins.
    fill_missing : bool
        Whether what was never written is read as the fill value.
    """

    uri: str
    content: str
    files: str
    start: int = 0
    stop: int = 0
    column: int = 0
    fill_missing: bool = False


@dataclass(frozen=True)
class Segment:
    """A part of the gallery that was appended at once.

    Attributes
    ----------
    number : int
        Ascending in the order of the gallery.
    name : str
    size, forgotten : int
        Number of items that were appended, and of those that have been forgotten.
    begin : int
        Index of its first item among all that were ever appended: a row of the labels.
    columns : tuple of str
        The label columns that it has: ``id``, ``cam``, ``key``.
    places : tuple of Place
        One for features; for stored distances one for each batch of queries.
    """

    number: int
    name: str
    size: int
    forgotten: int
    begin: int
    columns: tuple[str, ...]
    places: tuple[Place, ...]

    @property
    def items(self) -> int:
        """Number of items in the gallery."""
        return self.size - self.forgotten

    @property
    def end(self) -> int:
        """Index after its last item among all that were ever appended."""
        return self.begin + self.size


@dataclass(frozen=True)
class Batch:
    """Queries that were added at once, from `start` to `stop`, and the place of their data."""

    start: int
    stop: int
    place: Place | None


@dataclass(frozen=True)
class Record:
    """What a change added: counts of some segments and queries.

    Its arrays, for m segments and q queries (all at that time, or those that were added):

        cells       [4, c] int64: positive (serial), segment, closer, tied
        per_query   [m, q, 3] int64: valid, ignored, same_identity
        within      [m, q, T] int64
        nearest     [m, q] float64: replaces what earlier records say, unless NaN
        histogram   [m, E + 1] int64

    Attributes
    ----------
    number : int
    segments : tuple of int
        Their numbers.
    start, stop : int
        The queries.
    """

    number: int
    segments: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Head:
    """Everything of a ledger but its arrays.

    Attributes
    ----------
    settings : Settings
    batches, segments, records : tuple
    happened : tuple of bytes
        The trajectory as it is written, one JSON entry a snapshot; parsed only when it is read.
    next_segment, next_serial : int
        The next numbers of a segment, and of a positive.
    rows : int
        Number of items that were ever appended.
    """

    settings: Settings
    batches: tuple[Batch, ...] = ()
    segments: tuple[Segment, ...] = ()
    records: tuple[Record, ...] = ()
    happened: tuple[bytes, ...] = ()
    next_segment: int = 0
    next_serial: int = 0
    rows: int = 0

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.batches[-1].stop if self.batches else 0

    @property
    def gallery(self) -> int:
        """Number of items of the gallery."""
        return sum(segment.items for segment in self.segments)

    @property
    def trajectory(self) -> tuple[Mapping[str, Any], ...]:
        """The entries of all snapshots, the first one first."""
        return tuple(map(json.loads, self.happened))

    @property
    def last(self) -> Mapping[str, Any]:
        """The entry of the last snapshot."""
        return dict(json.loads(self.happened[-1]))

    def find_segment(self, name: str) -> Segment:
        """Return the segment of a name; raise OptionError if there is none."""
        known = {segment.name: segment for segment in self.segments}
        if name not in known:
            raise OptionError(
                f"there is no segment {name!r}; there are {', '.join(known) or 'none'}"
            )
        return known[name]

    def with_places(self, put: Callable[[Place], Place]) -> Head:
        """Return the head with `put` applied to each place."""
        return replace(
            self,
            batches=tuple(replace(own, place=own.place and put(own.place)) for own in self.batches),
            segments=tuple(
                replace(own, places=tuple(map(put, own.places))) for own in self.segments
            ),
        )

    def with_queries(self, place: Place | None, queries: int) -> Head:
        """Return the head with the place of the data of further queries, if they have any."""
        first, last = self.queries, self.queries + queries
        head = replace(self, batches=(*self.batches, Batch(first, last, place)))
        if self.settings.metric is not None or place is None:
            return head
        segments, column = [], 0
        for segment in self.segments:
            columns = replace(place, start=first, stop=last, column=column)
            segments.append(replace(segment, places=(*segment.places, columns)))
            column += segment.size
        return replace(head, segments=tuple(segments))

    def as_lines(self) -> bytes:
        """Return the head as it is written: a line of JSON, then one for each snapshot."""
        first = {"format": FORMAT, **vars(self)}
        del first["happened"]
        return b"\n".join((as_line(first), *self.happened))

    @classmethod
    def of(cls, written: bytes) -> tuple[Head, int]:
        """Read what `as_lines` returns, and its format; raise OutputError if it is of another."""
        first, *happened = written.split(b"\n")
        values = json.loads(first)
        written_in = values.pop("format", None)
        if written_in not in (UNDIGESTED, FORMAT):
            raise OutputError(
                f"the ledger was written in format {written_in or 'without a number'}, and format "
                f"{FORMAT} is expected: use it with the version of streameval that made it, or "
                "create it again"
            )
        kind: Any = cls
        head: Head = _maker(kind)(values)
        return replace(head, happened=tuple(happened)), written_in


@cache
def _maker(kind: Any) -> Callable[[dict[str, Any]], Any]:
    """Return what makes a dataclass of its JSON; found out once for the many of one kind."""
    readers = {name: _reader(own) for name, own in get_type_hints(kind).items()}
    parts = {name: read for name, read in readers.items() if read is not None}

    def make(values: dict[str, Any]) -> Any:
        made = {name: read(values[name]) for name, read in parts.items() if name in values}
        return kind(**(values | made))

    return make


@cache
def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """Return what makes a value of a type of its JSON; None where JSON has the value itself."""
    arguments = get_args(kind)
    read = _reader(arguments[0]) if arguments else None
    if get_origin(kind) is tuple:
        return tuple if read is None else lambda values: tuple(map(read, values))
    if NoneType in arguments:
        return read and (lambda value: None if value is None else read(value))
    return _maker(kind) if isinstance(kind, type) and is_dataclass(kind) else None


def as_line(value: Any) -> bytes:
    """Return a value as one line of JSON."""

    def plain(held: Any) -> Any:
        return held.item() if isinstance(held, np.generic) else vars(held)

    text = json.dumps(value, default=plain, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="surrogatepass")  # of a path that is no UTF-8
