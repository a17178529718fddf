"""The command ``streameval completion``: Tab in the shell, by click."""

from __future__ import annotations

import click

from streameval.cli.help import examples
from streameval.cli.printing import print_out
from streameval.cli.types import Choice

PROGRAM = "streameval"
VARIABLE = "_STREAMEVAL_COMPLETE"  # what click looks for in the environment
SHELLS = ("bash", "zsh", "fish")


@click.command(epilog=examples("completion bash"))
@click.argument("shell", type=Choice(lambda: SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the script that completes commands, options and names on Tab.

    \b
    bash:  eval "$(streameval completion bash)"      in ~/.bashrc
    zsh:   eval "$(streameval completion zsh)"       in ~/.zshrc
    fish:  streameval completion fish | source       in ~/.config/fish/config.fish

    Metrics, protocols, presets and curves are completed by name, and inputs by file. Names of
    metrics want quotes: --metrics "CMC@1,m
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(f"click completes nothing in {shell}")
    print_out(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
