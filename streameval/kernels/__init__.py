"""Kernels: how many negatives are closer than each positive and within each threshold.

Pure NumPy and numba; no files, no threads, no protocol names.

    canonical   the float64 distance of a pair, in one fixed order of operations: see `lanes`
    thresholds  which distances lie within each τ of a range
    edges       per query, the sorted distances to count against, and the slots between them
    tiles       what tiles of both kinds share: their columns, and what is counted
    masks       pairs that are not to be counted
    grids       uniform cells over a tile row, and the edges that touch them: see `cells`
    rows        the hot loop: the cells of one tile row
    stored      tiles of stored distances
    filtering   tiles of features: float32 values, their meaning and their guard band
    products    what these are made of: BLAS, or the processor's `matrix_unit`
    features    counting these, and deciding what they leave in doubt
    doubtful    deciding much of that at a time, where a model has collapsed
    near        the nearest negatives of each query
    ranks       negatives ahead of a few positives, and nothing else
    caches      compiled kernels that an older source left behind

A tile holds one value for each (query, gallery item) pair. Pairs that are not negatives are
overwritten with +inf, which lies beyond every edge, so that the hot loop has no masks. Values
further than the guard band from every edge are counted as they are; the others are decided by
the canonical distance. So the counts are those of the canonical distances, whatever the tile.
"""

from pathlib import Path

from streameval.kernels.caches import forget_older_kernels

for _folder in ("kernels", "neighbors", "single_shot"):
    forget_older_kernels(Path(__file__).parent.parent / _folder)
