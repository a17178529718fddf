"""Rankings: the first items of a few queries' ranked lists, from the inputs of a saved result.

A result keeps what metrics are made of, and not who is ranked where. `reopen` opens what it was
evaluated from, and refuses what is no longer the same; `nearest_items` computes the distances of a
few queries again, exactly.
"""

from streameval.rankings.inputs import Inputs, reopen
from streameval.rankings.nearest import Item, Kind, RankedList, nearest_items

__all__ = ["Inputs", "Item", "Kind", "RankedList", "nearest_items", "reopen"]
