"""What tests use of `streameval.planning` beside its public names."""

from streameval.planning import SHOT_RANKS as SHOT_RANKS
from streameval.planning import Data as Data
from streameval.planning import Limits as Limits
from streameval.planning import Plan as Plan
from streameval.planning import Problem as Problem
from streameval.planning import ShotSizes as ShotSizes
from streameval.planning import Task as Task
from streameval.planning import Workers as Workers
from streameval.planning import make_plan as make_plan
from streameval.planning.range import Range as Range

__all__ = [
    "SHOT_RANKS",
    "Data",
    "Limits",
    "Plan",
    "Problem",
    "Range",
    "ShotSizes",
    "Task",
    "Workers",
    "make_plan",
]
