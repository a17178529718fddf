"""What tasks count, as statistics of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streameval.planning.plan import Task
from streameval.protocols.views import rows_at
from streameval.run.share import Ahead, Share
from streameval.statistics import RankStatistics
from streameval.stretches import histogram_of
from streameval.typing import IntArray

Numbers = tuple[IntArray, IntArray, IntArray]
"""Of each query, items that are positive (or valid), ignored and of the same identity, [q] each."""


def counted_statistics(
    share: Share, own: Task, of_pairs: Numbers, counted: Ahead, more: dict[str, Any]
) -> tuple[RankStatistics, IntArray]:
    """Return the statistics of an evaluation, and its numbers of negatives in the range, [q]."""
    positive, ignored, same_identity = of_pairs
    negatives = own.gallery[1] - own.gallery[0] - ignored - positive
    thresholds, within = share.thresholds, counted.within
    histogram = _histogram(share, own, within, negatives)
    if thresholds.histogram is not None:  # beside the thresholds there are edges
        within = within[:, np.searchsorted(thresholds.edges, thresholds.values)]
    numbers = positive + negatives, ignored, same_identity
    counted = counted._replace(within=within)
    return statistics_of(share, numbers, counted, histogram | more), negatives


def statistics_of(
    share: Share, numbers: Numbers, counted: Ahead, more: Mapping[str, Any]
) -> RankStatistics:
    """Return statistics from what is counted, of negatives within the thresholds alone.

    The numbers are of items that are valid, ignored and of the same identity.
    """
    valid, ignored, same_identity = numbers
    return RankStatistics(
        indptr=counted.positives.indptr,
        positive_distance=counted.positives.distance,
        thresholds=share.thresholds.values,
        closer=counted.closer,
        tied=counted.tied,
        tied_before=counted.tied_before,
        negatives_within=counted.within,
        nearest_negative=counted.nearest,
        valid=valid,
        ignored=ignored,
        same_identity=same_identity,
        positive_item=rows_at(share.view.items, counted.positives.item),
        **more,
    )


def _histogram(share: Share, own: Task, within: IntArray, negatives: IntArray) -> dict[str, Any]:
    """Return the histogram of impostors: see `histogram_fields`.

    `within` [q, E] are the negatives within each threshold and edge, `negatives` [q] all.
    """
    if share.thresholds.histogram is None:
        return {}
    if share.groups is None:
        return histogram_fields(share, own, np.append(within.sum(axis=0), negatives.sum())[None])
    group = share.groups[slice(*own.queries)]
    sums = np.zeros((int(share.groups.max()) + 1, within.shape[1] + 1), np.int64)
    np.add.at(sums, group, np.column_stack([within, negatives]))
    return histogram_fields(share, own, sums)


def histogram_fields(share: Share, own: Task, sums: IntArray) -> dict[str, Any]:
    """Return the histogram of impostors and its edges, and that of each group, where wanted.

    `sums` [groups, E + 1] are the negatives within each threshold and edge, and all.
    """
    thresholds = share.thresholds
    if thresholds.histogram is None:
        return {}
    edges = np.searchsorted(thresholds.edges, thresholds.histogram)
    by_group = histogram_of(sums[:, edges], sums[:, -1])
    found = {"impostor_histogram": by_group.sum(axis=0), "histogram_edges": thresholds.histogram}
    if share.groups is None:
        return found
    return found | {"group": share.groups[slice(*own.queries)], "group_histogram": by_group}
