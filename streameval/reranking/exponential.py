"""An exponential whose bits no processor changes.

NumPy's and LLVM's differ in the last bit from one processor to the next. This one is a fixed
sequence of additions and multiplications of float64, each correctly rounded: the argument is
reduced to r = x − k log 2 (Cody and Waite, 1980), the Taylor polynomial of degree 13 is summed by
Horner's rule, and the sum is halved −k times. Its error is below one unit in the last place.
"""

from __future__ import annotations

import numpy as np

from streameval.compilation import compiled
from streameval.typing import FloatArray

LOG2_HIGH, LOG2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
"""The logarithm of 2: the first 33 bits, and what is left."""
_PER_LOG2 = 1.44269504088896338700
# 1 / n!, from n = 13 to 2.
_TERMS = (
    1.6059043836821613e-10,
    2.08767569878681e-09,
    2.505210838544172e-08,
    2.755731922398589e-07,
    2.7557319223985893e-06,
    2.48015873015873e-05,
    0.0001984126984126984,
    0.001388888888888889,
    0.008333333333333333,
    0.041666666666666664,
    0.16666666666666666,
    0.5,
)


@compiled(inline="always")
def exp_down(x):  # type: ignore[no-untyped-def]
    """Return the exponential of a number from −1 to 0."""
    halvings = 0
    while x * _PER_LOG2 < -(halvings + 0.5):
        halvings += 1
    r = (x + halvings * LOG2_HIGH) + halvings * LOG2_LOW
    total = 0.0
    for term in _TERMS:
        total = total * r + term
    total = (total * r) * r + r + 1.0
    for _ in range(halvings):
        total *= 0.5
    return total


@compiled
def _exponentials(values, out):  # type: ignore[no-untyped-def]
    for t in range(len(values)):
        out[t] = exp_down(values[t])


def exponentials(values: FloatArray) -> FloatArray:
    """Return the exponentials of numbers from −1 to 0, [n] float64."""
    out = np.empty_like(values)
    _exponentials(values, out)
    return out
