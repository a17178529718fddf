"""Ledger: an evaluation on disk that follows its gallery."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, OptionError
from streameval.kernels.canonical import Metric
from streameval.ledger.appending import Appending
from streameval.ledger.counting import take_labels
from streameval.ledger.creating import settings_of
from streameval.ledger.forecast import Forecast
from streameval.ledger.head import Batch, Head, Segment
from streameval.ledger.labels import label_arrays
from streameval.ledger.moving import moved, named
from streameval.ledger.queries import check_rows, with_queries
from streameval.ledger.removing import some, without_identities, without_segment
from streameval.ledger.snapshots import Snapshot, entry_of, range_summary, statistics_of
from streameval.ledger.sources import Gallery, open_matrix, place_of, query_labels
from streameval.ledger.state import State
from streameval.ledger.store import Change, Reader, Store
from streameval.ledger.verifying import differences
from streameval.metrics.camera_pairs import PositiveCameras
from streameval.metrics.options import (
    AveragePrecision,
    MetricOptions,
    TieRule,
    VerificationPrecision,
)
from streameval.planning.range import Range
from streameval.protocols.pairs import find_pairs
from streameval.protocols.protocol import Labels, Protocol, label_column
from streameval.request import Terms, check_labels
from streameval.result import Evaluation
from streameval.run.preparation import query_columns
from streameval.run.progress import Progress
from streameval.run.session import open_session
from streameval.statistics import IntArray

if TYPE_CHECKING:
    from distributed import Client

DEFAULT_KEEP = "4MB"
DEFAULT_WAIT = 60.0  # seconds
NOTHING = Forecast(0, 0, 0, 0)


class Ledger:
    """An evaluation on disk that follows its gallery; see docs/ledger.md.

    Its statistics are those of a fresh evaluation of the same gallery, bit for bit, after any
    sequence of changes.

    Parameters
    ----------
    path : str or Path
        A local folder, or ``s3://bucket/prefix``, ``gs://bucket/prefix``.

    Raises
    ------
    OutputError
        If there is no ledger, or it can't be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._store = Store(path)
        self._store.open()

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        query_labels: Labels,
        query: str | Path | None = None,
        metric: Metric | None = None,
        protocol: str | Protocol | None = None,
        junk_ids: Sequence[int | str] | None = None,
        self_match: Literal["index", "key"] | None = None,
        range: str | Sequence[float] | Range | None = None,
        ties: TieRule | None = None,
        ap: AveragePrecision | None = None,
        vp: VerificationPrecision | None = None,
        false_rate_budget: int | None = None,
        metrics: str | Sequence[str] | None = None,
        preset: str | None = None,
        options: MetricOptions | None = None,
        keep: str | int = DEFAULT_KEEP,
    ) -> Ledger:
        """Make a ledger of queries, without a gallery.

        Parameters
        ----------
        path : str or Path
            A folder to be made, or a place in an object store.
        query_labels : Labels
            Of the queries.
        query : str or Path, optional
            URI of their features [Q, D]. Without, segments are stored distances [Q, n].
        metric : {"cosine", "euclidean", "sqeuclidean", "dot"}, optional
            Of features; cosine by default.
        protocol, junk_ids, self_match : as of `evaluate`
        ties, ap, vp, false_rate_budget, metrics, preset, options : as of `evaluate`
        range : {"auto"} or (float, float), optional
            As of `evaluate`, but for ``minmax``: it would move with the gallery.
        keep : str or int
            Bytes for the nearest negatives of all queries, 12 each: the more of them, the fewer
            old segments are read again.

        Raises
        ------
        InputError
            If labels and features don't fit, or the features can't be evaluated.
        OptionError
            If an option is unknown, or can't be kept up to date; or the protocol needs labels
            that are not there.
        OutputError
            If there is something in that place, or it can't be written.
        """
        terms = Terms.of(locals())
        check_labels({"query_labels": query_labels})
        store = Store(path)
        array = None if query is None else open_matrix(query, "query features")
        settings = settings_of(array, metric, terms, keep)
        if array is not None and array.shape[0] != len(query_labels):
            raise InputError(
                f"query features {array.uri} have {array.shape[0]} rows, and "
                f"{query_labels.source} {len(query_labels)} ids: one id a query is needed"
            )
        if not len(query_labels):
            raise InputError(f"{query_labels.source} has no ids: at least one query is needed")
        nothing = take_labels(query_labels, np.empty(0, np.int64))
        find_pairs(query_labels, nothing, settings.protocol)  # what it refuses, it always would
        if array is not None:
            check_rows(array, settings)
        place = None if array is None else place_of(array)
        head = Head(settings, (Batch(0, len(query_labels), place),))
        empty = State.empty(head)
        entry = entry_of(empty, empty, query_columns(query_labels), ("create", ""), NOTHING, 0.0)
        labels = label_arrays(query_labels, more=True)
        store.create(empty.with_entry(entry), labels)
        return cls(path)

    def __repr__(self) -> str:
        return f"Ledger({self.path!r})"

    @property
    def path(self) -> str:
        """Where it lies."""
        return self._store.location

    def head(self, at: int | str | None = None) -> Head:
        """Return its settings, segments and trajectory, at a snapshot or now."""
        return self._reader(at).head()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Its segments, in the order of the gallery."""
        return self.head().segments

    @property
    def trajectory(self) -> tuple[Snapshot, ...]:
        """All its snapshots, the first one first."""
        return tuple(Snapshot(**entry) for entry in self.head().trajectory)

    def evaluation(self, at: int | str | None = None) -> Evaluation:
        """Return the result at a snapshot, or now: that of a fresh evaluation.

        Parameters
        ----------
        at : int or str, optional
            Number of a snapshot, or the name of a segment: the snapshot that it came with.

        Raises
        ------
        OptionError
            If there is no such snapshot.
        OutputError
            If the ledger can't be read.
        """
        reader = self._reader(at)
        state = reader.state()
        gallery = Gallery(self.path, reader, state)
        queries = gallery.queries()
        return Evaluation.compute(
            statistics_of(state, gallery),
            state.head.settings.options,
            range=range_summary(state.head.settings),
            columns=query_columns(queries),
            provenance=self._provenance(state.head),
            positive_cams=_positive_cams(state, gallery, queries),
        )

    def _provenance(self, head: Head) -> dict[str, Any]:
        features = [batch.place.uri for batch in head.batches if batch.place is not None]
        count = len(head.segments)
        gallery = f"{count} segment{'' if count == 1 else 's'} of {self.path}"
        inputs: dict[str, Any] = {"distances": gallery}
        if head.settings.metric is not None:
            inputs = {"query": ", ".join(features), "gallery": gallery}
            inputs |= {"metric": head.settings.metric}
        return {
            "inputs": inputs,
            "protocol": asdict(head.settings.protocol),
            "ledger": {
                "path": self.path,
                "snapshot": len(head.happened) - 1,
                "segments": [segment.name for segment in head.segments],
            },
            "gallery": head.gallery,
        }

    def append(
        self,
        gallery: str | Path,
        labels: Labels,
        *,
        name: str | None = None,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | None = None,
        wait: float = DEFAULT_WAIT,
    ) -> Snapshot:
        """Add a segment to the gallery, behind all others.

        Parameters
        ----------
        gallery : str or Path
            URI of its features [n, D], or of its distances [Q, n] from all queries.
        labels : Labels
            Of its n items.
        name : str, optional
            By default the key of the array, where it has one, else the name of the file.
        memory, threads, client, progress : as of `evaluate`
        wait : float
            Seconds to wait for another process that changes the ledger.

        Returns
        -------
        Snapshot
            Of the ledger with the segment.

        Raises
        ------
        InputError
            If the segment can't be evaluated, is there already, or an old one that has to be
            read has changed, or is gone. Nothing is changed then.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        started = time.perf_counter()
        check_labels({"labels": labels})
        with open_session(locals()) as using, self._changing(wait) as change:
            state = change.state()
            source = Gallery(self.path, change, state)
            work = Appending(state, source, gallery, labels, name, using)
            after = work.run(change)
            after = source.settled(after)
            what = "append", work.name
            return self._commit(change, state, after, what, work.forecast, started, work.queries)

    def plan(
        self,
        gallery: str | Path,
        labels: Labels,
        *,
        name: str | None = None,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
    ) -> Forecast:
        """Return what `append` would count; the parameters are its own. Nothing is changed."""
        check_labels({"labels": labels})
        with open_session(locals()) as using:
            reader = self._store.reader()
            state = reader.state()
            source = Gallery(self.path, reader, state)
            return Appending(state, source, gallery, labels, name, using).forecast

    def remove(self, name: str, *, wait: float = DEFAULT_WAIT) -> Snapshot:
        """Take a segment out of the gallery; its data are not needed for it.

        Raises
        ------
        OptionError
            If there is no segment of this name.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        started = time.perf_counter()
        with self._changing(wait) as change:
            state = change.state()
            after = without_segment(state, named(state.head, name), change)
            return self._commit(change, state, after, ("remove", name), NOTHING, started)

    def forget(
        self,
        ids: Sequence[int | str] | npt.NDArray[Any],
        *,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | None = None,
        wait: float = DEFAULT_WAIT,
    ) -> Snapshot:
        """Take all items of some identities out of the gallery; the queries stay.

        A warning names identities that are not in the gallery, where others are.

        Parameters
        ----------
        ids : sequence of int or str
        memory, threads, client, progress, wait : as of `append`

        Raises
        ------
        InputError
            If they are no integers or strings, or none of them is in the gallery; or the data of
            a segment that they are in have changed, or are gone. Nothing is changed then.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        started = time.perf_counter()
        wanted = label_column(ids, "identities to be forgotten")
        with open_session(locals()) as using, self._changing(wait) as change:
            state = change.state()
            gallery = Gallery(self.path, change, state)
            after, work = without_identities(state, wanted, gallery, change, using)
            after = gallery.settled(after)
            what = "forget", some(wanted)
            return self._commit(change, state, after, what, work, started)

    def add_queries(
        self,
        query: str | Path,
        labels: Labels,
        *,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | None = None,
        wait: float = DEFAULT_WAIT,
    ) -> Snapshot:
        """Add queries behind all others.

        Parameters
        ----------
        query : str or Path
            URI of their features [q, D]; or of their distances [q, n] from all items of all
            segments, one after the other, forgotten items too.
        labels : Labels
            Of the q queries, with the columns of those that are there.
        memory, threads, client, progress, wait : as of `append`

        Raises
        ------
        InputError
            If the queries can't be evaluated, or the data of a segment have changed, or are
            gone. Nothing is changed then.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        started = time.perf_counter()
        check_labels({"labels": labels})
        with open_session(locals()) as using, self._changing(wait) as change:
            state = change.state()
            source = Gallery(self.path, change, state)
            after, work = with_queries(state, query, labels, source, change, using)
            after = source.settled(after)
            what = "add-queries", f"{len(labels)} of {Path(str(query)).name}"
            return self._commit(change, state, after, what, work, started)

    def move(self, name: str | None, uri: str | Path, *, wait: float = DEFAULT_WAIT) -> Snapshot:
        """Say where the data of a segment, or of queries, are now: they must be the same.

        Parameters
        ----------
        name : str or None
            Of the segment; None for data of queries, which are found by their content: features,
            or the distances that they brought.
        uri : str or Path

        Raises
        ------
        OptionError
            If there is no segment of this name.
        InputError
            If the data there are others.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        started = time.perf_counter()
        found = place_of(open_matrix(uri, "array"))
        with self._changing(wait) as change:
            state = change.state()
            after = moved(state, name, found)
            what = "move", name or "queries"
            return self._commit(change, state, after, what, NOTHING, started)

    def verify(
        self,
        *,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | None = None,
    ) -> list[str]:
        """Read all there is, count all pairs again, and return what differs, a line each.

        Parameters
        ----------
        memory, threads, client, progress : as of `evaluate`

        Returns
        -------
        list of str
            Empty where all is as it was counted.
        """
        with open_session(locals()) as using:
            return list(differences(self._store, using))

    def queries(self) -> Labels:
        """Return the labels of the queries."""
        return query_labels(self._store.reader())

    @contextmanager
    def _changing(self, wait: float) -> Iterator[Change]:
        with self._store.locked(wait):
            yield Change(self._store)

    def _commit(
        self,
        change: Change,
        before: State,
        after: State,
        what: tuple[str, str],
        work: Forecast,
        started: float,
        queries: Labels | None = None,
    ) -> Snapshot:
        """Commit a change; `what` is its kind, and the name of what was changed."""
        queries = queries or query_labels(change)
        seconds = time.perf_counter() - started
        entry = entry_of(before, after, query_columns(queries), what, work, seconds)
        change.commit(after.with_entry(entry))
        return Snapshot(**entry)

    def _reader(self, at: int | str | None) -> Reader:
        if at is None:
            return self._store.reader()
        snapshots = self._store.snapshots()
        if str(at) in map(str, range(len(snapshots))):  # the newest may be damaged
            return self._store.reader(snapshots[int(at)])
        entries = self._store.reader().head().trajectory
        for entry in reversed(entries):
            if entry["change"] == "append" and entry["name"] == at:
                return self._store.reader(snapshots[entry["number"]])
        raise OptionError(
            f"{self.path} has no snapshot {at!r}; there are 0 to {len(entries) - 1}, and the "
            "names of segments"
        )


def _positive_cams(state: State, gallery: Gallery, queries: Labels) -> PositiveCameras | None:
    """Return the camera of each positive, where both sides have cameras."""
    if queries.cam is None:
        return None
    found: list[npt.NDArray[Any]] = []
    place: list[IntArray] = []
    for segment in state.head.segments:
        cam = gallery.labels(segment).cam
        own = np.flatnonzero(state.positives.segment == segment.number)
        if cam is None and segment.items:
            return None
        if cam is not None and len(own):
            found.append(cam[state.positives.index[own]])
            place.append(own)
    if not found:
        return PositiveCameras.of(np.empty(0, queries.cam.dtype))
    return PositiveCameras.of(np.concatenate(found)).take(np.argsort(np.concatenate(place)))
