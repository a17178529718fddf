"""The store of a ledger: transactional, one snapshot a change.

    ledger      everything but the arrays, as JSON: see `Head`
    state       the state, written anew with each change
    record-N    what change N added, by segment, but for counts within thresholds, which are in
    within-N    never changed; both are deleted with the segment that they are of: see `Record`
    gallery/    labels of all items that were ever appended, in order
    queries     labels of the queries

Labels are kept as an array a column: small integers, strings as code points. The digest of a column
is a sum over its rows: more are added to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from streameval.arrays import digest
from streameval.arrays.witness import MODULUS
from streameval.errors import InputError, OptionError, OutputError, check_path
from streameval.ledger.head import UNDIGESTED, Head, Record
from streameval.ledger.state import (
    Near,
    Positives,
    State,
    arrays_of,
    cells_of,
    join_cells,
    no_statistics,
    statistics_from,
)
from streameval.protocols.labels import KNOWN_COLUMNS, Labels
from streameval.statistics import RankStatistics
from streameval.store import Store, View, create_array, narrow
from streameval.typing import AnyArray, FloatArray, IntArray

HEAD, STATE, GALLERY, QUERIES = "ledger", "state", "gallery", "queries"
RECORD, WITHIN = "record-{}", "within-{}"
LABELS = 1 << 18  # labels in a chunk: the last one is written anew
_COLUMN = GALLERY + "/{}"
_MORE = "more:"  # before the name of a further column


class LedgerStore(Store):
    """The store of a ledger, at a local folder, ``s3://bucket/prefix`` or ``gs://bucket/prefix``."""

    inside = "snapshots"
    busy = (
        "another process changes {place}, and has not ended within {wait} s; nothing has been "
        "changed: run this again when it has, or wait longer (--wait)"
    )
    read = (
        "the ledger {place} can't be read ({error}): if files of it are damaged, restore them "
        "from a copy; other snapshots may be whole: streameval ledger evaluate --at"
    )
    written = (
        "the ledger {place} can't be written ({error}): the last snapshot is as it was; mend that, "
        "and run it again"
    )

    def __init__(self, location: str | Path) -> None:
        check_path(location)
        super().__init__(location)

    def make(self, state: State, labels: Labels) -> None:
        """Write the first snapshot."""
        if self.local is not None and self.local.exists():
            if not self.local.is_dir():
                raise OutputError(f"{self.local} is a file; a folder to be made is expected")
            # What a killed creation leaves is removed.
            others = {entry.name for entry in self.local.iterdir()} - {"lock", self.inside}
            if others:
                raise OutputError(
                    f"{self.local} holds {min(others)}: a ledger needs a folder of its own"
                )
        with self.guard("written"), self.locked():
            if not self.exists():
                self.create()
            else:
                super().open()
                if not self.is_empty:
                    raise OutputError(
                        f"{self.location} holds a ledger already: choose another name"
                    )
            change = self.change()
            change.write_queries(labels)
            change.save(state)

    def open(self) -> None:
        """Open the repository; raise OutputError if there is none, or it can't be read."""
        with self.guard("read"):
            if not self.exists():
                raise OutputError(
                    f"{self.location} is no ledger; make one: "
                    f"streameval ledger create {self.location}"
                )
            super().open()
            if self.is_empty:
                raise OutputError(f"the ledger {self.location} was not made whole: create it again")

    def exists(self) -> bool:
        """Whether there is a repository; raise OutputError if it has lost its branch."""
        if super().exists():
            return True
        # The branch is written before any chunk.
        snapshots = None if self.local is None else self.local / self.inside
        if snapshots is not None and any((snapshots / "chunks").glob("*")):
            raise OutputError(
                f"{self.local} has lost {snapshots / 'refs'}, which says what its last snapshot "
                "is: restore it from a copy, or delete the folder and make the ledger again"
            )
        return False

    def contents(self, at: int | str | None = None) -> Contents:
        """Return the contents of the newest snapshot, or of one by number or segment name."""
        if at is None:
            return Contents(self, self.readable())
        snapshots = self.snapshots()
        known: dict[int | str, int] = {number: number for number in range(len(snapshots))}
        known |= {str(number): number for number in range(len(snapshots))}
        if at not in known:  # the newest may be damaged
            for entry in self.contents().head().trajectory:
                if entry["change"] == "append":
                    known[entry["name"]] = entry["number"]
        if at not in known:
            raise OptionError(
                f"{self.location} has no snapshot {at!r}; there are 0 to {len(snapshots) - 1}, and "
                "the names of segments"
            )
        contents = Contents(self, self.readable(snapshots[known[at]]))
        number = contents.head().last["number"]
        if number != known[at]:
            raise self.refusal(
                "read", f"a file is damaged: in place of snapshot {known[at]} is {number}"
            )
        return contents

    def change(self) -> Contents:
        """Return the contents of the ledger, to be changed."""
        contents = Contents(self, self.writable())
        if not contents.digested:  # of an earlier version, or new
            contents.take_digests()
        return contents


class Contents(View):
    """Contents of a ledger: of a snapshot, or in a change, which `save` commits.

    Made by `LedgerStore.contents` and `LedgerStore.change`.
    """

    def head(self) -> Head:
        """Read everything but the arrays."""
        with self._store.guard("read"):
            head, written_in = Head.of(self.read_bytes(HEAD).tobytes())
            if not self.digested and written_in != UNDIGESTED:
                raise self._store.refusal("read", "a file is damaged: there are no digests")
            return head

    def state(self) -> State:
        """Read the state."""
        head, arrays = self.head(), self.read(STATE)
        with self._store.guard("read"):
            serial, query, segment, index, *counts = arrays["positives"]
            positives = Positives(serial, query, segment, index, arrays["distance"])
            statistics = statistics_from(arrays, head.settings, positives, counts)
            near = Near(*(arrays[f"near_{name}"] for name in ("distance", "segment", "reach")))
            return State(head, positives, statistics, near, arrays["forgotten"])

    def queries(self) -> Labels:
        """Read the labels of all queries."""
        return Labels.of(_columns_of(self.read(QUERIES)), "queries")

    def gallery(self) -> dict[str, AnyArray]:
        """Read the labels of all items that were ever appended, by column."""
        with self._store.guard("read"):
            group: Any = self.root[GALLERY]
            begin = _COLUMN.format("")
            own = [path.removeprefix(begin) for path in self.digests if path.startswith(begin)]
            names = own if self.digested else group.array_keys()
            columns = {name: np.asarray(group[name][...]) for name in names}
            for name, values in columns.items():
                self.check(_COLUMN.format(name), _digest_of(values))
            return _columns_of(columns)

    def known(self) -> dict[str, str]:
        """Return the digests of each array, or group of arrays; of none, an empty text."""
        found: dict[str, str] = {}
        with self._store.guard("read"):
            for path in self.digests if self.digested else self.root:
                name = path.partition("/")[0]
                found[name] = f"{found.get(name, '')} {self.digests.get(path, '')}".strip()
        return found

    def take_digests(self) -> None:
        """Read everything that was written without digests, and take them."""
        with self._store.guard("read"):
            for path in self.root.array_keys():
                self.read_bytes(path)
            if GALLERY in self.root:
                self.gallery()

    def write_queries(self, labels: Labels) -> None:
        """Write the labels of all queries."""
        self.write(QUERIES, _label_arrays(labels))

    def append_labels(self, begin: int, labels: Labels) -> None:
        """Write labels of further items of the gallery, 0 in a column that they lack."""
        with self._store.guard("written"):
            group = self.root.require_group(GALLERY)
            columns: dict[str, Any] = dict(group.arrays())
            more = _label_arrays(labels) if len(labels) else {}
            for name, array in columns.items():
                more.setdefault(name, np.zeros((len(labels), *array.shape[1:]), array.dtype))
            for name, values in more.items():
                known = columns.get(name, values[:0])
                check_kinds(f"labels {name!r}", values, "those of the gallery", known)
                if name not in columns or values.dtype.itemsize > known.dtype.itemsize:
                    width = known.shape[1:]
                    wide = np.zeros((begin, *width), values.dtype)
                    wide[: known.shape[0]] = known[...]
                    chunks = (max(LABELS // max(width, default=1), 1), *width)
                    columns[name] = create_array(group, name, wide.shape, wide.dtype, chunks)
                    columns[name][...] = wide
                array = columns[name]
                width = tuple(map(max, array.shape[1:], values.shape[1:]))
                array.resize((begin + len(labels), *width))
                array[(slice(begin, None), *map(slice, values.shape[1:]))] = values
                path = _COLUMN.format(name)
                self.digests[path] = _digest_of(values, begin, self.digests.get(path, ":0"))

    def write_record(
        self,
        head: Head,
        positives: Positives,
        added: Mapping[int, RankStatistics],
        start: int = 0,
        cells: Sequence[IntArray] = (),
    ) -> Head:
        """Write what a change adds; return the head with its record.

        Parameters
        ----------
        head : Head
        positives : Positives
        added : mapping of int to RankStatistics
            By number of a segment, what is added to it for these positives and for the queries
            from `start` to the last.
        start : int
        cells : sequence of [4, c] int64
            Further cells.
        """
        record = Record(len(head.happened), tuple(added), start, head.queries)
        rows = [arrays_of(share) for share in added.values()]
        arrays = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        every = [cells_of(positives.serial, n, s.closer, s.tied) for n, s in added.items()]
        self.write(WITHIN.format(record.number), {"within": arrays.pop("within")})
        self.write(RECORD.format(record.number), {"cells": join_cells([*every, *cells]), **arrays})
        return replace(head, records=(*head.records, record))

    def delete_record(self, number: int) -> None:
        """Delete the arrays of a record."""
        for path in (RECORD, WITHIN):
            self.delete(path.format(number))

    def shares(
        self, head: Head, positives: Positives, numbers: Collection[int] = ()
    ) -> tuple[dict[int, FloatArray], dict[int, RankStatistics]]:
        """Return the nearest negative of each query [Q] by segment, and what some have added.

        What the segments of some numbers have added is told for the positives that are given.
        """
        queries, settings = head.queries, head.settings
        nearest = {segment.number: np.full(queries, np.inf) for segment in head.segments}
        sums = {
            number: arrays_of(no_statistics(queries, positives, settings))
            | {"nearest": nearest[number]}
            for number in numbers
        }
        cells: list[IntArray] = []
        for record in head.records:
            arrays = self.read(RECORD.format(record.number))
            if not sums.keys().isdisjoint(record.segments):
                arrays |= self.read(WITHIN.format(record.number))
            cells.append(arrays["cells"][:, np.isin(arrays["cells"][1], list(sums))])
            chosen = slice(record.start, record.stop)
            for row, number in enumerate(record.segments):
                if number in sums:
                    for name in ("per_query", "within"):
                        sums[number][name][chosen] += arrays[name][row]
                    sums[number]["histogram"] += arrays["histogram"][row]
                if number in nearest:
                    newer = arrays["nearest"][row]
                    np.copyto(nearest[number][chosen], newer, where=~np.isnan(newer))
        shares, every = {}, join_cells(cells)
        for number in numbers:
            closer, tied = positives.sum_cells(every[:, every[1] == number])
            counts = closer, tied, np.where(positives.segment > number, tied, 0)
            shares[number] = statistics_from(sums[number], settings, positives, counts)
        return nearest, shares

    def save(self, state: State) -> None:
        """Write the state, and commit all."""
        statistics = state.statistics
        *columns, distance = vars(state.positives).values()
        columns += [statistics.closer, statistics.tied, statistics.tied_before]
        self.write_bytes(HEAD, state.head.as_lines())
        self.write(
            STATE,
            {
                "positives": np.stack(columns),
                "distance": distance,
                **arrays_of(statistics),
                **{f"near_{name}": values for name, values in vars(state.near).items()},
                "forgotten": state.forgotten,
            },
        )
        entry = state.head.last
        self.commit(f"{entry['number']} {entry['change']}")


def check_kinds(what: str, values: Any, others: str, known: Any) -> None:
    """Raise InputError if labels are integers, and others strings, or their code points."""
    kinds = [
        "strings" if side.dtype.kind == "U" or side.ndim > 1 else "integers"
        for side in (values, known)
    ]
    if kinds[0] != kinds[1]:
        raise InputError(f"{what} are {kinds[0]}, {others} {kinds[1]}: give both as the same")


def _digest_of(values: AnyArray, begin: int = 0, known: str = ":0") -> str:
    """Return the digest of a column whose rows are known up to one, and given from there on."""
    found = int(known.partition(":")[2], 16)
    if len(values):
        # Of one type: columns are widened.
        table = values if values.ndim > 1 else values.astype(np.int64)
        rows = np.arange(begin, begin + len(values))
        found = (found + digest.total(digest.of_rows(table), rows)) % MODULUS
    return f"{begin + len(values)}:{found:x}"


def _label_arrays(labels: Labels) -> dict[str, AnyArray]:
    """Return the columns of labels as arrays of numbers."""
    return {
        name if name in KNOWN_COLUMNS else _MORE + quote(name, safe=""): _numbers(values)
        for name, values in labels.columns.items()
    }


def _columns_of(arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the columns that have been written as arrays of numbers."""
    return {unquote(name.removeprefix(_MORE)): _texts(values) for name, values in arrays.items()}


def _numbers(values: AnyArray) -> AnyArray:
    if values.dtype.kind != "U":
        return narrow(values)
    width = values.dtype.itemsize // 4
    return np.ascontiguousarray(values, f"<U{width}").view("<u4").reshape(len(values), width)


def _texts(values: AnyArray) -> AnyArray:
    if values.ndim == 1:
        return values.astype(np.int64)
    texts: AnyArray = np.ascontiguousarray(values).view(f"<U{values.shape[1]}")
    return texts.reshape(len(values))
