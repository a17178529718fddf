"""The protocols that come with the package, a TOML file each in ``named/``; protocols as TOML."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from streameval.choices import CmcReading
from streameval.errors import OptionError, refuse
from streameval.protocols.protocol import SELECTIONS, SINGLE_GALLERY_SHOT, Protocol
from streameval.protocols.rows import Rows

SUFFIX = ".toml"
SOURCE = "source"  # a key of the file that says where a protocol comes from


class Shipped(Mapping[str, Protocol]):
    """The protocols that come with the package, by name; each is read when it is asked for."""

    def __getitem__(self, name: str) -> Protocol:
        return _protocol(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())

    def text(self, name: str) -> str:
        """Return the file of a protocol."""
        return _text(name)

    def source(self, name: str) -> str:
        """Return where a protocol comes from."""
        return str(tomllib.loads(_text(name))[SOURCE])


PROTOCOLS = Shipped()
"""The protocols by name; ``market1501`` is the default."""


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(_found(files(__package__).joinpath("named"), "")))


def _found(folder: Traversable, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _found(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield f"{prefix}{entry.name.removesuffix(SUFFIX)}"


@cache
def _text(name: str) -> str:
    if name not in _names():
        raise KeyError(name)
    return files(__package__).joinpath("named", *f"{name}{SUFFIX}".split("/")).read_text("utf-8")


@cache
def _protocol(name: str) -> Protocol:
    return protocol_of(tomllib.loads(_text(name)), name, name)


def protocols_of(reading: CmcReading) -> str:
    """Return in words which protocols read CMC so, for messages."""
    names = " or ".join(name for name, protocol in PROTOCOLS.items() if protocol.cmc == reading)
    return ", or ".join(filter(None, [names, f"a Protocol with cmc={reading!r}"]))


def protocol_of(values: Mapping[str, Any], name: str, what: str) -> Protocol:
    """Return the protocol of the keys of a TOML file.

    Parameters
    ----------
    values : mapping of str to object
        Parameters of `Protocol`, and ``source``. ``ignore``, or its earlier spelling
        ``same_identity_and_camera``, is required.
    name : str
        The protocol's, where there is none among the keys.
    what : str
        What messages call the file.

    Raises
    ------
    OptionError
    """
    known = list(inspect.signature(Protocol).parameters)
    values = {key: value for key, value in values.items() if key != SOURCE}
    for key in values:
        if key not in known:
            near = get_close_matches(key, known, n=3, cutoff=0.4)
            raise OptionError(
                f"protocol {what} has an unknown key {key!r}: "
                + (f"the nearest are {', '.join(near)}" if near else f"known: {', '.join(known)}")
            )
    if not {"ignore", "same_identity_and_camera"}.intersection(values):
        raise OptionError(
            f"protocol {what} lacks ignore, the rules of ignored pairs: give "
            'ignore = ["same(id, cam)"], or [] for none'
        )
    return Protocol(**{"name": name, **values})


def saved_protocol(values: Mapping[str, Any]) -> Protocol:
    """Return the protocol of a saved result; early results hold its name and junk ids alone.

    Of rows that are given, a result holds a digest.
    """
    names = (*SELECTIONS, "galleries")
    values = {name: _told(one) if name in names else one for name, one in values.items()}
    known = PROTOCOLS.get(values["name"])
    if known is None or {"ignore", "same_identity_and_camera"}.intersection(values):
        return Protocol(**values)
    return replace(known, **values)


def _told(value: Any) -> Any:
    """Return the rows that a saved result tells of; a text as it is."""
    if isinstance(value, Mapping):
        return Rows.saved(value)
    return value if isinstance(value, str) else tuple(map(_told, value))


def with_options(protocol: str | Protocol, given: Mapping[str, Any]) -> Protocol:
    """Return a protocol, or the one of that name, with the options that are given.

    Parameters
    ----------
    protocol : str or Protocol
        A key of `PROTOCOLS`, or a protocol itself.
    given : mapping of str to object
        ``junk_ids``, ``self_match``, ``shot_draws``, ``shot_seed``, and ``trials``, the number of
        these: in place of the protocol's own. None is not given, and other names are ignored.
    """
    chosen = PROTOCOLS.get(protocol) if isinstance(protocol, str) else protocol
    if not isinstance(chosen, Protocol):
        raise OptionError(
            f"protocol is {protocol!r}; expected a Protocol, or the name of one: "
            f"{', '.join(PROTOCOLS)}"
        )
    if given.get("trials") is not None:
        chosen = chosen.with_trials(given["trials"])
    names = ("junk_ids", "self_match", "shot_draws", "shot_seed")
    given = {name: given[name] for name in names if given.get(name) is not None}
    chosen = replace(chosen, **given)
    junk = chosen.junk_ids if "junk_ids" in given else ()
    draws = [name for name in names[2:] if name in given]
    refuse(
        OptionError,
        chosen.listed
        and junk
        and f"protocol {chosen.name} takes its pairs from lists alone, and got junk ids: put these "
        "pairs on the junk list",
        draws
        and chosen.cmc != SINGLE_GALLERY_SHOT
        and f"{draws[0]} is {given[draws[0]]!r}, and protocol {chosen.name} draws nothing: choose "
        "cuhk03 or cuhk03-torchreid, or leave it out",
    )
    return chosen
