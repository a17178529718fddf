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
from dataclasses import dataclass, replace
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
        "threshold" [T], "pointer" [Q + 1], "edge" [E], "bin" [E + 1], "group" [K], "rule" [3],
        "rank" [R], "near" [M].
    dtype : str
        NumPy dtype of the array.
    merge : {"same", "sum", "min", "least", "whole"}
        How the values of two gallery shards combine. "same": both shards hold equal values;
        "least": the M least of both stay, ascending; "whole": not at all, they are known of the
        whole gallery only.
    identity : int or float
        The value that leaves the other side of the merge as it is; unused for "same" and "whole".
    optional : bool
        Whether statistics may go without it: None.
    """

    axes: tuple[str, ...]
    dtype: Literal["int64", "float64"]
    merge: Literal["same", "sum", "min", "least", "whole"]
    identity: float = 0
    optional: bool = False


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
    "positive_item": Field(("positive",), "int64", "same", optional=True),
    "impostor_histogram": Field(("bin",), "int64", "sum", optional=True),
    "histogram_edges": Field(("edge",), "float64", "same", optional=True),
    "group": Field(("query",), "int64", "same", optional=True),
    "group_histogram": Field(("group", "bin"), "int64", "sum", optional=True),
    "nearest_negatives": Field(("query", "near"), "float64", "least", np.inf, optional=True),
    "single_shot": Field(("query", "rule", "rank"), "float64", "whole", optional=True),
    "sampled_shots": Field(("query", "rule", "rank"), "float64", "whole", optional=True),
}
SHOT_RULES = ("optimistic", "stable", "pessimistic")
"""Tie rules of the axis "rule": ever more of the tied negatives are ahead."""

SHOT_FIELDS = frozenset({"single_shot", "sampled_shots"})
"""Fields that hold what is drawn of each gallery identity."""

REQUIRED = frozenset(name for name, field in FIELDS.items() if not field.optional)


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
    positive_item : [P] int64, optional
        Gallery index of each positive, in the *whole* gallery.
    impostor_histogram : [E + 1] int64, optional
        Numbers of negative pairs, of all queries, by distance: those within the lowest edge,
        those above an edge and within the next, E − 1 times, and those above the highest.
    histogram_edges : [E] float64, optional
        Strictly ascending; there where the histogram is.
    group : [Q] int64, optional
        Which of K groups each query is in, where the histogram is kept by group, too.
    group_histogram : [K, E + 1] int64, optional
        As `impostor_histogram`, of the queries of each group.
    nearest_negatives : [Q, M] float64, optional
        Distances of the M nearest negatives, ascending; +inf where there are fewer. Of shards
        that are counted together, a shard may hold +inf in place of what is none of the M
        nearest of all. −inf throughout where float32 can't tell them apart.
    single_shot : [Q, 3, R] float64, optional
        Of one item drawn of each gallery identity: the probability that fewer than x = 1 .. R
        negatives are ahead of the positive, where ties are optimistic, stable, pessimistic; 0
        for a query without positives.
    sampled_shots : [Q, 3, R] float64, optional
        The same as a mean over draws.
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
    positive_item: IntArray | None = None
    impostor_histogram: IntArray | None = None
    histogram_edges: FloatArray | None = None
    group: IntArray | None = None
    group_histogram: IntArray | None = None
    nearest_negatives: FloatArray | None = None
    single_shot: FloatArray | None = None
    sampled_shots: FloatArray | None = None

    def __post_init__(self) -> None:
        """Check that every field has the dtype and the shape that it declares."""
        sizes = {
            "pointer": len(self.indptr),
            "query": len(self.indptr) - 1,
            "positive": int(self.indptr[-1]) if len(self.indptr) else 0,
            "threshold": len(self.thresholds),
            "group": 0 if self.group_histogram is None else len(self.group_histogram),
            "rule": len(SHOT_RULES),
            "rank": 0 if self.single_shot is None else self.single_shot.shape[-1],
            "near": 0 if self.nearest_negatives is None else self.nearest_negatives.shape[-1],
        }
        if (self.impostor_histogram is None) != (self.histogram_edges is None):
            raise ValueError("impostor_histogram and histogram_edges are given both or neither")
        if self.histogram_edges is not None:
            sizes |= {"edge": len(self.histogram_edges), "bin": len(self.histogram_edges) + 1}
        for name, field in FIELDS.items():
            array = getattr(self, name)
            if array is None and field.optional:
                continue
            shape = tuple(sizes[axis] for axis in field.axes)
            if array.shape != shape or array.dtype != np.dtype(field.dtype):
                raise ValueError(
                    f"RankStatistics.{name} is {array.dtype} {array.shape}; "
                    f"expected {field.dtype} {shape}"
                )

    @classmethod
    def zero(
        cls,
        indptr: IntArray,
        positive_distance: FloatArray,
        thresholds: FloatArray,
        histogram_edges: FloatArray | None = None,
        positive_item: IntArray | None = None,
    ) -> RankStatistics:
        """Return the identity of `merge`: the statistics of an empty gallery shard.

        Parameters
        ----------
        indptr : [Q + 1] int64
        positive_distance : [P] float64
        thresholds : [T] float64
        histogram_edges : [E] float64, optional
            Where there is to be a histogram of impostors.
        positive_item : [P] int64, optional
        """
        sizes = {
            "query": len(indptr) - 1,
            "positive": len(positive_distance),
            "threshold": len(thresholds),
            "bin": 0 if histogram_edges is None else len(histogram_edges) + 1,
        }
        counted: dict[str, Any] = {
            name: np.full(tuple(sizes[a] for a in field.axes), field.identity, field.dtype)
            for name, field in FIELDS.items()
            if field.merge not in ("same", "least", "whole")
            and not (field.optional and (histogram_edges is None or "group" in field.axes))
        }
        return cls(
            indptr,
            positive_distance,
            thresholds,
            histogram_edges=histogram_edges,
            positive_item=positive_item,
            **counted,
        )

    def __repr__(self) -> str:
        fields = ", ".join(name for name in FIELDS if getattr(self, name) is not None)
        positives = len(self.positive_distance)
        return f"<RankStatistics of {self.queries} queries, {positives} positives: {fields}>"

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
            If the two differ in queries, positives or thresholds, or hold what is known of a
            whole gallery only.
        """
        merged: dict[str, Any] = {}
        for name, field in FIELDS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            absent = mine is None or theirs is None
            if field.merge == "whole" and not (mine is None and theirs is None):
                raise ValueError(
                    f"{name} is of a whole gallery, and can't be merged: count the gallery as one"
                )
            if field.merge == "same" or absent:
                if mine is not theirs and (absent or not np.array_equal(mine, theirs)):
                    raise ValueError(f"statistics to be merged differ in {name}")
                merged[name] = mine
            elif field.merge == "sum":
                merged[name] = mine + theirs
            elif field.merge == "least":
                both = np.sort(np.concatenate([mine, theirs], axis=1), axis=1)
                merged[name] = both[:, : mine.shape[1]]
            else:
                merged[name] = np.minimum(mine, theirs)
        return RankStatistics(**merged)

    @staticmethod
    def stack(parts: Sequence[RankStatistics]) -> RankStatistics:
        """Put the statistics of consecutive query blocks against one gallery together.

        Raises
        ------
        ValueError
            If there are no parts, or they differ in thresholds, edges or what they hold.
        """
        if not parts:
            raise ValueError("there are no statistics to stack")
        counts = np.concatenate([part.positives for part in parts])
        stacked: dict[str, Any] = {
            "indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        }
        for name, field in FIELDS.items():
            values = [getattr(part, name) for part in parts]
            held = all(one is not None for one in values)
            if held and field.axes[0] in ("query", "positive"):
                stacked[name] = np.concatenate(values)
            elif held and field.merge == "sum":
                stacked[name] = np.sum(values, axis=0)
            elif name not in stacked:
                if not all(np.array_equal(one, values[0]) for one in values[1:]):
                    raise ValueError(f"statistics to be stacked differ in {name}")
                stacked[name] = values[0]
        return RankStatistics(**stacked)

    def take(self, queries: npt.NDArray[Any]) -> RankStatistics:
        """Return the statistics of some of the queries.

        The histogram of impostors is not kept by query: there is none in the result, but where
        it is kept by group, and whole groups are taken.

        Parameters
        ----------
        queries : [n] int64, or [Q] bool
            Their indices, or whether each is wanted.
        """
        wanted = np.arange(self.queries)[queries]
        counts = self.positives[wanted]
        start = np.repeat(self.indptr[wanted] - np.cumsum(counts) + counts, counts)
        of = {"query": wanted, "positive": start + np.arange(int(counts.sum()))}
        taken: dict[str, Any] = {
            name: getattr(self, name)[of[field.axes[0]]]
            for name, field in FIELDS.items()
            if field.axes[0] in of and name != "group" and getattr(self, name) is not None
        } | self._histogram_of(wanted)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return RankStatistics(indptr=indptr, thresholds=self.thresholds, **taken)

    def _histogram_of(self, queries: IntArray) -> dict[str, Any]:
        """Return the histogram of some of the queries and its edges; nothing where it's unknown."""
        if self.group is None or self.group_histogram is None:
            return {}
        groups = len(self.group_histogram)
        taken = np.bincount(self.group[queries], minlength=groups)
        whole = taken == np.bincount(self.group, minlength=groups)
        if not (whole | (taken == 0)).all() or len(np.unique(queries)) < len(queries):
            return {}
        histogram = self.group_histogram[taken > 0].sum(axis=0)
        return {"impostor_histogram": histogram, "histogram_edges": self.histogram_edges}

    def with_positives(self, kept: npt.NDArray[np.bool_]) -> RankStatistics:
        """Return the statistics with some of the positives, the others ignored.

        What is counted are negatives, and stays. What is drawn of all positives is not kept.

        Parameters
        ----------
        kept : [P] bool
        """
        left = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[self.indptr]
        dropped = self.positives - np.diff(left)
        of_positives: dict[str, Any] = {
            name: getattr(self, name)[kept]
            for name, field in FIELDS.items()
            if field.axes[0] == "positive" and getattr(self, name) is not None
        }
        of_positives |= {"single_shot": None, "sampled_shots": None}
        return replace(
            self,
            indptr=left,
            valid=self.valid - dropped,
            ignored=self.ignored + dropped,
            **of_positives,
        )

    def with_edges_of(self, other: RankStatistics) -> RankStatistics:
        """Return the same statistics, their histogram with the edges of another's, too.

        Parameters
        ----------
        other : RankStatistics
            Of the same pairs.

        Raises
        ------
        ValueError
            If one of them has no histogram.
        """
        if self.histogram_edges is None or other.histogram_edges is None:
            raise ValueError("the statistics hold no impostor_histogram")
        both = np.append(self.histogram_edges, other.histogram_edges)
        edges, first = np.unique(both, return_index=True)
        merged: dict[str, Any] = {"histogram_edges": edges}
        for name in ("impostor_histogram", "group_histogram"):
            one, more = getattr(self, name), getattr(other, name)
            if one is not None and more is not None:
                within = [np.cumsum(each, axis=-1)[..., :-1] for each in (one, more)]
                joined = np.concatenate(within, axis=-1)[..., first]
                merged[name] = histogram_of(joined, one.sum(axis=-1))
        return replace(self, **merged)

    def equals(self, other: RankStatistics, *, ignoring: Sequence[str] = ()) -> bool:
        """Tell whether all fields are equal, bit for bit, except those named."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in FIELDS
            if name not in ignoring
        )


def uniform_edges(low: float, high: float, bins: int) -> FloatArray:
    """Return the edges of B uniform bins between two distances, [B + 1] float64, ascending.

    Fewer where they are not B distances apart: each edge once.
    """
    edges = low + (high - low) * (np.arange(bins + 1) / bins)
    edges[-1] = high
    return np.unique(edges)


def histogram_of(within: IntArray, pairs: IntArray | int) -> IntArray:
    """Return the histogram of pairs of which so many are within each edge, [.., E + 1] int64.

    A distance d is in bin ``np.searchsorted(edges, d, side="left")``, so that the pairs within
    an edge, d <= edge, are the bins up to its own.

    Parameters
    ----------
    within : [.., E] int64
    pairs : [..] int64
        In all.
    """
    return np.diff(within, prepend=0, append=np.asarray(pairs)[..., None])


if {f.name for f in dataclass_fields(RankStatistics)} != set(FIELDS):  # a broken declaration
    raise TypeError("RankStatistics and FIELDS declare different fields")
