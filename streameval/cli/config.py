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
from typing import Any, TypeVar

import click

from streameval.cli.values import Value
from streameval.errors import InputError, OptionError

Command = TypeVar("Command", bound=click.Command)

CONFIG = "config"
OF_OUTPUT = frozenset(
    {"out", "overwrite", "resume", "json", "format", "quiet", "dry-run", "rate"}
    | {"save-index", "trec-run", "trec-qrels"}
)
"""Keys that say where a result goes, not what it is."""

NUMBERS = {
    "integer": ((int,), "a whole number"),
    "integer range": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
}
"""What a config file may hold, and what that is in words, by click's name of the type."""


def takes_config(command: Command) -> Command:
    """Add the option ``--config`` to a command that is complete otherwise."""
    command.params.append(
        click.Option(
            [f"--{CONFIG}"],
            metavar="FILE.toml",
            is_eager=True,
            expose_value=False,
            callback=_take,
            help="Options from a file, by their long names; those given here go before.",
        )
    )
    return command


def options_by_key(command: click.Command) -> dict[str, click.Option]:
    """Return the options that a config file of a command may hold, by their keys."""
    keys: dict[str, click.Option] = {}
    for param in command.params:
        if isinstance(param, click.Option) and param.expose_value:
            keys[max(param.opts, key=len).lstrip("-")] = param
    return keys


def _take(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    if path is not None and not ctx.resilient_parsing:  # a Tab reads no file
        ctx.default_map = read_config(path, ctx.command)


def read_config(path: str, command: click.Command) -> dict[str, Any]:
    """Return the values of a config file by the parameters' names.

    Raises
    ------
    InputError
        If it can't be read.
    OptionError
        If a key is unknown, or has a value of another type.
    """
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
        taken = _value(option, value, folder)
        if taken is None:
            raise OptionError(f"config {path}: {key} is {value!r}; expected {expected(option)}")
        values[str(option.name)] = taken
    return values


def _value(option: click.Option, value: Any, folder: str) -> Any:
    """Return a value as the option takes it; None of one of another type."""
    if not option.multiple:
        return _one(option, value, folder)
    if not isinstance(value, list):
        return None
    values = [_one(option, one, folder) for one in value]
    return None if None in values else values


def _one(option: click.Option, value: Any, folder: str) -> Any:
    kind = option.type
    if option.is_flag:
        return value if isinstance(value, bool) else None
    if isinstance(kind, Value):
        text = kind.text_of(value)
        return None if text is None else kind.within(folder, text)
    allowed, _ = NUMBERS[kind.name]
    return value if type(value) in allowed else None  # True is no number


def expected(option: click.Option) -> str:
    """Return in words what an option's value is in a config file."""
    kind = option.type
    if option.is_flag:
        one = "true or false"
    else:
        one = kind.expected if isinstance(kind, Value) else NUMBERS[kind.name][1]
    return f"a list, of each {one}" if option.multiple else one


def in_force(command: click.Command, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return by their keys the options that make a result what it is, where not the default."""
    keys = options_by_key(command)
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, option in keys.items()
        if key not in OF_OUTPUT
        and (value := given[str(option.name)]) not in (None, (), False)
        and value != option.default
    }


def as_toml(values: Mapping[str, Any]) -> str:
    """Return a config file: texts, numbers, booleans and lists of them, a line a key."""
    return "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):  # what JSON escapes, TOML reads; what a terminal obeys, it may
        return "".join(map(_shown, json.dumps(value, ensure_ascii=False)))
    return json.dumps(value)


def _shown(one: str) -> str:
    return one if one.isprintable() or "\ud800" <= one <= "\udfff" else f"\\U{ord(one):08x}"
