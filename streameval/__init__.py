"""streameval: exact re-identification and retrieval metrics in one streaming pass.

    cli          the command line
    report       what a person reads of several results, of a plan, of a ledger
    ledger       the growing gallery: an evaluation on disk that is always up to date
    rankings     the first items of a few queries, from the inputs of a saved result
    audit        what in the inputs is likely a mistake
    evaluation   evaluate()
    neighbors    neighbour lists: stored, or made by FAISS; indexes beside the exact evaluation
    sources      where distances come from: features, stored distances, functions
    run          requests carried out in sessions: tasks, passes, threads, Dask, finished work
    result       Evaluation: values, curves, per-query table; save, load and compare
    display      how a result is shown: tables, text, HTML, figures
    request      everything asked of an evaluation, checked once
    source       the contract of sources
    planning     the byte model and the tiling, without I/O
    single_shot  one item drawn of each gallery identity
    kernels      filters, edges, counting
    labels       labels, lists of pairs and protocols, read from files
    store        transactions on disk, for checkpoints and ledgers
    arrays       arrays by URI: a file a format; conversion, fingerprints
    distances    a file a distance: canonical value, filter, equivalent in FAISS
    metrics      RankStatistics -> scalars and curves
    protocols    labels, pairs, named protocols, the conventions of other tools
    choices      names that options choose among
    statistics   RankStatistics, the one currency
    output       files and folders, written whole or not at all
    errors       the exceptions, and the warning
    typing       types that annotations name

Imports point downwards. This module imports nothing heavy: the public names load what they
need when they are first used.
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
    from streameval.evaluation import evaluate
    from streameval.labels.columns import read_label_table, read_label_tables, read_labels
    from streameval.labels.protocol_files import read_listed_pairs, read_protocol
    from streameval.ledger import Ledger
    from streameval.metrics.options import MetricOptions
    from streameval.neighbors.comparison import compare_index
    from streameval.neighbors.neighbors import Neighbors
    from streameval.protocols.labels import Labels
    from streameval.protocols.listed import ListedPairs
    from streameval.protocols.protocol import PRESETS, PROTOCOLS, Protocol
    from streameval.result import Evaluation
    from streameval.result.comparison import compare
    from streameval.run.progress import Progress
    from streameval.sources.computed import Computed
    from streameval.sources.distances import Distances
    from streameval.sources.features import Features
    from streameval.statistics import RankStatistics

_HOMES = {
    "errors": "BudgetError InputError OptionError OutputError "
    "StreamevalError StreamevalWarning TaskError",
    "evaluation": "evaluate",
    "labels.columns": "read_label_table read_label_tables read_labels",
    "labels.protocol_files": "read_listed_pairs read_protocol",
    "ledger": "Ledger",
    "metrics.options": "MetricOptions",
    "neighbors.comparison": "compare_index",
    "neighbors.neighbors": "Neighbors",
    "protocols.labels": "Labels",
    "protocols.listed": "ListedPairs",
    "protocols.protocol": "PRESETS PROTOCOLS Protocol",
    "result.comparison": "compare",
    "result.evaluation": "Evaluation",
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
    "BudgetError",
    "Computed",
    "Distances",
    "Evaluation",
    "Features",
    "InputError",
    "Labels",
    "Ledger",
    "ListedPairs",
    "MetricOptions",
    "Neighbors",
    "OptionError",
    "OutputError",
    "Progress",
    "Protocol",
    "RankStatistics",
    "StreamevalError",
    "StreamevalWarning",
    "TaskError",
    "compare",
    "compare_index",
    "evaluate",
    "read_label_table",
    "read_label_tables",
    "read_labels",
    "read_listed_pairs",
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
