"""Values: what the attributes of a protocol can be, and how messages say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, get_args

from streameval.choices import AveragePrecision, CmcReading, SelfMatch, TieRule, Unmatched
from streameval.errors import is_whole
from streameval.protocols.rows import Rows
from streameval.protocols.trials import Trials

Test = Callable[[Any], bool]


def _is_tuple(of: Test, least: int = 0) -> Test:
    return lambda value: isinstance(value, tuple) and len(value) >= least and all(map(of, value))


def is_text(value: Any) -> bool:
    """Return whether a value is a string."""
    return isinstance(value, str)


def _is_rows(value: Any) -> bool:
    return isinstance(value, Rows)


def as_tuple(values: Any, depth: int = 1) -> Any:
    """Return a tuple of any values but a string's, and of theirs to a depth; one as it is."""
    if depth and isinstance(values, Iterable) and not isinstance(values, str):
        return tuple(as_tuple(one, depth - 1) for one in values)
    return values


def _one_of(names: Any) -> tuple[Test, str]:
    """Return the test of a choice, and how messages say it."""
    choices = get_args(names)
    return choices.__contains__, f"one of {', '.join(map(repr, choices))}"


FLAG = "true or false"
VALUES: Mapping[str, tuple[Test, str]] = {
    "name": (is_text, "a string"),
    "positive": (is_text, "a rule, such as 'same(id)',"),
    "ignore": (_is_tuple(is_text), "a list of rules, such as ['same(id, cam)'],"),
    "cmc": _one_of(CmcReading),
    "unmatched": _one_of(Unmatched),
    "ap": _one_of(AveragePrecision),
    "ties": _one_of(TieRule),
    "junk_ids": (
        _is_tuple(lambda value: (is_text(value) and "\0" not in value) or is_whole(value)),
        "a list of integers or strings, without NUL characters,",
    ),
    "queries": (
        lambda value: is_text(value) or _is_rows(value),
        "a rule, such as 'cam in [3, 6]', Rows([0, 3]), or 'rest',",
    ),
    "gallery": (
        lambda value: is_text(value) or _is_rows(value),
        "a rule, such as 'cam in [1, 2]', or Rows([0, 3]),",
    ),
    "galleries": (
        lambda value: is_text(value) or _is_tuple(_is_rows, 1)(value),
        "the name of a label column, or a list of Rows",
    ),
    "trials": (lambda value: isinstance(value, Trials | None), "a table of draw, per, times, ..."),
    "self_match": (lambda value: value in (None, *get_args(SelfMatch)), "'index' or 'key'"),
    "listed": (lambda value: isinstance(value, bool), FLAG),
    "shot_draws": (partial(is_whole, least=1), "a whole number of at least 1"),
    "shot_seed": (partial(is_whole, least=0), "a whole number of at least 0"),
}
"""What the attributes of a protocol can be, and how messages say so."""
