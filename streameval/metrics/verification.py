"""Verification: genuine pairs (the positives) against impostor pairs (the negatives).

Impostors are known by a histogram, and genuine distances are counted at the edges of its bins. So
both rates are exact there, and every figure states a bound on its error: what the pairs inside one
bin leave open. All pairs that are not ignored take part, of all queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from operator import mul

import numpy as np

from streameval.metrics.blocks import POSITIVES, RankedQueries, Totals
from streameval.metrics.confidence import divided
from streameval.metrics.metric import UNDEFINED, Bounds, Metric, Value
from streameval.metrics.openset import unsupported
from streameval.metrics.parameters import rate
from streameval.stretches import cumulated
from streameval.typing import AnyArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Accepted:
    """Pairs accepted (d <= limit) at E + 2 limits: none, each edge of the histogram, all.

    Attributes
    ----------
    limits : [E + 2] float64
        -inf, the edges, +inf.
    genuine, impostor : [E + 2] int64
    genuine_before : [E + 2] int64
        Genuine pairs with d < limit.
    """

    limits: FloatArray
    genuine: IntArray
    impostor: IntArray
    genuine_before: IntArray

    @property
    def totals(self) -> tuple[int, int]:
        """Numbers of genuine and of impostor pairs."""
        return int(self.genuine[-1]), int(self.impostor[-1])

    @property
    def impostor_before(self) -> IntArray:
        """Impostors surely accepted with the genuine pairs of each bin, [E + 1] int64.

        Those before the bin; and its own where it is of one distance alone.
        """
        single = self.limits[1:] == np.nextafter(self.limits[:-1], np.inf)
        return np.where(single, self.impostor[1:], self.impostor[:-1])

    @property
    def rates(self) -> tuple[FloatArray, FloatArray]:
        """FMR = FAR and FNMR = 1 − TAR, both [E + 2] float64; NaN without such pairs."""
        genuine, impostor = self.genuine[-1:], self.impostor[-1:]
        return divided(self.impostor, impostor), divided(genuine - self.genuine, genuine)

    @property
    def curves(self) -> dict[str, AnyArray]:
        """What there is to draw, each a curve.

        ``pair_tau``, ``FMR``, ``FNMR`` [E] float64 at the edges; ``genuine``, ``impostor``
        [E + 1] int64, the numbers of pairs below, between and above them.
        """
        at_edges = zip(("pair_tau", "FMR", "FNMR"), (self.limits, *self.rates), strict=True)
        return {
            **{name: curve[1:-1] for name, curve in at_edges},
            "genuine": np.diff(self.genuine),
            "impostor": np.diff(self.impostor),
        }


def accepted_counts(ranked: RankedQueries) -> IntArray:
    """Return the genuine pairs within each limit, those before each, and the impostors within.

    Distances are sorted some at a time: memory doesn't grow with their number.

    Returns
    -------
    [1, 3, E + 2] int64
        At -inf, the edges and +inf.
    """
    distances, limits = ranked.stats.positive_distance, _limits(ranked.stats.histogram_edges)
    counts = np.zeros((1, 3, len(limits)), np.int64)
    for start in range(0, len(distances), POSITIVES):
        some = np.sort(distances[start : start + POSITIVES])
        counts[0, :2] += [some.searchsorted(limits, side) for side in ("right", "left")]
    counts[0, 2] = cumulated(np.asarray(ranked.stats.impostor_histogram))
    return counts


def _limits(edges: FloatArray | None) -> FloatArray:
    """Return -inf, the edges, +inf."""
    return np.concatenate([[-np.inf], [] if edges is None else edges, [np.inf]])


def accepted_pairs(totals: Totals) -> Accepted:
    """Return the pairs accepted at each edge of the histogram."""
    within, before, impostor = totals.column(accepted_counts).sum(axis=0)
    return Accepted(_limits(totals.histogram_edges), within, impostor, before)


def of_pairs(function: Callable[..., Value]) -> Callable[..., Value]:
    """Return a function of `Totals` from one of `Accepted`, whose curves are added."""

    @wraps(function)
    def finish(totals: Totals, *parameters: float | str) -> Value:
        pairs = totals.once(accepted_pairs)
        return replace(function(pairs, *parameters), curves=pairs.curves)

    return finish


@of_pairs
def at_false_rate(pairs: Accepted, f: float, name: str) -> Value:
    """Return TAR, or FNMR = 1 − TAR, at the largest τ with FAR <= f, known to within one bin."""
    genuine, impostor = pairs.totals
    if not genuine or not impostor:
        return UNDEFINED
    if 1 / impostor > f:
        return Value(math.nan, reason=unsupported(impostor, f, "impostor pairs"))
    at = int(np.searchsorted(pairs.rates[0], f, side="right")) - 1
    after = min(at + 1, len(pairs.limits) - 1)
    low, high = pairs.limits[[at, after]].tolist()
    most = int(pairs.genuine_before[after])
    known = int(pairs.genuine[at])
    return Value(
        (known if name.startswith("TAR") else genuine - known) / genuine,
        threshold=low,
        error=max(most - known, 0) / genuine,
        threshold_error=0.0 if low == high else high - low,
        between=(low, high),
    )


@of_pairs
def equal_error(pairs: Accepted) -> Value:
    """Return the rate at which FMR and FNMR cross; its threshold is the upper edge of that bin."""
    if not all(pairs.totals):
        return UNDEFINED
    fmr, fnmr = pairs.rates
    at = int(np.argmax(fmr >= fnmr))  # not 0: FNMR is 1 there
    before, limit = pairs.limits[at - 1 : at + 1].tolist()
    low, high = max(fmr[at - 1], fnmr[at]), min(fmr[at], fnmr[at - 1])
    if limit == math.nextafter(before, math.inf):
        # All pairs of the bin are at one distance: the straight line between both is known.
        gap, after = fnmr[at - 1] - fmr[at - 1], fmr[at] - fnmr[at]
        low = high = fmr[at - 1] + (fmr[at] - fmr[at - 1]) * (gap / (gap + after))
    between = before, math.nextafter(limit, math.inf)
    rate, error = float(low + high) / 2, float(high - low) / 2
    return Value(rate, limit, error, limit - before, between=between)


@of_pairs
def pair_area(pairs: Accepted) -> Value:
    """Return the chance that a genuine pair is closer than an impostor pair, ties half."""
    genuine, impostor = pairs.totals
    if not genuine or not impostor:
        return UNDEFINED
    further, counts = impostor - pairs.impostor, np.diff(pairs.genuine)
    bins = np.flatnonzero(counts)
    # Python's integers: products of numbers of pairs are large
    low, high = (
        sum(map(mul, counts[bins].tolist(), further[ends].tolist())) for ends in (bins + 1, bins)
    )
    total = 2 * genuine * impostor
    return Value((low + high) / total, error=(high - low) / total)


@of_pairs
def best_f1(pairs: Accepted) -> Value:
    """Return the greatest F1 = 2tp/(tp + fp + P) at an edge; none anywhere is beyond its error.

    The most that it can be in a bin is where all genuine pairs of the bin are before its
    impostors; where the bin is of one distance alone, it is F1 there.
    """
    genuine, impostor, limits = pairs.genuine, pairs.impostor, pairs.limits
    total = genuine[-1]
    if not total:
        return UNDEFINED
    f1 = 2 * genuine / (genuine + impostor + total)
    most = 2 * genuine[1:] / (genuine[1:] + pairs.impostor_before + total)
    best = int(np.argmax(f1))
    value = Value(float(f1[best]), float(limits[best]))
    better = np.flatnonzero(most > f1[best])
    if not len(better):
        return value
    between = float(limits[better[0]]), math.nextafter(limits[better[-1] + 1], math.inf)
    error = float(most.max() - f1[best])
    # Two thresholds far apart may be nearly as good.
    return replace(value, error=error, threshold_error=math.inf, between=between)


@of_pairs
def at_precision(pairs: Accepted, precision: float) -> Value:
    """Return the greatest TAR at an edge with a precision >= p; none is beyond its error.

    The most that precision can be in a bin is where all genuine pairs of the bin are before its
    impostors, as in `best_f1`.
    """
    genuine, impostor, limits = pairs.genuine, pairs.impostor, pairs.limits
    total = genuine[-1]
    if not total:
        return UNDEFINED
    reached = np.flatnonzero(divided(genuine, genuine + impostor) >= precision)
    at = int(reached[-1]) if len(reached) else 0
    value = Value(float(genuine[at] / total), float(limits[at]))
    most = divided(genuine[1:], genuine[1:] + pairs.impostor_before)
    better = np.flatnonzero((most >= precision) & (genuine[1:] > genuine[at]))
    if not len(better):
        return value
    between = float(limits[better[0]]), math.nextafter(limits[better[-1] + 1], math.inf)
    error = float((genuine[better[-1] + 1] - genuine[at]) / total)
    return replace(value, error=error, threshold_error=math.inf, between=between)


def settling_edges(totals: Totals, between: Bounds, most: int) -> FloatArray:
    """Return genuine distances between two others, and the distances just before them.

    With these among the edges of the histogram, both rates are known wherever TAR changes.

    Both ends are excluded. Where there are more than about `most`, a part of them, evenly spaced.

    Returns
    -------
    [n] float64
        Ascending, none of them an edge; empty where all are edges already.
    """
    pairs, genuine = totals.once(accepted_pairs), np.empty(0)
    for ranked in totals.ranked():
        own = ranked.stats.positive_distance
        genuine = np.union1d(genuine, own[(own > between[0]) & (own < between[1])])
    before = np.nextafter(genuine, -np.inf)
    genuine = genuine[~(np.isin(genuine, pairs.limits) & np.isin(before, pairs.limits))]
    if 2 * len(genuine) > most:
        genuine = genuine[np.linspace(0, len(genuine) - 1, max(most // 2, 1)).astype(np.int64)]
    return np.setdiff1d(np.union1d(genuine, np.nextafter(genuine, -np.inf)), pairs.limits)


_verified = partial(
    Metric,
    source="ISO/IEC 19795-1",
    part="verification",
    needs=("indptr", "positive_distance", "impostor_histogram", "histogram_edges"),
    over=("Q+", "negatives"),
    refined=True,
    keeps=(accepted_counts,),
    parameters={
        "f": rate((1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)),
        "precision": rate((0.9,)),
    },
)

METRICS = (
    _verified(
        "TAR|FAR={f}",
        "TAR(τ) = |{genuine : d <= τ}|/P at the largest τ with FAR(τ) = |{impostor : "
        "d <= τ}|/I <= f; undefined if f < 1/I",
        source="NIST FRVT; ISO/IEC 19795-1",
        finish=at_false_rate,
        also=("TPR@FPR={f}", "TMR@FMR={f}", "GAR@FAR={f}"),
    ),
    _verified(
        "FNMR|FMR={f}",
        "FNMR(τ) = |{genuine : d > τ}|/P at the largest τ with FMR(τ) = |{impostor : "
        "d <= τ}|/I <= f; undefined if f < 1/I",
        finish=at_false_rate,
        also=("FRR@FAR={f}",),
        better="lower",
    ),
    _verified(
        "EER",
        "FMR(τ) = FNMR(τ), linear between the τ before and after",
        finish=equal_error,
        also=("equal-error-rate",),
        better="lower",
    ),
    _verified(
        "AUC",
        "1/(P·I) Σ_{genuine} Σ_{impostor} ([d_g < d_i] + ½[d_g = d_i])",
        source="Mann and Whitney 1947; Hanley and McNeil 1982",
        finish=pair_area,
        refined=False,
        also=("AUROC", "ROC-AUC"),
    ),
    _verified(
        "F1_best",
        "max over every distance τ of 2tp/(tp + fp + P) of all pairs (micro), known to "
        "within a bin of the histogram; F1_max is over the thresholds alone",
        over=("Q+",),
        source="van Rijsbergen 1979",
        finish=best_f1,
        also=("best-F1",),
    ),
    _verified(
        "recall|precision={precision}",
        "max over every distance τ with tp/(tp + fp) >= p of recall tp/P of all pairs (micro), "
        "known to within a bin of the histogram; 0 if there is none",
        over=("Q+",),
        source="Douze et al. 2021 (recall at 90 % precision); RecallAtPrecision of Keras",
        finish=at_precision,
        also=("R|P={precision}", "recall-at-precision={precision}"),
    ),
)
