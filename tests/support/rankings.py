"""What tests use of `streameval.rankings` beside its public names."""

from streameval import rankings as nearest_module
from streameval.rankings import Kind as Kind
from streameval.rankings import RankedList as RankedList
from streameval.rankings import nearest_items as nearest_items
from streameval.rankings import reopen as reopen

__all__ = [
    "Kind",
    "RankedList",
    "nearest_items",
    "nearest_module",
    "reopen",
]
