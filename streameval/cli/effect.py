"""Options that would have no effect beside the others: refused, as they are mostly a mistake."""

from __future__ import annotations

import click
from click.core import ParameterSource

from streameval.errors import OptionError

GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)  # there, or in a config file


def check_effect(*names: str, when: bool, remedy: str) -> None:
    """Check that options of the running command are given only where they have an effect.

    Parameters
    ----------
    *names : str
        Names of the command's parameters.
    when : bool
        Whether they have an effect.
    remedy : str
        What would give them one, for the message: ``give --out DIR``.

    Raises
    ------
    OptionError
        If one of them is given, and has none.
    """
    if when:
        return
    context = click.get_current_context()
    for param in context.command.params:
        if param.name not in names or context.get_parameter_source(param.name) not in GIVEN:
            continue
        if context.params[param.name] not in (None, False, ()):
            option = max(param.opts, key=len)
            raise OptionError(
                f"got {option}, which has no effect here: {remedy}, or leave {option} out"
            )
