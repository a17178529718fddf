"""Protocols of a user's own, as TOML files: a key an attribute of `Protocol`."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from streameval.errors import InputError, OptionError, check_path
from streameval.protocols.protocol import PROTOCOLS, Protocol


def read_protocol(path: str | Path) -> Protocol:
    """Read a protocol from a TOML file.

    Its keys are the attributes of `Protocol`; ``name`` is that of the file where it is left out,
    and ``same_identity_and_camera`` has to be there.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Protocol
        For ``protocol=`` of `evaluate`.

    Raises
    ------
    InputError
        If the file can't be read.
    OptionError
        If a key is unknown (the nearest are named), is missing, or has a value that it can't have;
        or if the name is that of another protocol.
    """
    check_path(path)
    path = Path(path)
    try:
        with path.open("rb") as file:
            given = tomllib.load(file)
    except FileNotFoundError:
        raise InputError(
            f"protocol {path} does not exist: give a TOML file, or one of {', '.join(PROTOCOLS)}"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"protocol {path} can't be read: {error}") from error
    given.setdefault("name", path.stem)
    kinds = get_type_hints(Protocol)
    for key in given:
        if key not in kinds:
            near = get_close_matches(key, kinds, n=3, cutoff=0.4)
            raise OptionError(
                f"protocol {path} has an unknown key {key!r}: "
                + (f"the nearest are {', '.join(near)}" if near else f"known: {', '.join(kinds)}")
            )
    for one in fields(Protocol):
        if one.default is MISSING and one.default_factory is MISSING and one.name not in given:
            raise OptionError(f"protocol {path} lacks {one.name}: {_expected(kinds[one.name])}")
    if given["name"] in PROTOCOLS:
        raise OptionError(
            f"protocol {path} is named {given['name']!r}, as one that is there: give another name"
        )
    values = {key: _value(path, key, value, kinds[key]) for key, value in given.items()}
    try:
        return Protocol(**values)
    except OptionError as error:
        raise OptionError(f"protocol {path} can't be: {error}") from error


def _value(path: Path, key: str, value: Any, kind: Any) -> Any:
    """Return a value of a key as what its attribute is; a list becomes a tuple."""
    if not _is_of(value, kind):
        raise OptionError(f"protocol {path}: {key} is {value!r}; expected {_expected(kind)}")
    return tuple(value) if isinstance(value, list) else value


def _is_of(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return any(_is_of(value, one) for one in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_is_of(one, get_args(kind)[0]) for one in value)
    return type(value) is kind  # True is no integer


def _expected(kind: Any) -> str:
    """Return in words what values an attribute can have."""
    if get_origin(kind) is Literal:
        return " or ".join(repr(one) for one in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_expected(one) for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is tuple:
        return f"a list, of {_expected(get_args(kind)[0])}"
    return {bool: "true or false", int: "an integer", str: "a string"}[kind]
