"""What tests use of `streameval.neighbors` beside its public names."""

from streameval.neighbors.bounds import find_extremes as find_extremes
from streameval.neighbors.comparison import Setting as Setting
from streameval.neighbors.comparison import interval as interval
from streameval.neighbors.flat import Hits as Hits
from streameval.neighbors.list_files import descending as descending
from streameval.neighbors.list_files import names_of as names_of
from streameval.neighbors.list_files import qrels_lines as qrels_lines
from streameval.neighbors.list_files import run_lines as run_lines
from streameval.neighbors.lists import Lists as Lists
from streameval.neighbors.lists import Places as Places

__all__ = [
    "Hits",
    "Lists",
    "Places",
    "Setting",
    "descending",
    "find_extremes",
    "interval",
    "names_of",
    "qrels_lines",
    "run_lines",
]
