"""What a change will count, said beforehand."""

from __future__ import annotations

from dataclasses import dataclass

ROW_PAIRS = 220  # pairs that take as long as reading and preparing a row of gallery features
RANK = 0.75  # what a pair takes that is counted for ranks alone
NEAR = 1.7  # and where the nearest negatives are looked for from nothing


@dataclass(frozen=True)
class Forecast:
    """What a change counts: known before it does, from the distances of the new positives.

    Attributes
    ----------
    segment : int
        Pairs of all queries with the new segment.
    rescanned : int
        Pairs of old segments that are counted again.
    queries : int
        The queries for which they are.
    full : int
        Pairs of a full evaluation of the gallery after the change.
    items, old : int
        Items of the segment, and of old segments that are read again.
    searched : int
        Pairs of old segments among which nearest negatives are looked for again.
    features : bool
        Whether distances are computed.
    """

    segment: int
    rescanned: int
    queries: int
    full: int
    items: int = 0
    old: int = 0
    searched: int = 0
    features: bool = False

    @property
    def pairs(self) -> int:
        """Pairs in all."""
        return self.segment + self.rescanned

    @property
    def share(self) -> float:
        """What the change takes of a full evaluation: of its pairs, and rows of features read."""
        row = ROW_PAIRS if self.features else 0
        gallery = self.items * self.full / self.segment if self.segment else 0.0
        whole = self.full + row * gallery
        again = RANK * (self.rescanned - self.searched) + NEAR * self.searched
        own = self.segment + again + row * (self.items + self.old)
        return own / whole if whole else 0.0
