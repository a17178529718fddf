"""Presets: how other tools read a ranking, each under one name.

A preset is a protocol and the options that reproduce a tool. The presets are data, in
``conventions.toml`` beside this module, which is read on first use.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeVar

from streameval.errors import OptionError

T = TypeVar("T")


@dataclass(frozen=True)
class Preset:
    """The conventions of one tool.

    Attributes
    ----------
    name : str
    protocol : str
        Name of the protocol: which pairs are ignored, and how CMC is read.
    metrics : tuple of str
        What the tool reports, under our names.
    options : mapping of str to value
        Options of `MetricOptions` that differ from the default, or that the tool stands for.
    junk_ids : tuple of int or str, optional
        In place of the protocol's.
    range : {"minmax"}, optional
        What τ = 0 and 1 stand for, where the tool reads τ.
    remark : str
        What else differs, and no option reproduces.
    """

    name: str
    protocol: str
    metrics: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    junk_ids: tuple[int | str, ...] | None = None
    range: Literal["minmax"] | None = None
    remark: str = ""


class Lazy(Mapping[str, T]):
    """A mapping that is read on first use.

    Parameters
    ----------
    read : callable
        Returns the mapping.
    """

    def __init__(self, read: Callable[[], Mapping[str, T]]) -> None:
        self._read = cache(read)

    def __getitem__(self, name: str) -> T:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


@cache
def _conventions() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("conventions.toml").read_text("utf-8"))


def _presets() -> dict[str, Preset]:
    presets = {}
    for name, values in _conventions()["presets"].items():
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        presets[name] = Preset(name, **values | lists)
    return presets


PRESETS: Mapping[str, Preset] = Lazy(_presets)
"""Presets by name: the conventions of other tools."""

EQUIVALENTS: Mapping[str, Mapping[str, str]] = Lazy(lambda: _conventions()["equivalents"])
"""Names here of the metrics of general packages, with the option that reads as they do."""


def find_preset(name: str) -> Preset:
    """Return the preset of that name.

    Raises
    ------
    OptionError
        If there is none; the known ones are listed.
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise OptionError(f"unknown preset {name!r}; known presets: {', '.join(PRESETS)}")
    return PRESETS[name]
