"""Ranks in expectation over all draws of a gallery, as they were counted."""

from __future__ import annotations

import numpy as np

from streameval.choices import TieRule
from streameval.metrics.ranks import Ranks
from streameval.statistics import SHOT_RULES, RankStatistics
from streameval.typing import FloatArray


class DrawnRanks(Ranks):
    """The mean over all draws; what it does not define is of the gallery that is drawn from."""

    def __init__(self, stats: RankStatistics, ties: TieRule) -> None:
        self._open = ties == "expected"
        super().__init__(stats, "optimistic" if ties == "expected" else ties)
        self._rule = 0 if ties == "expected" else SHOT_RULES.index(ties)

    def first_rank(self) -> FloatArray:
        """Return NaN: no draw is known by itself, [N] float64."""
        return np.full(len(self.queries), np.nan)

    def inverse_rank(self, *, last: bool = False) -> FloatArray:
        """Return E[1/r] of the one positive that is drawn; NaN of several, [N] float64.

        It is the first and the last. NaN where ties are broken at random, too.
        """
        counted = self._stats.drawn_inverse
        if counted is None:
            raise RuntimeError("drawn_inverse is not counted")
        inverse: FloatArray = counted[self.queries, self._rule]
        unknown = inverse < 0
        if self._open:
            unknown |= np.add.reduceat(self._stats.tied, self.start) > 0
        return np.where(unknown, np.nan, inverse)
