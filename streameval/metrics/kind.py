"""Kind: what the values of a metric are, and how they are written for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What the values of a metric are, and how they are written for people.

    Attributes
    ----------
    name : str
    scale : float
        Factor from the value to the number that is written: 100 for percent.
    unit : str
        What stands behind that number.
    digits : int
        Decimal places.
    is_score : bool
        Whether one value can be better than another by some amount. False for a place on an axis:
        a difference of two places has no p-value.
    """

    name: str
    scale: float = 1.0
    unit: str = ""
    digits: int = 2
    is_score: bool = True


FRACTION = Kind("fraction", 100.0, " %")
RANK = Kind("rank", digits=1)
COUNT = Kind("count", digits=0)
DISTANCE = Kind("distance", digits=4, is_score=False)
TAU = Kind("tau", is_score=False)
