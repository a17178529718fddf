"""Verification: genuine pairs (the positives) against impostor pairs (the negatives).

Genuine distances are exact, one by one; impostors are known by a histogram. So both rates are
exact at the edges of its bins, and every figure states a bound on its error: what the pairs
inside one bin leave open. All pairs that are not ignored take part, of all queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from streameval.metrics.blocks import RankedQueries, Totals
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
    def curves(self) -> dict[str, npt.NDArray[np.generic]]:
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
    limits = np.concatenate([[-np.inf], totals.histogram_edges, [np.inf]])
    genuine = np.sort(totals.column(genuine_distances))
    accepted = np.searchsorted(genuine, limits, side="right")
    return Accepted(limits, accepted, np.append(0, np.cumsum(histogram)), genuine)


def last_within(totals: Totals, f: float) -> int | None:
    """Return the last limit with FAR <= f; None where the pairs don't support the rate."""
    pairs = totals.once(accepted_pairs)
    genuine, impostor = pairs.totals
    if not genuine or not impostor or 1 / impostor > f:
        return None
    return int(np.searchsorted(pairs.false_rate, f, side="right")) - 1


def around_rate(totals: Totals, f: float) -> Bounds | None:
    """Return the limits that the largest τ with FAR <= f lies between."""
    limits, at = totals.once(accepted_pairs).limits, last_within(totals, f)
    if at is None or at == len(limits) - 1:
        return None
    return float(limits[at]), float(limits[at + 1])


def at_false_rate(totals: Totals, f: float, name: str) -> Value:
    """Return TAR, or FNMR = 1 − TAR, at the largest τ with FAR <= f, known to within one bin."""
    pairs, at = totals.once(accepted_pairs), last_within(totals, f)
    genuine, impostor = pairs.totals
    if at is None:
        reason = unsupported(impostor, f, "impostor pairs") if genuine and impostor else ""
        return Value(math.nan, reason=reason, curves=pairs.curves)
    low, high = (float(pairs.limits[min(one, len(pairs.limits) - 1)]) for one in (at, at + 1))
    most = int(np.searchsorted(pairs.all_genuine, high, side="left"))
    known = int(pairs.genuine[at])
    return Value(
        (known if name.startswith("TAR") else genuine - known) / genuine,
        threshold=low,
        error=max(most - known, 0) / genuine,
        threshold_error=0.0 if low == high else high - low,
        curves=pairs.curves,
    )


def crossing(totals: Totals) -> int | None:
    """Return the first limit with FMR >= FNMR; None where one of them is undefined."""
    pairs = totals.once(accepted_pairs)
    if not all(pairs.totals):
        return None
    return int(np.argmax(pairs.false_rate >= pairs.miss_rate))  # not 0: nothing is accepted there


def around_crossing(totals: Totals) -> Bounds | None:
    """Return the limits that the τ at which FMR and FNMR cross lies between."""
    limits, at = totals.once(accepted_pairs).limits, crossing(totals)
    if at is None:
        return None
    return float(limits[at - 1]), math.nextafter(float(limits[at]), math.inf)


def equal_error(totals: Totals) -> Value:
    """Return the rate at which FMR and FNMR cross; its threshold is the upper edge of that bin."""
    pairs, at = totals.once(accepted_pairs), crossing(totals)
    if at is None:
        return Value(math.nan, curves=pairs.curves)
    fmr, fnmr = pairs.false_rate, pairs.miss_rate
    before, limit = pairs.limits[at - 1 : at + 1].tolist()
    low, high = max(fmr[at - 1], fnmr[at]), min(fmr[at], fnmr[at - 1])
    if limit == math.nextafter(before, math.inf):
        # All pairs of the bin are at one distance: the straight line between both is known.
        gap, after = fnmr[at - 1] - fmr[at - 1], fmr[at] - fnmr[at]
        low = high = fmr[at - 1] + (fmr[at] - fmr[at - 1]) * (gap / (gap + after))
    return Value(
        float(low + high) / 2,
        threshold=limit,
        error=float(high - low) / 2,
        threshold_error=limit - before,
        curves=pairs.curves,
    )


def settling_edges(totals: Totals, between: Bounds, most: int) -> FloatArray:
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
    return np.setdiff1d(np.union1d(genuine, np.nextafter(genuine, -np.inf)), pairs.limits)


def pair_area(totals: Totals) -> Value:
    """Return the chance that a genuine pair is closer than an impostor pair, ties half."""
    pairs = totals.once(accepted_pairs)
    genuine, impostor = pairs.totals
    if not genuine or not impostor:
        return Value(math.nan, curves=pairs.curves)
    low = high = 0  # Python's integers: products of numbers of pairs are large
    counts = np.diff(pairs.genuine)
    for one in np.flatnonzero(counts).tolist():
        count = int(counts[one])
        low += count * (impostor - int(pairs.impostor[one + 1]))
        high += count * (impostor - int(pairs.impostor[one]))
    total = 2 * genuine * impostor
    return Value((low + high) / total, error=(high - low) / total, curves=pairs.curves)


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
    if not pairs.totals[0]:
        return Value(math.nan, curves=pairs.curves)
    f1, most = totals.once(f1_at_limits)
    best = int(np.argmax(f1))
    error = max(float(most.max() - f1[best]), 0.0)
    return Value(
        float(f1[best]),
        threshold=float(pairs.limits[best]),
        error=error,
        threshold_error=math.inf if error else 0.0,  # two far apart may be nearly as good
        curves=pairs.curves,
    )


def around_best_f1(totals: Totals) -> Bounds | None:
    """Return the limits that the best τ lies between; None where it is known."""
    limits = totals.once(accepted_pairs).limits
    f1, most = totals.once(f1_at_limits)
    better = np.flatnonzero(most > f1.max())
    if not len(better):
        return None
    return float(limits[better[0]]), math.nextafter(float(limits[better[-1] + 1]), math.inf)


_RATES = rate(1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)

_of_pairs = partial(
    Metric,
    source="ISO/IEC 19795-1",
    part="verification",
    needs=("indptr", "positive_distance", "impostor_histogram", "histogram_edges"),
    over=("Q+", "negatives"),
    adds=(histogram_terms,),
    keeps=(genuine_distances,),
)

METRICS = (
    _of_pairs(
        name="TAR|FAR={f}",
        formula="TAR(τ) = |{genuine : d <= τ}|/P at the largest τ with FAR(τ) = |{impostor : "
        "d <= τ}|/I <= f; withheld where f < 1/I",
        source="NIST FRVT; ISO/IEC 19795-1",
        finish=at_false_rate,
        parameters={"f": _RATES},
        unsettled=around_rate,
        also=("TPR@FPR={f}", "TMR@FMR={f}", "GAR@FAR={f}"),
    ),
    _of_pairs(
        name="FNMR|FMR={f}",
        formula="FNMR(τ) = |{genuine : d > τ}|/P at the largest τ with FMR(τ) = |{impostor : "
        "d <= τ}|/I <= f; withheld where f < 1/I",
        finish=at_false_rate,
        parameters={"f": _RATES},
        unsettled=around_rate,
        also=("FRR@FAR={f}",),
        better="lower",
    ),
    _of_pairs(
        name="EER",
        formula="FMR(τ) = FNMR(τ), linear between the τ before and after",
        finish=equal_error,
        unsettled=around_crossing,
        also=("equal-error-rate",),
        better="lower",
    ),
    _of_pairs(
        name="AUC",
        formula="1/(P·I) Σ_{genuine} Σ_{impostor} ([d_g < d_i] + ½[d_g = d_i])",
        source="Mann and Whitney 1947; Hanley and McNeil 1982",
        finish=pair_area,
        also=("AUROC", "ROC-AUC"),
    ),
    _of_pairs(
        name="F1_best",
        over=("Q+",),
        formula="max over every distance τ of 2tp/(tp + fp + P) of all pairs (micro), known to "
        "within a bin of the histogram; F1_max is over the thresholds alone",
        source="van Rijsbergen 1979",
        finish=best_f1,
        unsettled=around_best_f1,
        also=("best-F1",),
    ),
)
