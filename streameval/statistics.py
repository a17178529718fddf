"""RankStatistics: the per-query sufficient statistics that every metric is a function of.

Nothing here sorts a gallery. For each positive of a query the statistics say how many
negatives are closer and how many are exactly as far; for each threshold, how many negatives
are within it. These are integers: they add across gallery shards and stack across queries,
so the same statistics come out however the work was cut.

Each field declares its shape, dtype and merge rule (`FIELDS`); merging, stacking, saving and
the identity of the merge are read from the declaration. A new statistic is one more entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Field:
    """How one field of `RankStatistics` is laid out, and merged over gallery shards.

    Attributes
    ----------
    axes : tuple of str
        Its axes: "query" [Q], "positive" [P] (all positives, query by query),
        "threshold" [T], "pointer" [Q + 1].
    dtype : str
        NumPy dtype of the array.
    merge : {"same", "sum", "min"}
        How the values of two gallery shards combine. "same": both shards hold equal values.
    identity : int or float
        The value that leaves the other side of the merge as it is; unused for "same".
    """

    axes: tuple[str, ...]
    dtype: Literal["int64", "float64"]
    merge: Literal["same", "sum", "min"]
    identity: float = 0


FIELDS: Mapping[str, Field] = {
    "indptr": Field(("pointer",), "int64", "same"),
    "positive_distance": Field(("positive",), "float64", "same"),
    "thresholds": Field(("threshold",), "float64", "same"),
    "closer": Field(("positive",), "int64", "sum"),
    "tied": Field(("positive",), "int64", "sum"),
    "tied_before": Field(("positive",), "int64", "sum"),
    "negatives_within": Field(("query", "threshold"), "int64", "sum"),
    "nearest_negative": Field(("query",), "float64", "min", np.inf),
    "valid": Field(("query",), "int64", "sum"),
    "ignored": Field(("query",), "int64", "sum"),
    "same_identity": Field(("query",), "int64", "sum"),
}


@dataclass(frozen=True, eq=False)
class RankStatistics:
    """Sufficient statistics of Q queries against a gallery, or a shard of it.

    P is the number of positive pairs in all, T the number of thresholds. The positives of
    query i are the entries ``indptr[i]:indptr[i + 1]`` of the [P] arrays, ascending in
    distance, equal distances in gallery order.

    Attributes
    ----------
    indptr : [Q + 1] int64
        Where each query's positives begin.
    positive_distance : [P] float64
        Canonical distances of the positives of the *whole* gallery.
    thresholds : [T] float64
        Ascending distances: a pair with distance d is within threshold t where
        ``d <= thresholds[t]``.
    closer, tied, tied_before : [P] int64
        Negatives closer than the positive; exactly as far; and, of the latter, those with a
        lower gallery index.
    negatives_within : [Q, T] int64
        Negatives within each threshold.
    nearest_negative : [Q] float64
        Distance of the nearest negative, +inf where there is none.
    valid, ignored : [Q] int64
        Gallery items that take part for the query, and that don't.
    same_identity : [Q] int64
        Gallery items with the query's identity, ignored or not.
    """

    indptr: IntArray
    positive_distance: FloatArray
    thresholds: FloatArray
    closer: IntArray
    tied: IntArray
    tied_before: IntArray
    negatives_within: IntArray
    nearest_negative: FloatArray
    valid: IntArray
    ignored: IntArray
    same_identity: IntArray

    def __post_init__(self) -> None:
        """Check that every field has the dtype and the shape that it declares."""
        sizes = {
            "pointer": len(self.indptr),
            "query": len(self.indptr) - 1,
            "positive": int(self.indptr[-1]) if len(self.indptr) else 0,
            "threshold": len(self.thresholds),
        }
        for name, field in FIELDS.items():
            array = getattr(self, name)
            shape = tuple(sizes[axis] for axis in field.axes)
            if array.shape != shape or array.dtype != np.dtype(field.dtype):
                raise ValueError(
                    f"RankStatistics.{name} is {array.dtype} {array.shape}; "
                    f"expected {field.dtype} {shape}"
                )

    @classmethod
    def zero(
        cls, indptr: IntArray, positive_distance: FloatArray, thresholds: FloatArray
    ) -> RankStatistics:
        """Return the identity of `merge`: the statistics of an empty gallery shard.

        Parameters
        ----------
        indptr : [Q + 1] int64
        positive_distance : [P] float64
        thresholds : [T] float64
        """
        sizes = {
            "query": len(indptr) - 1,
            "positive": len(positive_distance),
            "threshold": len(thresholds),
        }
        counted = {
            name: np.full(tuple(sizes[a] for a in field.axes), field.identity, field.dtype)
            for name, field in FIELDS.items()
            if field.merge != "same"
        }
        return cls(indptr, positive_distance, thresholds, **counted)

    @property
    def queries(self) -> int:
        """Number of queries Q."""
        return len(self.indptr) - 1

    @property
    def positives(self) -> IntArray:
        """Number of positives G_i of each query, [Q] int64."""
        return np.diff(self.indptr)

    @property
    def negatives(self) -> IntArray:
        """Number of negatives of each query, [Q] int64 (of the shard, once merged of all)."""
        return self.valid - self.positives

    @property
    def has_positive(self) -> npt.NDArray[np.bool_]:
        """[Q] bool: Q+, the queries with at least one positive."""
        return self.positives > 0

    @property
    def identity_absent(self) -> npt.NDArray[np.bool_]:
        """[Q] bool: Q−, the queries whose identity does not occur in the gallery at all."""
        absent: npt.NDArray[np.bool_] = self.same_identity == 0
        return absent

    @property
    def excluded(self) -> npt.NDArray[np.bool_]:
        """[Q] bool: the identity occurs, but every occurrence is ignored."""
        return ~self.has_positive & ~self.identity_absent

    def merge(self, other: RankStatistics) -> RankStatistics:
        """Combine with the statistics of the same queries against another gallery shard.

        Associative and commutative; `zero` is its identity.

        Raises
        ------
        ValueError
            If the two differ in queries, positives or thresholds.
        """
        merged: dict[str, Any] = {}
        for name, field in FIELDS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if field.merge == "same":
                if not np.array_equal(mine, theirs):
                    raise ValueError(f"statistics to be merged differ in {name}")
                merged[name] = mine
            elif field.merge == "sum":
                merged[name] = mine + theirs
            else:
                merged[name] = np.minimum(mine, theirs)
        return RankStatistics(**merged)

    @staticmethod
    def stack(parts: Sequence[RankStatistics]) -> RankStatistics:
        """Put the statistics of consecutive query blocks against one gallery together.

        Raises
        ------
        ValueError
            If there are no parts, or they differ in thresholds.
        """
        if not parts:
            raise ValueError("there are no statistics to stack")
        stacked: dict[str, Any] = {"thresholds": parts[0].thresholds}
        for part in parts[1:]:
            if not np.array_equal(part.thresholds, stacked["thresholds"]):
                raise ValueError("statistics to be stacked differ in thresholds")
        counts = np.concatenate([part.positives for part in parts])
        stacked["indptr"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        for name in FIELDS:
            if name not in stacked:
                stacked[name] = np.concatenate([getattr(part, name) for part in parts])
        return RankStatistics(**stacked)

    def equals(self, other: RankStatistics, *, ignoring: Sequence[str] = ()) -> bool:
        """Tell whether all fields are equal, bit for bit, except those named."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in FIELDS
            if name not in ignoring
        )


if {f.name for f in dataclass_fields(RankStatistics)} != set(FIELDS):  # a broken declaration
    raise TypeError("RankStatistics and FIELDS declare different fields")
