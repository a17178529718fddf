"""Side by side with the machine's limits and with peers: ``python -m benchmarks``.

    figure     what a figure is, as data; a case measures the sides of some figures in turn
    measure    timing in turn; from samples to a reading
    data       synthetic inputs: identities are clusters, positives mostly near
    peers      a bare GEMM, FAISS, a bare read, an evaluator that argsorts
    one_run    one evaluation in a process of its own: its memory, its first tile
    noop       tasks that do nothing, driven through a cluster
    features, stored, scaling, memory, cliffs, single_shot, confidence, startup, cluster,
    ledger, lists, labels, reranking, expansion
               the groups: each declares its cases in `CASES`
    table      what a person reads

A figure is added by one declaration in its group. What was learned is in NOTES.md.
"""
