"""Ledger: an evaluation on disk that follows its gallery."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streameval.choices import AveragePrecision, SelfMatch, TieRule, VerificationPrecision
from streameval.errors import OptionError, entry_points
from streameval.ledger.changes import (
    NewSegment,
    add_queries,
    first_state,
    forget_identities,
    remove_segment,
)
from streameval.ledger.gallery import Gallery, move, open_input, place_of
from streameval.ledger.head import Head, Segment
from streameval.ledger.store import LedgerStore
from streameval.ledger.trajectory import Change, Forecast, Snapshot, result_of, with_snapshot
from streameval.ledger.verification import differences
from streameval.metrics.options import MetricOptions, is_number
from streameval.planning.range import Range
from streameval.protocols.labels import Labels, label_column
from streameval.protocols.protocol import Protocol
from streameval.request import check_labels
from streameval.result import Evaluation
from streameval.run.progress import Progress
from streameval.run.session import open_session
from streameval.typing import AnyArray, Keywords

if TYPE_CHECKING:
    from distributed import Client

DEFAULT_KEEP = "4MB"
DEFAULT_WAIT = 60.0  # seconds


@entry_points
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
        self._store = LedgerStore(path)
        self._store.open()

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        query_labels: Labels,
        query: str | Path | None = None,
        metric: str | None = None,
        protocol: str | Protocol | None = None,
        junk_ids: Sequence[int | str] | None = None,
        self_match: SelfMatch | None = None,
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
        given = locals()
        check_labels({"query_labels": query_labels})
        LedgerStore(path).make(first_state(given), query_labels)
        return cls(path)

    def __repr__(self) -> str:
        return f"Ledger({self.path!r})"

    @property
    def path(self) -> str:
        """Folder of the ledger, or its place in an object store."""
        return self._store.location

    def head(self, at: int | str | None = None) -> Head:
        """Return its settings, segments and trajectory, at a snapshot or now."""
        return self._store.contents(at).head()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Its segments, in the order of the gallery."""
        return self.head().segments

    @property
    def trajectory(self) -> tuple[Snapshot, ...]:
        """All its snapshots, the first one first."""
        return tuple(map(Snapshot.of, self.head().trajectory))

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
        gallery = Gallery(self.path, self._store.contents(at))
        return result_of(
            replace(gallery.state.statistics, positive_item=gallery.positive_items()),
            gallery.head.settings,
            gallery.queries,
            gallery.provenance(),
            gallery.positive_cameras(),
        )

    def append(
        self,
        gallery: str | Path,
        labels: Labels,
        *,
        name: str | None = None,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | bool | None = None,
        wait: float = DEFAULT_WAIT,
    ) -> Snapshot:
        """Append a segment to the gallery.

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
        check_labels({"labels": labels})
        return self._change(
            "append", locals(), lambda ledger: NewSegment(ledger, gallery, labels, name).append()
        )

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
        """Return what `append` would count, and change nothing; it has the same parameters."""
        check_labels({"labels": labels})
        with open_session(locals()) as session:
            ledger = Gallery(self.path, self._store.contents(), session)
            return NewSegment(ledger, gallery, labels, name).forecast

    def remove(self, name: str, *, wait: float = DEFAULT_WAIT) -> Snapshot:
        """Remove a segment from the gallery; its data are not read.

        Raises
        ------
        OptionError
            If there is no segment of this name.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        return self._change("remove", locals(), lambda ledger: remove_segment(ledger, name))

    def forget(
        self,
        ids: Sequence[int | str] | AnyArray,
        *,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | bool | None = None,
        wait: float = DEFAULT_WAIT,
    ) -> Snapshot:
        """Remove all items of some identities from the gallery; the queries stay.

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
        wanted = label_column(ids, "identities to be forgotten")
        return self._change("forget", locals(), lambda ledger: forget_identities(ledger, wanted))

    def add_queries(
        self,
        query: str | Path,
        labels: Labels,
        *,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | bool | None = None,
        wait: float = DEFAULT_WAIT,
    ) -> Snapshot:
        """Add queries.

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
        check_labels({"labels": labels})
        return self._change(
            "add-queries", locals(), lambda ledger: add_queries(ledger, query, labels)
        )

    def move(self, name: str | None, uri: str | Path, *, wait: float = DEFAULT_WAIT) -> Snapshot:
        """Set the new place of the data of a segment, or of queries; the content must be the same.

        Whatever else of the ledger has the same content gets the new place, too.

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
        place = place_of(open_input(uri, "array"))
        return self._change("move", locals(), lambda ledger: move(ledger, name, place))

    def verify(
        self,
        *,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | bool | None = None,
    ) -> list[str]:
        """Read everything, count all pairs again, and return the differences, a line each.

        Parameters
        ----------
        memory, threads, client, progress : as of `evaluate`

        Returns
        -------
        list of str
            Empty if nothing differs.
        """
        with open_session(locals()) as session:
            return differences(self._store, session)

    def queries(self) -> Labels:
        """Return the labels of the queries."""
        return self._store.contents().queries()

    def _change(self, kind: str, given: Keywords, change: Callable[[Gallery], Change]) -> Snapshot:
        """Make a change and commit it; `given` are the keywords of its method."""
        wait = given["wait"]
        if not (is_number(wait) and wait >= 0):
            raise OptionError(f"wait is {wait!r}; seconds are needed, 0 or more")
        with open_session(given) as session:
            started = time.perf_counter()
            with self._store.locked(wait):
                gallery = Gallery(self.path, self._store.change(), session)
                before = gallery.state
                after, name, work = change(gallery)
                made = gallery.settled(after), name, work
                seconds = time.perf_counter() - started
                after, snapshot = with_snapshot(before, made, kind, gallery.queries, seconds)
                gallery.contents.save(after)
        return snapshot
