"""Ledger: an evaluation on disk that follows its gallery."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streameval.choices import (
    AveragePrecision,
    SelfMatch,
    TieRule,
    Unmatched,
    VerificationPrecision,
)
from streameval.errors import OptionError, entry_points
from streameval.labels.columns import LabelsLike, labels_of
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
    """An evaluation on disk that follows a growing gallery.

    After any sequence of changes, its statistics equal those of a fresh evaluation of the same
    gallery, bit for bit.

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
        query_labels: LabelsLike,
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
        unmatched: Unmatched | None = None,
        metrics: str | Sequence[str] | None = None,
        preset: str | None = None,
        options: MetricOptions | None = None,
        keep: str | int = DEFAULT_KEEP,
        fill_missing: bool = False,
    ) -> Ledger:
        """Create a ledger with queries and an empty gallery.

        Parameters
        ----------
        path : str or Path
            New folder, or a place in an object store.
        query_labels : Labels, mapping or table
            Labels of the queries.
        query : str or Path, optional
            URI of their features [Q, D]. Without it, segments are stored distances [Q, n].
        metric : {"cosine", "euclidean", "sqeuclidean", "dot"}, optional
            Distance between features; cosine by default.
        protocol, junk_ids, self_match : as of `evaluate`
        ties, ap, vp, false_rate_budget, unmatched, metrics, preset, options : as of `evaluate`
        range : {"auto"} or (float, float), optional
            As in `evaluate`, except ``minmax``, which would change with the gallery.
        keep : str or int
            Bytes for the nearest negatives of all queries, 12 each. With more of them, fewer old
            segments are read again.
        fill_missing : bool
            As of `Features`.

        Raises
        ------
        InputError
            If labels and features don't fit, or the features can't be evaluated.
        OptionError
            If an option is unknown or not supported by ledgers, or the protocol needs missing
            labels.
        OutputError
            If the path is not empty, or can't be written.
        """
        query_labels = labels_of(query_labels, "query_labels")
        LedgerStore(path).make(first_state(locals()), query_labels)
        return cls(path)

    def __repr__(self) -> str:
        return f"Ledger({self.path!r})"

    @property
    def path(self) -> str:
        """Folder of the ledger, or its place in an object store."""
        return self._store.location

    def head(self, at: int | str | None = None) -> Head:
        """Return the settings, segments and trajectory of a snapshot, by default the latest."""
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
        """Evaluate a snapshot, by default the latest; equals a fresh evaluation.

        Parameters
        ----------
        at : int or str, optional
            Number of a snapshot, or the name of the segment that it appended.

        Raises
        ------
        OptionError
            If there is no such snapshot.
        OutputError
            If the ledger can't be read.
        """
        gallery = Gallery(self.path, self._store.contents(at))
        return result_of(
            replace(gallery.state.statistics, positive_item=gallery.positive_items),
            gallery.head.settings,
            gallery.queries,
            gallery.provenance(),
            gallery.positive_cameras(),
        )

    def append(
        self,
        gallery: str | Path,
        labels: LabelsLike,
        *,
        name: str | None = None,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | bool | None = None,
        wait: float = DEFAULT_WAIT,
        fill_missing: bool = False,
    ) -> Snapshot:
        """Append a segment to the gallery.

        Parameters
        ----------
        gallery : str or Path
            URI of its features [n, D], or of its distances [Q, n] to all queries.
        labels : Labels, mapping or table
            Labels of its n items.
        name : str, optional
            Name of the segment; by default the key of the array or the name of the file.
        memory, threads, client, progress : as of `evaluate`
        wait : float
            Seconds to wait for another process that changes the ledger.
        fill_missing : bool
            As of `Features`; the ledger keeps it with the segment.

        Returns
        -------
        Snapshot
            The ledger with the segment.

        Raises
        ------
        InputError
            If the segment is invalid or already in the ledger, or if an old segment that must be
            read has changed or is missing. The ledger is then unchanged.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        own = labels_of(labels, "labels")
        filled = {"fill_missing": fill_missing}
        return self._change(
            "append",
            locals(),
            lambda ledger: NewSegment(ledger, gallery, own, name, **filled).append(),
        )

    def plan(
        self,
        gallery: str | Path,
        labels: LabelsLike,
        *,
        name: str | None = None,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        fill_missing: bool = False,
    ) -> Forecast:
        """Return what `append` with the same parameters would count; change nothing."""
        own = labels_of(labels, "labels")
        with open_session(locals()) as session:
            ledger = Gallery(self.path, self._store.contents(), session)
            return NewSegment(ledger, gallery, own, name, fill_missing=fill_missing).forecast

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

        A warning names identities that are not in the gallery, if others are.

        Parameters
        ----------
        ids : sequence of int or str
        memory, threads, client, progress, wait : as of `append`

        Raises
        ------
        InputError
            If they are not integers or strings, or none is in the gallery; or if the data of a
            segment that contains them have changed or are missing. The ledger is then unchanged.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        wanted = label_column(ids, "identities to be forgotten")
        return self._change("forget", locals(), lambda ledger: forget_identities(ledger, wanted))

    def add_queries(
        self,
        query: str | Path,
        labels: LabelsLike,
        *,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | bool | None = None,
        wait: float = DEFAULT_WAIT,
        fill_missing: bool = False,
    ) -> Snapshot:
        """Add queries.

        Parameters
        ----------
        query : str or Path
            URI of their features [q, D], or of their distances [q, n] to all items of all
            segments in order, including forgotten items.
        labels : Labels, mapping or table
            Labels of the q queries, with the columns of the existing queries.
        memory, threads, client, progress, wait, fill_missing : as of `append`

        Raises
        ------
        InputError
            If the queries are invalid, or the data of a segment have changed or are missing. The
            ledger is then unchanged.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        own = labels_of(labels, "labels")
        return self._change(
            "add-queries",
            locals(),
            lambda ledger: add_queries(ledger, query, own, fill_missing=fill_missing),
        )

    def move(
        self,
        name: str | None,
        uri: str | Path,
        *,
        wait: float = DEFAULT_WAIT,
        fill_missing: bool = False,
    ) -> Snapshot:
        """Record the new place of moved data; the content must be unchanged.

        Other data of the ledger with the same content get the new place too.

        Parameters
        ----------
        name : str or None
            Name of the segment. None for data of queries (features or distances), which are
            identified by their content.
        uri : str or Path
        wait, fill_missing : as of `append`

        Raises
        ------
        OptionError
            If there is no segment of this name.
        InputError
            If the data there differ.
        OutputError
            If the ledger can't be written; it is as it was before.
        """
        place = place_of(open_input(uri, "array", fill_missing=fill_missing))
        return self._change("move", locals(), lambda ledger: move(ledger, name, place))

    def verify(
        self,
        *,
        memory: str | int | None = None,
        threads: int | None = None,
        client: Client | None = None,
        progress: Progress | bool | None = None,
    ) -> list[str]:
        """Read everything, count all pairs again, and return the differences.

        Parameters
        ----------
        memory, threads, client, progress : as of `evaluate`

        Returns
        -------
        list of str
            One line per difference; empty if nothing differs.
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
