"""The commands ``streameval ledger``: the growing gallery."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.cli import declared
from streameval.cli.config import takes_config
from streameval.cli.effect import check_effect
from streameval.cli.examples import examples
from streameval.cli.options import (
    check_label_options,
    open_groups,
    open_protocol,
    parse_junk_ids,
    parse_range,
)
from streameval.cli.printing import as_json, print_out
from streameval.cli.running import save
from streameval.cli.signals import Interruption
from streameval.errors import InputError, OptionError, OutputError

if TYPE_CHECKING:
    from streameval.ledger import Ledger, Snapshot
    from streameval.protocols.protocol import Labels


@click.group(
    epilog=examples(
        "ledger create L --query query.npy --query-labels query.csv",
        "ledger append L --gallery monday.npy --gallery-labels monday.csv",
        "ledger show L",
    ),
)
def ledger() -> None:
    """Keep an evaluation up to date while its gallery grows.

    L is a folder, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX.
    """


_counted = declared.together(declared.running, declared.quiet)
_changing = declared.together(
    click.option(
        "--wait",
        metavar="SECONDS",
        type=float,
        default=60.0,
        show_default=True,
        help="Wait for another process that changes the ledger.",
    ),
    declared.json("the snapshot"),
)
_queries = declared.labels(query="queries")


@contextmanager
def _counting(
    *,
    memory: str | None,
    threads: int | None,
    workers: int | None,
    scheduler: str | None,
    quiet: bool,
) -> Iterator[dict[str, Any]]:
    """Open what counts; a signal ends the process, and the ledger is as it was before."""
    from streameval.report.progress import show_progress

    with show_progress(quiet=quiet) as progress, Interruption(progress.close):
        from streameval.run.connection import open_cluster
        from streameval.run.session import DEFAULT_MEMORY
        from streameval.run.sizes import parse_bytes

        if workers is not None and workers < 1:
            raise OptionError(f"--workers is {workers}; a whole number of at least 1 is needed")
        size = parse_bytes(DEFAULT_MEMORY if memory is None else memory)
        with open_cluster(
            count=workers, scheduler=scheduler, threads=threads, memory=size
        ) as connection:
            client = None if connection is None else connection.client
            own = threads if client is None else None
            yield {"memory": memory, "threads": own, "client": client, "progress": progress}
        progress.close()


def _labels(
    side: str, given: dict[str, Any], like: Labels | None = None, more: Sequence[str] = ()
) -> Labels:
    """Read the labels of a side; those of a table as what `like` has them, with further columns."""
    from streameval.labels.columns import read_label_table, read_labels

    ids, cams, keys, table = (
        given.pop(f"{side}_{column}") for column in ("ids", "cams", "keys", "labels")
    )
    check_label_options(side, ids, cams, keys, table)
    if table is None:
        return read_labels(ids, cams, keys)
    text: list[str] = []
    if like is not None:
        columns = {"id": like.id, "cam": like.cam, "key": like.key, **like.more}
        text = [name for name, one in columns.items() if one is not None and one.dtype.kind == "U"]
    return read_label_table(table, text=text, more=more)


def _open(path: str) -> Ledger:
    from streameval.ledger import Ledger

    return Ledger(path)


def _print(snapshot: Snapshot, *, wants_json: bool) -> None:
    from streameval.report.ledger import render_change
    from streameval.report.terminal import stdout_style

    text = as_json(snapshot.entry()) if wants_json else render_change(snapshot, stdout_style())
    print_out(text)


@takes_config
@ledger.command(
    epilog=examples(
        "ledger create features --query query.npy --query-labels query.csv --range 0,2",
        "ledger create distances --query-labels query.csv --range 0,20",
    ),
)
@click.argument("path", metavar="L")
@click.option("--query", metavar="URI", help="Features of the queries; none: stored distances.")
@_queries
@click.option(
    "--label-column",
    metavar="COLUMN",
    multiple=True,
    help="Further column of the table to keep, for ledger evaluate --group-by; repeatable.",
)
@declared.metric
@declared.preset
@declared.pairs("market1501|allshots|separate-camera|no-camera")
@click.option("--self-match", metavar="index|key", help="Ignore each query's own image: by key.")
@declared.ties
@click.option("--range", "value_range", metavar="auto|LO,HI", help="Distances of tau = 0 and 1.")
@declared.rules
@click.option(
    "--keep",
    metavar="SIZE",
    default="4MB",
    show_default=True,
    help="For the nearest negatives of all queries.",
)
@declared.json("the snapshot")
def create(
    path: str,
    wants_json: bool,
    value_range: str | None,
    label_column: tuple[str, ...],
    **given: Any,
) -> None:
    """Make a ledger of queries, without a gallery.

    With --query, segments are features; without, stored distances. The range is fixed here.
    """
    from streameval.ledger import Ledger

    of_table = given["query_labels"] is not None
    check_effect("label_column", when=of_table, remedy="give --query-labels TABLE")
    labels = _labels("query", given, more=label_column)
    junk = parse_junk_ids(given.pop("junk_id"), labels)
    given["protocol"] = open_protocol(given.pop("protocol"))
    made = Ledger.create(
        path,
        query_labels=labels,
        junk_ids=junk,
        range=None if value_range is None else parse_range(value_range),
        **given,
    )
    _print(made.trajectory[-1], wants_json=wants_json)


@takes_config
@ledger.command(
    epilog=examples(
        "ledger append L --gallery tuesday.npy --gallery-labels tuesday.csv --dry-run",
        "ledger append L --gallery tuesday.npy --gallery-labels tuesday.csv --name tuesday",
    ),
)
@click.argument("path", metavar="L")
@click.option("--gallery", metavar="URI", help="Features of the segment, [items, columns].")
@click.option("--distances", metavar="URI", help="Or its distances, [queries, items].")
@declared.labels(gallery="segment")
@click.option("--name", metavar="NAME", help="Of the segment.  [default: of the file]")
@click.option("--dry-run", is_flag=True, help="Print what would be counted; change nothing.")
@_counted
@_changing
def append(
    path: str,
    gallery: str | None,
    distances: str | None,
    name: str | None,
    dry_run: bool,
    wait: float,
    wants_json: bool,
    **given: Any,
) -> None:
    """Add a segment to the gallery."""
    from streameval.report.ledger import forecast_summary, render_forecast
    from streameval.report.terminal import stdout_style

    opened = _open(path)
    uri = _segment_uri(opened, gallery, distances)
    labels = _labels("gallery", given, opened.queries())
    with _counting(**given) as means:
        if dry_run:
            means.pop("progress")
            forecast = opened.plan(uri, labels, name=name, **means)
            shown = forecast_summary(forecast)
            style = stdout_style()
            text = as_json(shown) if wants_json else render_forecast(uri, forecast, style)
            print_out(text)
            return
        snapshot = opened.append(uri, labels, name=name, wait=wait, **means)
    _print(snapshot, wants_json=wants_json)


def _segment_uri(opened: Ledger, gallery: str | None, distances: str | None) -> str:
    stored = opened.head().settings.metric is None
    uri, other = (distances, gallery) if stored else (gallery, distances)
    wanted = "--distances" if stored else "--gallery"
    if uri is None or other is not None:
        kind = "stored distances" if stored else "features"
        raise OptionError(
            f"the segments of {opened.path} are {kind}: give {wanted} URI, and no other"
        )
    return uri


@ledger.command(
    epilog=examples(
        "ledger remove L --name monday",
        "ledger remove L --ids gone.txt",
    ),
)
@click.argument("path", metavar="L")
@click.option("--name", metavar="NAME", help="The segment to take out.")
@click.option(
    "--ids", metavar="FILE", help="Identities to forget: a text, one a line, or an array."
)
@_counted
@_changing
def remove(
    path: str, name: str | None, ids: str | None, wait: float, wants_json: bool, **given: Any
) -> None:
    """Take out a segment (--name), or all items of some identities (--ids)."""
    if (name is None) == (ids is None):
        raise OptionError("give the segment to take out (--name), or the identities (--ids FILE)")
    counting = ("memory", "threads", "workers", "scheduler")
    check_effect(*counting, when=name is None, remedy="give --ids FILE, which counts")
    opened = _open(path)
    with _counting(**given) as means:
        if name is not None:
            snapshot = opened.remove(name, wait=wait)
        else:
            snapshot = opened.forget(_identities(str(ids), opened.queries()), wait=wait, **means)
    _print(snapshot, wants_json=wants_json)


def _identities(file: str, queries: Labels) -> Any:
    """Read identities, as what the queries' are: of an array, or any other file as a text."""
    from streameval.arrays.uri import FORMATS
    from streameval.labels.columns import read_labels

    if "::" in file or Path(file).suffix.lower() in FORMATS:
        return read_labels(file).id
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} can't be read: {error}") from error
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:
        raise InputError(f"{file} holds no identity: one a line is expected")
    if queries.id.dtype.kind == "U":
        return lines
    for line in lines:
        if not re.fullmatch(r"[+-]?\d+", line):
            raise InputError(
                f"{file} has the line {line!r}, and the identities of the ledger are integers: "
                "give one integer a line"
            )
    return [int(line) for line in lines]


@ledger.command(
    "add-queries",
    epilog=examples(
        "ledger add-queries L --query more.npy --query-labels more.csv",
    ),
)
@click.argument("path", metavar="L")
@click.option("--query", metavar="URI", help="Features of the queries, [queries, columns].")
@click.option("--distances", metavar="URI", help="Or their distances from all items.")
@_queries
@_counted
@_changing
def add_queries(
    path: str,
    query: str | None,
    distances: str | None,
    wait: float,
    wants_json: bool,
    **given: Any,
) -> None:
    """Add queries: they are counted against all segments."""
    opened = _open(path)
    uri = _segment_uri(opened, query, distances)
    queries = opened.queries()
    labels = _labels("query", given, queries, more=tuple(queries.more))
    with _counting(**given) as means:
        snapshot = opened.add_queries(uri, labels, wait=wait, **means)
    _print(snapshot, wants_json=wants_json)


@ledger.command(
    epilog=examples(
        "ledger move L --name tuesday --gallery moved.npy",
    ),
)
@click.argument("path", metavar="L")
@click.option("--name", metavar="NAME", help="The segment that has moved; none: queries.")
@click.option("--gallery", "--distances", "--query", "uri", metavar="URI", help="Where it is now.")
@_changing
def move(path: str, name: str | None, uri: str | None, wait: float, wants_json: bool) -> None:
    """Say where data are now that have moved: they must be the same."""
    if uri is None:
        raise OptionError("give the new place: --gallery URI, --distances URI, or --query URI")
    _print(_open(path).move(name, uri, wait=wait), wants_json=wants_json)


@ledger.command(
    epilog=examples(
        "ledger show L --plot CMC@1",
        "ledger show L --json",
    ),
)
@click.argument("path", metavar="L")
@click.option("--plot", metavar="METRIC", help="The metric to plot.  [default: mAP]")
@declared.json("all of it")
def show(path: str, plot: str | None, wants_json: bool) -> None:
    """Print the metrics now, and the trajectory."""
    from streameval.report.ledger import ledger_summary, render_ledger
    from streameval.report.terminal import stdout_style

    check_effect("plot", when=not wants_json, remedy="leave --json out")
    opened = _open(path)
    head = opened.head()
    text = (
        as_json(ledger_summary(opened.path, head))
        if wants_json
        else render_ledger(opened.path, head, stdout_style(), plot)
    )
    print_out(text)


@ledger.command(
    epilog=examples(
        "ledger evaluate L --out now",
        "ledger evaluate L --at tuesday --group-by cam --json",
    ),
)
@click.argument("path", metavar="L")
@click.option(
    "--at", metavar="SNAPSHOT", help="Number, or the segment that came with it.  [default: now]"
)
@declared.group_by
@declared.result
@declared.json("the summary")
def evaluate(
    path: str,
    at: str | None,
    group_by: str | None,
    out: str | None,
    overwrite: bool,
    wants_json: bool,
) -> None:
    """Give a snapshot as a full result.

    Of the columns of the queries' table, a ledger has id and cam, and those that it was created
    with (--label-column).
    """
    from streameval.report.evaluation import render_evaluation
    from streameval.report.terminal import stdout_style

    check_effect("overwrite", when=out is not None, remedy="give --out DIR")
    with Interruption(lambda: None) as interruption:
        result = _open(path).evaluation(at)
        if group_by is not None:
            result = result.grouped(open_groups(group_by))
        if out is not None:
            save(result, out, overwrite=overwrite, interruption=interruption)
    shown = render_evaluation(result, stdout_style(), saved=out)
    print_out(as_json(result.summary()) if wants_json else shown)


@ledger.command(
    epilog=examples(
        "ledger verify L",
    ),
)
@click.argument("path", metavar="L")
@_counted
def verify(path: str, **given: Any) -> None:
    """Read all there is, count it again from the segments, and report any difference."""
    from streameval.report.table import plural

    opened = _open(path)
    with _counting(**given) as means:
        found = opened.verify(**means)
    if found:
        print_out("".join(f"{line}\n" for line in found))
        raise OutputError(
            f"{plural(len(found), 'difference')} in {path}: restore what is damaged from a copy, "
            "or make the ledger again from its segments"
        )
    head = opened.head()
    print_out(
        f"{path}: {plural(len(head.segments), 'segment')} and "
        f"{plural(head.queries, 'query', 'queries')} are as they were; "
        f"{plural(head.queries * head.gallery, 'pair')} counted again, no difference\n"
    )
