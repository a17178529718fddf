"""Arrays that are only declared: a shape without data, for the plan of what is yet to be made."""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np

from streameval.arrays.array import AnyArray, Array, Span
from streameval.errors import InputError

PREFIX = "shape:"


class DeclaredArray(Array):
    """An array of a shape, which can be planned with, and not read.

    Parameters
    ----------
    uri : str
        ``shape:ROWSxCOLUMNS``, and ``:DTYPE`` where it is not float32.

    Raises
    ------
    InputError
        If the text is no such shape.
    """

    def __init__(self, uri: str) -> None:
        match = re.fullmatch(rf"{PREFIX}(\d+)x(\d+)(?::(float16|float32|float64))?", uri)
        if match is None:
            raise InputError(
                f"{uri!r} is no shape; expected shape:ROWSxCOLUMNS, or "
                "shape:ROWSxCOLUMNS:float16 (float32, float64)"
            )
        self.uri = uri
        self.shape = int(match[1]), int(match[2])
        self.dtype = np.dtype(match[3] or "float32")
        self.chunks = (1, self.shape[1])

    def _fill(self, out: AnyArray, spans: tuple[Span, ...]) -> NoReturn:
        raise InputError(
            f"{self.uri} is a shape without data, for --dry-run alone; where a range is to be "
            "found in the data, give one (--range)"
        )
