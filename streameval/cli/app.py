"""The group of commands; what all of them do about errors and warnings."""

from __future__ import annotations

import math
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from itertools import takewhile
from pathlib import Path
from textwrap import wrap
from typing import Any, NoReturn

import click

from streameval.cli import data, evaluate, ledger, saved
from streameval.cli.options import PROTOCOL_NAMES, command, examples
from streameval.cli.output import print_answer, print_out
from streameval.cli.types import Choice
from streameval.display.characters import visible
from streameval.errors import StreamevalError, StreamevalWarning, lacks_memory
from streameval.interruption import Interruption
from streameval.kernels.processor import CORETYPE, better_kernels
from streameval.memory import address_space, check_address_space

CPUINFO = Path("/proc/cpuinfo")
SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_STREAMEVAL_COMPLETE"  # what click looks for in the environment
ARENAS = -8  # glibc's M_ARENA_MAX
SPARING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the other one reserves 1 GB
    "MALLOC_ARENA_MAX": "1",  # 64 MB for each thread
    "OPENBLAS_NUM_THREADS": "1",  # 40 to 130 MB for each thread; tasks use one anyway
}
"""Settings with which libraries reserve little address space."""


class ExitStatus(IntEnum):
    """How a command has ended; `MEANINGS` says it in words."""

    DONE = 0
    FAULT = 1
    REFUSED = 2
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM


MEANINGS: Mapping[ExitStatus, str] = {
    ExitStatus.DONE: "success",
    ExitStatus.FAULT: "a bug in streameval (with a traceback), or stdout was closed by its reader",
    ExitStatus.REFUSED: "an unusable input, option, file or memory budget, or a difference found "
    "by verify: one message on stderr says what was received, what was expected and what "
    "to do",
    ExitStatus.INTERRUPTED: "interrupted by Ctrl-C (SIGINT); no result is written",
    ExitStatus.TERMINATED: "terminated by SIGTERM; no result is written",
}


class Commands(click.Group):
    """Commands whose errors end in one message on stderr and `ExitStatus.REFUSED`."""

    def main(  # type: ignore[override]
        self, args: Any = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run the program, whose command line is the object of its contexts.

        Also --help may meet a stdout that is full.
        """
        given = [prog_name or "streameval", *(sys.argv[1:] if args is None else args)]
        with Interruption():
            try:
                return super().main(args, prog_name, obj=given, **extra)
            except OSError as error:
                fail(str(error))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        choose_blas_kernels()
        spare_address_space()
        try:
            with warnings_in_words():
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader of stdout has gone: click ends without a word
            raise
        except (StreamevalError, OSError) as error:
            fail(str(error))
        except click.UsageError as error:
            hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
            fail(f"{error.format_message()}{hint}")
        except Exception as error:
            if not lacks_memory(error):
                raise
            detail = f" ({error})" if str(error) else ""
            fail(
                f"out of memory{detail}: lower --memory or --threads, raise the limit (ulimit -v), "
                "or use a larger machine"
            )

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command; refuse one that loads what the address space does not hold."""
        found = super().resolve_command(ctx, args)
        is_light = found[1] is completion or set(args) & set(ctx.help_option_names)
        if not is_light and not ctx.resilient_parsing:
            check_address_space()
        return found


def spare_address_space() -> None:
    """Have libraries, here and in workers, reserve little of an address space that is limited."""
    if address_space() < math.inf:
        import ctypes

        for name, value in SPARING.items():
            os.environ.setdefault(name, value)
        with suppress(AttributeError):  # of a process that runs: the variable is read as it starts
            ctypes.CDLL(None).mallopt(ARENAS, 1)


def choose_blas_kernels() -> None:
    """Have OpenBLAS take the best kernels, here and in workers, unless the user has chosen.

    It chooses when NumPy is loaded.
    """
    if CORETYPE in os.environ or "numpy" in sys.modules:
        return
    with suppress(OSError), CPUINFO.open(errors="replace") as file:
        kernels = better_kernels("".join(takewhile(str.strip, file)))  # of the first processor
        if kernels:
            os.environ[CORETYPE] = kernels


def fail(message: str) -> NoReturn:
    """Print the message on stderr and exit with `ExitStatus.REFUSED`."""
    with suppress(OSError):
        click.echo(f"error: {_one_line(message)}", err=True)
    try:
        sys.stdout.flush()
    except OSError:  # Python would try once more on exit, and fail with a message of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(ExitStatus.REFUSED)


def _one_line(message: str) -> str:
    return visible(" ".join(message.split("\n")))


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Print a `StreamevalWarning` as one line on stderr; others as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", StreamevalWarning)
        as_python_does = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any) -> None:
            if issubclass(category, StreamevalWarning):
                click.echo(f"warning: {_one_line(str(message))}", err=True)
            else:
                as_python_does(message, category, *place)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


STATUSES = "\n".join(
    line
    for status, meaning in MEANINGS.items()
    for line in wrap(meaning, 77, initial_indent=f"{status:>5}  ", subsequent_indent=" " * 7)
)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=f"\b\nExit statuses:\n{STATUSES}\n\n"
    + examples(
        "evaluate --query query.npy --gallery gallery.npy \\\n"
        "    --query-labels query.csv --gallery-labels gallery.csv",
        "evaluate --help",
        "metrics",
    ),
)
@click.version_option(
    package_name="streameval", prog_name="streameval", message="%(prog)s %(version)s"
)
def main() -> None:
    """Compute exact re-identification and retrieval metrics in bounded memory.

    Start with evaluate. It reads features, distances or lists of neighbours, and labels.
    """


@command("json", "metrics", "metrics --json", group=main)
def metrics(**values: Any) -> None:
    """List all metrics, with formulas and sources.

    Also lists names in other tools, and the statistics that each metric needs.
    """
    from streameval.report.conventions import metrics_blocks, metrics_summary

    print_answer(values, metrics_summary, metrics_blocks)


@command("json", "protocols", "protocols market1501", group=main)
@click.argument("name", required=False, type=PROTOCOL_NAMES)
def protocols(name: str | None, **values: Any) -> None:
    """List the protocols, or print the file of one.

    Write the file of one to NAME.toml, change it, and give it to --protocol.
    """
    from streameval.protocols.shipped import PROTOCOLS
    from streameval.report.conventions import protocols_blocks, protocols_summary

    if name is None:
        print_answer(values, protocols_summary, protocols_blocks)
    elif values["json"]:
        print_answer(values, lambda: protocols_summary()[name], list)
    else:
        print_out(PROTOCOLS.text(name))


@command("", "completion bash", group=main)
@click.argument("shell", type=Choice(lambda: SHELLS))
def completion(shell: str) -> None:
    """Print a shell script for completion with Tab.

    \b
    bash:  eval "$(streameval completion bash)"      in ~/.bashrc
    zsh:   eval "$(streameval completion zsh)"       in ~/.zshrc
    fish:  streameval completion fish | source       in ~/.config/fish/config.fish

    Tab completes commands, options, files, and the names of metrics, protocols, presets and
    curves. Quote names of metrics: --metrics "CMC@1,m
    """  # noqa: D301 - click takes the backspace
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(f"click completes nothing in {shell}")
    print_out(kind(main, {}, "streameval", VARIABLE).source())


for added in (
    *(evaluate.evaluate, evaluate.compare_index, ledger.ledger, data.audit, data.convert),
    *(saved.show, saved.verify, saved.compare, saved.average, saved.plot, saved.report),
    saved.conventions,
):
    main.add_command(added)
