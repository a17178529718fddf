"""What tests use of `streameval.protocols` beside its public names."""

from streameval.labels.pair_files import lists_of as lists_of
from streameval.protocols import protocol as protocol_module
from streameval.protocols.agreement import multiplicities as multiplicities
from streameval.protocols.counts import PairCounts as PairCounts
from streameval.protocols.pairs import Pairs as Pairs
from streameval.protocols.pairs import find_pairs as find_pairs
from streameval.protocols.presets import DIFFERENCES as DIFFERENCES
from streameval.protocols.presets import EQUIVALENTS as EQUIVALENTS
from streameval.protocols.views import View as View
from streameval.protocols.views import views_of as views_of

__all__ = [
    "DIFFERENCES",
    "EQUIVALENTS",
    "PairCounts",
    "Pairs",
    "View",
    "find_pairs",
    "lists_of",
    "multiplicities",
    "protocol_module",
    "views_of",
]
