"""Protocols of a user's own, as TOML files: a key per attribute of `Protocol`."""

from __future__ import annotations

import inspect
import tomllib
from difflib import get_close_matches
from pathlib import Path

from streameval.errors import InputError, OptionError, check_path
from streameval.protocols.protocol import PROTOCOLS, Protocol


def read_protocol(path: str | Path) -> Protocol:
    """Read a protocol from a TOML file.

    Its keys are the parameters of `Protocol`. ``ignore`` must be there, or its earlier spelling
    ``same_identity_and_camera``; ``name`` defaults to that of the file.

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
        If a key is unknown, is missing, or has a value that it can't have; or if the name is that
        of another protocol.
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
    known = list(inspect.signature(Protocol).parameters)
    for key in given:
        if key not in known:
            near = get_close_matches(key, known, n=3, cutoff=0.4)
            raise OptionError(
                f"protocol {path} has an unknown key {key!r}: "
                + (f"the nearest are {', '.join(near)}" if near else f"known: {', '.join(known)}")
            )
    if not {"ignore", "same_identity_and_camera"}.intersection(given):
        raise OptionError(
            f"protocol {path} lacks ignore, the label columns by which pairs are ignored: "
            'give ignore = [["id", "cam"]], or [] for none'
        )
    if given["name"] in list(PROTOCOLS):
        raise OptionError(
            f"protocol {path} is named {given['name']!r}, as a shipped protocol: give another name"
        )
    try:
        return Protocol(**given)
    except OptionError as error:
        raise OptionError(f"protocol {path}: {error}") from error
