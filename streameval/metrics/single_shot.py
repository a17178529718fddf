"""CMC under single gallery shot: one item drawn of each gallery identity.

The statistics hold, for each query, how likely a drawn positive is among the first x. CMC is
the mean of that over the queries: exact, or over seeded draws as the public tools take them.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streameval.errors import OptionError
from streameval.metrics.metric import Metric, Value
from streameval.metrics.parameters import rank
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.totals import Totals
from streameval.statistics import SHOT_RULES, FloatArray

WITHOUT_EXPECTATION = (
    "the draw of an item and random tie-breaks are not taken together: read it under another tie "
    "rule"
)


def shots_of(ranked: RankedQueries, field: str) -> FloatArray:
    """Return how likely each query's draw is within the ranks 1 .. R, [N, R] float64.

    Raises
    ------
    OptionError
        If the statistics don't hold the field.
    """
    shots: npt.NDArray[np.float64] | None = getattr(ranked.stats, field)
    if shots is None:
        raise OptionError(
            f"CMC under single gallery shot needs {field}, which these statistics do not hold: "
            "evaluate again, from the distances or features, with --protocol cuhk03"
        )
    ties = ranked.options.ties
    rule = 0 if ties == "expected" else SHOT_RULES.index(ties)
    likely: FloatArray = shots[ranked.stats.has_positive, rule]
    return likely


def shot_terms(ranked: RankedQueries, field: str) -> list[FloatArray]:
    """Return what CMC adds at the ranks 1 .. R, [R, N] float64."""
    return [shots_of(ranked, field).T]


def shots_within(ranked: RankedQueries, x: int, field: str) -> FloatArray:
    """Return what CMC@x is the mean of, [N] float64; of R beyond the last rank that was counted."""
    shots = shots_of(ranked, field)
    return shots[:, min(x, shots.shape[1]) - 1]


def shot_value(totals: Totals, name: str, curve: FloatArray, x: int) -> Value:
    """Return a point of the curve of that name, [R] float64, and the curve.

    Both are NaN where ``ties="expected"`` and there are ties.
    """
    if totals.options.ties == "expected" and totals.tied:
        curve = np.full(len(curve), math.nan)
    if x > len(curve):
        reason = f"only ranks up to {len(curve)} were counted"
        return Value(math.nan, reason=reason, curves={name: curve})
    return Value(float(curve[x - 1]), reason=WITHOUT_EXPECTATION, curves={name: curve})


def sampled_terms(ranked: RankedQueries) -> list[FloatArray]:
    """Return what CMC_sampled adds at the ranks 1 .. R, [R, N] float64."""
    return shot_terms(ranked, "sampled_shots")


def sampled_shots(ranked: RankedQueries, x: int) -> FloatArray:
    """Return what CMC_sampled@x is the mean of, [N] float64."""
    return shots_within(ranked, x, "sampled_shots")


def sampled_matching(totals: Totals, x: int) -> Value:
    """Return CMC@x as a mean over seeded draws, and its curve [R]."""
    return shot_value(totals, "CMC_sampled", totals.means(sampled_terms), x)


CMC_SAMPLED = Metric(
    name="CMC_sampled@{x}",
    needs=("indptr", "tied", "sampled_shots"),
    formula="1/N Σ [c + 1 <= x], mean over draws of one item of each gallery identity",
    source="Li et al. 2014 (CUHK03); torchreid and open-reid: 10 draws, without a seed",
    values=sampled_shots,
    adds=(sampled_terms,),
    finish=sampled_matching,
    parameters={"x": rank(lambda options: options.cmc_ranks)},
)
