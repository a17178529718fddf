"""What tests use of `streameval.neighbors` beside its public names."""

from streameval.neighbors.bounds import find_extremes as find_extremes
from streameval.neighbors.comparison import Setting as Setting
from streameval.neighbors.jackknife import interval as interval
from streameval.neighbors.lists import Lists as Lists
from streameval.neighbors.lists import Places as Places
from streameval.neighbors.plan import ListSizes as ListSizes
from streameval.neighbors.plan import plan_lists as plan_lists
from streameval.neighbors.trec import descending as descending
from streameval.neighbors.trec import names_of as names_of
from streameval.neighbors.trec import qrels_lines as qrels_lines
from streameval.neighbors.trec import run_lines as run_lines

__all__ = [
    "ListSizes",
    "Lists",
    "Places",
    "Setting",
    "descending",
    "find_extremes",
    "interval",
    "names_of",
    "plan_lists",
    "qrels_lines",
    "run_lines",
]
