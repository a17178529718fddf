"""RankStatistics: the per-query sufficient statistics that every metric is a function of.

Nothing here sorts a gallery. Most fields are counts, integers that add across gallery shards and
stack across queries, so the same statistics come out however the work was cut. Each field declares
its shape, its dtype, and how it merges and subtracts (`FIELDS`); a new statistic is one more entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

import numpy as np

from streameval.stretches import entries_of, histogram_of, left_of
from streameval.typing import AnyArray, BoolArray, FloatArray, IntArray, Span

SHOT_RULES = ("optimistic", "stable", "pessimistic")
"""Tie rules of the axis "rule": ever more of the tied negatives are ahead."""


@dataclass(frozen=True)
class Field:
    """Layout of a field of `RankStatistics`, and how it combines over gallery shards.

    Attributes
    ----------
    axes : tuple of str
        "query" [Q], "positive" [P] (all positives, query by query), "threshold" [T],
        "pointer" [Q + 1], "edge" [E], "bin" [E + 1], "group" [K], "rule" [3], "rank" [R],
        "near" [M].
    dtype : str
        NumPy dtype of the array.
    merge : {"same", "sum", "min", "least", "whole"}
        How the values of two shards combine, and how one is taken out again (subtracted).
        "same": both hold equal values. "sum": subtracted as the difference. "min", and "least",
        the M least of both, ascending: what is left can't be told from both values, and is given.
        "whole": neither, the whole gallery is needed.
    """

    axes: tuple[str, ...]
    dtype: str
    merge: str = "same"


_Total = Field(("query",), "int64", "sum")
_Ahead = Field(("positive",), "int64", "sum")
_Nearest = Field(("query", "near"), "float64", "least")
_Drawn = Field(("query", "rule", "rank"), "float64", "whole")


@dataclass(frozen=True, eq=False)
class RankStatistics:
    """Sufficient statistics of Q queries against a gallery, or a shard of it.

    P is the total number of positive pairs, T the number of thresholds. The positives of
    query i are the entries ``indptr[i]:indptr[i + 1]`` of the [P] arrays, ascending in
    distance, equal distances in gallery order.

    Attributes
    ----------
    indptr : [Q + 1] int64
        Start of each query's positives.
    positive_distance : [P] float64
        Canonical distances of the positives of the *whole* gallery.
    thresholds : [T] float64
        Ascending distances: a pair with distance d is within threshold t if
        ``d <= thresholds[t]``.
    closer, tied, tied_before : [P] int64
        Numbers of negatives closer than the positive, at the same distance, and at the same
        distance with a lower gallery index.
    negatives_within : [Q, T] int64
        Numbers of negatives within each threshold.
    nearest_negative : [Q] float64
        Distance of the nearest negative, +inf if there is none.
    valid, ignored, same_identity : [Q] int64
        Numbers of gallery items that take part for the query, that are ignored, and that have its
        identity, ignored or not.
    positive_item : [P] int64, optional
        Gallery index of each positive, in the *whole* gallery.
    impostor_histogram : [E + 1] int64, optional
        Numbers of negative pairs, of all queries, by distance: those within the lowest edge, above
        an edge and within the next, E − 1 times, and above the highest.
    histogram_edges : [E] float64, optional
        Edges of the histogram, strictly ascending.
    group : [Q] int64, optional
        Group of each query, out of K, if the histogram is also counted by group.
    group_histogram : [K, E + 1] int64, optional
        As `impostor_histogram`, for the queries of each group.
    nearest_negatives : [Q, M] float64, optional
        Distances of the M nearest negatives, ascending; +inf of fewer. Of shards that are counted
        together, one may hold +inf for what is none of the M nearest of all. −inf throughout where
        float32 can't tell them apart.
    single_shot : [Q, 3, R] float64, optional
        Of an item of each gallery identity, or over all draws: P[first positive is within the ranks
        1 .. R] where ties are optimistic, stable, pessimistic; 0 for a query without positives.
    sampled_shots : [Q, 3, R] float64, optional
        The same as a mean over draws.
    drawn_inverse : [Q, 3] float64, optional
        E[1/r] over all draws, r the rank of the drawn positive; −1 where several may be drawn.
    identities_ahead : [Q, 3] int64, optional
        Identities with a negative ahead of the first positive, by tie rule; 0 without positives.
    asking : [Q] float64, optional
        Over all draws, how likely each query is not drawn, and asks; by default 1.
    mean_group : [Q] int64, optional
        Group of each query, where means over queries are means over groups.
    """

    indptr: Annotated[IntArray, Field(("pointer",), "int64")]
    positive_distance: Annotated[FloatArray, Field(("positive",), "float64")]
    thresholds: Annotated[FloatArray, Field(("threshold",), "float64")]
    closer: Annotated[IntArray, _Ahead]
    tied: Annotated[IntArray, _Ahead]
    tied_before: Annotated[IntArray, _Ahead]
    negatives_within: Annotated[IntArray, Field(("query", "threshold"), "int64", "sum")]
    nearest_negative: Annotated[FloatArray, Field(("query",), "float64", "min")]
    valid: Annotated[IntArray, _Total]
    ignored: Annotated[IntArray, _Total]
    same_identity: Annotated[IntArray, _Total]
    positive_item: Annotated[IntArray | None, Field(("positive",), "int64")] = None
    impostor_histogram: Annotated[IntArray | None, Field(("bin",), "int64", "sum")] = None
    histogram_edges: Annotated[FloatArray | None, Field(("edge",), "float64")] = None
    group: Annotated[IntArray | None, Field(("query",), "int64")] = None
    group_histogram: Annotated[IntArray | None, Field(("group", "bin"), "int64", "sum")] = None
    nearest_negatives: Annotated[FloatArray | None, _Nearest] = None
    single_shot: Annotated[FloatArray | None, _Drawn] = None
    sampled_shots: Annotated[FloatArray | None, _Drawn] = None
    drawn_inverse: Annotated[FloatArray | None, Field(("query", "rule"), "float64", "whole")] = None
    identities_ahead: Annotated[IntArray | None, Field(("query", "rule"), "int64", "whole")] = None
    asking: Annotated[FloatArray | None, Field(("query",), "float64")] = None
    mean_group: Annotated[IntArray | None, Field(("query",), "int64")] = None

    def __post_init__(self) -> None:
        """Check that every field has the dtype and the shape that it declares."""
        indptr, edges = self.indptr, self.histogram_edges
        if len(indptr) and (indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any()):
            raise ValueError("RankStatistics.indptr does not ascend from 0")
        positives = int(indptr[-1]) if len(indptr) else 0
        sizes = {"query": self.queries, "positive": positives, "rule": len(SHOT_RULES)}
        if (self.impostor_histogram is None) != (edges is None):
            raise ValueError("impostor_histogram and histogram_edges are given both or neither")
        if edges is not None:
            sizes["bin"] = len(edges) + 1
        for name, layout in FIELDS.items():
            array = getattr(self, name)
            if array is None and name not in REQUIRED:
                continue
            own = zip(layout.axes, (*array.shape, 0, 0), strict=False)
            shape = tuple(sizes.setdefault(axis, size) for axis, size in own)
            if array.shape != shape or array.dtype != np.dtype(layout.dtype):
                raise ValueError(
                    f"RankStatistics.{name} is {array.dtype} {array.shape}; "
                    f"expected {layout.dtype} {shape}"
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
        """Return the identity of `merge`: an empty gallery shard, with a histogram by edges."""
        sizes = {"query": len(indptr) - 1, "positive": len(positive_distance)}
        sizes["threshold"] = len(thresholds)
        if histogram_edges is not None:
            sizes["bin"] = len(histogram_edges) + 1
        identity = {"sum": 0, "min": np.inf}
        counted: dict[str, Any] = {
            name: np.full(
                [sizes[axis] for axis in layout.axes], identity[layout.merge], layout.dtype
            )
            for name, layout in FIELDS.items()
            if layout.merge in identity and sizes.keys() >= set(layout.axes)
        }
        same: dict[str, Any] = {"histogram_edges": histogram_edges, "positive_item": positive_item}
        return cls(indptr, positive_distance, thresholds, **counted, **same)

    def __repr__(self) -> str:
        held = ", ".join(self.held)
        return f"<RankStatistics of {self.queries} queries, {self.indptr[-1]} positives: {held}>"

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fields that are not None, by name."""
        return {name: getattr(self, name) for name in self.held}

    @property
    def held(self) -> Sequence[str]:
        """Names of the fields that are not None."""
        return [name for name in FIELDS if vars(self).get(name) is not None]

    @property
    def spans(self) -> Sequence[Span]:
        """Blocks of queries that are best read one after the other: (first, last + 1) of each."""
        return [(0, self.queries)]

    def block(self, start: int, stop: int) -> RankStatistics:
        """Return the statistics of consecutive queries, without copies.

        Histograms, whose pairs are of no query, are in the block of all queries alone.
        """
        if (start, stop) == (0, self.queries):
            return self
        begin, end = self.indptr[[start, stop]].tolist()
        spans = {"query": (start, stop), "positive": (begin, end)}
        rows: dict[str, Any] = {
            name: self.stretch(name, *spans[FIELDS[name].axes[0]])
            for name in self.held
            if name in ROW_FIELDS
        }
        indptr = self.indptr[start : stop + 1] - begin
        return RankStatistics(indptr=indptr, thresholds=self.thresholds, **(rows | {"group": None}))

    def stretch(self, name: str, start: int, stop: int) -> AnyArray:
        """Return consecutive rows of a field of queries or positives, without a copy."""
        rows: AnyArray = getattr(self, name)[start:stop]
        return rows

    def blocks(self) -> Iterator[RankStatistics]:
        """Return the statistics of each of the `spans`."""
        return (self.block(*span) for span in self.spans)

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
    def has_positive(self) -> BoolArray:
        """[Q] bool: Q+, the queries with at least one positive."""
        return self.positives > 0

    @property
    def identity_absent(self) -> BoolArray:
        """[Q] bool: Q−, the queries whose identity does not occur in the gallery at all."""
        return ~self.same_identity.astype(np.bool_)

    @property
    def excluded(self) -> BoolArray:
        """[Q] bool: the identity occurs, but every occurrence is ignored."""
        return ~self.has_positive & ~self.identity_absent

    def merge(self, other: RankStatistics) -> RankStatistics:
        """Add the statistics of the same queries against another gallery shard.

        Associative and commutative; `zero` is its identity. Raises ValueError if the two differ in
        queries, positives or thresholds, or contain fields that only a whole gallery has.
        """
        return self._combine(other, {"sum": np.add, "min": np.minimum, "least": _least}, {})

    def minus(self, other: RankStatistics, recounted: Mapping[str, FloatArray]) -> RankStatistics:
        """Subtract the statistics of a gallery shard: the inverse of `merge`.

        Raises ValueError as it does, and if a field that can't be subtracted is not given.

        Parameters
        ----------
        other : RankStatistics
            Of the same queries and positives against the shard.
        recounted : mapping of str to array
            The remaining values of fields that can't be subtracted.
        """
        return self._combine(other, {"sum": np.subtract}, recounted)

    def _combine(
        self,
        other: RankStatistics,
        rules: Mapping[str, Callable[..., Any]],
        given: Mapping[str, FloatArray],
    ) -> RankStatistics:
        """Combine each field by its rule; or take it from what is given, where it has none."""
        combined: dict[str, Any] = {}
        for name, layout in FIELDS.items():
            mine, theirs, rule = getattr(self, name), getattr(other, name), layout.merge
            if rule == "whole" and not (mine is None and theirs is None):
                raise ValueError(
                    f"{name} is of a whole gallery, and can't be merged or subtracted: count the "
                    "gallery as one"
                )
            if rule == "same" or mine is None or theirs is None:
                check_same(name, mine, theirs)
                combined[name] = mine
            elif rule in rules:
                combined[name] = rules[rule](mine, theirs)
            elif name in given:
                combined[name] = given[name]
            else:
                raise ValueError(f"{name} can't be subtracted: give what is left of it")
        return RankStatistics(**combined)

    def take(self, queries: AnyArray) -> RankStatistics:
        """Return the statistics of some of the queries: their indices [n], or a mask [Q].

        The result has a histogram of impostors only where it is kept by group, and whole groups
        are taken.
        """
        wanted = np.arange(self.queries)[queries]
        counts = self.positives[wanted]
        indptr, entry = entries_of(self.indptr[wanted], counts)
        of = {"query": wanted, "positive": entry}
        taken = self._rows(of) | {"group": None} | self.histogram_of_some(wanted)
        return RankStatistics(indptr=indptr, thresholds=self.thresholds, **taken)

    def _rows(self, of: Mapping[str, AnyArray]) -> dict[str, Any]:
        """Return the fields of some axes with these rows alone: indices, or a mask."""
        return {
            name: values[of[FIELDS[name].axes[0]]]
            for name, values in self.arrays().items()
            if FIELDS[name].axes[0] in of
        }

    def histogram_of_some(self, queries: AnyArray) -> dict[str, Any]:
        """Return the histogram of some of the queries and its edges; nothing where it's unknown."""
        if self.group is None or self.group_histogram is None:
            return {}
        taken = np.bincount(self.group[queries], minlength=len(self.group_histogram))
        whole = taken == np.bincount(self.group, minlength=len(taken))
        if not (whole | (taken == 0)).all() or len(np.unique(queries)) < len(queries):
            return {}
        histogram = self.group_histogram[taken > 0].sum(axis=0)
        return {"impostor_histogram": histogram, "histogram_edges": self.histogram_edges}

    def select_positives(self, kept: AnyArray) -> RankStatistics:
        """Return the statistics with some positives, by a mask [P], without `WHOLE_FIELDS`."""
        kept_rows: dict[str, Any] = dict.fromkeys(WHOLE_FIELDS) | self._rows({"positive": kept})
        return self._changed(kept_rows | {"indptr": left_of(kept, self.indptr)})

    def with_mean_group(self, group: IntArray) -> RankStatistics:
        """Return the statistics with the groups that means are over, [Q] int64."""
        return self._changed({"mean_group": group})

    def without_histogram(self) -> RankStatistics:
        """Return the statistics without the histogram of impostors."""
        return self._changed({"impostor_histogram": None, "histogram_edges": None})

    def with_positives(self, kept: BoolArray) -> RankStatistics:
        """Return the statistics with some of the positives, by a mask [P], the others ignored."""
        left = self.select_positives(kept)
        dropped = self.positives - left.positives
        return left._changed({"valid": self.valid - dropped, "ignored": self.ignored + dropped})

    def _changed(self, changes: Mapping[str, Any]) -> RankStatistics:
        """Return the statistics with other values of some fields."""
        return RankStatistics(**{**self.arrays(), **changes})

    def merge_edges(self, other: RankStatistics) -> RankStatistics:
        """Refine the histogram by that of other statistics of the same pairs."""
        if self.histogram_edges is None or other.histogram_edges is None:
            raise ValueError("the statistics hold no impostor_histogram")
        both = np.append(self.histogram_edges, other.histogram_edges)
        edges, first = np.unique(both, return_index=True)
        merged: dict[str, Any] = {"histogram_edges": edges}
        for name in ("impostor_histogram", "group_histogram"):
            counts, more = getattr(self, name), getattr(other, name)
            if counts is not None and more is not None:
                within = [np.cumsum(each, axis=-1)[..., :-1] for each in (counts, more)]
                both_within = np.concatenate(within, axis=-1)[..., first]
                merged[name] = histogram_of(both_within, counts.sum(axis=-1))
        return self._changed(merged)

    def equals(self, other: RankStatistics, *, ignoring: Sequence[str] = ()) -> bool:
        """Return whether all fields are equal, bit for bit, except those named."""
        names = FIELDS.keys() - set(ignoring)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)


_hints = get_type_hints(RankStatistics, include_extras=True)
FIELDS: Mapping[str, Field] = {name: hint.__metadata__[0] for name, hint in _hints.items()}
REQUIRED = frozenset(field.name for field in fields(RankStatistics) if field.default is not None)
ROW_FIELDS = frozenset(
    name for name, layout in FIELDS.items() if layout.axes[0] in ("query", "positive")
)
"""Fields that hold rows of queries or of positives."""
THRESHOLD_FIELDS = frozenset({"thresholds", "negatives_within", "impostor_histogram"})
"""Fields that hold what is counted at thresholds."""
WHOLE_FIELDS = frozenset(name for name, layout in FIELDS.items() if layout.merge == "whole")
"""Fields that only a whole gallery has: those that hold what is counted by gallery identity."""


def _least(mine: FloatArray, theirs: FloatArray) -> FloatArray:
    return np.sort(np.concatenate([mine, theirs], axis=1), axis=1)[:, : mine.shape[1]]


def check_same(name: str, mine: Any, theirs: Any) -> None:
    """Raise ValueError unless two statistics hold equal values of a field, or both none."""
    if mine is not theirs and (mine is None or theirs is None or not np.array_equal(mine, theirs)):
        raise ValueError(f"statistics to be combined differ in {name}")
