"""The reference: the definitions read aloud, in float64 with a full sort of every query.

Slow and obvious on purpose. `oracle_statistics` counts by brute force what `RankStatistics`
holds; `oracle_metrics` reads every metric off the sorted lists, through neither
`RankStatistics` nor `streameval.metrics`. Sums are in one documented order (precision terms
by `np.cumsum` in rank order, everything else by `math.fsum`), so tests compare with ``==``;
only ``ties="expected"``, which enumerates every tie-break, is compared within rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, groupby, product
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval import RankStatistics

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Problem:
    """Distances [Q, G] float64, labels, and which pairs the protocol ignores."""

    distances: Array
    query_id: Array
    gallery_id: Array
    query_cam: Array | None = None
    gallery_cam: Array | None = None
    junk_ids: tuple[int | str, ...] = (-1,)
    same_identity_and_camera: bool = True
    same_camera: bool = False
    self_index: bool = False  # query i is gallery item i

    def row(self, i: int) -> tuple[Array, Array]:
        """Return which items are ignored for query i, and which have its identity, [G] bool."""
        same = self.gallery_id == self.query_id[i]
        ignored = np.isin(self.gallery_id, self.junk_ids)
        if self.query_cam is not None and self.gallery_cam is not None:
            camera = self.gallery_cam == self.query_cam[i]
            if self.same_identity_and_camera:
                ignored = ignored | (same & camera)
            if self.same_camera:
                ignored = ignored | camera
        if self.self_index:
            ignored = ignored | (np.arange(len(same)) == i)
        return ignored, same


def oracle_thresholds(distances: Array, lo: float, hi: float, count: int = 101) -> Array:
    """Return, for each τ, the largest distance there is with (d − lo)/(hi − lo) <= τ, or -inf."""
    found = np.unique(distances)
    normalised = (found - lo) / (hi - lo)
    within = [found[normalised <= tau(t, count)] for t in range(count)]
    return np.array([values.max(initial=-np.inf) for values in within])


def tau(t: int, count: int) -> float:
    return t / (count - 1)


def oracle_statistics(
    distances: Array,
    query_id: Array,
    gallery_id: Array,
    query_cam: Array | None = None,
    gallery_cam: Array | None = None,
    *,
    thresholds: npt.ArrayLike = (),
    **ignore: Any,
) -> RankStatistics:
    """Count the sufficient statistics pair by pair; `ignore` as in `Problem`."""
    problem = Problem(distances, query_id, gallery_id, query_cam, gallery_cam, **ignore)
    limits = np.asarray(thresholds, dtype=np.float64)
    counted = {"closer", "tied", "tied_before", "negatives_within"}
    counted |= {"valid", "ignored", "same_identity", "positive_item"}
    fields: dict[str, list[Any]] = {name: [] for name in counted}
    fields |= {"positive_distance": [], "nearest_negative": []}
    indptr = [0]
    for i, distance in enumerate(distances):
        ignored, same = problem.row(i)
        positives = np.flatnonzero(same & ~ignored)
        positives = positives[np.argsort(distance[positives], kind="stable")]
        negatives = np.flatnonzero(~same & ~ignored)
        away = distance[negatives]
        indptr.append(indptr[-1] + len(positives))
        for k in positives:
            fields["positive_distance"].append(distance[k])
            fields["positive_item"].append(k)
            fields["closer"].append(np.sum(away < distance[k]))
            fields["tied"].append(np.sum(away == distance[k]))
            fields["tied_before"].append(np.sum((away == distance[k]) & (negatives < k)))
        fields["negatives_within"].append([np.sum(away <= t) for t in limits])
        fields["nearest_negative"].append(away.min(initial=np.inf))
        fields["valid"].append(np.sum(~ignored))
        fields["ignored"].append(np.sum(ignored))
        fields["same_identity"].append(np.sum(same))
    arrays: dict[str, Any] = {
        name: np.array(values, dtype=np.int64 if name in counted else np.float64)
        for name, values in fields.items()
    }
    within = arrays.pop("negatives_within").reshape(len(distances), len(limits))
    return RankStatistics(np.array(indptr), thresholds=limits, negatives_within=within, **arrays)


def orders(distance: Array, positive: Array, ties: str) -> Iterator[Array]:
    """Give the valid items of a query in ranked order: once, or in every possible order."""
    index = np.arange(len(distance))
    if ties != "expected":
        second = {"pessimistic": positive, "optimistic": ~positive, "stable": index}[ties]
        yield np.lexsort((second, distance))
        return
    choices = []  # per distance, the ways to interleave its positives and negatives
    for _, equal in groupby(index[np.argsort(distance, kind="stable")], lambda k: distance[k]):
        group = list(equal)
        hits, misses = [k for k in group if positive[k]], [k for k in group if not positive[k]]
        ways = []
        for places in combinations(range(len(group)), len(hits)):
            hit, miss = iter(hits), iter(misses)
            ways.append([next(hit) if k in places else next(miss) for k in range(len(group))])
        choices.append(ways)
    for way in product(*choices):
        yield np.array([k for group in way for k in group], dtype=int)


def read_list(match: Array, normalised: Array, options: dict[str, Any]) -> dict[str, Array]:
    """Return the metrics of one query with positives, from one ranked list."""
    total = int(match.sum())
    rank = np.flatnonzero(match) + 1
    j = np.arange(1, total + 1)
    precision = j / rank
    if options["ap"] == "trapezoid":
        before = [1.0 if r == 1 else (n - 1) / (r - 1) for n, r in zip(j, rank, strict=True)]
        precision = (np.array(before) + precision) / 2
    sums = np.cumsum(precision)
    rp, vp = [], []
    for t in range(options["thresholds"]):
        within = normalised <= tau(t, options["thresholds"])
        tp, fp = int(np.sum(match & within)), int(np.sum(~match & within))
        returned = tp + fp
        if options["vp"] == "reference":
            returned = min(returned, int(rank[-1]))  # counting stops at the last match
        rp.append(sums[tp - 1] / tp if tp else 0.0)
        vp.append(tp / ((total - tp) + returned))
    return {
        "first_rank": rank[:1].astype(float),
        "AP": sums[-1:] / total,
        "INP": total / rank[-1:],
        "hits": (np.arange(1, options["ranks"] + 1) >= rank[0]).astype(float),
        "RP": np.array(rp),
        "VP": np.array(vp),
    }


def average(readings: list[Array], length: int) -> Array:
    """Return the mean of arrays of that length, by fsum; NaN where there are none."""
    if not readings:
        return np.full(length, np.nan)
    return np.array([math.fsum(values) / len(readings) for values in zip(*readings, strict=True)])


def oracle_metrics(
    distances: Array,
    query_id: Array,
    gallery_id: Array,
    query_cam: Array | None = None,
    gallery_cam: Array | None = None,
    *,
    ties: str = "pessimistic",
    ap: str = "step",
    vp: str = "reference",
    lo: float = 0.0,
    hi: float = 1.0,
    thresholds: int = 101,
    budget: int = 3000,
    ranks: int = 20,
    rates: tuple[float, ...] = (0.001, 0.01, 0.1),
    dir_ranks: tuple[int, ...] = (1,),
    **ignore: Any,
) -> tuple[dict[str, float], dict[str, Array], dict[str, Array]]:
    """Return the scalars, curves and per-query columns of all metrics; NaN where undefined.

    `ignore` as in `Problem`; `thresholds` is their number, `ranks` the length of the CMC curve.
    """
    problem = Problem(distances, query_id, gallery_id, query_cam, gallery_cam, **ignore)
    options = {"ap": ap, "vp": vp, "thresholds": thresholds, "ranks": ranks}
    taus = np.array([tau(t, thresholds) for t in range(thresholds)])
    found: list[dict[str, Array]] = []  # of each query of Q+
    nearest_positive: list[float] = []  # of each query of Q+
    nearest: list[float] = []  # of each query of Q−
    false_rates: list[Array] = []  # of each query of Q−
    columns: dict[str, list[float]] = {"first_rank": [], "AP": [], "INP": []}
    for i in range(len(distances)):
        ignored, same = problem.row(i)
        distance, positive = distances[i][~ignored], same[~ignored]
        normalised = (distance - lo) / (hi - lo)
        if positive.any():
            lists = [
                read_list(positive[order], normalised[order], options)
                for order in orders(distance, positive, ties)
            ]
            mean = {
                name: average([one[name] for one in lists], len(lists[0][name]))
                for name in lists[0]
            }
            found.append(mean)
            nearest_positive.append(float(distance[positive].min()))
        elif not same.any():
            nearest.append(float(distance.min(initial=np.inf)))
            false_rates.append(np.array([min(np.sum(normalised <= x) / budget, 1.0) for x in taus]))
        for name, column in columns.items():
            column.append(float(mean[name][0]) if positive.any() else np.nan)

    def over_queries(name: str, length: int) -> Array:
        return average([one[name] for one in found], length)

    cmc, mrp, mvp = (
        over_queries("hits", ranks),
        *(over_queries(x, thresholds) for x in ("RP", "VP")),
    )
    mrep = average([np.sqrt(one["RP"] * one["VP"]) for one in found], thresholds)
    mfr = average(false_rates, thresholds)
    curves = {"CMC": cmc, "tau": taus, "mRP": mrp, "mVP": mvp, "mReP": mrep, "mFR": mfr}
    scalars = {f"CMC@{x}": cmc[x - 1] for x in (1, 5, 10, 20) if x <= ranks}
    scalars |= {"mAP": over_queries("AP", 1)[0], "mINP": over_queries("INP", 1)[0]}
    scalars |= {"mVP_max": mvp.max(), "mReP_max": mrep.max()}
    scalars["tau_max"] = min(taus[mrep == mrep.max()], default=np.nan)
    scalars |= {"MREP": area(mrep, taus), "MFR": area(mfr, taus)}
    scalars["tau_nz"] = min(taus[mfr > 0], default=np.nan)

    def identified(x: int, limit: float) -> float:
        """DIR@x where what is closer than the limit is accepted."""
        pairs = zip(found, nearest_positive, strict=True)
        hits = [one["hits"][x - 1] if d < limit else 0.0 for one, d in pairs]
        return math.fsum(hits) / len(found) if found and nearest else np.nan

    limits = [*sorted({d for d in nearest if d < np.inf}), np.inf] if nearest else [np.nan]
    curves["ROC_tau"] = np.array(limits)
    curves["FAR"] = average(
        [np.array([d < x for x in limits], float) for d in nearest], len(limits)
    )
    for x in dir_ranks:
        curves[f"DIR@{x}"] = np.array([identified(x, limit) for limit in limits])
        for f in rates:
            if nearest and 1 / len(nearest) > f:  # too few to tell such a rate
                scalars[f"DIR@{x}|FAR={f:g}"] = np.nan
                continue
            allowed = [k for k in range(len(nearest)) if k / len(nearest) <= f]
            everyone = not nearest or f >= 1
            limit = np.inf if everyone else sorted(nearest)[allowed[-1]]
            scalars[f"DIR@{x}|FAR={f:g}"] = identified(x, limit)
    return scalars, curves, {name: np.array(column) for name, column in columns.items()}


def area(y: Array, x: Array) -> float:
    """Return the trapezoid rule, by fsum."""
    return math.fsum((x[t + 1] - x[t]) * (y[t] + y[t + 1]) / 2 for t in range(len(x) - 1))
