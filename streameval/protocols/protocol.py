"""Protocols: which (query, gallery) pairs take part, as data.

Every pair is exactly one of *ignored*, *positive* (same identity, not ignored) and *negative*
(anything else). A `Protocol` says which pairs are ignored and how CMC is read; nothing else in the
package knows a protocol by its name. A new protocol is one more entry of `PROTOCOLS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, replace
from numbers import Integral
from typing import Any, Literal, get_args

from streameval.choices import CmcReading, SelfMatch
from streameval.errors import OptionError

SINGLE_GALLERY_SHOT: Literal["single-gallery-shot"] = "single-gallery-shot"


def _is_whole(value: Any, least: float = -math.inf) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def _as_tuple(values: Any) -> Any:
    """Return a tuple of any values but a string's; one value as it is."""
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else values


def _is_list(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, tuple) and all(map(of, value))


def _is_rule(value: Any) -> bool:
    return _is_list(value, lambda name: isinstance(name, str) and name != "") and len(value) > 0


_FLAG = "true or false"
_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: isinstance(value, str), "a string"),
    "ignore": (
        lambda value: _is_list(value, _is_rule),
        "a list of lists of label columns, such as [['id', 'cam']],",
    ),
    "cmc": (
        lambda value: value in get_args(CmcReading),
        "'first-match', 'all-shots' or 'single-gallery-shot'",
    ),
    "junk_ids": (
        lambda value: _is_list(value, lambda label: isinstance(label, str) or _is_whole(label)),
        "a list of integers or strings",
    ),
    "self_match": (lambda value: value in (None, *get_args(SelfMatch)), "'index' or 'key'"),
    "listed": (lambda value: isinstance(value, bool), _FLAG),
    "shot_draws": (lambda value: _is_whole(value, 1), "a whole number of at least 1"),
    "shot_seed": (lambda value: _is_whole(value, 0), "a whole number of at least 0"),
}
"""What the attributes of a protocol can be, and how messages say so."""


@dataclass(frozen=True)
class Protocol:
    """Which pairs are ignored, and how CMC is read.

    Attributes
    ----------
    name : str
    ignore : tuple of tuple of str
        Label columns: a pair is ignored if it agrees in every column of one of the tuples.
        ``(("id", "cam"),)`` ignores the same identity seen by the same camera,
        ``(("cam",),)`` every pair of the same camera, ``()`` no pair by its labels.
    cmc : {"first-match", "all-shots", "single-gallery-shot"}
        How CMC counts a query with several positives: see `MetricOptions`.
    junk_ids : tuple of int or str
        Gallery identities that take part for no query.
    self_match : {None, "index", "key"}
        Ignore the query's own image: the gallery item with the same index, or the same key.
    listed : bool
        Take positive and ignored pairs from lists (`ListedPairs`), and from nothing else.
    shot_draws, shot_seed : int
        Under single gallery shot: how often ``CMC_sampled@x`` draws an item of each identity for
        each query, and the seed of these draws.

    Other Parameters
    ----------------
    same_identity_and_camera, same_camera : bool
        Earlier spelling of ``ignore``: add ``("id", "cam")``, and ``("cam",)``.
    """

    name: str
    ignore: tuple[tuple[str, ...], ...] = ()
    cmc: CmcReading = "first-match"
    junk_ids: tuple[int | str, ...] = (-1,)
    self_match: SelfMatch | None = None
    listed: bool = False
    shot_draws: int = 10
    shot_seed: int = 0
    same_identity_and_camera: InitVar[bool | None] = None
    same_camera: InitVar[bool | None] = None

    def __post_init__(
        self, same_identity_and_camera: bool | None, same_camera: bool | None
    ) -> None:
        """Bring sequences to tuples, and raise OptionError for values that an attribute can't have.

        Each rule has ``id`` first, then its other columns by name.
        """
        second: object = self.ignore
        if isinstance(second, bool):  # ``Protocol(name, True)`` is the earlier spelling
            same_identity_and_camera, second = second, ()
        flags = {
            "same_identity_and_camera": (same_identity_and_camera, ("id", "cam")),
            "same_camera": (same_camera, ("cam",)),
        }
        for name, (flag, _) in flags.items():
            self._check(name, flag, lambda flag: flag is None or isinstance(flag, bool), _FLAG)
        if second and any(flag is not None for flag, _ in flags.values()):
            raise OptionError(
                f"protocol {self.name} has ignore and {' or '.join(flags)}, its earlier spelling: "
                "give ignore alone"
            )
        rules = _as_tuple(second) or tuple(rule for flag, rule in flags.values() if flag)
        if isinstance(rules, tuple):
            rules = tuple(map(_as_tuple, rules))
        object.__setattr__(self, "ignore", rules)
        object.__setattr__(self, "junk_ids", _as_tuple(self.junk_ids))
        for name, (can_be, expected) in _VALUES.items():
            self._check(name, getattr(self, name), can_be, expected)
        in_order = (sorted(set(rule), key=lambda name: (name != "id", name)) for rule in rules)
        object.__setattr__(self, "ignore", tuple(map(tuple, in_order)))
        if self.listed and self.cmc == SINGLE_GALLERY_SHOT:
            raise OptionError(
                f"protocol {self.name} takes its pairs from lists, and its CMC is of one item of "
                "each gallery identity: lists don't tell what an unlisted item of the query's own "
                "identity is; choose cmc first-match or all-shots"
            )

    def _check(self, what: str, value: Any, can_be: Callable[[Any], bool], expected: str) -> None:
        if not can_be(value):
            raise OptionError(f"{what} of protocol {self.name} is {value!r}; {expected} is needed")

    @property
    def columns(self) -> tuple[str, ...]:
        """Label columns that both sides need beside ``id``."""
        by_key = ("key",) if self.self_match == "key" else ()
        names = {name: None for rule in (*self.ignore, by_key) for name in rule if name != "id"}
        return tuple(names)

    def ignored(self) -> list[str]:
        """Return in words which pairs are ignored, junk aside."""
        if self.listed:
            return ["what a list says"]
        names = {"id": "identity", "cam": "camera"}
        words = [
            f"{'pairs' if 'id' in rule else 'every pair'} of the same "
            + " and the same ".join(names.get(name, name) for name in rule)
            for rule in self.ignore
        ]
        own = f"a query's own image, by {self.self_match}"
        return words if self.self_match is None else [*words, own]


SAME_IDENTITY_AND_CAMERA = (("id", "cam"),)

PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol("market1501", SAME_IDENTITY_AND_CAMERA),
        Protocol("allshots", SAME_IDENTITY_AND_CAMERA, cmc="all-shots"),
        Protocol("cuhk03", (("id", "cam"), ("cam",)), cmc=SINGLE_GALLERY_SHOT),
        Protocol("cuhk03-torchreid", SAME_IDENTITY_AND_CAMERA, cmc=SINGLE_GALLERY_SHOT),
        Protocol("separate-camera", (("id", "cam"), ("cam",))),
        Protocol("no-camera"),
        Protocol("cloth-changing", (("id", "cam"), ("id", "clothes"))),
        Protocol("listed", junk_ids=(), listed=True),
    )
}
"""The protocols by name; ``market1501`` is the default."""


def saved_protocol(values: Mapping[str, Any]) -> Protocol:
    """Return the protocol of a saved result; early results hold its name and junk ids alone."""
    known = PROTOCOLS.get(values["name"])
    if known is None or {"ignore", "same_identity_and_camera"}.intersection(values):
        return Protocol(**values)
    return replace(known, **values)


def with_options(
    protocol: str | Protocol,
    *,
    junk_ids: Iterable[int | str] | None = None,
    self_match: SelfMatch | None = None,
    shot_draws: int | None = None,
    shot_seed: int | None = None,
) -> Protocol:
    """Return a protocol, or the one of that name, with the options that are given.

    Parameters
    ----------
    protocol : str or Protocol
        A key of `PROTOCOLS`, or a protocol itself.
    junk_ids : sequence of int or str, optional
        In place of the protocol's own junk identities.
    self_match : {"index", "key"}, optional
    shot_draws, shot_seed : int, optional
        In place of the protocol's own.

    Raises
    ------
    OptionError
        If the name or the way to match is unknown, and the known ones are listed; or if the
        protocol has no use for an option.
    """
    if isinstance(protocol, str):
        if protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise OptionError(f"unknown protocol {protocol!r}; known protocols: {known}")
        protocol = PROTOCOLS[protocol]
    if not isinstance(protocol, Protocol):
        raise OptionError(
            f"protocol is {protocol!r}; expected a Protocol, or the name of one: "
            f"{', '.join(PROTOCOLS)}"
        )
    draws = {"shot_draws": shot_draws, "shot_seed": shot_seed}
    given: dict[str, Any] = {"junk_ids": junk_ids, "self_match": self_match, **draws}
    given = {name: value for name, value in given.items() if value is not None}
    chosen = replace(protocol, **given)
    junk = chosen.junk_ids if "junk_ids" in given else ()
    if protocol.listed and (junk or self_match):
        raise OptionError(
            f"protocol {protocol.name} takes its pairs from lists alone, and got "
            f"{'junk ids' if junk else 'self_match'}: put these pairs on the junk list"
        )
    named = [name for name in draws if name in given]
    if named and protocol.cmc != SINGLE_GALLERY_SHOT:
        raise OptionError(
            f"{named[0]} is {draws[named[0]]!r}, and protocol {protocol.name} draws nothing: "
            "choose cuhk03 or cuhk03-torchreid, or leave it out"
        )
    return chosen
