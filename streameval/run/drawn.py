"""Galleries that are drawn from one: the pairs of all of them, counted together."""

from __future__ import annotations

import numpy as np

from streameval.kernels.galleries import Galleries
from streameval.protocols.base import Base
from streameval.protocols.counts import PairCounts
from streameval.protocols.listed import spans
from streameval.protocols.views import View


def drawn_counts(base: Base) -> dict[View, PairCounts]:
    """Return the numbers of the pairs of each gallery, without listing more than some at a time."""
    galleries = Galleries.of(list(base.drawn.values()), len(base.gallery))
    known = base.pairs.counts
    positive, listed = np.zeros((2, galleries.number, len(known.listed)), np.int64)
    for queries in spans(known.listed):
        pairs, own = base.pairs.block(*queries), slice(*queries)
        positive[:, own] = galleries.numbers_of(*pairs.positives())
        listed[:, own] = galleries.numbers_of(pairs.indptr, pairs.item)
    return {
        view: PairCounts(of_positive, of_listed, known.classes)
        for view, of_positive, of_listed in zip(base.drawn, positive, listed, strict=True)
    }
