"""The commands ``streameval ledger``: the growing gallery."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.cli import inputs
from streameval.cli.loading import loading
from streameval.cli.options import (
    GROUPS,
    LEDGER,
    Values,
    check_effect,
    command,
    examples,
    places,
)
from streameval.cli.output import print_answer, print_lines
from streameval.errors import InputError, OptionError, OutputError
from streameval.interruption import at_end
from streameval.output import write_new

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

    L is a folder, or a place in an object store: s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.
    """


_command = partial(command, group=ledger)
_path = click.argument("path", metavar="L", type=LEDGER)


@contextmanager
def _session(values: Values) -> Iterator[dict[str, Any]]:
    """Open what counts; a signal ends the process, and the ledger is as it was before."""
    from streameval.run.progress_bar import show_progress

    with show_progress(quiet=values["quiet"]) as progress, at_end(progress.close):
        from streameval.run.session import open_session

        with open_session({**values, "dry_run": False}) as session:
            client = session.connection and session.connection.client
            threads = values["threads"] if client is None else None
            given = {"memory": values["memory"], "threads": threads, "client": client}
            yield given if values.get("dry_run") else {**given, "progress": progress}


def _open(path: str) -> Ledger:
    with loading():
        from streameval.ledger import Ledger

        return Ledger(path)


def _print(snapshot: Snapshot, values: Values) -> None:
    from streameval.report.ledger import change_blocks

    print_answer(values, snapshot.entry, lambda: change_blocks(snapshot))


@_command(
    "query QUERY_LABELS fill_missing columns metric preset kept_protocol junk_ids self_match ties "
    "fixed_range RULES keep "
    "json quiet config",
    "ledger create features --query query.npy --query-labels query.csv --range 0,2",
    "ledger create distances --query-labels query.csv --range 0,20",
)
@_path
def create(path: str, **values: Any) -> None:
    """Create a ledger with queries and an empty gallery.

    With --query, the segments of the gallery are features; without it, they are stored distances.
    The range can't be changed later. --self-match works by key only.
    """
    from streameval.ledger import Ledger

    of_table = values["query_labels"] is not None
    check_effect("columns", of_table, "give --query-labels TABLE")
    (labels,) = inputs.open_labels(values, "query", more=values["columns"])
    chosen = {
        **values,
        "query_labels": labels,
        "junk_ids": inputs.junk_ids(values, labels),
        "protocol": inputs.open_protocol(values["protocol"]),
    }
    created = Ledger.create(path, **inputs.keywords(Ledger.create, chosen))
    _print(created.trajectory[-1], values)


@_command(
    "gallery distances GALLERY_LABELS fill_missing name dry_run SESSION quiet wait json config",
    "ledger append L --gallery tuesday.npy --gallery-labels tuesday.csv --dry-run",
    "ledger append L --gallery tuesday.npy --gallery-labels tuesday.csv --name tuesday",
)
@_path
def append(path: str, name: str | None, **values: Any) -> None:
    """Add a segment to the gallery."""
    opened = _open(path)
    uri = _segment_uri(opened, values, "gallery")
    (labels,) = inputs.open_labels(values, "gallery", like=opened.queries())
    with _session(values) as session:
        if values["dry_run"]:
            from streameval.report.ledger import forecast_blocks, forecast_summary

            forecast = opened.plan(uri, labels, name=name, **inputs.filled(values), **session)
            print_answer(
                values,
                lambda: forecast_summary(forecast),
                lambda: forecast_blocks(uri, forecast),
            )
            return
        wait = values["wait"]
        snapshot = opened.append(
            uri, labels, name=name, wait=wait, **inputs.filled(values), **session
        )
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


@_command(
    "name ids SESSION quiet wait json",
    "ledger remove L --name monday",
    "ledger remove L --ids gone.txt",
)
@_path
def remove(path: str, name: str | None, ids: str | None, **values: Any) -> None:
    """Remove a segment, or all items of some identities.

    --name selects a segment, --ids identities.
    """
    if (name is None) == (ids is None):
        raise OptionError("give the segment to take out (--name), or the identities (--ids FILE)")
    check_effect(GROUPS["SESSION"], name is None, "give --ids FILE, which counts")
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
    what = f"{file} has the line"
    return inputs.as_ids(lines, queries, what, "one integer a line", InputError)


@_command(
    "query distances QUERY_LABELS fill_missing SESSION quiet wait json",
    "ledger add-queries L --query more.npy --query-labels more.csv",
)
@_path
def add_queries(path: str, **values: Any) -> None:
    """Add queries, and count them against all segments."""
    opened = _open(path)
    uri = _segment_uri(opened, values, "query")
    queries = opened.queries()
    more = tuple(queries.more)
    (labels,) = inputs.open_labels(values, "query", more=more, like=queries)
    with _session(values) as session:
        snapshot = opened.add_queries(
            uri, labels, wait=values["wait"], **inputs.filled(values), **session
        )
    _print(snapshot, values)


@_command("name uri fill_missing wait json", "ledger move L --name tuesday --gallery moved.npy")
@_path
def move(path: str, name: str | None, uri: str | None, **values: Any) -> None:
    """Record the new place of data that have moved.

    --name selects the segment; without it, the queries have moved. The content must be unchanged.
    Other data of the ledger with the same content get the new place too.
    """
    if uri is None:
        raise OptionError("give the new place: --gallery URI, --distances URI, or --query URI")
    _print(_open(path).move(name, uri, wait=values["wait"], **inputs.filled(values)), values)


@_command("plot json", "ledger show L --plot CMC@1", "ledger show L --json")
@_path
def show(path: str, plot: str | None, **values: Any) -> None:
    """Print the current metrics, the segments and the trajectory."""
    from streameval.report.ledger import ledger_blocks, ledger_summary

    check_effect("plot", not values["json"], "leave --json out")
    opened = _open(path)
    head = opened.head()
    print_answer(
        values,
        lambda: ledger_summary(opened.path, head),
        lambda: ledger_blocks(opened.path, head, plot),
    )


@_command(
    "at group_by out overwrite json",
    "ledger evaluate L --out now",
    "ledger evaluate L --at tuesday --group-by cam --json",
)
@_path
def evaluate(path: str, at: str | None, **values: Any) -> None:
    """Evaluate a snapshot as a full result.

    --group-by accepts id, cam, and the columns that the ledger was created with (--label-column).
    """
    from streameval.display.evaluation import evaluation_blocks

    out = values["out"]
    check_effect("overwrite", out is not None, "give --out DIR")
    result = _open(path).evaluation(at)
    groups = inputs.open_groups(values)
    if groups is not None:
        result = result.grouped(groups)
    if out is not None:
        result.save(out, overwrite=values["overwrite"])
    print_answer(values, result.summary, lambda: evaluation_blocks(result, out))


@_command("SESSION quiet json", "ledger verify L")
@_path
def verify(path: str, **values: Any) -> None:
    """Count everything again, and report any difference.

    Reads all data, and all snapshots.
    """
    from streameval.display.table import plural

    opened = _open(path)
    with _session(values) as session:
        differences = opened.verify(**session)
    head = opened.head()
    segments, queries, pairs = len(head.segments), head.queries, head.queries * head.gallery
    counts = {"segments": segments, "queries": queries, "pairs": pairs}
    same = (
        f"{path}: {plural(segments, 'segment')} and {plural(queries, 'query', 'queries')} are as "
        f"they were; {plural(pairs, 'pair')} counted again, no difference"
    )
    print_lines(values, counts | {"differences": differences}, *differences or [same])
    if differences:
        raise OutputError(
            f"{plural(len(differences), 'difference')} in {path}: restore what is damaged from a "
            "copy, or make the ledger again from its segments"
        )


@_command("plotted_metrics FIGURE", "ledger plot L --metric mAP -o trajectory.svg")
@places("paths", LEDGER, "ledger", "one, as ledger create made")
def plot(paths: tuple[str, ...], out: str, **values: Any) -> None:
    """Plot metrics of ledgers against gallery size.

    Writes a .png, .svg or .pdf file.
    """
    from streameval.display import figures
    from streameval.report.ledger import plot_trajectories

    names = inputs.by_name(paths, values["labels"], "ledgers")
    figures.file_type(out)
    ledgers = {name: _open(path).head() for name, path in names.items()}
    figure = plot_trajectories(ledgers, tuple(dict.fromkeys(values["metrics"])) or ("mAP",))
    write_new(out, figures.figure_bytes(figure, out), overwrite=values["overwrite"])
