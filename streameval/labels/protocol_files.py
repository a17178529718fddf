"""Protocols as TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from streameval.arrays.identity import unchanging
from streameval.errors import InputError, OptionError, check_path, entry_point
from streameval.labels.trial_files import rows_of_table
from streameval.protocols.protocol import SELECTIONS, Protocol
from streameval.protocols.shipped import PROTOCOLS, protocol_of


@entry_point
def read_protocol(path: str | Path) -> Protocol:
    """Read a protocol from a TOML file.

    The keys are the parameters of `Protocol`. ``ignore``, or its earlier spelling
    ``same_identity_and_camera``, is required. ``name`` defaults to the name of the file. Rows of
    ``queries``, ``gallery`` and ``galleries`` are a table: ``rows``, the path of a text file or the
    URI of an array, relative to the folder of the TOML file, and ``listed_as``, ``"0-based"`` or
    ``"1-based"``.

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
        If the file, or one of rows, can't be read, or rows are none, or one comes twice.
    OptionError
        If a key is unknown or missing, a value is invalid, or the name is that of a built-in
        protocol.
    """
    check_path(path)
    path = Path(path)
    try:
        with unchanging(path):
            given = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise InputError(
            f"protocol {path} does not exist: give a TOML file, or one of {', '.join(PROTOCOLS)}"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"protocol {path} can't be read: {error}") from error
    name = given.get("name", path.stem)
    if name in list(PROTOCOLS):
        raise OptionError(
            f"protocol {path} is named {name!r}, as a shipped protocol: give another name"
        )
    try:
        for key in (*SELECTIONS, "galleries"):
            if isinstance(given.get(key), Mapping):
                given[key] = rows_of_table(given[key], path.parent, key)
        return protocol_of(given, path.stem, str(path))
    except OptionError as error:
        told = str(error)
        raise OptionError(told if str(path) in told else f"protocol {path}: {told}") from error
