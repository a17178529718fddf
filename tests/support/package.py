"""What tests use of the modules at the root of the package."""

from streameval.memory import LEAST_SPACE as LEAST_SPACE
from streameval.memory import Memory as Memory
from streameval.memory import default_budget as default_budget
from streameval.memory import free_bytes as free_bytes
from streameval.memory import give_back as give_back
from streameval.output import NewFile as NewFile
from streameval.output import claimed as claimed
from streameval.planning.range import uniform_edges as uniform_edges
from streameval.request import Terms as Terms
from streameval.sorting import order_within as order_within
from streameval.stacked import stack as stack
from streameval.statistics import FIELDS as FIELDS
from streameval.statistics import REQUIRED as REQUIRED
from streameval.store import View as View
from streameval.store import pack as pack
from streameval.store import unpack as unpack
from streameval.stretches import left_of as left_of
from streameval.stretches import sums_of as sums_of

__all__ = [
    "FIELDS",
    "LEAST_SPACE",
    "REQUIRED",
    "Memory",
    "NewFile",
    "Terms",
    "View",
    "claimed",
    "default_budget",
    "free_bytes",
    "give_back",
    "left_of",
    "order_within",
    "pack",
    "stack",
    "sums_of",
    "uniform_edges",
    "unpack",
]
