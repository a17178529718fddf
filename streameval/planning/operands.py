"""What is held of features at a time, and how it is made smaller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streameval.kernels.multiplier import item_bytes, query_bytes, slice_bytes, taken_bytes
from streameval.kernels.tiles import FINE_QUERIES
from streameval.planning.problem import Data, Holders


class Sizes(NamedTuple):
    """What is held at a time: queries of a task, rows of the gallery, a tile's shape; a round."""

    queries: int
    block: int
    rows: int
    items: int
    round: int


def operand_parts(data: Data, threads: int, operands: int, cut: Sizes, classes: int = 0) -> Holders:
    """Return the bytes of so many blocks of queries, of gallery blocks and of tiles."""
    value = 8 if data.exact else 4  # of what is held beside the features, and in a tile
    queries = cut.queries * data.width * (data.itemsize + value)
    block = cut.block * gallery_row_bytes(data) + data.scratch(cut.block, data.width)
    tile = cut.items * (value * (cut.rows + classes) + fine_bytes(data, classes))
    return {
        "queries": operands * (queries + query_bytes(cut.queries, data.width)),
        "gallery blocks": threads * block,
        "tiles": threads
        * (
            tile
            + item_bytes(cut.items, data.width)
            + slice_bytes(cut.rows, cut.items, data.width)
            + taken_bytes(cut.rows, data.width)
        ),
    }


def fine_bytes(data: Data, classes: int = 0) -> int:
    """Return the bytes of a column of finer tiles, where a model has collapsed.

    Values in float32 and float64, and those that are taken out of the tile before.
    """
    return 8 * (data.width + 3 * FINE_QUERIES + max(classes, 1)) + 64


def gallery_row_bytes(data: Data) -> int:
    """Return the bytes of a gallery row: as stored, as worked on, as multiplied."""
    return data.width * (data.stored_itemsize + data.itemsize + (8 if data.exact else 4)) + 64


def halved(cut: Sizes, least: Sequence[tuple[str, int]], chunk: int) -> Sizes | None:
    """Return a cut with half of the first size that is not as small as it may be; None of none."""
    name = next((name for name, size in least if getattr(cut, name) > size), None)
    if name is None:
        return None
    half = -(-getattr(cut, name) // 2)
    if name == "block" and cut.block > chunk:
        half = max(half // chunk, 1) * chunk
    cut = cut._replace(**{name: half})
    return cut._replace(items=min(cut.items, cut.block), queries=min(cut.queries, cut.round))
