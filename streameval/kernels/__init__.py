"""Kernels: how many negatives are closer than each positive and within each threshold.

Pure NumPy and numba; no files, no threads, no protocol names.

    edges         per query, the sorted distances to count against, and the slots between them
    tiles         values of some queries with some gallery items, their levels and doubts
    features      gallery rows against a block of queries (`query_block`)
    filters       tiles of float32 products, and of float64 ones for rows left in doubt
    marks         tiles of marks: pairs that one digit can't rule out, by a `sieve` (`sieve_units`)
    multiplier    what multiplies: BLAS, the `matrix_unit` (`plain_unit`) with rows in `panels`, or
                  vectors (`vector_unit`, `word_unit`) with rows in `words`; a `few` as they lie
    processor     which kernels OpenBLAS should take, by the description of the processor
    counting      the counter of ranks and thresholds; `settling` of pairs in doubt
    extremes      counters of the least and greatest distance, and of the nearest negatives
    identities    the counter of identities with a negative ahead of the first positive
    stretches     the counter of ranks alone, by stretch of the gallery
    grids         uniform cells over a row of a tile, and the edges that touch them
    cells         values to cells, and counts of cells
    selection     the values of a row that may be of interest, where they are few
    buckets       the same where a row has many edges
    caches        compiled kernels that an older source left behind

A tile holds one value for each (query, gallery item) pair. Pairs that are not negatives are
overwritten with +inf, which lies beyond every edge, so that the hot loops have no masks. Values
further than the guard band from every edge are counted as they are; the others are decided by
the canonical distance. So the counts are those of the canonical distances, whatever the tile.
No kernel knows a distance: levels and bands come in as arrays, doubts go out as pairs.
"""
