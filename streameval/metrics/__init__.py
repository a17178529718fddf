"""Metrics: pure functions of `RankStatistics`, each declared once.

Nothing here sees a distance matrix or a feature. The counts of `RankStatistics` go in,
scalars, curves and per-query columns come out, so every metric can be computed again under
other options without touching the distances.

::

    RankStatistics ──> Ranks ──────────> RankedQueries ──> Metric.compute ──> Values
                       (ranks of the     (what metrics     (one function      (merged into
                        positives under   share, computed   a declaration)     Metrics)
                        a tie rule)       once)

A metric is one `Metric`: its name, the fields that it needs, the queries that it is a mean
over, its formula and where that comes from, and the function. `METRICS` is the list of them;
`compute_metrics` knows none by name. A new metric is a declaration beside its function, and
an entry of the list.

All means over queries are exactly rounded sums (`means.mean`), so no result depends on the
order of the queries or on how they were cut into blocks.
"""

from streameval.metrics.gom import gom_scalars
from streameval.metrics.metric import Metric
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.registry import METRICS, Metrics, compute_metrics

__all__ = [
    "DEFAULT_OPTIONS",
    "METRICS",
    "Metric",
    "MetricOptions",
    "Metrics",
    "compute_metrics",
    "gom_scalars",
]
