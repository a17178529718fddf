"""What tests use of the modules at the root of the package."""

from streameval.output import NewFile as NewFile
from streameval.planning.range import uniform_edges as uniform_edges
from streameval.request import Terms as Terms
from streameval.statistics import FIELDS as FIELDS
from streameval.statistics import REQUIRED as REQUIRED
from streameval.store import View as View
from streameval.store import pack as pack
from streameval.store import unpack as unpack

__all__ = [
    "FIELDS",
    "REQUIRED",
    "NewFile",
    "Terms",
    "View",
    "pack",
    "uniform_edges",
    "unpack",
]
