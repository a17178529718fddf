"""Timing in turn, and what is read from the samples.

The machine's speed drifts: sides that are compared are measured within seconds of each other,
A B A B, after a round that warms the caches of all (kernels, pages, allocators).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Samples = Mapping[str, Sequence[float]]
Sides = Mapping[str, Callable[[], object]]

FEWEST = 3
REST = 0.02  # seconds between sides: OpenMP threads of one go on spinning for a while


@dataclass(frozen=True)
class Reading:
    """What samples say.

    Attributes
    ----------
    value : float
        From the medians of the sides: the measured figure.
    pairwise : float
        The same from each round by itself, then the median.
    low, high : float
        The least and greatest of the rounds.
    medians : dict of str to float
        Of each side.
    """

    value: float
    pairwise: float
    low: float
    high: float
    medians: Mapping[str, float]


def in_turn(sides: Sides, rounds: int, patience: float = np.inf) -> dict[str, list[float]]:
    """Return the seconds that each side took in each round, after one round to warm up.

    Parameters
    ----------
    sides : dict of str to callable
    rounds : int
    patience : float
        Seconds after which `FEWEST` rounds are enough: what is slow is noisy least.
    """
    started = time.monotonic()
    for side in sides.values():
        side()
    samples: dict[str, list[float]] = {name: [] for name in sides}
    collecting = gc.isenabled()
    try:
        for done in range(rounds):
            if done >= FEWEST and time.monotonic() - started > patience:
                break
            for name, side in sides.items():
                gc.collect()
                gc.disable()
                time.sleep(REST)
                begin = time.perf_counter()
                side()
                samples[name].append(time.perf_counter() - begin)
                gc.enable()
    finally:
        if collecting:
            gc.enable()
        else:
            gc.disable()
    return samples


def ratio(samples: Samples) -> Reading:
    """Return the first side divided by the second."""
    return _read(samples, lambda values: values[0] / values[1])


def value(samples: Samples) -> Reading:
    """Return the first side itself."""
    return _read(samples, lambda values: values[0])


def off_line(samples: Samples) -> Reading:
    """Return how far, relatively, the sides lie off a straight line through their sizes.

    The sides are named by their size. The line has the least sum of squared relative
    distances, so that small sizes count as much as large ones.
    """
    sizes = np.array([float(side) for side in samples])

    def furthest(values: Sequence[float]) -> float:
        times = np.asarray(values)
        design = np.stack([np.ones_like(sizes), sizes], axis=1) / times[:, None]
        line, *_ = np.linalg.lstsq(design, np.ones_like(times), rcond=None)
        return float(np.abs(design @ line - 1).max())

    return _read(samples, furthest)


def _read(samples: Samples, figure: Callable[[Sequence[float]], float]) -> Reading:
    medians = {side: float(np.median(own)) for side, own in samples.items()}
    rounds = [figure(values) for values in zip(*samples.values(), strict=True)]
    return Reading(
        figure(list(medians.values())),
        float(np.median(rounds)),
        min(rounds),
        max(rounds),
        medians,
    )
