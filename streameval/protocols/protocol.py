"""Protocols: which (query, gallery) pairs take part, as data; presets, the readings of other tools.

Every pair is exactly one of *ignored*, *positive* (same identity, not ignored) and *negative*
(anything else). A `Protocol` says which pairs are ignored and how CMC is read; nothing else in the
package knows a protocol by its name. A new protocol is one more entry of `PROTOCOLS`.

A `Preset` is a protocol and the options that reproduce a tool. The presets are in
``conventions.toml`` beside this module, which is read on first use.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any, Literal, get_args

from streameval.choices import CmcReading, SelfMatch
from streameval.errors import OptionError, entry_point, is_whole, refuse

SINGLE_GALLERY_SHOT: Literal["single-gallery-shot"] = "single-gallery-shot"


Test = Callable[[Any], bool]


def _is_tuple(of: Test, least: int = 0) -> Test:
    return lambda value: isinstance(value, tuple) and len(value) >= least and all(map(of, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _as_tuple(values: Any, depth: int = 1) -> Any:
    """Return a tuple of any values but a string's, and of theirs to a depth; one as it is."""
    if depth and isinstance(values, Iterable) and not isinstance(values, str):
        return tuple(_as_tuple(one, depth - 1) for one in values)
    return values


_FLAG = "true or false"
_VALUES: Mapping[str, tuple[Test, str]] = {
    "name": (_is_text, "a string"),
    "ignore": (
        _is_tuple(_is_tuple(lambda name: _is_text(name) and name != "", least=1)),
        "a list of lists of label columns, such as [['id', 'cam']],",
    ),
    "cmc": (
        get_args(CmcReading).__contains__,
        "'first-match', 'all-shots' or 'single-gallery-shot'",
    ),
    "junk_ids": (
        _is_tuple(lambda value: (_is_text(value) and "\0" not in value) or is_whole(value)),
        "a list of integers or strings, without NUL characters,",
    ),
    "self_match": (lambda value: value in (None, *get_args(SelfMatch)), "'index' or 'key'"),
    "listed": (lambda value: isinstance(value, bool), _FLAG),
    "shot_draws": (partial(is_whole, least=1), "a whole number of at least 1"),
    "shot_seed": (partial(is_whole, least=0), "a whole number of at least 0"),
}
"""What the attributes of a protocol can be, and how messages say so."""


@dataclass(frozen=True)
class Protocol:
    """Which pairs are ignored, and how CMC counts.

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
        Gallery identities that are ignored for all queries.
    self_match : {None, "index", "key"}
        Ignore the query's own image: the gallery item with the same index, or the same key.
    listed : bool
        Take positive and ignored pairs only from lists (`ListedPairs`).
    shot_draws, shot_seed : int
        Number and seed of the draws of ``CMC_sampled@x`` under single gallery shot. Each draw
        takes one item of each identity for each query.

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

    @entry_point
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
        rules = _as_tuple(second, 2) or tuple(rule for flag, rule in flags.values() if flag)
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
        """Label columns that both sides need in addition to ``id``."""
        by_key = ("key",) if self.self_match == "key" else ()
        names = {name: None for rule in (*self.ignore, by_key) for name in rule if name != "id"}
        return tuple(names)

    def ignored(self) -> list[str]:
        """Describe the ignored pairs, except junk."""
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


def with_options(protocol: str | Protocol, given: Mapping[str, Any]) -> Protocol:
    """Return a protocol, or the one of that name, with the options that are given.

    Parameters
    ----------
    protocol : str or Protocol
        A key of `PROTOCOLS`, or a protocol itself.
    given : mapping of str to object
        ``junk_ids``, ``self_match``, ``shot_draws``, ``shot_seed``: in place of the protocol's own.
        None is not given, and other names are ignored.
    """
    chosen = PROTOCOLS.get(protocol) if isinstance(protocol, str) else protocol
    if not isinstance(chosen, Protocol):
        raise OptionError(
            f"protocol is {protocol!r}; expected a Protocol, or the name of one: "
            f"{', '.join(PROTOCOLS)}"
        )
    names = ("junk_ids", "self_match", "shot_draws", "shot_seed")
    given = {name: given[name] for name in names if given.get(name) is not None}
    chosen = replace(chosen, **given)
    junk = chosen.junk_ids if "junk_ids" in given else ()
    draws = [name for name in names[2:] if name in given]
    refuse(
        OptionError,
        chosen.listed
        and (junk or "self_match" in given)
        and f"protocol {chosen.name} takes its pairs from lists alone, and got "
        f"{'junk ids' if junk else 'self_match'}: put these pairs on the junk list",
        draws
        and chosen.cmc != SINGLE_GALLERY_SHOT
        and f"{draws[0]} is {given[draws[0]]!r}, and protocol {chosen.name} draws nothing: choose "
        "cuhk03 or cuhk03-torchreid, or leave it out",
    )
    return chosen


@dataclass(frozen=True)
class Preset:
    """The conventions of one tool.

    Attributes
    ----------
    name : str
    protocol : str
        Name of the protocol.
    metrics : tuple of str
        Metrics that the tool reports, by their names here.
    options : mapping of str to value
        Options of `MetricOptions` that the tool uses.
    junk_ids : tuple of int or str, optional
        Junk identities that replace those of the protocol.
    range : {"minmax"}, optional
        Range of τ, if the tool uses τ.
    remark : str
        Differences that no option reproduces.
    """

    name: str
    protocol: str
    metrics: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    junk_ids: tuple[int | str, ...] | None = None
    range: Literal["minmax"] | None = None
    remark: str = ""


PRESETS: Mapping[str, Preset]
"""Presets by name: the conventions of other tools."""

EQUIVALENTS: Mapping[str, Mapping[str, str]]
"""Names here of the metrics of general packages, with the option that reads as they do."""


@cache
def _conventions() -> dict[str, Mapping[str, Any]]:
    read = tomllib.loads(files(__package__).joinpath("conventions.toml").read_text("utf-8"))
    presets = {}
    for name, values in read["presets"].items():
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        presets[name] = Preset(name, **values | lists)
    return {"PRESETS": presets, "EQUIVALENTS": read["equivalents"]}


def __getattr__(name: str) -> Mapping[str, Any]:
    """Read the conventions of other tools when they are first used."""
    if name not in ("PRESETS", "EQUIVALENTS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _conventions()[name]


def find_preset(name: str) -> Preset:
    """Return the preset of that name."""
    presets = _conventions()["PRESETS"]
    if not isinstance(name, str) or name not in presets:
        raise OptionError(f"unknown preset {name!r}; known presets: {', '.join(presets)}")
    found: Preset = presets[name]
    return found
