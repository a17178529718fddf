"""Draws: the rows of each trial, from a generator of random numbers or as they are given."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from streameval.errors import InputError, OptionError
from streameval.protocols.labels import Labels, missing
from streameval.protocols.protocol import Protocol
from streameval.protocols.row_numbers import ascending, check_rows
from streameval.protocols.trials import Trials
from streameval.typing import IntArray


def drawn_rows(name: str, trials: Trials, labels: Labels, among: IntArray) -> list[IntArray]:
    """Return the rows that each trial draws, ascending, of those that there are to draw from.

    Parameters
    ----------
    name : str
        Of the protocol, for messages.
    trials : Trials
    labels : Labels
        Of all images of the side.
    among : [n] int64
        Rows, ascending.

    Raises
    ------
    OptionError
        If a label that draws go by is missing.
    """
    code = group_codes(name, trials, labels, among)
    order = np.argsort(code, kind="stable")
    parts = np.split(among[order], np.flatnonzero(np.diff(code[order])) + 1)
    groups = [part.tolist() for part in parts]
    return [_draw(trials, groups, trial) for trial in range(int(trials.times))]


def group_codes(name: str, trials: Trials, labels: Labels, among: IntArray) -> IntArray:
    """Return the group of each of some rows, in ascending order of its labels, [n] int64.

    Parameters and errors are those of `drawn_rows`.
    """
    code = np.zeros(len(among), np.int64)
    for column in trials.per:
        own_labels = labels.columns[column][among]
        absent = among[missing(own_labels)]
        if len(absent):
            raise OptionError(
                f"the trials of protocol {name} draw per {column}, and {len(absent)} labels of "
                f"{labels.source} are missing there, first in row {absent[0]}: give each a label, "
                "or select the others"
            )
        _, own = np.unique(own_labels, return_inverse=True)
        code = np.unique(code * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1]
    return code


def rows_left(name: str, trials: Trials, labels: Labels, among: IntArray) -> IntArray:
    """Return the rows that some draw leaves, ascending: those of groups of more than are drawn.

    Parameters and errors are those of `drawn_rows`. Also OptionError if there are none.
    """
    code = group_codes(name, trials, labels, among)
    left = among[np.bincount(code)[code] > int(trials.draw)]
    if not len(left):
        raise OptionError(
            f"every draw of protocol {name} is of all {len(among)} images, and leaves no query: "
            "each group needs more images than are drawn"
        )
    return left


def check_every_draw(protocol: Protocol, unmatched: str) -> None:
    """Check that each query has a positive in all draws of a gallery, or counts as a miss in some.

    Raises
    ------
    OptionError
        If rules may ignore some of a group that is drawn from, and not the others.
    """
    trials = protocol.trials
    if trials is None or unmatched == "miss":
        return
    columns = frozenset[str]().union(*(rule.columns("gallery") for rule in protocol.ignored_by))
    others = [*sorted(columns.difference(trials.per)), *protocol.lists, *protocol.own_image()]
    if others:
        raise OptionError(
            f"protocol {protocol.name} takes the mean over all draws per {', '.join(trials.per)}, "
            f"and ignores pairs by {', '.join(others)}: in some draws a query may have no positive "
            "left; draw per these columns, too, choose a number of trials, or unmatched miss"
        )


def _draw(trials: Trials, groups: Iterable[list[int]], trial: int) -> IntArray:
    generator, drawn = random.Random(trials.seed + trial), []
    for rows in groups:
        if trials.draw == 1:
            drawn.append(generator.choice(rows))
        else:
            drawn += generator.sample(rows, min(int(trials.draw), len(rows)))
    return np.sort(np.array(drawn, np.int64))


def trials_of(
    given: object, what: str = "drawn", each: str = "trial", first: int = 0
) -> tuple[IntArray, ...]:
    """Return the rows of each trial that a caller gives, each in ascending order, from 0.

    Parameters
    ----------
    given : sequence of [n] integer array_like
        One for each trial: row numbers; or an array [times, n].
    what, each : str
        What messages call it, and each of its lists.
    first : int
        What the rows are counted from.

    Raises
    ------
    InputError
        If it is none, or a trial has no rows, or a row twice.
    """
    trials = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else []
    if not trials:
        raise InputError(
            f"{what} is {given!r}; the row numbers of each {each} are needed: [[0, 3], [1, 2]]"
        )
    return tuple(
        ascending(one, f"{what}, {each} {number},", first) for number, one in enumerate(trials, 1)
    )


def taken_rows(
    name: str,
    labels: Labels,
    among: IntArray,
    given: Sequence[IntArray] | None,
    what: str = "drawn, trial",
) -> Sequence[IntArray]:
    """Return the rows of trials as they are given, of those that there are to draw from.

    Parameters
    ----------
    name, labels, among
        As of `drawn_rows`.
    given : sequence of [n] int64 or None
        Ascending.
    what : str
        What messages call each, before its number.

    Raises
    ------
    OptionError
        If none are given.
    InputError
        If a row is not there, or the protocol leaves it out.
    """
    if given is None:
        raise OptionError(
            f"the rows of the trials of protocol {name} are not given: give drawn, or let it draw: "
            "draw = 1"
        )
    for number, rows in enumerate(given, 1):
        check_rows(rows, labels, f"{what} {number},")
        others = np.setdiff1d(rows, among, assume_unique=True)
        if len(others):
            raise InputError(
                f"{what} {number}, has row {others[0]}, which protocol {name} leaves out: give "
                "rows that it selects"
            )
    return given
