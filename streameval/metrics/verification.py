"""Verification: genuine pairs (the positives) against impostor pairs (the negatives).

Genuine distances are exact, one by one; impostors are known by a histogram. So both rates are
exact at the edges of its bins, and every figure states a bound on its error: what the pairs
inside one bin leave open. All pairs that are not ignored take part, of all queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from operator import mul
from typing import Any

import numpy as np

from streameval.metrics.blocks import Array, RankedQueries, Totals
from streameval.metrics.metric import Bounds, Metric, Value
from streameval.metrics.openset import unsupported
from streameval.metrics.parameters import rate
from streameval.statistics import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Accepted:
    """Pairs accepted (d <= limit) at E + 2 limits: none, each edge of the histogram, all.

    Attributes
    ----------
    limits : [E + 2] float64
        -inf, the edges, +inf.
    genuine, impostor : [E + 2] int64
    all_genuine : [P] float64
        Distances of all genuine pairs, ascending.
    """

    limits: FloatArray
    genuine: IntArray
    impostor: IntArray
    all_genuine: FloatArray

    @property
    def totals(self) -> tuple[int, int]:
        """Numbers of genuine and of impostor pairs."""
        return int(self.genuine[-1]), int(self.impostor[-1])

    @property
    def miss_rate(self) -> FloatArray:
        """FNMR, 1 − TAR, [E + 2] float64; NaN where there is no genuine pair."""
        return _ratio(self.genuine[-1] - self.genuine, self.totals[0])

    @property
    def false_rate(self) -> FloatArray:
        """FAR, FMR, [E + 2] float64; NaN where there is no impostor pair."""
        return _ratio(self.impostor, self.totals[1])

    @property
    def curves(self) -> dict[str, Array]:
        """What there is to draw, each a curve.

        ``pair_tau``, ``FMR``, ``FNMR`` [E] float64 at the edges; ``genuine``, ``impostor``
        [E + 1] int64, the numbers of pairs below, between and above them.
        """
        return {
            "pair_tau": self.limits[1:-1],
            "FMR": self.false_rate[1:-1],
            "FNMR": self.miss_rate[1:-1],
            "genuine": np.diff(self.genuine),
            "impostor": np.diff(self.impostor),
        }

    def last_within(self, f: float) -> int | None:
        """Return the last limit with FAR <= f; None where the pairs don't support the rate."""
        genuine, impostor = self.totals
        if not genuine or not impostor or 1 / impostor > f:
            return None
        return int(np.searchsorted(self.false_rate, f, side="right")) - 1

    @property
    def crossing(self) -> int | None:
        """The first limit with FMR >= FNMR, not 0; None where one of them is undefined."""
        return int(np.argmax(self.false_rate >= self.miss_rate)) if all(self.totals) else None

    @cached_property
    def f1(self) -> tuple[FloatArray, FloatArray]:
        """F1 = 2tp/(tp + fp + P) at each limit, and the most that it can be in each bin.

        [E + 2] and [E + 1] float64. The most is where all genuine pairs of the bin are before its
        impostors; where the bin is of one distance alone, it is F1 there.
        """
        genuine, impostor, limits = self.genuine, self.impostor, self.limits
        f1 = 2 * genuine / np.maximum(genuine + impostor + genuine[-1], 1)
        single = limits[1:] == np.nextafter(limits[:-1], np.inf)
        before = np.where(single, impostor[1:], impostor[:-1])
        return f1, 2 * genuine[1:] / np.maximum(genuine[1:] + before + genuine[-1], 1)


def _ratio(counts: IntArray, total: int) -> FloatArray:
    return counts / total if total else np.full(len(counts), math.nan)


def histogram_terms(ranked: RankedQueries) -> list[FloatArray]:
    """Return the histogram of impostors, [E + 1, 1] float64."""
    if ranked.stats.impostor_histogram is None:
        raise ValueError("the statistics hold no impostor_histogram")
    return [ranked.stats.impostor_histogram.astype(np.float64)[:, None]]


def genuine_distances(ranked: RankedQueries) -> FloatArray:
    """Return the distances of all genuine pairs, [P] float64."""
    return ranked.stats.positive_distance


def accepted_pairs(totals: Totals) -> Accepted:
    """Return the pairs accepted at each edge of the histogram."""
    histogram = totals.sums(histogram_terms).astype(np.int64)
    limits = np.concatenate([[-np.inf], totals.histogram_edges, [np.inf]])
    genuine = np.sort(totals.column(genuine_distances))
    accepted = np.searchsorted(genuine, limits, side="right")
    return Accepted(limits, accepted, np.append(0, np.cumsum(histogram)), genuine)


def of_pairs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of `Totals` from one of `Accepted`; a `Value` gets the curves."""

    @wraps(function)
    def read(totals: Totals, *parameters: Any) -> Any:
        pairs = totals.once(accepted_pairs)
        found = function(pairs, *parameters)
        return replace(found, curves=pairs.curves) if isinstance(found, Value) else found

    return read


@of_pairs
def at_false_rate(pairs: Accepted, f: float, name: str) -> Value:
    """Return TAR, or FNMR = 1 − TAR, at the largest τ with FAR <= f, known to within one bin."""
    at, (genuine, impostor) = pairs.last_within(f), pairs.totals
    if at is None:
        reason = unsupported(impostor, f, "impostor pairs") if genuine and impostor else ""
        return Value(math.nan, reason=reason)
    low, high = (float(pairs.limits[min(one, len(pairs.limits) - 1)]) for one in (at, at + 1))
    most = int(np.searchsorted(pairs.all_genuine, high))
    known = int(pairs.genuine[at])
    return Value(
        (known if name.startswith("TAR") else genuine - known) / genuine,
        threshold=low,
        error=max(most - known, 0) / genuine,
        threshold_error=0.0 if low == high else high - low,
    )


@of_pairs
def around_rate(pairs: Accepted, f: float) -> Bounds | None:
    """Return the limits that the largest τ with FAR <= f lies between."""
    at = pairs.last_within(f)
    if at is None or at == len(pairs.limits) - 1:
        return None
    return float(pairs.limits[at]), float(pairs.limits[at + 1])


@of_pairs
def equal_error(pairs: Accepted) -> Value:
    """Return the rate at which FMR and FNMR cross; its threshold is the upper edge of that bin."""
    at = pairs.crossing
    if at is None:
        return Value(math.nan)
    fmr, fnmr = pairs.false_rate, pairs.miss_rate
    before, limit = pairs.limits[at - 1 : at + 1].tolist()
    low, high = max(fmr[at - 1], fnmr[at]), min(fmr[at], fnmr[at - 1])
    if limit == math.nextafter(before, math.inf):
        # All pairs of the bin are at one distance: the straight line between both is known.
        gap, after = fnmr[at - 1] - fmr[at - 1], fmr[at] - fnmr[at]
        low = high = fmr[at - 1] + (fmr[at] - fmr[at - 1]) * (gap / (gap + after))
    return Value(float(low + high) / 2, limit, float(high - low) / 2, limit - before)


@of_pairs
def around_crossing(pairs: Accepted) -> Bounds | None:
    """Return the limits that the τ at which FMR and FNMR cross lies between."""
    limits, at = pairs.limits, pairs.crossing
    if at is None:
        return None
    return float(limits[at - 1]), math.nextafter(float(limits[at]), math.inf)


@of_pairs
def pair_area(pairs: Accepted) -> Value:
    """Return the chance that a genuine pair is closer than an impostor pair, ties half."""
    genuine, impostor = pairs.totals
    if not genuine or not impostor:
        return Value(math.nan)
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
    """Return the greatest F1 at an edge; none anywhere is beyond its error."""
    if not pairs.totals[0]:
        return Value(math.nan)
    f1, most = pairs.f1
    best = int(np.argmax(f1))
    error = max(float(most.max() - f1[best]), 0.0)
    threshold_error = math.inf if error else 0.0  # two far apart may be nearly as good
    return Value(float(f1[best]), float(pairs.limits[best]), error, threshold_error)


@of_pairs
def around_best_f1(pairs: Accepted) -> Bounds | None:
    """Return the limits that the best τ lies between; None where it is known."""
    f1, most = pairs.f1
    better = np.flatnonzero(most > f1.max())
    if not len(better):
        return None
    last = float(pairs.limits[better[-1] + 1])
    return float(pairs.limits[better[0]]), math.nextafter(last, math.inf)


@of_pairs
def settling_edges(pairs: Accepted, between: Bounds, most: int) -> FloatArray:
    """Return genuine distances between two others, and the distances just before them.

    With these among the edges of the histogram, both rates are known wherever TAR changes.

    Both ends are excluded. Where there are more than about `most`, a part of them, evenly spaced.

    Returns
    -------
    [n] float64
        Ascending, none of them an edge; empty where all are edges already.
    """
    first = np.searchsorted(pairs.all_genuine, between[0], side="right")
    last = np.searchsorted(pairs.all_genuine, between[1])
    genuine = np.unique(pairs.all_genuine[first:last])
    before = np.nextafter(genuine, -np.inf)
    genuine = genuine[~(np.isin(genuine, pairs.limits) & np.isin(before, pairs.limits))]
    if 2 * len(genuine) > most:
        genuine = genuine[np.linspace(0, len(genuine) - 1, max(most // 2, 1)).astype(np.int64)]
    return np.setdiff1d(np.union1d(genuine, np.nextafter(genuine, -np.inf)), pairs.limits)


_RATES = rate((1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6))

_verified = partial(
    Metric,
    source="ISO/IEC 19795-1",
    part="verification",
    needs=("indptr", "positive_distance", "impostor_histogram", "histogram_edges"),
    over=("Q+", "negatives"),
    adds=(histogram_terms,),
    keeps=(genuine_distances,),
)

METRICS = (
    _verified(
        "TAR|FAR={f}",
        "TAR(τ) = |{genuine : d <= τ}|/P at the largest τ with FAR(τ) = |{impostor : "
        "d <= τ}|/I <= f; withheld where f < 1/I",
        source="NIST FRVT; ISO/IEC 19795-1",
        finish=at_false_rate,
        parameters={"f": _RATES},
        unsettled=around_rate,
        also=("TPR@FPR={f}", "TMR@FMR={f}", "GAR@FAR={f}"),
    ),
    _verified(
        "FNMR|FMR={f}",
        "FNMR(τ) = |{genuine : d > τ}|/P at the largest τ with FMR(τ) = |{impostor : "
        "d <= τ}|/I <= f; withheld where f < 1/I",
        finish=at_false_rate,
        parameters={"f": _RATES},
        unsettled=around_rate,
        also=("FRR@FAR={f}",),
        better="lower",
    ),
    _verified(
        "EER",
        "FMR(τ) = FNMR(τ), linear between the τ before and after",
        finish=equal_error,
        unsettled=around_crossing,
        also=("equal-error-rate",),
        better="lower",
    ),
    _verified(
        "AUC",
        "1/(P·I) Σ_{genuine} Σ_{impostor} ([d_g < d_i] + ½[d_g = d_i])",
        source="Mann and Whitney 1947; Hanley and McNeil 1982",
        finish=pair_area,
        also=("AUROC", "ROC-AUC"),
    ),
    _verified(
        "F1_best",
        "max over every distance τ of 2tp/(tp + fp + P) of all pairs (micro), known to "
        "within a bin of the histogram; F1_max is over the thresholds alone",
        over=("Q+",),
        source="van Rijsbergen 1979",
        finish=best_f1,
        unsettled=around_best_f1,
        also=("best-F1",),
    ),
)
