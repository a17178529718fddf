"""Numbers as people read them."""

from __future__ import annotations

import math

from streameval.metrics.metric import FRACTION, Kind
from streameval.planning.plan import plural as plural

DASH = "–"


def number_text(value: float, kind: Kind, *, signed: bool = False) -> str:
    """Return a value, or a signed difference of two, as its kind is written, without its unit."""
    if math.isnan(value):
        return DASH
    text = f"{kind.scale * value:{'+' if signed else ''},.{kind.digits}f}"
    return text.replace("-", "−") if signed else text


def value_text(value: float, kind: Kind) -> str:
    """Return a value with its unit; a small fraction in as many digits as it takes."""
    if kind is FRACTION and not math.isnan(value):
        return percent(value)
    return number_text(value, kind) + kind.unit


def interval_text(low: float, high: float, kind: Kind) -> str:
    """Return an interval with its unit; of fractions, with digits enough to tell them apart."""
    if kind is not FRACTION:
        return f"{number_text(low, kind)} – {number_text(high, kind)}{kind.unit}"
    for digits in range(2, 7):
        texts = [f"{100 * value:.{digits}f}" for value in (low, high)]
        if texts[0] != texts[1]:
            break
    return f"{texts[0]} – {texts[1]} %"


def percent(value: float, digits: int = 2) -> str:
    """Return a fraction in percent: 0.6652 is ``66.52 %``; a small one, 0.0000601, ``0.0060 %``."""
    if value > 0:
        digits = max(digits, min(1 - math.floor(math.log10(100 * value)), 12))
    return f"{100 * value:.{digits}f} %"


def amount(value: float) -> str:
    """Return a large number in three digits and words: 12.3 million."""
    for unit, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return a time as people read it: ``0.41 s``, ``2 min 05 s``, ``3 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
