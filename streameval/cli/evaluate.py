"""The command ``streameval evaluate``."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from streameval.cli import options
from streameval.cli.config import in_force, takes_config
from streameval.cli.help import examples
from streameval.cli.inputs import (
    SIDES,
    check_labels,
    check_source,
    has_lists,
    has_shapes_only,
    label_uris,
    parse_level,
    read_inputs,
    with_bundle,
)
from streameval.cli.options import FILE, URI, Values, check_effect
from streameval.cli.printing import chosen_format, print_answer, print_table
from streameval.cli.results import Output
from streameval.cli.signals import Interruption
from streameval.cli.trec import open_trec, trec_options
from streameval.cli.types import Choice, Depth, Index, Metrics, Path, Real, Value, registry
from streameval.errors import OptionError, StreamevalWarning

if TYPE_CHECKING:
    from streameval.audit import Finding
    from streameval.protocols.protocol import Protocol
    from streameval.result import Evaluation
    from streameval.run.preparation import Prepared


def _printable() -> tuple[str, ...]:
    """Return the formats that are texts."""
    return tuple(name for name in options.FORMATS() if name != "parquet")


list_options = options.together(
    click.option(
        "--neighbors",
        type=URI,
        help="Lists of neighbours: gallery indices, [queries, k], or a file with distances, too.",
    ),
    click.option("--neighbor-distances", type=URI, help="Their distances, [queries, k]."),
    click.option(
        "--index",
        type=Index("SPEC|FILE.faiss"),
        help="Lists by a FAISS index of the features: Flat, IVF1024,PQ16, HNSW32; or a file.",
    ),
    click.option("-k", type=Depth(), help="Items of a list."),
    click.option(
        "--search",
        type=Value("NAME=N,.."),
        help="Parameters of the search: nprobe=16, efSearch=64.",
    ),
    click.option(
        "--train-rows",
        type=options.COUNT,
        help="Gallery rows that an index is trained on.  [default: 64 a centroid, up to 128 MB]",
    ),
    click.option(
        "--save-index", type=Path("FILE.faiss"), help="Keep the index that is built, in a new file."
    ),
    click.option(
        "--missing",
        type=Choice(registry("choices", "Missing")),
        help="What is not returned: no closer than what is, or never found.  [default: bounds; "
        "never of an approximate index]",
    ),
    click.option(
        "--tighten", is_flag=True, help="Compute the distances of positives not returned."
    ),
    click.option("--rerank", is_flag=True, help="With never: rank by canonical distances."),
    click.option(
        "--close-to",
        "width",
        type=Real("W"),
        help="Of -k auto: the widest interval that will do.  [default: 0]",
    ),
)


@takes_config
@click.command(
    epilog=examples(
        "evaluate --query query.npy --gallery gallery.npy --out result \\\n"
        "    --query-labels query.csv --gallery-labels gallery.csv",
        'evaluate --distances distances.zarr --metrics "CMC@1,mAP" --ci 95 \\\n'
        "    --query-labels query.csv --gallery-labels gallery.csv",
        "evaluate pytorch_result.mat --as torchreid",
    )
)
@options.bundle
@click.option("--distances", type=URI, help="Stored distances, [queries, gallery].")
@options.features()
@options.labels()
@options.metric
@list_options
@options.preset
@options.pairs()
@options.self_match()
@click.option(
    "--shot-draws",
    type=options.COUNT,
    help="Draws of CMC_sampled@x, protocols cuhk03 and cuhk03-torchreid.  [default: 10]",
)
@click.option("--shot-seed", type=options.COUNT, help="Seed of these draws.  [default: 0]")
@click.option("--good", type=FILE, help="Positives of each query: a text, a line a query.")
@click.option("--junk", type=FILE, help="Ignored items of each query, in the same way.")
@click.option(
    "--listed-as",
    type=Choice(registry("choices", "ListedAs")),
    default="1-based",
    help="What these files list: gallery indices, or keys.",
)
@options.ties
@options.value_range("auto", "minmax")
@options.rules
@options.group_by
@click.option(
    "--refine",
    type=Metrics(),
    help='Make thresholds exact, "TAR|FAR=0.001,EER", by further passes.',
)
@options.intervals
@options.session
@options.result
@click.option("--resume", is_flag=True, help="Go on with what is finished of --out, if it is.")
@options.json("the summary")
@options.form("Print the metrics as a row of a table, and nothing else.", _printable)
@options.quiet
@click.option("--dry-run", is_flag=True, help="Print the plan; evaluate nothing.")
@click.option(
    "--rate", type=options.NUMBER, help="Flop/s of a thread, for the hours of --dry-run: 50G."
)
@trec_options
def evaluate(**given: Any) -> None:
    """Evaluate a ranking: CMC, mAP, mINP, open-set and GOM metrics.

    Give stored distances (--distances), features of both sides (--query and --gallery), or lists
    of neighbours (--neighbors; or --index and features); and the labels of both sides, an array a
    column or a table. A FILE that holds query_f, gallery_f, query_label, gallery_label and
    cameras, as pytorch_result.mat, is enough.

    A URI is PATH or PATH::KEY: a .npy, .npz, .mat, HDF5, Parquet, .pt or .fvecs file, a Zarr
    folder, a folder of .npy files, or shards: 'gallery-*.npy'.
    """
    _check_effects(given)
    values = with_bundle({**given, "json": given["json"] or given["format"] == "json"})
    check_source(values)
    if not has_shapes_only(values):
        check_labels(values)
    run(values)


def _check_effects(values: Values) -> None:
    """Refuse options that have no effect beside the others."""
    chosen_format({**values, "out": None})
    dry, saved = values["dry_run"], values["out"] is not None
    files = ("save_index", "trec_run", "trec_qrels")
    written = saved or any(values[name] is not None for name in files)
    plain = values["format"] in ("table", "json")
    listed = values["good"] is not None
    check_effect("overwrite", when=written, remedy="give --out DIR")
    check_effect("rate", when=dry, remedy="give --dry-run, too")
    check_effect("format", when=plain or not dry, remedy="leave --dry-run out")
    check_effect("group_by", when=plain or saved, remedy="give --out DIR, or --format json")
    check_effect("junk", when=listed, remedy="give the positives, too, --good FILE")
    usual = values["listed_as"] == "1-based"
    check_effect("listed_as", when=listed or usual, remedy="give the lists, --good FILE")
    if has_lists(values) and values["ci"] is not None:
        raise OptionError(
            "--ci needs the place of every positive, and lists of neighbours may leave some "
            "out: leave it out, or evaluate the features or distances"
        )


def run(values: Values) -> None:
    """Evaluate, save and print; or print the plan."""
    from streameval.report.terminal import show_progress

    quiet = values["quiet"] or values["dry_run"]
    with (
        show_progress(quiet=quiet) as progress,
        Interruption(progress.close) as interruption,
        ExitStack() as stack,
    ):
        from streameval.request import Request, metric_options
        from streameval.run.preparation import prepare
        from streameval.run.session import open_session

        resampling = None if values["ci"] is None else parse_level(values["ci"])
        ties = metric_options(values).ties
        output = stack.enter_context(Output(values, interruption))
        trec = stack.enter_context(open_trec(values, ties, interruption))
        inputs = read_inputs(values)
        request = Request.of(inputs)
        conditions = {**values, "progress": progress, "resume": False}
        session = stack.enter_context(open_session(conditions))
        prepared = prepare(request, session)
        if trec is not None:
            trec.start(inputs["query"], inputs["gallery"], prepared.pairs)
            session = replace(session, collect=trec.collect)
        findings = [] if inputs["without_labels"] else _audit(inputs, request.protocol)
        del inputs, request  # the labels of a large gallery are large
        if values["dry_run"]:
            _print_plan(prepared, values)
            return
        result = output.count(prepared, session)
        if resampling is not None:
            result = replace(result, resampling=resampling)
        if not output.holds(result):
            result = describe(result, values, findings)
        progress.close()
        failure = output.save(result)
        _print_result(result, values, saved=failure is None)
        if failure is not None:
            raise failure


def _print_result(result: Evaluation, values: Values, *, saved: bool) -> None:
    """Print a result as the options say; ``--out`` is where it is saved."""
    from streameval.report.evaluation import render_evaluation, results_table

    place = values["out"] if saved else None
    print_table(
        {**values, "out": None},
        result.summary,
        lambda style: render_evaluation(result, style, saved=place),
        lambda: results_table({values["out"] or "this run": result}),
    )


def _print_plan(prepared: Prepared, values: Values) -> None:
    """Print what would be done."""
    from streameval.report.inputs import plan_summary, render_plan
    from streameval.run.session import parse_bytes

    rate = None if values["rate"] is None else parse_bytes(values["rate"], "rate")
    print_answer(
        values,
        lambda: plan_summary(prepared, rate),
        lambda style: render_plan(prepared, style, rate),
    )


def _audit(inputs: Values, protocol: Protocol) -> list[Finding]:
    """Warn of what the labels alone show to be likely a mistake: the cheap part of the audit."""
    from streameval import audit

    findings = audit.check_labels(inputs["query"], inputs["gallery"], protocol)
    for finding in findings:
        warnings.warn(str(finding), StreamevalWarning, stacklevel=2)
    return findings


def describe(result: Evaluation, values: Values, findings: Sequence[Finding]) -> Evaluation:
    """Return the result with the command line, its labels and their audit in its provenance."""
    context = click.get_current_context()
    about: dict[str, Any] = {
        "given": in_force(context.command, values),
        "labels": {side: label_uris(values, side) for side in SIDES},
        "audit": [asdict(finding) for finding in findings],
    }
    if values["good"] is not None:
        about["listed"] = {name: values[name] for name in ("good", "junk", "listed_as")}
    if context.obj is not None:
        about["command"] = list(context.obj)
    with suppress(OSError):  # the folder may be gone
        about["folder"] = str(pathlib.Path.cwd())
    return replace(result, provenance={**result.provenance, **about})
