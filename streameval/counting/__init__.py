"""Counting: how many negatives are closer than each positive and within each threshold.

Pure NumPy and numba; no files, no threads, no protocol names.

    canonical   the float64 distance of a pair, in one fixed order of operations
    edges       per query, the sorted distances to count against, and the slots between them
    rows        one tile row against its edges: a uniform grid, then exact placing
    tiles       tiles of features (BLAS as a filter, guard band) and of stored distances

A tile holds one value for each (query, gallery item) pair. Pairs that are not negatives are
overwritten with +inf, which lies beyond every edge, so that the hot loop has no masks. Values
further than the guard band from every edge are counted as they are; the others are decided by
the canonical distance. So the counts are those of the canonical distances, whatever the tile.
"""
