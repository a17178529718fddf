"""All images of an evaluation, queries first, against themselves."""

from __future__ import annotations

from copy import copy

import numpy as np

from streameval.arrays.composed import JoinedArray
from streameval.planning.plan import Limits, Plan
from streameval.planning.problem import Holders
from streameval.planning.search import search_plan
from streameval.protocols.classes import ItemClasses
from streameval.protocols.pairs import Pairs
from streameval.protocols.views import View
from streameval.run.share import Share
from streameval.source import Input
from streameval.sources.features import Features
from streameval.stretches import cumulated
from streameval.typing import BoolArray

SQUARED = {"euclidean": "sqeuclidean", "sqeuclidean": "sqeuclidean", "cosine": "cosine"}
"""The metric whose distances are the squared ones of another, up to a factor of 2."""


def squared(features: Features) -> Features:
    """Return the features under their squared distance.

    Of normalised rows the cosine distance is half of it, and all that follows is of ratios.
    """
    made = copy(features)
    made.metric = SQUARED[features.metric]
    return made


class Everyone(Features):
    """The rows of queries and gallery as one set, under their squared distance, where there is one.

    Parameters
    ----------
    features : Features
    """

    def __init__(self, features: Features) -> None:
        self._sides, self.dtype = features.inputs(), features.dtype
        self.metric = SQUARED.get(features.metric, features.metric)
        self.query = self.gallery = JoinedArray(
            [features.query, features.gallery], 0, "queries and gallery"
        )

    def inputs(self) -> tuple[Input, ...]:
        """Return the features of both sides."""
        return self._sides

    def share(self, view: View, alone: BoolArray) -> Share:
        """Return what is looked at: every pair of a view, but those of some images with themselves.

        Parameters
        ----------
        view : View
        alone : [N] bool
            Images that are not compared with themselves.
        """
        images = np.arange(self.shape[0])
        queries, items = (images if one is None else one for one in (view.queries, view.items))
        own = alone[queries]
        indptr = cumulated(own)
        listed = np.searchsorted(items, queries[own])
        none = np.zeros(len(listed), np.bool_)
        classes = ItemClasses.none(len(queries), len(items))
        junk = np.zeros(len(items), np.bool_)
        return Share(Pairs(indptr, listed, none, none, junk, classes), view=view)

    def neighbor_plan(self, most: int, limits: Limits) -> Plan:
        """Return how the search for the nearest of all is cut.

        Raises
        ------
        BudgetError
            If no plan fits the limits.
        """
        return search_plan(self.shape[0], most, self.data(), limits)

    def plans(self, most: int, limits: Limits) -> list[Plan]:
        """Return the plans of all passes that find the nearest, and the greatest distances.

        Raises
        ------
        BudgetError
            If one does not fit the limits.
        """
        return [self.neighbor_plan(most, limits)]

    def held(self, most: int = 0) -> Holders:
        """Return the bytes of what the search keeps open, and of the nearest K, by holder."""
        return {}

    def work(self) -> int:
        """Return how many rows and pairs are worked off, for the progress."""
        return self.shape[0] ** 2


class Gallery(Everyone):
    """The gallery against itself.

    Parameters
    ----------
    features : Features
    """

    def __init__(self, features: Features) -> None:
        super().__init__(features)
        self.query = self.gallery = features.gallery
