"""CMC under single gallery shot: one item drawn of each gallery identity.

The statistics hold, for each query, how likely a drawn positive is among the first x. CMC is
the mean of that over the queries: exact, or over seeded draws as the public tools take them.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streameval.errors import OptionError
from streameval.metrics.means import mean
from streameval.metrics.metric import Metric, Value
from streameval.metrics.parameters import rank
from streameval.metrics.ranked import RankedQueries
from streameval.metrics.resampling import mean_of
from streameval.statistics import SHOT_RULES, FloatArray

WITHOUT_EXPECTATION = (
    "the draw of an item and random tie-breaks are not taken together: read it under another tie "
    "rule"
)


def shot_curve(ranked: RankedQueries, field: str) -> FloatArray:
    """Return CMC at the ranks 1 .. R of the statistics, [R] float64.

    NaN where no query has a positive, and where ``ties="expected"`` and there are ties.

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
    own = shots[ranked.stats.has_positive]
    ties = ranked.options.ties
    if not len(own) or (ties == "expected" and ranked.stats.tied.any()):
        return np.full(shots.shape[-1], math.nan)
    rule = 0 if ties == "expected" else SHOT_RULES.index(ties)
    return np.array([mean(own[:, rule, x]) for x in range(own.shape[-1])])


def shots_of(ranked: RankedQueries, field: str, x: int) -> FloatArray:
    """Return what `shot_curve` is the mean of at a rank that was counted, [N] float64."""
    ties = ranked.options.ties
    rule = 0 if ties == "expected" else SHOT_RULES.index(ties)
    shots: npt.NDArray[np.float64] = getattr(ranked.stats, field)
    own: FloatArray = shots[ranked.stats.has_positive, rule, x - 1]
    return own


def sampled_shots(ranked: RankedQueries, x: int) -> FloatArray:
    """Return what CMC_sampled@x is the mean of, [N] float64."""
    return shots_of(ranked, "sampled_shots", x)


def shots_within(ranked: RankedQueries, x: int, field: str) -> Value:
    """Return CMC@x under single gallery shot, without its curve."""
    curve = ranked.once(shot_curve, field)
    if x > len(curve):
        return Value(math.nan, reason=f"only ranks up to {len(curve)} were counted")
    return Value(float(curve[x - 1]), reason=WITHOUT_EXPECTATION)


def sampled_matching(ranked: RankedQueries, x: int) -> Value:
    """Return CMC@x as a mean over seeded draws, and its curve [R]."""
    value = shots_within(ranked, x, "sampled_shots")
    curve = ranked.once(shot_curve, "sampled_shots")
    return Value(value.value, reason=value.reason, curves={"CMC_sampled": curve})


CMC_SAMPLED = Metric(
    name="CMC_sampled@{x}",
    part="retrieval",
    needs=("indptr", "tied", "sampled_shots"),
    over=("Q+",),
    formula="1/N Σ [c + 1 <= x], mean over draws of one item of each gallery identity",
    source="Li et al. 2014 (CUHK03); torchreid and open-reid: 10 draws, without a seed",
    compute=sampled_matching,
    resampled=mean_of(sampled_shots),
    parameters={"x": rank(lambda options: options.cmc_ranks)},
)
