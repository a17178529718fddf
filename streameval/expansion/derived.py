"""DerivedFeatures: features that are made of others, block by block, before they are counted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from streameval.arrays.memory import DeclaredArray
from streameval.distances.distance import find_distance
from streameval.errors import check_path, check_type
from streameval.expansion.written import KIND, MadeArray, new_folder
from streameval.planning.plan import Limits, Plan
from streameval.planning.planner import make_plan
from streameval.planning.problem import Data, Problem
from streameval.planning.range import Range
from streameval.run.session import Session
from streameval.source import Counted, Input, PlanText
from streameval.sources.feature_source import STEPS, FeatureSource, with_stages
from streameval.sources.features import Features
from streameval.sources.tiled import working_dtype
from streameval.typing import JsonObject

if TYPE_CHECKING:
    from streameval.request import Request
    from streameval.run.preparation import Planned, Prepared

NEEDED = "Features(query, gallery) is needed"


class DerivedFeatures(FeatureSource):
    """Features of which one side is made of others.

    Parameters
    ----------
    features : FeatureSource
    folder : str or Path, optional
        Where they are written; by default where the system has temporary files.

    Attributes
    ----------
    side : {"query", "gallery"}
        The side that is made.
    """

    side: str = "query"

    def __init__(self, features: FeatureSource, folder: str | Path | None) -> None:
        check_type("features", features, FeatureSource, NEEDED)
        if folder is not None:
            check_path(folder, "folder")
        self.features, self.metric = features, features.metric
        self.folder = None if folder is None else Path(folder).absolute()

    @abstractmethod
    def step(self) -> JsonObject:
        """Return its name, and the options of it."""

    @abstractmethod
    def make(self, features: Features, array: MadeArray, session: Session, limits: Limits) -> None:
        """Write the rows of the side that is made.

        Parameters
        ----------
        features : Features
            What they are made of.
        array : MadeArray
        session, limits
        """

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, G)."""
        return self.features.shape

    def inputs(self) -> tuple[Input, ...]:
        """Return the features of both sides, and what else is read."""
        return self.features.inputs()

    def options(self) -> JsonObject:
        """Return the metric, and what is done to the features, step by step."""
        options = self.features.options()
        return {**options, STEPS: [*options.get(STEPS, ()), self.step()]}

    def sides(self) -> tuple[str, str]:
        """Return what messages call the queries and the gallery, with their numbers."""
        return self.features.sides()

    def bounds(self) -> Range | None:
        """Return the bounds of the distance for any vectors."""
        bounds = find_distance(self.metric).bounds
        return None if bounds is None else Range(*bounds)

    def data(self) -> Data:
        """Return the sizes of the gallery's features."""
        return self.outline().data()

    def describe_plan(self, plan: Plan) -> PlanText:
        """Describe the blocks that are read and multiplied."""
        return self.outline().describe_plan(plan)

    def passes(self, planned: Planned) -> list[str]:
        """Return the names of the passes over the data, in order."""
        return [*self.making, *self.outline().passes(planned)]

    def plan(self, problem: Problem, limits: Limits) -> Plan:
        """Return how the counting is cut; the passes before it fit, too.

        Raises
        ------
        BudgetError
            If no plan fits the limits.
        """
        stages = self.stages(replace(limits, cut=None, tile=None))
        return with_stages(make_plan(problem, limits), stages)

    def check(self, request: Request) -> Self:
        """Return the source as it is evaluated, checked against the request."""
        super().check(request)
        made = copy(self)
        made.features = self.features.check(request)
        return made

    def outline(self) -> Features:
        """Return features of the shape and dtype of those that are made; for a plan."""
        features = self.features.outline()
        rows = self.shape[0 if self.side == "query" else 1]
        made = DeclaredArray(f"shape:{rows}x{features.width}:{KIND.newbyteorder('=').name}")
        return self._with_side(features, made)

    def _with_side(self, features: Features, made: DeclaredArray | MadeArray) -> Features:
        changed = copy(features)
        setattr(changed, self.side, made)
        sides = changed.query, changed.gallery
        changed.dtype = np.result_type(*map(working_dtype, sides))
        return changed

    def ready(self, session: Session, limits: Limits) -> Features:
        """Return the features, once they are made."""
        limits = replace(limits, cut=None, tile=None)
        session.guards[self.features] = session.guard(self)  # what they read is the same
        features = self.features.ready(session, limits)
        array = getattr(features, self.side)
        name = str(self.step()["name"])
        folder = new_folder(session, self.folder)
        made = MadeArray(folder, name, array.shape, f"{array.uri} after {name}")
        self.make(features, made, session, limits)
        return self._with_side(features, made)

    def count(self, prepared: Sequence[Prepared], session: Session) -> list[Counted]:
        """Raise RuntimeError: what `ready` returns is counted."""
        raise RuntimeError("these features are not made yet")

    def check_every_row(self) -> None:
        """Raise InputError for the first row that can't be evaluated, if any."""
        self.features.check_every_row()

    def first_bad_row(self, stop: int) -> None:
        """Raise InputError for the first row that can't be evaluated, if any."""
        self.check_every_row()

    @property
    def normalised(self) -> bool:
        """Whether rows are divided by their norms before they are added."""
        return not find_distance(self.metric).uses_lengths

    @property
    def depth(self) -> int:
        """How many steps there are up to this one."""
        return len(cast("list[JsonObject]", self.options()[STEPS]))
