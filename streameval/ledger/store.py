"""The store of a ledger: transactional, one snapshot a change.

    ledger      everything but the arrays, as JSON: see `Head`
    state       the state, written anew with each change
    record-N    what change N added, but for counts within thresholds, which are in
    within-N    never changed; both are deleted with the segment that they are of
    gallery/    labels of all items that were ever appended, in order
    queries     labels of the queries

Labels are kept as an array a column: small integers, strings as code points.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, OptionError, OutputError, check_path
from streameval.ledger.head import Head
from streameval.ledger.state import Near, Positives, State, arrays_of, statistics_from
from streameval.protocols.labels import KNOWN_COLUMNS, AnyArray, Labels
from streameval.store import Arrays, Store, View, Wording, check_packages, create_array, narrow

SNAPSHOTS = "snapshots"  # the folder of the repository
HEAD, STATE, GALLERY, QUERIES = "ledger", "state", "gallery", "queries"
RECORD, WITHIN = "record-{}", "within-{}"
LABELS = 1 << 18  # labels in a chunk: the last one is written anew
COLUMNS = ("serial", "query", "segment", "index", "closer", "tied", "before")  # of positives
WORDING = Wording(
    busy="another process changes {place}, and has not ended within {wait} s; nothing has been "
    "changed: run this again when it has, or wait longer (--wait)",
    read="the ledger {place} can't be read ({error}): if files of it are damaged, restore them "
    "from a copy; other snapshots may be whole: streameval ledger evaluate --at",
    written="the ledger {place} can't be written ({error}): the last snapshot is as it was: make "
    "room, or mend the permissions, and run it again",
)
_MORE = "more:"  # before the name of a further column


class LedgerStore(Store):
    """The store of a ledger, at a local folder, ``s3://bucket/prefix`` or ``gs://bucket/prefix``."""

    def __init__(self, location: str | Path) -> None:
        check_packages("a ledger")
        check_path(location)
        super().__init__(location, SNAPSHOTS, WORDING)

    def make(self, state: State, labels: Labels) -> None:
        """Write the first snapshot.

        Raises
        ------
        OutputError
            If there is something already, or it can't be written.
        """
        if self.local is not None and self.local.exists():
            _check_unfinished(self.local)
        with self.guard("written"), self.locked():
            if self.exists():
                super().open()
                if not self.is_empty:
                    raise OutputError(
                        f"{self.location} holds a ledger already: choose another name"
                    )
            else:
                self._check_nothing_lost()
                self.create()
            change = self.change()
            change.write_queries(labels)
            change.save(state)

    def open(self) -> None:
        """Open the repository.

        Raises
        ------
        OutputError
            If there is none, or it can't be read.
        """
        with self.guard("read"):
            if not self.exists():
                self._check_nothing_lost()
                raise OutputError(
                    f"{self.location} is no ledger; make one: "
                    f"streameval ledger create {self.location}"
                )
            super().open()
            if self.is_empty:
                raise OutputError(f"the ledger {self.location} was not made whole: create it again")

    def contents(self, at: int | str | None = None) -> Contents:
        """Return the contents of the newest snapshot, or of one by number or segment name.

        Raises
        ------
        OptionError
            If there is no such snapshot.
        """
        if at is None:
            return Contents(self, self.readable())
        snapshots = self.snapshots()
        if str(at) in map(str, range(len(snapshots))):  # the newest may be damaged
            return Contents(self, self.readable(snapshots[int(at)]))
        entries = self.contents().head().trajectory
        for entry in reversed(entries):
            if entry["change"] == "append" and entry["name"] == at:
                return Contents(self, self.readable(snapshots[entry["number"]]))
        raise OptionError(
            f"{self.location} has no snapshot {at!r}; there are 0 to {len(entries) - 1}, and the "
            "names of segments"
        )

    def change(self) -> Contents:
        """Return the contents of the ledger, to be changed."""
        return Contents(self, self.writable())

    def _check_nothing_lost(self) -> None:
        """Raise OutputError if there are snapshots without a branch, which is written first."""
        snapshots = None if self.local is None else self.local / SNAPSHOTS
        if snapshots is not None and any((snapshots / "chunks").glob("*")):
            raise OutputError(
                f"{self.local} has lost {snapshots / 'refs'}, which says what its last snapshot "
                "is: restore it from a copy, or delete the folder and make the ledger again"
            )


def _check_unfinished(folder: Path) -> None:
    """Raise OutputError if a folder holds more than a killed creation leaves."""
    if not folder.is_dir():
        raise OutputError(f"{folder} is a file; a folder to be made is expected")
    others = {entry.name for entry in folder.iterdir()} - {"lock", SNAPSHOTS}
    if others:
        raise OutputError(f"{folder} holds {min(others)}: a ledger needs a folder of its own")


class Contents(View):
    """Contents of a ledger: of a snapshot, or in a change, which `save` commits.

    Made by `LedgerStore.contents` and `LedgerStore.change`.
    """

    def head(self) -> Head:
        """Read everything but the arrays."""
        with self._store.guard("read"):
            return Head.of(self.read_text(HEAD))

    def state(self) -> State:
        """Read the state."""
        head, arrays = self.head(), self.read(STATE)
        with self._store.guard("read"):
            columns = dict(zip(COLUMNS, arrays["positives"], strict=True))
            counts = {
                "closer": columns.pop("closer"),
                "tied": columns.pop("tied"),
                "tied_before": columns.pop("before"),
            }
            positives = Positives(distance=arrays["distance"], **columns)
            return State(
                head,
                positives,
                statistics_from(arrays, head.settings, positives, **counts),
                Near(arrays["near_distance"], arrays["near_segment"], arrays["near_reach"]),
                arrays["forgotten"],
            )

    def outline(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """Read the arrays of a record, without the large one, ``within``."""
        return self.read(RECORD.format(number))

    def within(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """Read the large array of a record."""
        return self.read(WITHIN.format(number))

    def queries(self) -> Labels:
        """Read the labels of all queries."""
        return Labels.of(_columns_of(self.read(QUERIES)), "queries")

    def gallery(self) -> dict[str, AnyArray]:
        """Read the labels of all items that were ever appended, by column."""
        with self._store.guard("read"):
            group: Any = self.root[GALLERY]
            return _columns_of({name: np.asarray(array[...]) for name, array in group.arrays()})

    def write_queries(self, labels: Labels) -> None:
        """Write the labels of all queries."""
        self.write(QUERIES, label_arrays(labels))

    def write_record(self, number: int, arrays: Arrays) -> None:
        """Write the arrays of a record."""
        rest = dict(arrays)
        self.write(WITHIN.format(number), {"within": rest.pop("within")})
        self.write(RECORD.format(number), rest)

    def delete_record(self, number: int) -> None:
        """Delete the arrays of a record."""
        with self._store.guard("written"):
            for path in (RECORD, WITHIN):
                del self.root[path.format(number)]

    def append_labels(self, begin: int, size: int, labels: Arrays) -> None:
        """Write labels of further items of the gallery; a column that they lack is filled with 0.

        Raises
        ------
        InputError
            If there are strings where there were integers, or integers where there were strings.
        """
        with self._store.guard("written"):
            group = self.root.require_group(GALLERY)
            there: dict[str, Any] = dict(group.arrays())
            labels = labels if size else {}
            for name in there.keys() - labels.keys():
                there[name].resize((begin + size, *there[name].shape[1:]))
            for name, values in labels.items():
                array = there.get(name)
                if array is None:
                    array = _create_column(group, name, begin, values)
                if values.ndim != array.ndim:
                    kinds = ["integers" if n == 1 else "strings" for n in (values.ndim, array.ndim)]
                    raise InputError(
                        f"labels {name!r} are {kinds[0]}, those of the gallery {kinds[1]}: give "
                        "both as the same"
                    )
                if values.dtype.itemsize > array.dtype.itemsize:  # the first that need as much
                    known = np.asarray(array[...]).astype(values.dtype)
                    array = _create_column(group, name, begin, known)
                    array[...] = known
                width = tuple(map(max, array.shape[1:], values.shape[1:]))
                array.resize((begin + size, *width))
                array[(slice(begin, None), *map(slice, values.shape[1:]))] = values

    def save(self, state: State) -> None:
        """Write the state, and commit all.

        Raises
        ------
        OutputError
            If it can't be written, or another process has committed in the meantime.
        """
        statistics, positives, near = state.statistics, state.positives, state.near
        counts = {
            "closer": statistics.closer,
            "tied": statistics.tied,
            "before": statistics.tied_before,
        }
        columns = [counts[name] if name in counts else getattr(positives, name) for name in COLUMNS]
        self.write_text(HEAD, state.head.as_lines())
        self.write(
            STATE,
            {
                "positives": np.stack(columns),
                "distance": positives.distance,
                **arrays_of(statistics),
                "near_distance": near.distance,
                "near_segment": near.segment,
                "near_reach": near.reach,
                "forgotten": state.forgotten,
            },
        )
        entry = state.head.last
        self.commit(f"{entry['number']} {entry['change']}")


def _create_column(group: Any, name: str, items: int, like: npt.NDArray[Any]) -> Any:
    width = like.shape[1:]
    chunks = (max(LABELS // max(width, default=1), 1), *width)
    return create_array(group, name, (items, *width), like.dtype, chunks)


def label_arrays(labels: Labels) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of labels as arrays of numbers."""
    return {
        name if name in KNOWN_COLUMNS else _MORE + quote(name, safe=""): _numbers(values)
        for name, values in labels.columns.items()
    }


def _columns_of(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, AnyArray]:
    """Return the columns that have been written as arrays of numbers."""
    return {unquote(name.removeprefix(_MORE)): _texts(values) for name, values in arrays.items()}


def _numbers(values: AnyArray) -> npt.NDArray[Any]:
    if values.dtype.kind != "U":
        return narrow(values)
    width = values.dtype.itemsize // 4
    texts = np.ascontiguousarray(values, f"<U{width}")
    points: npt.NDArray[Any] = texts.view("<u4")
    return points.reshape(len(values), width)


def _texts(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if values.ndim == 1:
        return values.astype(np.int64)
    texts: npt.NDArray[Any] = np.ascontiguousarray(values).view(f"<U{values.shape[1]}")
    return texts.reshape(len(values))
