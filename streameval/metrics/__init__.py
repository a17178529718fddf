"""Metrics: pure functions of `RankStatistics`, each declared once.

Nothing here sees a distance matrix or a feature. The counts of `RankStatistics` go in,
scalars, curves and per-query columns come out, so every metric can be computed again under
other options without touching the distances.

::

    block of queries ──> RankedQueries ──> Gathered ──> Totals ──────> Measure.finish ──> Value
    (RankStatistics)     (ranks of the     (values,     (of all        (one function      (merged
                          positives under   columns,     blocks,        a declaration)     into
                          a tie rule)       exact sums)  rounded once)                     Metrics)

A metric is one `Metric`: its name with its parameters, the fields that it needs, the queries
that it is over (it is NaN where there are none), its formula and where that comes from, and what
it asks of a block: values to be averaged, terms to be added up, columns to be kept. `METRICS` is
the list of them; `compute_metrics` knows none by name. A new metric is a declaration beside its
functions, and an entry of the list.

    retrieval     CMC, mAP, mINP, MRR, median rank, precision at recall
    single_shot   CMC where one item is drawn of each gallery identity
    cutoffs       AP@k, precision@k, recall@k, recall@p%, R-precision, MAP@R, nDCG@k
    gom           GOM
    openset       DIR at FAR, FNIR at FPIR, TTR at FTR
    verification  TAR at FAR, EER, AUC from the histogram of impostors
    matching      precision, recall, F1 on the thresholds
    kind          what values are: fractions, ranks, distances, counts, thresholds
    ranks         ranks under a tie rule; `expected`, `tie_groups`, `harmonic`: their expectations
    sums          exact sums; `totals`: sums and columns of blocks of queries
    resampling    bootstrap over identities: how metrics are read off resamples
    confidence    confidence intervals
    registry      the list
    selection     metrics by name; `required_fields`, what a plan has to count for them
    compute       values, tie intervals, curves and columns of some statistics
    groups        the same of groups of queries; `camera_pairs`: and of pairs of cameras
    bounds        the same of lists of neighbours: bounds, or those of a system as deployed

All sums over queries are exact and rounded once, so no result depends on the order of the
queries or on how they are split into blocks.
"""

from streameval.metrics.compute import Detail, Metrics, compute_metrics
from streameval.metrics.gom import gom_scalars
from streameval.metrics.metric import Measure, Metric, Value
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.registry import METRICS
from streameval.metrics.selection import required_fields

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
