"""Verification: genuine pairs (the positives) against impostor pairs (the negatives).

Genuine distances are exact, one by one; impostors are known by a histogram. So both rates are
exact at the edges of its bins, and every figure states a bound on its error: what the pairs
inside one bin leave open. All pairs that are not ignored take part, of all queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streameval.metrics.metric import Metric, Value
from streameval.metrics.parameters import rate
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.totals import Totals
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
    def miss_rate(self) -> FloatArray:
        """FNMR, 1 − TAR, [E + 2] float64; NaN where there is no genuine pair."""
        return _ratio(self.genuine[-1] - self.genuine, self.genuine[-1])

    @property
    def false_rate(self) -> FloatArray:
        """FAR, FMR, [E + 2] float64; NaN where there is no impostor pair."""
        return _ratio(self.impostor, self.impostor[-1])

    def curves(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return what there is to draw, each a curve.

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


def _ratio(counts: IntArray, total: int) -> FloatArray:
    return counts / total if total else np.full(len(counts), math.nan)


def histogram_terms(ranked: RankedQueries) -> list[FloatArray]:
    """Return the histogram of impostors, [E + 1, 1] float64.

    Raises
    ------
    ValueError
        If the statistics hold none.
    """
    if ranked.stats.impostor_histogram is None:
        raise ValueError("the statistics hold no impostor_histogram")
    return [ranked.stats.impostor_histogram.astype(np.float64)[:, None]]


def genuine_distances(ranked: RankedQueries) -> FloatArray:
    """Return the distances of all genuine pairs, [P] float64."""
    return ranked.stats.positive_distance


def accepted_pairs(totals: Totals) -> Accepted:
    """Return the pairs accepted at each edge of the histogram."""
    histogram = totals.sums(histogram_terms).astype(np.int64)
    limits = np.concatenate([[-np.inf], totals.facts.histogram_edges, [np.inf]])
    genuine = np.sort(totals.column(genuine_distances))
    return Accepted(
        limits,
        np.searchsorted(genuine, limits, side="right"),
        np.append(0, np.cumsum(histogram)),
        genuine,
    )


def last_within(totals: Totals, f: float) -> int | None:
    """Return the last limit with FAR <= f; None where the pairs don't support the rate."""
    pairs = totals.once(accepted_pairs)
    genuine, impostor = int(pairs.genuine[-1]), int(pairs.impostor[-1])
    if not genuine or not impostor or 1 / impostor > f:
        return None
    return int(np.searchsorted(pairs.false_rate, f, side="right")) - 1


def around_rate(totals: Totals, f: float) -> tuple[float, float] | None:
    """Return the limits that the largest τ with FAR <= f lies between."""
    limits, at = totals.once(accepted_pairs).limits, last_within(totals, f)
    if at is None or at == len(limits) - 1:
        return None
    return float(limits[at]), float(limits[at + 1])


def true_accepts(totals: Totals, f: float) -> Value:
    """Return TAR at the largest τ with FAR <= f, which is known to be within one bin."""
    pairs, at = totals.once(accepted_pairs), last_within(totals, f)
    genuine, impostor = int(pairs.genuine[-1]), int(pairs.impostor[-1])
    if at is None:
        reason = unsupported(impostor, f) if genuine and impostor else ""
        return Value(math.nan, reason=reason, curves=pairs.curves())
    after = float(pairs.limits[min(at + 1, len(pairs.limits) - 1)])
    most = int(np.searchsorted(pairs.all_genuine, after, side="left"))
    known = int(pairs.genuine[at])
    return Value(
        known / genuine,
        threshold=float(pairs.limits[at]),
        error=max(most - known, 0) / genuine,
        threshold_error=0.0 if at == len(pairs.limits) - 1 else after - float(pairs.limits[at]),
        curves=pairs.curves(),
    )


def unsupported(impostor: int, f: float) -> str:
    """Return in words that a rate is too small to be measured on so many impostor pairs."""
    if f == 0:
        return "no number of impostor pairs supports a rate of 0"
    return f"needs {math.ceil(1 / f):,} impostor pairs, has {impostor:,}"


def false_non_matches(totals: Totals, f: float) -> Value:
    """Return FNMR = 1 − TAR at the largest τ with FMR <= f."""
    accepts = true_accepts(totals, f)
    pairs = totals.once(accepted_pairs)
    if accepts.threshold is None:
        return accepts
    at = int(np.searchsorted(pairs.limits, accepts.threshold))
    return Value(
        float(pairs.miss_rate[at]),
        accepts.threshold,
        accepts.error,
        accepts.threshold_error,
        curves=accepts.curves,
    )


def crossing(totals: Totals) -> int | None:
    """Return the first limit with FMR >= FNMR; None where one of them is undefined."""
    pairs = totals.once(accepted_pairs)
    if not int(pairs.genuine[-1]) or not int(pairs.impostor[-1]):
        return None
    return int(np.argmax(pairs.false_rate >= pairs.miss_rate))  # not 0: nothing is accepted there


def around_crossing(totals: Totals) -> tuple[float, float] | None:
    """Return the limits that the τ at which FMR and FNMR cross lies between."""
    limits, at = totals.once(accepted_pairs).limits, crossing(totals)
    if at is None:
        return None
    return float(limits[at - 1]), math.nextafter(float(limits[at]), math.inf)


def equal_error(totals: Totals) -> Value:
    """Return the rate at which FMR and FNMR cross; its threshold is the upper edge of that bin."""
    pairs, at = totals.once(accepted_pairs), crossing(totals)
    fmr, fnmr = pairs.false_rate, pairs.miss_rate
    if at is None:
        return Value(math.nan, curves=pairs.curves())
    low, high = max(fmr[at - 1], fnmr[at]), min(fmr[at], fnmr[at - 1])
    if pairs.limits[at] == math.nextafter(float(pairs.limits[at - 1]), math.inf):
        # All pairs of the bin are at one distance: the straight line between both is known.
        gap, after = fnmr[at - 1] - fmr[at - 1], fmr[at] - fnmr[at]
        low = high = fmr[at - 1] + (fmr[at] - fmr[at - 1]) * (gap / (gap + after))
    return Value(
        float(low + high) / 2,
        threshold=float(pairs.limits[at]),
        error=float(high - low) / 2,
        threshold_error=float(pairs.limits[at] - pairs.limits[at - 1]),
        curves=pairs.curves(),
    )


def settling_edges(totals: Totals, between: tuple[float, float], most: int) -> FloatArray:
    """Return genuine distances between two others, and the distances just before them.

    With these among the edges of the histogram, both rates are known wherever TAR changes.

    Parameters
    ----------
    totals : Totals
    between : (float, float)
        Both excluded.
    most : int
        About how many; where there are more, a part of them, evenly spaced.

    Returns
    -------
    [n] float64
        Ascending, none of them an edge; empty where all are edges already.
    """
    pairs = totals.once(accepted_pairs)
    low, high = between
    first = np.searchsorted(pairs.all_genuine, low, side="right")
    last = np.searchsorted(pairs.all_genuine, high, side="left")
    genuine = np.unique(pairs.all_genuine[first:last])
    before = np.nextafter(genuine, -np.inf)
    genuine = genuine[~(np.isin(genuine, pairs.limits) & np.isin(before, pairs.limits))]
    if 2 * len(genuine) > most:
        genuine = genuine[np.linspace(0, len(genuine) - 1, max(most // 2, 1)).astype(np.int64)]
    edges: FloatArray = np.union1d(genuine, np.nextafter(genuine, -np.inf))
    return np.setdiff1d(edges, pairs.limits)


def pair_area(totals: Totals) -> Value:
    """Return the chance that a genuine pair is closer than an impostor pair, ties half."""
    pairs = totals.once(accepted_pairs)
    genuine, impostor = int(pairs.genuine[-1]), int(pairs.impostor[-1])
    if not genuine or not impostor:
        return Value(math.nan, curves=pairs.curves())
    low = high = 0  # Python's integers: products of numbers of pairs are large
    for one in np.flatnonzero(np.diff(pairs.genuine)).tolist():
        count = int(pairs.genuine[one + 1] - pairs.genuine[one])
        low += count * (impostor - int(pairs.impostor[one + 1]))
        high += count * (impostor - int(pairs.impostor[one]))
    total = 2 * genuine * impostor
    return Value((low + high) / total, error=(high - low) / total, curves=pairs.curves())


def f1_at_limits(totals: Totals) -> tuple[FloatArray, FloatArray]:
    """Return F1 = 2tp/(tp + fp + P) at each limit, and the most that it can be in each bin.

    [E + 2] and [E + 1] float64. The most is where all genuine pairs of the bin are before its
    impostors; where the bin is of one distance alone, it is F1 there.
    """
    pairs = totals.once(accepted_pairs)
    genuine, impostor, limits = pairs.genuine, pairs.impostor, pairs.limits
    f1 = 2 * genuine / np.maximum(genuine + impostor + genuine[-1], 1)
    before = np.where(limits[1:] == np.nextafter(limits[:-1], np.inf), impostor[1:], impostor[:-1])
    return f1, 2 * genuine[1:] / np.maximum(genuine[1:] + before + genuine[-1], 1)


def best_f1(totals: Totals) -> Value:
    """Return the greatest F1 at an edge; none anywhere is beyond its error."""
    pairs = totals.once(accepted_pairs)
    if not int(pairs.genuine[-1]):
        return Value(math.nan, curves=pairs.curves())
    f1, most = totals.once(f1_at_limits)
    best = int(np.argmax(f1))
    error = max(float(most.max() - f1[best]), 0.0)
    return Value(
        float(f1[best]),
        threshold=float(pairs.limits[best]),
        error=error,
        threshold_error=math.inf if error else 0.0,  # two far apart may be nearly as good
        curves=pairs.curves(),
    )


def around_best_f1(totals: Totals) -> tuple[float, float] | None:
    """Return the limits that the best τ lies between; None where it is known."""
    limits = totals.once(accepted_pairs).limits
    f1, most = totals.once(f1_at_limits)
    better = np.flatnonzero(most > f1.max())
    if not len(better):
        return None
    return float(limits[better[0]]), math.nextafter(float(limits[better[-1] + 1]), math.inf)


_FIELDS = ("indptr", "positive_distance", "impostor_histogram", "histogram_edges")
_RATES = rate(1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)

_OF_PAIRS = Metric(
    name="",
    formula="",
    source="ISO/IEC 19795-1",
    part="verification",
    needs=_FIELDS,
    over=("Q+", "negatives"),
    adds=(histogram_terms,),
    keeps=(genuine_distances,),
    finish=true_accepts,
)
"""What metrics of all pairs share."""

TAR_FAR = replace(
    _OF_PAIRS,
    name="TAR|FAR={f}",
    formula="TAR(τ) = |{genuine : d <= τ}|/P at the largest τ with FAR(τ) = |{impostor : "
    "d <= τ}|/I <= f; withheld where f < 1/I",
    source="NIST FRVT; ISO/IEC 19795-1",
    finish=true_accepts,
    parameters={"f": _RATES},
    unsettled=around_rate,
    also=("TPR@FPR={f}", "TMR@FMR={f}", "GAR@FAR={f}"),
)

FNMR_FMR = replace(
    _OF_PAIRS,
    name="FNMR|FMR={f}",
    formula="FNMR(τ) = |{genuine : d > τ}|/P at the largest τ with FMR(τ) = |{impostor : "
    "d <= τ}|/I <= f; withheld where f < 1/I",
    source="ISO/IEC 19795-1",
    finish=false_non_matches,
    parameters={"f": _RATES},
    unsettled=around_rate,
    also=("FRR@FAR={f}",),
    better="lower",
)

EER = replace(
    _OF_PAIRS,
    name="EER",
    formula="FMR(τ) = FNMR(τ), linear between the τ before and after",
    source="ISO/IEC 19795-1",
    finish=equal_error,
    unsettled=around_crossing,
    also=("equal-error-rate",),
    better="lower",
)

AUC = replace(
    _OF_PAIRS,
    name="AUC",
    formula="1/(P·I) Σ_{genuine} Σ_{impostor} ([d_g < d_i] + ½[d_g = d_i])",
    source="Mann and Whitney 1947; Hanley and McNeil 1982",
    finish=pair_area,
    also=("AUROC", "ROC-AUC"),
)

F1_BEST = replace(
    _OF_PAIRS,
    name="F1_best",
    over=("Q+",),
    formula="max over every distance τ of 2tp/(tp + fp + P) of all pairs (micro), known to within "
    "a bin of the histogram; F1_max is over the thresholds alone",
    source="van Rijsbergen 1979",
    finish=best_f1,
    unsettled=around_best_f1,
    also=("best-F1",),
)
