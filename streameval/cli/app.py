"""The group of commands; what all of them do about errors and warnings."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

from streameval.cli.audit import audit
from streameval.cli.compare import compare
from streameval.cli.compare_index import compare_index
from streameval.cli.completion import completion
from streameval.cli.convert import convert
from streameval.cli.evaluate import evaluate
from streameval.cli.help import ExitStatus, examples, statuses_text
from streameval.cli.ledger import ledger
from streameval.cli.metrics import metrics
from streameval.cli.plot import plot, plot_ledgers
from streameval.cli.report import report
from streameval.cli.show import conventions, show
from streameval.errors import StreamevalError, StreamevalWarning


class Commands(click.Group):
    """Commands whose errors end in one message on stderr and `ExitStatus.REFUSED`."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; --help may meet a stdout that is full, too."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            fail(str(error))

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Return the context of a run, which knows its command line: see `evaluate.describe`."""
        given = [info_name or "streameval", *args]  # parsing empties the list
        ctx = super().make_context(info_name, args, parent, **extra)
        ctx.obj = given
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            with warnings_in_words():
                return super().invoke(ctx)
        except StreamevalError as error:
            fail(str(error))
        except MemoryError as error:
            detail = f" ({error})" if str(error) else ""
            fail(f"out of memory{detail}: lower --memory or --threads, or use a larger machine")
        except click.UsageError as error:
            hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
            fail(f"{error.format_message()}{hint}")
        except BrokenPipeError:  # the reader of stdout has gone: click ends without a word
            raise
        except OSError as error:
            fail(str(error))
        except KeyboardInterrupt:  # before the command has taken over the signals
            click.echo("interrupted", err=True)
            sys.exit(ExitStatus.INTERRUPTED)


def fail(message: str) -> NoReturn:
    """Print the message on stderr and exit with `ExitStatus.REFUSED`."""
    with suppress(OSError):
        click.echo(f"error: {harmless(message)}", err=True)
    try:
        sys.stdout.flush()
    except OSError:  # Python would try once more on exit, and fail with a message of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(ExitStatus.REFUSED)


def harmless(message: str) -> str:
    """Return a message in one line that does nothing to a terminal, whatever labels are in it."""
    from streameval.report.terminal import Style

    return Style(plain=False).text(" ".join(message.split("\n")))


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Print a `StreamevalWarning` as one line on stderr; others as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", StreamevalWarning)
        as_python_does = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any) -> None:
            if issubclass(category, StreamevalWarning):
                click.echo(f"warning: {harmless(str(message))}", err=True)
            else:
                as_python_does(message, category, *place)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=f"\b\n{statuses_text()}\n\n"
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
    """Exact re-identification and retrieval metrics in one streaming pass.

    Memory does not grow with the gallery, and no number depends on it.
    """


COMMANDS = (
    evaluate,
    show,
    compare,
    plot,
    report,
    compare_index,
    ledger,
    convert,
    audit,
    metrics,
    conventions,
    completion,
)
for command in COMMANDS:
    main.add_command(command)
ledger.add_command(plot_ledgers)
