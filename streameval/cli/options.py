"""Options that several commands have, each declared once: name, type, default and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from streameval.cli import types
from streameval.cli.types import Choice, Integer, Metrics, Path, Range, Real, Value, registry
from streameval.errors import OptionError

Command = Callable[..., Any]
Option = Callable[[Command], Command]
"""What adds an option, or several, to a command."""
Values = Mapping[str, Any]
"""The arguments and options of a command, by name."""

URI, FILE, TABLE = Path("URI"), Path("FILE"), Path("TABLE")
DIR, LEDGER = Path("DIR", "dir"), Path("L", "dir")
COUNT = Integer("N")
TEXT, SIZE, NUMBER = Value("TEXT"), Value("SIZE", number=True), Value("N", number=True)
DISTANCES = Choice(registry("distances.registry", "DISTANCES"))
PRESETS = Choice(registry("protocols.presets", "PRESETS"))
PROTOCOLS = registry("protocols.protocol", "PROTOCOLS")
FORMATS = registry("choices", "Format")
GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)  # there, or in a config file


def together(*options: Option) -> Option:
    """Return what adds some options to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def check_effect(*names: str, when: bool, remedy: str) -> None:
    """Refuse options of the running command where they have no effect: mostly a mistake.

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
    context = click.get_current_context()
    for param in () if when else context.command.params:
        if param.name not in names or context.get_parameter_source(param.name) not in GIVEN:
            continue
        if context.params[param.name] not in (None, False, ()):
            option = types.flag(param)
            raise OptionError(
                f"got {option}, which has no effect here: {remedy}, or leave {option} out"
            )


def features(*, required: bool = False) -> Option:
    """Return the options of the features of both sides."""
    query, gallery = "queries, [queries, columns]", "gallery, [items, columns]"
    return together(
        click.option("--query", type=URI, required=required, help=f"Features of the {query}."),
        click.option("--gallery", type=URI, required=required, help=f"Features of the {gallery}."),
    )


COLUMNS = {"ids": "Identities", "cams": "Cameras", "keys": "Keys"}
"""What help calls the label columns that may be given as an array each."""


def labels(**whose: str) -> Option:
    """Return the options of the labels of a side, by what help calls it; of both by default."""
    whose = whose or {"query": "queries", "gallery": "gallery"}
    keys = {side: ", for --self-match key" if side == "query" else "" for side in whose}
    return together(
        *(
            click.option(
                f"--{side}-{column}",
                type=URI,
                help=f"{what} of the {name}{keys[side] if column == 'keys' else ''}.",
            )
            for column, what in COLUMNS.items()
            for side, name in whose.items()
        ),
        *(
            click.option(
                f"--{side}-labels",
                type=TABLE,
                help="CSV or Parquet: id[,cam][,key]; or file names: a folder, or a .txt.",
            )
            for side in whose
        ),
    )


bundle = click.argument("bundle", metavar="[FILE]", type=FILE, required=False)


def places(name: str, kind: Path, what: str, origin: str) -> Option:
    """Return the argument of one or more places, and where such a place comes from."""

    def check(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> Any:
        if not value and not ctx.resilient_parsing:
            raise OptionError(f"got no {what} to {ctx.command.name}: give {origin}")
        return value

    metavar = f"{kind.metavar} [{kind.metavar}...]"
    return click.argument(name, metavar=metavar, type=kind, nargs=-1, callback=check)


folders = places("folders", DIR, "result", "the folder of one, as evaluate --out wrote")
metric = click.option("--metric", type=DISTANCES, help="Distance of features.  [default: cosine]")
preset = click.option(
    "--as",
    "preset",
    type=PRESETS,
    help="Conventions of another tool, where no option says otherwise.",
)


def self_match(what: str = "Ignore each query's own image in the gallery.") -> Option:
    """Return the option of what becomes of a query's own image."""
    return click.option("--self-match", type=Choice(registry("choices", "SelfMatch")), help=what)


def value_range(*words: str) -> Option:
    """Return the option of what tau = 0 and tau = 1 stand for, with the words that it may be."""
    return click.option(
        "--range",
        type=Range(*words),
        help="Distances that tau = 0 and tau = 1 stand for.  [default: auto]",
    )


def pairs(shown: Callable[[], tuple[str, ...]] | None = None) -> Option:
    """Return the options of which pairs are ignored, with the protocols that help shows."""
    return together(
        click.option(
            "--protocol",
            type=Choice(PROTOCOLS, file="FILE.toml", shown=shown),
            help="Which pairs are ignored, and how CMC is read.  [default: market1501]",
        ),
        click.option(
            "--junk-id",
            "junk_ids",
            type=NUMBER,
            multiple=True,
            help="Gallery identity to ignore; repeatable.  [default: -1]",
        ),
    )


def rule(name: str, known: str, what: str) -> Option:
    """Return the option of a rule by which metrics are read, a field of `MetricOptions`."""
    return click.option(f"--{name}", type=Choice(registry("choices", known)), help=what)


ties = rule("ties", "TieRule", "Who is ahead at the same distance.  [default: pessimistic]")
rules: Option = together(
    rule(
        "vp",
        "VerificationPrecision",
        "VP of GOM: as the authors' code, or as Eq. 5 is printed.  [default: reference]",
    ),
    click.option(
        "--false-rate-budget",
        type=COUNT,
        help="Returned negatives that count as failure.  [default: 3000]",
    ),
    rule("ap", "AveragePrecision", "Rule of average precision and of RP.  [default: step]"),
    click.option(
        "--metrics",
        type=Metrics(),
        help='Metrics by name, "CMC@1,mAP", or all; see: streameval metrics.',
    ),
)
group_by = click.option(
    "--group-by",
    type=types.Column("COLUMN|URI"),
    help="Each group of queries, too: by id, cam, a column of the table, or an array; or by "
    "cam-pair, camera of query and of positive.",
)


def metrics(what: str = "Metrics to compare, by name.") -> Option:
    """Return the option of which metrics are read off a result."""
    return click.option("--metrics", type=Metrics(), help=what)


def ci(what: str, *, default: float | None = None) -> Option:
    """Return the option of confidence intervals."""
    return click.option("--ci", type=Real("LEVEL"), default=default, help=what)


intervals = ci("Confidence intervals of so many percent: 95.")
differences: Option = together(
    ci("Intervals of so many percent, of differences.", default=95.0),
    click.option("--resamples", type=COUNT, default=10_000, help="How often identities are drawn."),
    click.option("--seed", type=COUNT, default=0, help="Seed of the draws."),
    click.option(
        "--despite",
        type=Choice(registry("choices", "KINDS")),
        multiple=True,
        help="Compare runs that differ in this; repeatable.",
    ),
)


def queries(what: str) -> Option:
    """Return the option of how many queries are shown."""
    return click.option("--queries", metavar="N", type=click.IntRange(min=0), default=5, help=what)


memory = click.option("--memory", type=SIZE, default="2GB", help="Budget of the process.")
threads = click.option("--threads", type=COUNT, help="Threads.  [default: all cores]")
quiet = click.option("--quiet", is_flag=True, help="Show no progress.")
session: Option = together(
    click.option(
        "--memory",
        type=SIZE,
        help="Budget of the process, or of each worker.  [default: 2GB; what a worker has]",
    ),
    threads,
    click.option("--workers", type=COUNT, help="Work in processes, of one thread each."),
    click.option(
        "--scheduler", type=Value("ADDRESS"), help="Work on the Dask cluster of a scheduler."
    ),
)


def json(what: str) -> Option:
    """Return the option that prints something as JSON."""
    return click.option("--json", is_flag=True, help=f"Print {what} as JSON.")


def overwrite(what: str = "a file") -> Option:
    """Return the option that replaces something."""
    return click.option("--overwrite", is_flag=True, help=f"Replace {what} that is there.")


def form(what: str, shown: Callable[[], tuple[str, ...]] = FORMATS) -> Option:
    """Return the option of the format of a table."""
    return click.option("--format", type=Choice(FORMATS, shown=shown), default="table", help=what)


result: Option = together(
    click.option("--out", type=DIR, help="Write the result to this new folder."),
    overwrite("a result"),
)
table: Option = together(
    form("How it is written."),
    click.option("--json", is_flag=True, help="The same as --format json."),
    click.option("--out", type=FILE, help="Write to this new file, in place of stdout."),
    overwrite(),
)


def figure(what: str, labelled: str) -> Option:
    """Return the options of a file that has some results by names."""
    return together(
        click.option(
            "--label", "labels", type=TEXT, multiple=True, help=f"Names for the {labelled}."
        ),
        click.option("-o", "--out", type=FILE, required=True, help=what),
        overwrite(),
    )
