"""What tests use of `streameval.planning` beside its public names."""

from streameval.kernels.multiplier import best_rows as best_rows
from streameval.planning.plan import Limits as Limits
from streameval.planning.plan import Plan as Plan
from streameval.planning.plan import Task as Task
from streameval.planning.plan import Workers as Workers
from streameval.planning.planner import make_plan as make_plan
from streameval.planning.problem import Data as Data
from streameval.planning.problem import IdentitySizes as IdentitySizes
from streameval.planning.problem import PairSizes as PairSizes
from streameval.planning.problem import Problem as Problem
from streameval.planning.problem import ShotSizes as ShotSizes
from streameval.planning.range import Range as Range
from streameval.planning.search import search_plan as search_plan
from streameval.planning.shards import ROW_PAIRS as ROW_PAIRS
from streameval.single_shot.ahead import SHOT_RANKS as SHOT_RANKS

__all__ = [
    "ROW_PAIRS",
    "SHOT_RANKS",
    "Data",
    "IdentitySizes",
    "Limits",
    "PairSizes",
    "Plan",
    "Problem",
    "Range",
    "ShotSizes",
    "Task",
    "Workers",
    "best_rows",
    "make_plan",
    "search_plan",
]
