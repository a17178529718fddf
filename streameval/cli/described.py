"""What a command line says of a result: for its provenance, and to open its inputs again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from streameval.audit import Finding
    from streameval.cli.running import Given
    from streameval.result import Evaluation


def described(
    result: Evaluation, given: Given, told: Mapping[str, Any], findings: Sequence[Finding]
) -> Evaluation:
    """Return the result with the command line, its labels and their audit in its provenance.

    Parameters
    ----------
    result : Evaluation
    given : Given
        The options.
    told : mapping of str to object
        Those that make the result what it is, by their keys, where not the default.
    findings : sequence of Finding
        Of the part of the audit that precedes every evaluation.
    """
    from streameval.labels.columns import LabelUris

    said: dict[str, Any] = {
        "given": told,
        "labels": {
            side: asdict(LabelUris(*given.label_options(side))) for side in ("query", "gallery")
        },
        "audit": [asdict(one) for one in findings],
    }
    if given.good is not None:
        said["listed"] = {name: getattr(given, name) for name in ("good", "junk", "listed_as")}
    context = click.get_current_context(silent=True)
    if context is not None and context.obj is not None:
        said["command"] = list(context.obj)
    with suppress(OSError):  # the folder may be gone
        said["folder"] = str(Path.cwd())
    return replace(result, provenance={**result.provenance, **said})
