"""Options that several commands have, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]
Option = Callable[[Command], Command]
"""What adds an option, or several, to a command."""

# What there is to choose from is shown here and checked where it is used.
PROTOCOLS = "market1501|allshots|cuhk03|cuhk03-torchreid|separate-camera|no-camera|listed"


def together(*options: Option) -> Option:
    """Return what adds some options to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def features(*, required: bool = False) -> Option:
    """Return the options of the features of both sides."""
    query, gallery = "queries, [queries, columns]", "gallery, [items, columns]"
    return together(
        click.option("--query", metavar="URI", required=required, help=f"Features of the {query}."),
        click.option(
            "--gallery", metavar="URI", required=required, help=f"Features of the {gallery}."
        ),
    )


def labels(**whose: str) -> Option:
    """Return the options of the labels of a side, by what help calls it; of both by default."""
    whose = whose or {"query": "queries", "gallery": "gallery"}
    keys = {side: ", for --self-match key" if side == "query" else "" for side in whose}
    columns = {"ids": "Identities", "cams": "Cameras", "keys": "Keys"}
    return together(
        *(
            click.option(
                f"--{side}-{column}",
                metavar="URI",
                help=f"{what} of the {name}{keys[side] if column == 'keys' else ''}.",
            )
            for column, what in columns.items()
            for side, name in whose.items()
        ),
        *(
            click.option(
                f"--{side}-labels",
                metavar="TABLE",
                help="CSV or Parquet: id[,cam][,key]; or file names: a folder, or a .txt.",
            )
            for side in whose
        ),
    )


metric: Option = click.option(
    "--metric",
    metavar="cosine|euclidean|sqeuclidean|dot",
    help="Distance of features.  [default: cosine]",
)
preset: Option = click.option(
    "--as",
    "preset",
    metavar="torchreid|fastreid|open-reid|market-matlab|gom-paper|gom-code|oml",
    help="Conventions of another tool, where no option says otherwise.",
)
self_match: Option = click.option(
    "--self-match", metavar="index|key", help="Ignore each query's own image in the gallery."
)
tau_range: Option = click.option(
    "--range",
    metavar="auto|minmax|LO,HI",
    help="Distances that tau = 0 and tau = 1 stand for.  [default: auto]",
)


def pairs(protocols: str = PROTOCOLS) -> Option:
    """Return the options of which pairs are ignored, with the names of the protocols."""
    return together(
        click.option(
            "--protocol",
            metavar=f"{protocols}|FILE.toml",
            help="Which pairs are ignored, and how CMC is read.  [default: market1501]",
        ),
        click.option(
            "--junk-id",
            metavar="N",
            multiple=True,
            help="Gallery identity to ignore; repeatable.  [default: -1]",
        ),
    )


ties: Option = click.option(
    "--ties",
    metavar="pessimistic|optimistic|stable|expected",
    help="Who is ahead at the same distance.  [default: pessimistic]",
)
rules: Option = together(
    click.option(
        "--vp",
        metavar="reference|equation",
        help="VP of GOM: as the authors' code, or as Eq. 5 is printed.  [default: reference]",
    ),
    click.option(
        "--false-rate-budget",
        metavar="N",
        type=int,
        help="Returned negatives that count as failure.  [default: 3000]",
    ),
    click.option(
        "--ap",
        metavar="step|trapezoid|threshold",
        help="Rule of average precision and of RP.  [default: step]",
    ),
    click.option(
        "--metrics",
        metavar="NAMES",
        help='Metrics by name, "CMC@1,mAP", or all; see: streameval metrics.',
    ),
)
group_by: Option = click.option(
    "--group-by",
    metavar="COLUMN|URI",
    help="Each group of queries, too: by id, cam, a column of the table, or an array; or by "
    "cam-pair, camera of query and of positive.",
)
compared: Option = click.option(
    "--metrics", "names", metavar="NAMES", help="Metrics to compare, by name."
)

ci: Option = click.option(
    "--ci", metavar="LEVEL", type=float, help="Confidence intervals of so many percent: 95."
)
differences: Option = together(
    click.option(
        "--ci",
        metavar="LEVEL",
        type=float,
        default=95.0,
        show_default=True,
        help="Intervals of so many percent, of differences.",
    ),
    click.option(
        "--resamples",
        metavar="N",
        type=int,
        default=10_000,
        show_default=True,
        help="How often identities are drawn.",
    ),
    click.option(
        "--seed", metavar="N", type=int, default=0, show_default=True, help="Seed of the draws."
    ),
    click.option(
        "--despite",
        metavar="protocol|gallery|options",
        multiple=True,
        help="Compare runs that differ in this; repeatable.",
    ),
)


def queries(what: str) -> Option:
    """Return the option of how many queries are shown."""
    return click.option(
        "--queries",
        metavar="N",
        type=click.IntRange(min=0),
        default=5,
        show_default=True,
        help=what,
    )


threads: Option = click.option(
    "--threads", metavar="N", type=int, help="Threads.  [default: all cores]"
)
own_memory: Option = click.option(
    "--memory", metavar="SIZE", default="2GB", show_default=True, help="Budget of the process."
)
running: Option = together(
    click.option(
        "--memory",
        metavar="SIZE",
        help="Budget of the process, or of each worker.  [default: 2GB; what a worker has]",
    ),
    threads,
    click.option("--workers", metavar="N", type=int, help="Work in processes, of one thread each."),
    click.option("--scheduler", metavar="ADDRESS", help="Work on the Dask cluster of a scheduler."),
)
quiet: Option = click.option("--quiet", is_flag=True, help="Show no progress.")


def json(what: str) -> Option:
    """Return the option that prints something as JSON."""
    return click.option("--json", "wants_json", is_flag=True, help=f"Print {what} as JSON.")


def overwrite(what: str = "a file") -> Option:
    """Return the option that replaces something."""
    return click.option("--overwrite", is_flag=True, help=f"Replace {what} that is there.")


result: Option = together(
    click.option("--out", metavar="DIR", help="Write the result to this new folder."),
    overwrite("a result"),
)
table: Option = together(
    click.option(
        "--format",
        "form",
        metavar="table|json|csv|markdown|latex|parquet",
        default="table",
        show_default=True,
        help="How it is written.",
    ),
    click.option("--json", "wants_json", is_flag=True, help="The same as --format json."),
    click.option("--out", metavar="FILE", help="Write to this new file, in place of stdout."),
    overwrite(),
)


def figure(what: str, labelled: str) -> Option:
    """Return the options of a file that has some results by names."""
    return together(
        click.option(
            "--label", "labels", metavar="TEXT", multiple=True, help=f"Names for the {labelled}."
        ),
        click.option("-o", "--out", metavar="FILE", required=True, help=what),
        overwrite(),
    )
