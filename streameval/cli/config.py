"""Options from a TOML file, ``--config run.toml``; and the file that has those of a run.

A key is the long name of an option: ``query-ids = "ids.npy"``. What is on the command line goes
before what is in the file. Paths in the file are relative to its folder.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click

from streameval.cli.types import Value, flag
from streameval.errors import InputError, OptionError

CONFIG = "config"
OUTPUTS = {
    *("out", "overwrite", "resume", "json", "format", "quiet", "dry-run", "rate"),
    *("save-index", "trec-run", "trec-qrels"),
}
"""Keys that say where a result goes, not what it is."""

NUMBERS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "boolean": ((bool,), "true or false"),
    "integer": ((int,), "a whole number"),
    "integer range": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
}
"""What a config file may hold for click's own types, and that in words."""


def options_by_key(command: click.Command) -> dict[str, click.Option]:
    """Return the options that a config file of a command may hold, by their keys."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {
        name.lstrip("-"): option
        for option in options
        if option.expose_value
        for name in option.opts
        if name == flag(option) or name.startswith("--")
    }


def accepts(kind: click.ParamType[Any], value: Any) -> bool:
    """Return whether a config file may hold a value for a parameter of a type."""
    if not isinstance(kind, Value):
        return type(value) in NUMBERS[kind.name][0]
    if isinstance(value, list):
        return bool(kind.items) and all(type(item) in kind.items for item in value)
    return type(value) in kind.scalars


def take_config(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    """Take the values of a config file as defaults; a Tab reads no file."""
    if path is not None and not ctx.resilient_parsing:
        ctx.default_map = read_config(path, ctx.command)


def read_config(path: str, command: click.Command) -> dict[str, Any]:
    """Return the values of a config file by the parameters' names."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path may be a pipe
            given = tomllib.load(file)
    except FileNotFoundError:
        raise InputError(
            f"config {path} does not exist: give a TOML file of options such as ties = 'stable'"
        ) from None
    except (OSError, ValueError) as error:  # of TOML, of UTF-8, of a path
        raise InputError(f"config {path} can't be read: {error}") from error
    known, folder = options_by_key(command), os.path.dirname(path)  # noqa: PTH120 - "" stays ""
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            near = get_close_matches(key.replace("_", "-"), known, n=1, cutoff=0)
            raise OptionError(
                f"config {path} has an unknown key {key!r}: a key is the long name of an option "
                f"of streameval {command.name}; the nearest is {near[0]}"
            )
        option = known[key]
        several = option.multiple and isinstance(value, list)
        kind, items = option.type, value if several else [value]
        if not all(accepts(kind, item) for item in items):
            words = "one or a list, of each " * option.multiple
            if isinstance(kind, Value):
                words += f"{kind.expected}: {kind.get_metavar(option)}"
            else:
                words += NUMBERS[kind.name][1]
            raise OptionError(f"config {path}: {key} is {value!r}; expected {words}")
        if isinstance(kind, Value):
            items = [kind.within(folder, item) for item in items]
        values[str(option.name)] = items if option.multiple else items[0]
    return values


def in_force(command: click.Command, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return by their keys the options that make a result what it is, where not the default."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, option in options_by_key(command).items()
        if key not in OUTPUTS
        and (value := values[str(option.name)]) not in (None, (), False)
        and value != option.default
    }


def as_toml(values: Mapping[str, Any]) -> str:
    """Return a config file: texts, numbers, booleans and lists of them, a line a key."""
    return "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):  # what JSON escapes, TOML reads; what a terminal obeys, it may
        return "".join(map(_escape, json.dumps(value, ensure_ascii=False)))
    return json.dumps(value)


def _escape(character: str) -> str:
    shown = character.isprintable() or "\ud800" <= character <= "\udfff"
    return character if shown else f"\\U{ord(character):08x}"
