"""Types that annotations name: arrays by what they hold, ranges, names with their values.

It loads NumPy: the command line, and what its help shows, do without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
HashArray = npt.NDArray[np.uint64]
AnyArray = npt.NDArray[Any]
Indices = npt.NDArray[np.integer]
FloatingArray = npt.NDArray[np.floating]
Float32Array = npt.NDArray[np.float32]

Span = tuple[int, int]
"""Start and stop."""
JsonObject = dict[str, Any]
"""Names to JSON values: options, facts, what a summary holds."""
Keywords = Mapping[str, Any]
"""Names to values, as they are given to a function or on the command line."""
