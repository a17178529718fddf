"""The plan: how an evaluation is cut into tasks and tiles, and what each part holds in memory.

Pure arithmetic on shapes; nothing is read.
"""

from streameval.planning.plan import (
    FAN_IN,
    RESERVED,
    Data,
    Limits,
    Plan,
    Problem,
    ShotSizes,
    Task,
    Workers,
    format_bytes,
)
from streameval.planning.planner import make_plan
from streameval.single_shot.ahead import SHOT_RANKS

__all__ = [
    "FAN_IN",
    "RESERVED",
    "SHOT_RANKS",
    "Data",
    "Limits",
    "Plan",
    "Problem",
    "ShotSizes",
    "Task",
    "Workers",
    "format_bytes",
    "make_plan",
]
