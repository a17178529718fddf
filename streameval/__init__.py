"""streameval: exact re-identification and retrieval metrics in one streaming pass.

    cli           the command line
    report        reports on several results, plans and ledgers
    ledger        the growing gallery: an evaluation on disk, updated with each change
    rankings      ranked lists of a few queries, from the inputs of a saved result
    expansion     query expansion, database-side augmentation, multi-query
    audit         likely mistakes in the inputs
    evaluation    evaluate(), evaluate_all()
    reranking     k-reciprocal re-ranking of features
    neighbors     lists of neighbours, stored or from FAISS; comparison of indexes
    sources       sources of distances: features, stored distances, functions
    run           sessions that run requests: tasks, passes, threads, Dask, finished work
    result        Evaluation: values, curves, per-query table; save, load and compare
    display       tables, text, HTML and figures of a result
    request       all inputs and options of an evaluation, checked once
    source        the contract of sources
    planning      the byte model and the tiling, without I/O
    single_shot   single gallery shot: one item of each gallery identity
    kernels       filters, edges, counting
    labels        labels, lists of pairs and protocols from files
    store         transactions on disk, for checkpoints and ledgers
    arrays        arrays by URI, one file per format; conversion, fingerprints
    distances     one file per distance: canonical value, filter, equivalent in FAISS
    metrics       RankStatistics -> scalars and curves
    protocols     labels, pairs, named protocols, the conventions of other tools
    choices       names of the choices of options
    stacked       statistics of consecutive blocks of queries, as one
    statistics    RankStatistics: the counts from which metrics are computed
    sorting       stretches sorted, each by itself
    stretches     what belongs to rows, one row after the other
    threads       work that is spread over threads, beside the passes
    memory        what is free, budgets, and what libraries take
    compilation   compilation of kernels
    output        files and folders, written atomically
    interruption  signals that end the process
    errors        exceptions and the warning
    typing        types for annotations

Imports point downwards. This module imports nothing heavy: a public name loads what it needs
when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streameval.errors import (
        BudgetError,
        InputError,
        OptionError,
        OutputError,
        StreamevalError,
        StreamevalWarning,
        TaskError,
    )
    from streameval.evaluation import evaluate, evaluate_all
    from streameval.expansion.expanded import Expanded
    from streameval.expansion.multi_query import MultiQuery
    from streameval.labels.columns import read_label_table, read_label_tables, read_labels
    from streameval.labels.pair_files import read_listed_pairs, read_pairs
    from streameval.labels.protocol_files import read_protocol
    from streameval.labels.trial_files import read_drawn
    from streameval.ledger import Ledger
    from streameval.metrics.options import MetricOptions
    from streameval.neighbors.comparison import compare_index
    from streameval.neighbors.neighbors import Neighbors
    from streameval.protocols.labels import Labels
    from streameval.protocols.listed import ListedPairs, PairList
    from streameval.protocols.presets import PRESETS
    from streameval.protocols.protocol import Protocol
    from streameval.protocols.rows import Rows
    from streameval.protocols.shipped import PROTOCOLS
    from streameval.protocols.trials import Trials
    from streameval.reranking.reranked import Reranked
    from streameval.result import Evaluation
    from streameval.result.average import Average, average
    from streameval.result.comparison import compare
    from streameval.result.several import Evaluations
    from streameval.run.progress import Progress
    from streameval.sources.computed import Computed
    from streameval.sources.distances import Distances
    from streameval.sources.features import Features
    from streameval.statistics import RankStatistics

_HOMES = {
    "errors": "BudgetError InputError OptionError OutputError "
    "StreamevalError StreamevalWarning TaskError",
    "evaluation": "evaluate evaluate_all",
    "expansion.expanded": "Expanded",
    "expansion.multi_query": "MultiQuery",
    "labels.columns": "read_label_table read_label_tables read_labels",
    "labels.pair_files": "read_listed_pairs read_pairs",
    "labels.protocol_files": "read_protocol",
    "labels.trial_files": "read_drawn",
    "ledger": "Ledger",
    "metrics.options": "MetricOptions",
    "neighbors.comparison": "compare_index",
    "neighbors.neighbors": "Neighbors",
    "protocols.labels": "Labels",
    "protocols.listed": "ListedPairs PairList",
    "protocols.presets": "PRESETS",
    "protocols.protocol": "Protocol",
    "protocols.rows": "Rows",
    "protocols.shipped": "PROTOCOLS",
    "protocols.trials": "Trials",
    "result.average": "Average average",
    "result.several": "Evaluations",
    "result.comparison": "compare",
    "result.evaluation": "Evaluation",
    "reranking.reranked": "Reranked",
    "run.progress": "Progress",
    "sources.computed": "Computed",
    "sources.distances": "Distances",
    "sources.features": "Features",
    "statistics": "RankStatistics",
}
"""Public names by the module that has them."""

__all__ = [
    "PRESETS",
    "PROTOCOLS",
    "Average",
    "BudgetError",
    "Computed",
    "Distances",
    "Evaluation",
    "Evaluations",
    "Expanded",
    "Features",
    "InputError",
    "Labels",
    "Ledger",
    "ListedPairs",
    "MetricOptions",
    "MultiQuery",
    "Neighbors",
    "OptionError",
    "OutputError",
    "PairList",
    "Progress",
    "Protocol",
    "RankStatistics",
    "Reranked",
    "Rows",
    "StreamevalError",
    "StreamevalWarning",
    "TaskError",
    "Trials",
    "average",
    "compare",
    "compare_index",
    "evaluate",
    "evaluate_all",
    "read_drawn",
    "read_label_table",
    "read_label_tables",
    "read_labels",
    "read_listed_pairs",
    "read_pairs",
    "read_protocol",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home when it is first used."""
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"streameval.{home}"), name)
    raise AttributeError(f"module 'streameval' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
