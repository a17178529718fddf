"""MetricOptions: every choice that changes a number without changing the statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, get_args

from streameval.choices import (
    AveragePrecision,
    CmcReading,
    TieRule,
    Unmatched,
    VerificationPrecision,
)
from streameval.errors import OptionError, entry_point, is_whole

CHOICES: Mapping[str, tuple[str, ...]] = {
    "ties": get_args(TieRule),
    "ap": get_args(AveragePrecision),
    "vp": get_args(VerificationPrecision),
    "cmc": get_args(CmcReading),
    "unmatched": get_args(Unmatched),
}


@dataclass(frozen=True)
class MetricOptions:
    """Options of the metrics: conventions, ranks and rates.

    Attributes
    ----------
    ties : {"pessimistic", "optimistic", "stable", "expected"}
        Which item is first if a positive and a negative have the same distance: the negative,
        the positive, or the lower gallery index. ``expected`` is the mean over all orders.
    ap : {"step", "trapezoid", "threshold"}
        Definition of AP and RP: the precision that each positive adds. ``threshold`` adds the
        precision over all items up to its distance, for any tie rule (as scikit-learn).
    vp : {"reference", "equation"}
        GOM's VP: the authors' code, or Eq. 5 as printed.
    false_rate_budget : int
        B of FR: the number of returned negatives at which FR is 1.
    cmc_ranks : tuple of int
        Ranks x of the scalars CMC@x.
    max_rank : int
        Length of the CMC curve, unless the gallery is smaller.
    false_accept_rates : tuple of float
        Rates f in [0, 1] of the scalars DIR@x|FAR=f.
    dir_ranks : tuple of int
        Ranks x of DIR@x.
    cmc : {"first-match", "all-shots", "single-gallery-shot", "distinct-identities"}
        How CMC counts a query with several positives: the nearest positive only; each positive
        with weight 1/G at x = c_j + 1; the expectation over draws of one item of each gallery
        identity; or the nearest positive in a ranking with the first item of each identity alone.
        Set by the protocol.
    unmatched : {"exclude", "miss", "error"}
        What a query without a positive is, in Q− or excluded, to means over Q+: left out; a miss,
        which counts as 0; or an error. Set by the protocol. It has no effect on open-set and
        verification metrics, ``MFR``, ``tau_nz`` and ``MedR``.
    over_draws : bool
        Whether values are expectations over all draws of a gallery, exactly: trials of a protocol
        with ``times="all"``, which sets it. ``CMC`` always has one under first match and distinct
        identities; ``mAP`` (of ``ap="step"``), ``mINP`` and ``MRR`` are E[1/r], where one positive
        of each query is drawn. There are no other metrics then.
    average : str
        Label column of the queries, such as ``id``: means over queries are means over groups, the
        queries of one label, of each group's mean. There are no other metrics then, and no curves.
        If empty, means are over queries.
    metrics : tuple of str
        Names of the metrics to compute (``CMC@1``), of groups (``retrieval``, ``open-set``,
        ``gom``, ``verification``), ``rank`` (all that need no thresholds: the fastest), or
        ``all``. If empty, the default metrics.

    Raises
    ------
    OptionError
        If a value is unknown or out of range.
    """

    ties: TieRule = "pessimistic"
    ap: AveragePrecision = "step"
    vp: VerificationPrecision = "reference"
    false_rate_budget: int = 3000
    cmc_ranks: tuple[int, ...] = (1, 5, 10, 20)
    max_rank: int = 100
    false_accept_rates: tuple[float, ...] = (0.001, 0.01, 0.1)
    dir_ranks: tuple[int, ...] = (1,)
    cmc: CmcReading = "first-match"
    unmatched: Unmatched = "exclude"
    over_draws: bool = False
    average: str = ""
    metrics: tuple[str, ...] = ()

    @entry_point
    def __post_init__(self) -> None:
        """Check every value."""
        for option, known in CHOICES.items():
            value = getattr(self, option)
            _check(option, value, value in known, f"one of {', '.join(known)}")
        for option in ("false_rate_budget", "max_rank"):
            value = getattr(self, option)
            _check(option, value, is_count(value), "a positive integer")
        for option, accepts, expected in (
            ("cmc_ranks", is_count, "positive integers"),
            ("dir_ranks", is_count, "positive integers"),
            ("false_accept_rates", _is_fraction, "fractions between 0 and 1"),
        ):
            given: Any = getattr(self, option)
            several = isinstance(given, Iterable) and not isinstance(given, str)
            _check(option, given, several, f"several of them: ({given!r},)")
            for value in given:
                _check(option, value, accepts(value), expected)
        given_flag: Any = self.over_draws
        _check("over_draws", given_flag, isinstance(given_flag, bool), "True or False")
        column: Any = self.average
        _check("average", column, isinstance(column, str), "the name of a label column")
        names: Any = self.metrics
        are_names = isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        _check("metrics", names, are_names, "a tuple of names of metrics")


def _check(option: str, value: Any, accepted: bool, expected: str) -> None:
    if not accepted:
        raise OptionError(f"{option}: got {value!r}; expected {expected}")


def is_count(value: Any) -> bool:
    """Tell whether it is a whole number of at least 1, Python's or NumPy's."""
    return is_whole(value, 1)


def is_number(value: Any) -> bool:
    """Tell whether it is a number, Python's or NumPy's."""
    return not isinstance(value, bool) and isinstance(value, Real)


def _is_fraction(value: Any) -> bool:
    return is_number(value) and 0 <= float(value) <= 1


DEFAULT_OPTIONS = MetricOptions()

OPTION_NAMES = tuple(field.name for field in fields(MetricOptions))
"""Names of the attributes of `MetricOptions`."""
