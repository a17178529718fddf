"""All options, each declared once; and what commands do with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import click
from click.core import ParameterSource

from streameval.choices import RangeName
from streameval.cli import types
from streameval.cli.config import CONFIG, take_config
from streameval.cli.types import LOCAL, Choice, Metrics, Number, Range, Value, registry
from streameval.errors import OptionError

Command = Callable[..., Any]
Values = Mapping[str, Any]
"""The arguments and options of a command, by name."""

URI, FILE, TABLE, SVG = (Value(name, "file") for name in ("URI", "FILE", "TABLE", "FILE.svg"))
FAISS, TOML = Value("FILE.faiss", "file"), Value("FILE.toml", "file")
DIR, LEDGER = Value("DIR", "dir"), Value("L", "dir")
COLUMN = types.Column("COLUMN|URI", "file")
SPEC, INDEX = (
    Value(name, "file", rf"{LOCAL}.*(/|(?i:\.faiss|\.index)\Z)")
    for name in ("SPEC|FILE.faiss", "INDEX")
)
NUMBER, SIZE = Number("N"), Number("SIZE")
METRIC = Value("METRIC", names=types.metric_names)
DISTANCES = Choice(registry("choices", "DISTANCES"))
PROTOCOLS = Choice(registry("protocols.shipped", "PROTOCOLS"), "FILE.toml")
PROTOCOL_NAMES = Choice(PROTOCOLS.names)
PRESETS = Choice(registry("protocols.presets", "PRESETS"))
FORMATS = registry("choices", "Format")
PLOTS = Choice(registry("display.figures", "PLOTS"))
RERANK = types.Recipe({"k-reciprocal": ("k1", "k2", "lambda", "power")}, "canonical")
EXPAND = types.Recipe({"aqe": ("k",), "alpha-qe": ("k", "alpha"), "dba": ("k",)})
GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)  # there, or in a config file


def _kept_protocols() -> list[str]:
    """Return the protocols that a ledger can keep up to date."""
    from streameval.protocols.shipped import PROTOCOLS

    return [one.name for one in PROTOCOLS.values() if not (one.lists or one.by_identity)]


def _option(kind: Any, help: str, *flags: str, **attributes: Any) -> dict[str, Any]:
    """Declare an option: its type, its help and what else `click.option` takes."""
    return {"flags": flags, "type": kind, "help": help, **attributes}


def _count(help: str, *flags: str, **attributes: Any) -> dict[str, Any]:
    return _option(int, help, *flags, **{"metavar": "N", **attributes})


def _rule(name: str, help: str, **attributes: Any) -> dict[str, Any]:
    """Declare a choice among names of `streameval.choices`."""
    return _option(Choice(registry("choices", name)), help, **attributes)


def _flag(help: str) -> dict[str, Any]:
    return _option(bool, help, is_flag=True)


SIDES, MORE = ("query", "gallery"), "multi_query"
LABELLED = {"query": "queries", "gallery": "gallery", MORE: "further images"}
COLUMNS = {"ids": "Identities", "cams": "Cameras", "keys": "Keys"}
"""What help calls what has labels, and the columns that may be given as an array each."""

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "distances": _option(URI, "Stored distances, [queries, gallery]."),
    "query": _option(URI, "Features of the queries, [queries, columns]."),
    "gallery": _option(URI, "Features of the gallery, [items, columns]."),
    "uri": _option(URI, "New place of the data.", "--gallery", "--distances", "--query", "uri"),
    **{
        f"{side}_{column}": _option(URI, f"{what} of the {whose}.")
        for column, what in COLUMNS.items()
        for side, whose in LABELLED.items()
    },
    **dict.fromkeys(
        [f"{side}_labels" for side in LABELLED],
        _option(TABLE, "CSV or Parquet table id[,cam][,key]; or a folder or .txt of file names."),
    ),
    "pattern": _option(
        Value("REGEX"),
        "Labels by the named groups of file names, or of a table's keys: "
        "'(?P<id>-?[0-9]+)_c(?P<cam>[0-9])'.",
    ),
    "columns": _option(
        Value("COLUMN"),
        "Further column of the table to keep, for ledger evaluate --group-by. Repeatable.",
        *("--label-column", "columns"),
        multiple=True,
    ),
    "fill_missing": _flag("Read missing chunks of Zarr or HDF5 as the fill value."),
    "metric": _option(DISTANCES, "Distance between features.  [default: cosine]"),
    "neighbors": _option(
        URI, "Lists of neighbours: gallery indices, [queries, k]; or a file that has distances too."
    ),
    "neighbor_distances": _option(URI, "Distances of --neighbors, [queries, k]."),
    "index": _option(
        SPEC, "Search a FAISS index of the features: Flat, IVF1024,PQ16, HNSW32; or a file."
    ),
    "k": _option(types.Depth("K|auto", names=lambda: ("auto",)), "Items per list.", "-k"),
    "fixed_k": _count("Items per list.", "-k", metavar="K", required=True),
    "search": _option(Value("NAME=N,.."), "Search parameters: nprobe=16, efSearch=64."),
    "train_rows": _count(
        "Gallery rows to train an index on.  [default: 64 per centroid, up to 128 MB]"
    ),
    "save_index": _option(FAISS, "Save the index to this new file."),
    "missing": _rule(
        "Missing",
        "Items missing from a list: no closer than its last item, or never found.  [default: "
        "bounds; never for an approximate index]",
    ),
    "tighten": _flag("Compute the distances of positives missing from a list."),
    "canonical": _flag("Rank lists by canonical distances; evaluate needs --missing never."),
    "ranked_by": _option(
        bool, "Rank lists by canonical distances.", "--canonical", "--rerank", is_flag=True
    ),
    "rerank": _option(
        RERANK,
        "Re-rank by k-reciprocal neighbours (20, 6, 0.3). Without a value: --canonical.",
        is_flag=False,
        flag_value=RERANK.bare,
    ),
    "rerank_with": _rule("RerankWith", "Images that are neighbours; with gallery, no queries."),
    "rerank_index": _option(Value("FACTORY"), "Find neighbours by a FAISS index; approximate."),
    "rerank_folder": _option(DIR, "Keep neighbours and encodings in this folder, and reuse them."),
    "expand": _option(
        EXPAND,
        "Add k nearest gallery items (10; alpha 3) to queries, or to the gallery. Repeatable.",
        multiple=True,
    ),
    MORE: _option(URI, "Further images of the queries, by identity and camera: their features."),
    "fuse": _rule("Fuse", "How a query and its further images become one.  [default: mean]"),
    "width": _option(
        float,
        "Widest interval that -k auto accepts.  [default: 0]",
        *("--close-to", "width"),
        metavar="W",
    ),
    "preset": _option(
        PRESETS, "Conventions of another tool; other options override them.", "--as", "preset"
    ),
    "protocol": _option(
        PROTOCOLS, "Which pairs are ignored, and how CMC counts.  [default: market1501]"
    ),
    "protocols": _option(
        PROTOCOLS,
        "Which pairs count, who takes part, how CMC counts. Repeatable: all in one pass.  "
        "[default: market1501]",
        "--protocol",
        "protocols",
        multiple=True,
    ),
    "kept_protocol": _option(
        Choice(PROTOCOLS.names, "FILE.toml", _kept_protocols),
        "Which pairs are ignored, and how CMC counts.  [default: market1501]",
        "--protocol",
    ),
    "junk_ids": _option(
        NUMBER,
        "Gallery identity to ignore. Repeatable.  [default: -1]",
        *("--junk-id", "junk_ids"),
        multiple=True,
    ),
    "self_match": _rule("SelfMatch", "Ignore each query's own image, by index or by key."),
    "shot_draws": _count("Draws of CMC_sampled@x under single gallery shot.  [default: 10]"),
    "shot_seed": _count("Seed of these draws.  [default: 0]"),
    "good": _option(FILE, "Positives of each query: a text file, one line per query."),
    "junk": _option(FILE, "Ignored items of each query, in the same format."),
    "pairs": _option(
        types.NamedFile("NAME=FILE", "file"),
        "Pairs that rules name as pair.NAME: a list as --good, or a CSV or Parquet table "
        "query,item[,value] of rows from 0. Repeatable.",
        multiple=True,
    ),
    "listed_as": _rule("ListedAs", "Content of these files: indices or keys.", default="1-based"),
    "drawn": _option(
        URI, "Rows of each trial: an array, a line of text each, or rand_perm_cam.mat with --shots."
    ),
    "drawn_as": _rule("NumberedFrom", "What the rows of --drawn count from."),
    "shots": _count("Images of each person and camera that a trial takes of rand_perm_cam.mat."),
    "trials": _option(
        types.Depth("N|all", names=lambda: ("all",)),
        "Galleries that a protocol with trials draws; all is the exact mean over all draws.  "
        "[default: the protocol's]",
    ),
    "unmatched": _rule(
        "Unmatched",
        "A query without a positive: left out of means over Q+, a miss that counts 0, or an "
        "error.  [default: the protocol's, exclude]",
    ),
    "average": _option(
        Value("COLUMN"), "Means over groups of queries, by id or another column, of their means."
    ),
    "ties": _rule("TieRule", "Order of items at the same distance.  [default: pessimistic]"),
    "range": _option(
        Range(*get_args(RangeName)), "Distances of tau = 0 and tau = 1.  [default: auto]"
    ),
    "fixed_range": _option(
        Range("auto"), "Distances of tau = 0 and tau = 1.  [default: auto]", "--range"
    ),
    "vp": _rule(
        "VerificationPrecision",
        "GOM's VP: the authors' code, or Eq. 5 as printed.  [default: reference]",
    ),
    "false_rate_budget": _count(
        "Returned negatives at which GOM's false rate is 1.  [default: 3000]"
    ),
    "ap": _rule("AveragePrecision", "Definition of AP and RP.  [default: step]"),
    "metrics": _option(Metrics(), 'Metrics, "CMC@1,mAP", rank or all; see streameval metrics.'),
    "plotted_metric": _option(METRIC, "Metric of camera-pairs.", "--metric", default="mAP"),
    "plotted_metrics": _option(
        METRIC, "Metric to plot. Repeatable.  [default: mAP]", "--metric", "metrics", multiple=True
    ),
    "group_by": _option(
        COLUMN,
        "Also evaluate groups of queries: by id, cam, another column, or an array; or by cam-pair, "
        "the cameras of query and positive.",
    ),
    "refine": _option(
        Metrics(), 'Make these metrics exact, "TAR|FAR=0.001,EER", by further passes.'
    ),
    "ci": _option(float, "Add confidence intervals at this level in percent: 95.", metavar="LEVEL"),
    "level": _option(
        float,
        "Level of the confidence intervals of differences, in percent.",
        "--ci",
        metavar="LEVEL",
        default=95.0,
    ),
    "resamples": _count("Bootstrap resamples of the identities.", default=10_000),
    "seed": _count("Seed of the bootstrap.", default=0),
    "despite": _rule(
        "KINDS", "Compare runs although they differ in this. Repeatable.", multiple=True
    ),
    "memory": _option(
        SIZE,
        "Memory to take beyond what the process, or each worker, holds.  [default: half of the "
        "free memory, 8GB at most]",
    ),
    "budget": _option(
        SIZE,
        "Memory to take beyond what the process holds.  [default: half of the free memory, 8GB at "
        "most]",
        "--memory",
    ),
    "threads": _count("Number of threads.  [default: all cores]"),
    "workers": _count("Use this many processes, with one thread each."),
    "scheduler": _option(Value("ADDRESS"), "Use the Dask cluster of this scheduler."),
    "keep": _option(SIZE, "Memory for the nearest negatives of all queries.", default="4MB"),
    "out": _option(DIR, "Write the result to this new folder."),
    "text_file": _option(FILE, "Write to this new file instead of stdout.", "--out", "text_file"),
    "figure": _option(FILE, "Write to this new file.", "-o", "--out", required=True),
    "overwrite": _flag("Replace existing output."),
    "resume": _flag("Continue an interrupted run with the same --out."),
    "json": _flag("Print JSON."),
    "format": _rule("Format", "Output format.", default="table"),
    "printed_format": _option(
        Choice(FORMATS, "", lambda: [name for name in FORMATS() if name != "parquet"]),
        "Output format.",
        "--format",
        default="table",
    ),
    "quiet": _flag("Hide the progress bar."),
    "dry_run": _flag("Print the plan and do nothing else."),
    "rate": _option(NUMBER, "Flop/s per thread, for the time estimate of --dry-run: 50G."),
    "trec_run": _option(FILE, "Write the lists as a TREC run to this new file."),
    "trec_qrels": _option(FILE, "Write all positives as TREC qrels to this new file."),
    "run_config": _option(
        bool, "Print the options of the run, for --config.", "--config", is_flag=True
    ),
    "labels": _option(
        Value("TEXT"),
        "Name to show, one for each input. Repeatable.",
        "--label",
        "labels",
        multiple=True,
    ),
    "curve": _option(PLOTS, "Curve to plot.", default="mReP"),
    "plot": _option(METRIC, "Metric to plot.  [default: mAP]"),
    "speed_plot": _option(SVG, "Plot speed against accuracy to this file.", "--plot"),
    "queries": _count(
        "Queries to show: the hardest, or the most changed.", type=click.IntRange(0), default=5
    ),
    "images": _option(
        Value("TEMPLATE"),
        "Paths of images: 'images/{side}/{row:06d}.jpg', or a column of the label tables.",
    ),
    "top": _count("Images per ranked list.", type=click.IntRange(1, 100), default=10),
    "name": _option(Value("NAME"), "Name of the segment.  [default: the name of the file]"),
    "wait": _option(
        float,
        "Wait this long for another process that changes the ledger.",
        metavar="SECONDS",
        default=60.0,
    ),
    "ids": _option(FILE, "Identities to remove: a text file, one per line, or an array."),
    "at": _option(
        Value("SNAPSHOT"), "Number of a snapshot, or its segment.  [default: the latest]"
    ),
    CONFIG: _option(
        TOML,
        "Read options from a file; the command line overrides them.",
        is_eager=True,
        expose_value=False,
        callback=take_config,
    ),
}
"""Attributes of `click.option` by a name, of which flags are made where there are none."""

SEARCHES = "train_rows save_index missing tighten canonical width"
"""Options of lists of neighbours, as `Neighbors` calls them."""
GROUPS = {
    **{
        f"{side.upper()}_LABELS": " ".join(
            [*(f"{side}_{name}" for name in (*COLUMNS, "labels")), "pattern"]
        )
        for side in SIDES
    },
    "LISTS": f"neighbors neighbor_distances index k search {SEARCHES}",
    "MORE": "multi_query_ids multi_query_cams multi_query_labels fuse",
    "RULES": "vp false_rate_budget ap unmatched metrics",
    "SESSION": "memory threads workers scheduler",
    "DRAWS": "resamples seed despite",
    "FIGURE": "labels figure overwrite",
    "TABLE": "format json text_file overwrite",
}
"""Options that several commands take together."""

bundle = click.argument("bundle", metavar="[FILE]", type=FILE, required=False)


def take(names: str, **changes: Any) -> Callable[[Command], Command]:
    """Return a decorator that gives a command options, by their keys or groups in one text."""

    def add(command: Command) -> Command:
        every = " ".join(GROUPS.get(name, name) for name in names.split())
        for name in reversed(dict.fromkeys(every.split())):
            attributes = {**OPTIONS[name], **changes}
            flags = attributes.pop("flags") or (f"--{name.replace('_', '-')}",)
            command = click.option(*flags, **attributes)(command)
        return command

    return add


def command(options: str, *shown: str, group: Any = click) -> Callable[[Command], click.Command]:
    """Return a decorator that makes a command with options, and with examples in its help.

    Examples are without the program's name, and a test runs them; a line that ends in a backslash
    goes on in the next.
    """
    return lambda function: group.command(epilog=examples(*shown))(take(options)(function))


def places(name: str, kind: Value, what: str, origin: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command one or more places; and what they are, in words."""

    def check(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> Any:
        if not value and not ctx.resilient_parsing:
            raise OptionError(f"got no {what} to {ctx.command.name}: give {origin}")
        return value

    metavar = f"{kind.metavar} [{kind.metavar}...]"
    return click.argument(name, metavar=metavar, type=kind, nargs=-1, callback=check)


def check_effect(names: str, effective: bool, remedy: str) -> None:
    """Refuse parameters of the running command that are given and not effective: a mistake.

    The remedy is what would give them an effect, for the message: ``give --out DIR``.
    """
    context = click.get_current_context()
    for param in () if effective else context.command.params:
        given = param.name in names.split() and context.get_parameter_source(param.name) in GIVEN
        if given and context.params[param.name] not in (None, False, ()):
            option = types.flag(param)
            raise OptionError(
                f"got {option}, which has no effect here: {remedy}, or leave {option} out"
            )


HEADING = "Examples:"


def examples(*commands: str) -> str:
    """Return an epilog that shows commands as they are written."""
    lines = [f"  {line}" for one in commands for line in f"streameval {one}".splitlines()]
    return "\n".join(["\b", HEADING, *lines])  # \b: click keeps the lines as they are


def commands_of(epilog: str | None) -> str:
    """Return the commands of an epilog as a shell script; empty where there are none."""
    _, _, text = (epilog or "").partition(f"{HEADING}\n")
    return "".join(f"{line[2:]}\n" for line in text.splitlines())
