"""The commands ``streameval ledger``: the growing gallery."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.cli import options
from streameval.cli.config import takes_config
from streameval.cli.help import examples
from streameval.cli.inputs import (
    is_integer,
    is_text,
    keywords,
    open_groups,
    open_protocol,
    open_side,
    parse_junk_ids,
)
from streameval.cli.options import URI, Values, check_effect
from streameval.cli.printing import print_answer
from streameval.cli.results import save
from streameval.cli.signals import Interruption
from streameval.cli.types import Metrics, Real, Value
from streameval.errors import InputError, OptionError, OutputError

if TYPE_CHECKING:
    from streameval.ledger import Ledger, Snapshot
    from streameval.protocols.labels import Labels


@click.group(
    epilog=examples(
        "ledger create L --query query.npy --query-labels query.csv",
        "ledger append L --gallery monday.npy --gallery-labels monday.csv",
        "ledger show L",
    )
)
def ledger() -> None:
    """Keep an evaluation up to date while its gallery grows.

    L is a folder, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX.
    """


SESSION = ("memory", "threads", "workers", "scheduler")
_path = click.argument("path", metavar="L", type=options.LEDGER)
_counts = options.together(options.session, options.quiet)
_changes = options.together(
    click.option(
        "--wait",
        type=Real("SECONDS"),
        default=60.0,
        help="Wait for another process that changes the ledger.",
    ),
    options.json("the snapshot"),
)
_queries = options.labels(query="queries")


def _protocols() -> tuple[str, ...]:
    """Return the protocols that a ledger can keep up to date."""
    from streameval.protocols.protocol import PROTOCOLS, SINGLE_GALLERY_SHOT

    kept = (one for one in PROTOCOLS.values() if not one.listed and one.cmc != SINGLE_GALLERY_SHOT)
    return tuple(protocol.name for protocol in kept)


@contextmanager
def _session(values: Values) -> Iterator[dict[str, Any]]:
    """Open what counts; a signal ends the process, and the ledger is as it was before."""
    from streameval.report.terminal import show_progress

    with show_progress(quiet=values["quiet"]) as progress, Interruption(progress.close):
        from streameval.run.session import open_session

        with open_session({**values, "dry_run": False}) as session:
            client = session.connection and session.connection.client
            yield {
                "memory": values["memory"],
                "threads": values["threads"] if client is None else None,
                "client": client,
                "progress": progress,
            }
        progress.close()


def _open(path: str) -> Ledger:
    from streameval.ledger import Ledger

    return Ledger(path)


def _print(snapshot: Snapshot, values: Values) -> None:
    from streameval.report.ledger import render_change

    print_answer(values, snapshot.entry, lambda style: render_change(snapshot, style))


@takes_config
@ledger.command(
    epilog=examples(
        "ledger create features --query query.npy --query-labels query.csv --range 0,2",
        "ledger create distances --query-labels query.csv --range 0,20",
    )
)
@_path
@click.option("--query", type=URI, help="Features of the queries; none: stored distances.")
@_queries
@click.option(
    "--label-column",
    "columns",
    type=Value("COLUMN"),
    multiple=True,
    help="Further column of the table to keep, for ledger evaluate --group-by; repeatable.",
)
@options.metric
@options.preset
@options.pairs(_protocols)
@options.self_match("Ignore each query's own image: by key.")
@options.ties
@options.value_range("auto")
@options.rules
@click.option(
    "--keep", type=options.SIZE, default="4MB", help="For the nearest negatives of all queries."
)
@options.json("the snapshot")
@options.quiet
def create(path: str, **values: Any) -> None:
    """Make a ledger of queries, without a gallery.

    With --query, segments are features; without, stored distances. The range is fixed here.
    """
    from streameval.ledger import Ledger

    columns = values.pop("columns")
    of_table = values["query_labels"] is not None
    check_effect("columns", when=of_table, remedy="give --query-labels TABLE")
    labels = open_side(values, "query", more=columns)
    chosen = {
        **values,
        "query_labels": labels,
        "junk_ids": parse_junk_ids(values["junk_ids"], labels),
        "protocol": open_protocol(values["protocol"]),
    }
    created = Ledger.create(path, **keywords(Ledger.create, chosen))
    _print(created.trajectory[-1], values)


@takes_config
@ledger.command(
    epilog=examples(
        "ledger append L --gallery tuesday.npy --gallery-labels tuesday.csv --dry-run",
        "ledger append L --gallery tuesday.npy --gallery-labels tuesday.csv --name tuesday",
    )
)
@_path
@click.option("--gallery", type=URI, help="Features of the segment, [items, columns].")
@click.option("--distances", type=URI, help="Or its distances, [queries, items].")
@options.labels(gallery="segment")
@click.option("--name", type=Value("NAME"), help="Of the segment.  [default: of the file]")
@click.option("--dry-run", is_flag=True, help="Print what would be counted; change nothing.")
@_counts
@_changes
def append(path: str, name: str | None, **values: Any) -> None:
    """Add a segment to the gallery."""
    from streameval.report.ledger import forecast_summary, render_forecast

    opened = _open(path)
    uri = _segment_uri(opened, values, "gallery")
    labels = open_side(values, "gallery", like=opened.queries())
    with _session(values) as session:
        if values["dry_run"]:
            session.pop("progress")
            forecast = opened.plan(uri, labels, name=name, **session)
            print_answer(
                values,
                lambda: forecast_summary(forecast),
                lambda style: render_forecast(uri, forecast, style),
            )
            return
        snapshot = opened.append(uri, labels, name=name, wait=values["wait"], **session)
    _print(snapshot, values)


def _segment_uri(opened: Ledger, values: Values, side: str) -> str:
    """Return the URI of features or of distances, as the ledger's segments are."""
    stored = opened.head().settings.metric is None
    uri, other = (values[name] for name in (("distances", side) if stored else (side, "distances")))
    if uri is None or other is not None:
        kind, wanted = ("stored distances", "--distances") if stored else ("features", f"--{side}")
        raise OptionError(
            f"the segments of {opened.path} are {kind}: give {wanted} URI, and no other"
        )
    return str(uri)


@ledger.command(epilog=examples("ledger remove L --name monday", "ledger remove L --ids gone.txt"))
@_path
@click.option("--name", type=Value("NAME"), help="The segment to take out.")
@click.option(
    "--ids", type=options.FILE, help="Identities to forget: a text, one a line, or an array."
)
@_counts
@_changes
def remove(path: str, name: str | None, ids: str | None, **values: Any) -> None:
    """Take out a segment (--name), or all items of some identities (--ids)."""
    if (name is None) == (ids is None):
        raise OptionError("give the segment to take out (--name), or the identities (--ids FILE)")
    check_effect(*SESSION, when=name is None, remedy="give --ids FILE, which counts")
    opened, wait = _open(path), values["wait"]
    with _session(values) as session:
        if name is not None:
            snapshot = opened.remove(name, wait=wait)
        else:
            identities = _identities(str(ids), opened.queries())
            snapshot = opened.forget(identities, wait=wait, **session)
    _print(snapshot, values)


def _identities(file: str, queries: Labels) -> Any:
    """Read identities, in the type of the queries': of an array, or of a text file."""
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
    if is_text(queries.id):
        return lines
    for line in lines:
        if not is_integer(line):
            raise InputError(
                f"{file} has the line {line!r}, and the identities of the ledger are integers: "
                "give one integer a line"
            )
    return [int(line) for line in lines]


@ledger.command(
    "add-queries", epilog=examples("ledger add-queries L --query more.npy --query-labels more.csv")
)
@_path
@click.option("--query", type=URI, help="Features of the queries, [queries, columns].")
@click.option("--distances", type=URI, help="Or their distances from all items.")
@_queries
@_counts
@_changes
def add_queries(path: str, **values: Any) -> None:
    """Add queries: they are counted against all segments."""
    opened = _open(path)
    uri = _segment_uri(opened, values, "query")
    queries = opened.queries()
    labels = open_side(values, "query", like=queries, more=tuple(queries.more))
    with _session(values) as session:
        snapshot = opened.add_queries(uri, labels, wait=values["wait"], **session)
    _print(snapshot, values)


@ledger.command(epilog=examples("ledger move L --name tuesday --gallery moved.npy"))
@_path
@click.option("--name", type=Value("NAME"), help="The segment that has moved; none: queries.")
@click.option("--gallery", "--distances", "--query", "uri", type=URI, help="Where it is now.")
@_changes
def move(path: str, name: str | None, uri: str | None, **values: Any) -> None:
    """Say where data are now that have moved: they must be the same."""
    if uri is None:
        raise OptionError("give the new place: --gallery URI, --distances URI, or --query URI")
    _print(_open(path).move(name, uri, wait=values["wait"]), values)


@ledger.command(epilog=examples("ledger show L --plot CMC@1", "ledger show L --json"))
@_path
@click.option("--plot", type=Metrics("METRIC"), help="The metric to plot.  [default: mAP]")
@options.json("all of it")
def show(path: str, plot: str | None, **values: Any) -> None:
    """Print the metrics now, and the trajectory."""
    from streameval.report.ledger import ledger_summary, render_ledger

    check_effect("plot", when=not values["json"], remedy="leave --json out")
    opened = _open(path)
    head = opened.head()
    print_answer(
        values,
        lambda: ledger_summary(opened.path, head),
        lambda style: render_ledger(opened.path, head, style, plot),
    )


@ledger.command(
    epilog=examples(
        "ledger evaluate L --out now", "ledger evaluate L --at tuesday --group-by cam --json"
    )
)
@_path
@click.option(
    "--at", type=Value("SNAPSHOT"), help="Number, or the segment that came with it.  [default: now]"
)
@options.group_by
@options.result
@options.json("the summary")
def evaluate(path: str, at: str | None, **values: Any) -> None:
    """Give a snapshot as a full result.

    Of the columns of the queries' table, a ledger has id and cam, and those that it was created
    with (--label-column).
    """
    from streameval.report.evaluation import render_evaluation

    out = values["out"]
    check_effect("overwrite", when=out is not None, remedy="give --out DIR")
    with Interruption(lambda: None) as interruption:
        result = _open(path).evaluation(at)
        if values["group_by"] is not None:
            result = result.grouped(open_groups(values["group_by"]))
        if out is not None:
            save(result, out, overwrite=values["overwrite"], interruption=interruption)
    print_answer(values, result.summary, lambda style: render_evaluation(result, style, saved=out))


@ledger.command(epilog=examples("ledger verify L"))
@_path
@_counts
@options.json("what differs")
def verify(path: str, **values: Any) -> None:
    """Read all there is, count it again from the segments, and report any difference."""
    from streameval.report.table import plural

    opened = _open(path)
    with _session(values) as session:
        differences = opened.verify(**session)
    head = opened.head()
    segments, queries, pairs = len(head.segments), head.queries, head.queries * head.gallery
    counts = {"segments": segments, "queries": queries, "pairs": pairs}
    same = (
        f"{path}: {plural(segments, 'segment')} and {plural(queries, 'query', 'queries')} are as "
        f"they were; {plural(pairs, 'pair')} counted again, no difference\n"
    )
    print_answer(
        values,
        lambda: counts | {"differences": differences},
        lambda _: "".join(f"{line}\n" for line in differences) or same,
    )
    if differences:
        raise OutputError(
            f"{plural(len(differences), 'difference')} in {path}: restore what is damaged from a "
            "copy, or make the ledger again from its segments"
        )
