"""streameval: exact re-identification and retrieval metrics in one streaming pass.

    cli          the command line
    report       what a person reads: the terminal table, the progress bar
    ledger       the growing gallery: an evaluation on disk that is always up to date
    comparison   settings of an index against the exact evaluation
    rankings     the first items of a few queries, from the inputs of a saved result
    evaluation   evaluate(): puts everything below together
    provenance   what a result was made from, by what, where and when
    evaluation_of_lists  lists of neighbours, in the place of the passes over all pairs
    resuming     what must be the same for a run to go on with another's work
    preparation  inputs checked, protocol applied, work planned
    result       Evaluation: values, curves, per-query table; save and load
    execution    one task; the passes; the executors; progress events
    audit        what in the inputs is likely a mistake
    inputs       arrays by URI, labels, features, stored distances
    planning     the byte model and the tiling, without I/O
    counting     canonical distances, edges, kernels
    identities   the identities of a gallery, of which one item each may be drawn
    metrics      RankStatistics -> scalars and curves
    listed       pairs by lists, in place of labels
    pairs        what a protocol makes of the labels
    presets      the conventions of other tools, as data
    protocol     the named protocols, as data
    statistics   RankStatistics, the one currency
    errors       the exceptions, and the warning

Imports point downwards. This module imports nothing heavy: the public names load what they
need when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streameval.comparison import compare_index
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
    from streameval.execution.progress import Progress
    from streameval.inputs.labels import read_label_table, read_label_tables, read_labels
    from streameval.inputs.lists import read_listed_pairs
    from streameval.inputs.neighbors import Neighbors
    from streameval.inputs.protocols import read_protocol
    from streameval.inputs.sources import Distances, Features
    from streameval.ledger import Ledger
    from streameval.listed import ListedPairs
    from streameval.metrics import MetricOptions
    from streameval.presets import PRESETS
    from streameval.protocol import PROTOCOLS, Labels, Protocol
    from streameval.result import Evaluation
    from streameval.result.paired import compare
    from streameval.statistics import RankStatistics

_HOMES = {
    "BudgetError": "errors",
    "InputError": "errors",
    "OptionError": "errors",
    "OutputError": "errors",
    "StreamevalError": "errors",
    "StreamevalWarning": "errors",
    "TaskError": "errors",
    "compare_index": "comparison",
    "evaluate": "evaluation",
    "Progress": "execution.progress",
    "read_label_table": "inputs.labels",
    "read_label_tables": "inputs.labels",
    "read_labels": "inputs.labels",
    "read_listed_pairs": "inputs.lists",
    "Neighbors": "inputs.neighbors",
    "read_protocol": "inputs.protocols",
    "Distances": "inputs.sources",
    "Features": "inputs.sources",
    "Ledger": "ledger",
    "ListedPairs": "listed",
    "MetricOptions": "metrics",
    "PRESETS": "presets",
    "PROTOCOLS": "protocol",
    "Labels": "protocol",
    "Protocol": "protocol",
    "Evaluation": "result",
    "compare": "result.paired",
    "RankStatistics": "statistics",
}

__all__ = [
    "PRESETS",
    "PROTOCOLS",
    "BudgetError",
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
    if name not in _HOMES:
        raise AttributeError(f"module 'streameval' has no attribute {name!r}")
    return getattr(import_module(f"streameval.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
