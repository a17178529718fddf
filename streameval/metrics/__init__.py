"""Metrics: pure functions of `RankStatistics`, each declared once.

Nothing here sees a distance matrix or a feature. The counts of `RankStatistics` go in,
scalars, curves and per-query columns come out, so every metric can be computed again under
other options without touching the distances.

::

    block of queries ──> RankedQueries ──> gathered ──> Totals ──────> Measure.finish ──> Value
    (RankStatistics)     (ranks of the     (values,     (of all        (one function      (merged
                          positives under   columns,     blocks,        a declaration)     into
                          a tie rule)       exact sums)  rounded once)                     Metrics)

A metric is one `Metric`: its name with its parameters, the fields that it needs, the queries
that it is over (it is NaN where there are none), its formula and where that comes from, and what
it asks of a block: values to be averaged, terms to be added up, columns to be kept. `METRICS` is
the list of them; `compute_metrics` knows none by name. A new metric is a declaration in the
`METRICS` of a file, beside its functions.

    retrieval     CMC in all its readings, mAP, mINP, MRR, median rank
    cutoffs       AP@k, precision@k, mP@k, recall@k, recall@p%, R-precision, MAP@R, nDCG@k,
                  precision at recall
    gom           GOM
    openset       DIR at FAR, FNIR at FPIR, TTR at FTR
    predictions   GAP, of one prediction a query
    verification  TAR at FAR, EER, AUC from the histogram of impostors
    matching      precision, recall, F1 on the thresholds
    ranks         ranks under a tie rule; `expected`: their expectations over tie-breaks
    blocks        blocks of queries as metrics read them, and what all blocks add up to
    sums          exact sums
    confidence    confidence intervals by bootstrap over identities
    selection     the list, metrics by name; `required_fields`, what a plan has to count for them
    compute       values, tie intervals, curves and columns of some statistics
    groups        the same of groups of queries, and of pairs of cameras
    bounds        the same of lists of neighbours: bounds, or those of a system as deployed

All sums over queries are exact and rounded once, so no result depends on the order of the
queries or on how they are split into blocks.
"""

from streameval.metrics.compute import Detail, Metrics, compute_metrics
from streameval.metrics.gom import gom_scalars
from streameval.metrics.metric import Measure, Metric, Value
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.selection import METRICS, required_fields

__all__ = [
    "DEFAULT_OPTIONS",
    "METRICS",
    "Detail",
    "Measure",
    "Metric",
    "MetricOptions",
    "Metrics",
    "Value",
    "compute_metrics",
    "gom_scalars",
    "required_fields",
]
