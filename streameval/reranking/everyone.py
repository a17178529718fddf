"""All images of an evaluation, queries first, against themselves."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace

import numpy as np

from streameval.arrays.composed import JoinedArray
from streameval.planning.plan import Limits, Plan, Task, pieces
from streameval.planning.planner import TASK_FLOPS, TILE_ITEMS, make_plan
from streameval.planning.problem import PairSizes, Problem
from streameval.protocols.classes import ItemClasses
from streameval.protocols.pairs import Pairs
from streameval.protocols.views import View
from streameval.run.share import Share
from streameval.source import Input
from streameval.sources.features import Features
from streameval.typing import BoolArray

LIMIT_BYTES = 96  # of a column and a neighbour, while nothing is known of the column
BLOCKS, LEAST_BLOCK = 8, 1024  # of images: pairs of blocks are tasks
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
    """The rows of queries and gallery as one set, under their squared distance.

    Parameters
    ----------
    features : Features
    """

    def __init__(self, features: Features) -> None:
        self._sides = features.inputs()
        self.metric, self.dtype = SQUARED[features.metric], features.dtype
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
        indptr = np.concatenate([[0], np.cumsum(own)])
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
        size = self.shape[0]
        limited = {"limits": limits.threads * LIMIT_BYTES * most * TILE_ITEMS}
        near = 2 * (2 * most + 2)  # of queries and of items
        pairs = PairSizes(0, size)
        problem = Problem(size, size, pairs, self.data(), near=near, beside=limited)
        plan = make_plan(problem, limits)
        if limits.cut == plan.cut:
            return plan
        blocks = max(-(-size // plan.cut.queries), min(BLOCKS, -(-size // LEAST_BLOCK)))
        step = min(-(-size // blocks), max(math.isqrt(TASK_FLOPS // (2 * self.width)), LEAST_BLOCK))
        spans = pieces((0, size), step)
        tasks = tuple(Task(q, g) for at, q in enumerate(spans) for g in spans[at:])
        return replace(plan, tasks=tasks, flops=plan.flops * len(tasks) // len(spans) ** 2)


class Gallery(Everyone):
    """The gallery against itself.

    Parameters
    ----------
    features : Features
    """

    def __init__(self, features: Features) -> None:
        self._sides = features.inputs()
        self.metric = SQUARED.get(features.metric, features.metric)
        self.dtype = features.dtype
        self.query = self.gallery = features.gallery
