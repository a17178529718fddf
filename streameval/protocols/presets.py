"""Presets: a protocol and the options that reproduce a tool.

They are in ``conventions.toml`` beside this module, which is read on first use.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from streameval.errors import OptionError


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
    range : {"minmax", "minmax-all"}, optional
        Range of τ, if the tool uses τ.
    remark : str
        Differences that no option reproduces.
    """

    name: str
    protocol: str
    metrics: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    junk_ids: tuple[int | str, ...] | None = None
    range: Literal["minmax", "minmax-all"] | None = None
    remark: str = ""


PRESETS: Mapping[str, Preset]
"""Presets by name: the conventions of other tools."""

EQUIVALENTS: Mapping[str, Mapping[str, str]]
"""Names here of the metrics of general packages, with the option that reads as they do."""

DIFFERENCES: Mapping[str, Mapping[str, str]]
"""What remains different in some of these metrics, by their names there."""


@cache
def _conventions() -> dict[str, Mapping[str, Any]]:
    read = tomllib.loads(files(__package__).joinpath("conventions.toml").read_text("utf-8"))
    presets = {}
    for name, values in read["presets"].items():
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        presets[name] = Preset(name, **values | lists)
    differences = {
        tool: {name: one["remark"] for one in several for name in one["names"]}
        for tool, several in read["differences"].items()
    }
    return {
        "PRESETS": presets,
        "EQUIVALENTS": read["equivalents"],
        "DIFFERENCES": differences,
    }


def __getattr__(name: str) -> Mapping[str, Any]:
    """Read the conventions of other tools when they are first used."""
    if name not in ("PRESETS", "EQUIVALENTS", "DIFFERENCES"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _conventions()[name]


def find_preset(name: str) -> Preset:
    """Return the preset of that name."""
    presets = _conventions()["PRESETS"]
    if not isinstance(name, str) or name not in presets:
        raise OptionError(f"unknown preset {name!r}; known presets: {', '.join(presets)}")
    found: Preset = presets[name]
    return found


def note_of(preset: str | None) -> dict[str, dict[str, str]]:
    """Return a preset for the provenance, by its name: with what no option reproduces."""
    if preset is None:
        return {}
    return {"preset": {"name": preset, "remark": find_preset(preset).remark}}
