"""The commands ``streameval evaluate`` and ``streameval compare-index``, which count."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from streameval.cli import inputs
from streameval.cli.config import in_force
from streameval.cli.loading import loading
from streameval.cli.options import INDEX, SIDES, Values, bundle, check_effect, command, take
from streameval.cli.output import Output, chosen_format, print_answer
from streameval.errors import OptionError, warn
from streameval.interruption import at_end
from streameval.output import NewFile

if TYPE_CHECKING:
    from streameval.audit import Finding
    from streameval.request import Request
    from streameval.result import Evaluation
    from streameval.run.preparation import Planned

TREC = ("trec_run", "trec_qrels")


@command(
    "distances query gallery QUERY_LABELS GALLERY_LABELS fill_missing metric multi_query MORE "
    "expand rerank rerank_with rerank_index rerank_folder LISTS preset protocols junk_ids "
    "self_match shot_draws shot_seed good junk pairs listed_as drawn drawn_as shots trials ties "
    "range RULES average group_by refine ci SESSION out overwrite resume json printed_format quiet "
    "dry_run rate trec_run trec_qrels config",
    "evaluate --query query.npy --gallery gallery.npy --out result \\\n"
    "    --query-labels query.csv --gallery-labels gallery.csv",
    'evaluate --distances distances.zarr --metrics "CMC@1,mAP" --ci 95 \\\n'
    "    --query-labels query.csv --gallery-labels gallery.csv",
    "evaluate pytorch_result.mat --as torchreid",
)
@bundle
def evaluate(**given: Any) -> None:
    """Evaluate a ranking: CMC, mAP, mINP, open set, GOM.

    Give one source of distances: features (--query and --gallery), stored distances
    (--distances), lists of neighbours (--neighbors), or features and a FAISS index (--index).
    Give the labels of both sides as tables (--query-labels and --gallery-labels), or as one array
    per column (--query-ids, ...). Instead of all these, FILE can be one file that contains
    query_f, gallery_f, query_label, gallery_label and cameras, such as pytorch_result.mat.

    A URI is PATH or PATH::KEY. PATH is a .npy, .npz, .mat, HDF5, Parquet, .pt or .fvecs file, a
    Zarr folder, a folder of .npy files, or several files: 'gallery-*.npy'.
    """
    from streameval.run.progress_bar import show_progress

    check_effects(given)
    values = inputs.with_ranking(inputs.with_bundle(given))
    inputs.check_source(values)
    quiet = values["quiet"] or values["dry_run"]
    with (
        show_progress(quiet=quiet) as progress,
        at_end(progress.close),
        ExitStack() as stack,
    ):
        with loading():
            from streameval.display.shown import blocks_of, table_of
            from streameval.request import Request
            from streameval.run.orchestrator import by_protocol
            from streameval.run.preparation import plan_requests, with_pairs
            from streameval.run.session import open_session

        resampling = None if values["ci"] is None else inputs.parse_level(values)
        check_trec(values, inputs.check_terms(values).ties)  # before kept work may be discarded
        output = stack.enter_context(Output(values))
        files = stack.enter_context(open_trec(values))
        opened = inputs.read_inputs(values)
        requests = Request.several(opened, opened["protocols"])
        conditions = {**values, "progress": progress, "resume": False}
        session = stack.enter_context(open_session(conditions))
        planned = plan_requests(requests, session)
        query, gallery = (opened[side] for side in SIDES)
        findings = checked_labels(opened, requests)
        if values["dry_run"]:
            print_plan(values, planned)
            return
        prepared = [with_pairs(one) for one in planned]
        if files:
            from streameval.neighbors.list_files import write_trec

            ties = prepared[0].request.options.ties
            pairs = prepared[0].pairs.block(0, len(query))
            collect = write_trec(query, gallery, pairs, ties, files)
            session = replace(session, collect=collect)
        del opened, requests, planned, query, gallery  # the labels of a large gallery are large
        counted = output.count(prepared, session)
        if resampling is not None:
            counted = [replace(one, resampling=resampling) for one in counted]
        if not output.holds(counted):
            counted = [describe(one, values, findings) for one in counted]
        results = by_protocol(prepared, counted)
        result = results if len(results) > 1 else next(iter(results.values()))
        progress.close()
        failure = output.save(result, counted)
        saved = None if failure is not None else values["out"]
        print_answer(
            values,
            result.summary,
            lambda: blocks_of(result, saved),
            lambda: table_of(result, values["out"] or "this run"),
        )
        if failure is not None:
            raise failure


def checked_labels(opened: Values, requests: Sequence[Request]) -> list[Finding]:
    """Return what the audit of the labels finds, once it is said."""
    from streameval import audit

    if opened["without_labels"]:
        return []
    query, gallery = (opened[side] for side in SIDES)
    findings = audit.check_all(query, gallery, [one.protocol for one in requests])
    for finding in findings:
        warn(str(finding))
    return findings


def print_plan(values: Values, planned: Sequence[Planned]) -> None:
    """Print the answer of ``--dry-run``."""
    from streameval.report.inputs import plan_blocks, plan_summary
    from streameval.run.session import parse_bytes

    rate = None if values["rate"] is None else parse_bytes(values["rate"], "rate")
    print_answer(values, lambda: plan_summary(planned, rate), lambda: plan_blocks(planned, rate))


def check_effects(values: Values) -> None:
    """Refuse options that have no effect beside the others."""
    chosen_format(values)
    dry, saved = values["dry_run"], values["out"] is not None
    written = saved or any(values[name] is not None for name in ("save_index", *TREC))
    plain = values["format"] in ("table", "json")
    listed = values["good"] is not None
    check_effect("overwrite", written, "give --out DIR")
    check_effect("rate", dry, "give --dry-run, too")
    check_effect("format", plain or not dry, "leave --dry-run out")
    check_effect("group_by", plain or saved, "give --out DIR, or --format json")
    check_effect("junk", listed, "give the positives, too, --good FILE")
    usual = values["listed_as"] == "1-based"
    files = listed or bool(values["pairs"])
    check_effect("drawn_as shots", values["drawn"] is not None, "give --drawn FILE")
    check_effect("listed_as", files or usual, "give the lists, --good FILE or --pairs NAME=FILE")
    if inputs.has_lists(values) and values["ci"] is not None:
        raise OptionError(
            "--ci needs the place of every positive, and lists of neighbours may leave some "
            "out: leave it out, or evaluate the features or distances"
        )


def check_trec(values: Values, ties: str) -> None:
    """Refuse ``--trec-run`` and ``--trec-qrels`` of what is no list, or not one list."""
    for name in (name for name in TREC if values[name] is not None):
        option = f"--{name.replace('_', '-')}"
        if not inputs.has_lists(values):
            raise OptionError(
                f"{option} writes lists of neighbours: give --neighbors URI, or features with "
                "--index Flat -k K (of all, K the size of the gallery)"
            )
        for other, given, why in (
            ("several --protocol", len(values["protocols"]) > 1, "which have other orders"),
            ("-k auto", values["k"] == "auto", "of which there are several lengths"),
            ("--resume", values["resume"], "which keeps no lists"),
        ):
            if given:
                raise OptionError(f"got {option} and {other}, {why}: leave one of them out")
        if ties == "expected":
            raise OptionError(
                "ties expected is a mean over many orders, and a TREC run is one: choose "
                "--ties pessimistic, optimistic or stable"
            )


@contextmanager
def open_trec(values: Values) -> Iterator[dict[str, NewFile]]:
    """Open the files of ``--trec-run`` and ``--trec-qrels``; they are there when all is done."""
    named = [] if values["dry_run"] else [name for name in TREC if values[name] is not None]
    with ExitStack() as stack:
        files: dict[str, NewFile] = {}
        for name in named:
            files[name] = file = NewFile(values[name], overwrite=values["overwrite"])
            stack.enter_context(file)
        yield files


def describe(result: Evaluation, values: Values, findings: Sequence[Finding]) -> Evaluation:
    """Return the result with the command line, its labels and their audit in its provenance."""
    context = click.get_current_context()
    about: dict[str, Any] = {
        "given": in_force(context.command, values),
        "labels": {side: inputs.label_uris(values, side) for side in SIDES},
        "audit": [asdict(finding) for finding in findings],
    }
    if values["pattern"] is not None:
        about["pattern"] = values["pattern"]
    if values["good"] is not None:
        about["listed"] = {name: values[name] for name in ("good", "junk", "listed_as")}
    if values["pairs"]:
        about["pairs"] = {"files": inputs.pair_files(values), "listed_as": values["listed_as"]}
    if values["drawn"] is not None:
        about["drawn"] = {name: values[name] for name in ("drawn", "drawn_as", "shots")}
    if context.obj is not None:
        about["command"] = context.obj
    with suppress(OSError):  # the folder may be gone
        about["folder"] = str(pathlib.Path.cwd())
    return replace(result, provenance={**result.provenance, **about})


@command(
    "QUERY_LABELS GALLERY_LABELS fill_missing metric fixed_k ranked_by train_rows protocol "
    "junk_ids self_match range metrics budget threads speed_plot overwrite json quiet config",
    "compare-index Flat HNSW16@efSearch=32 -k 20 \\\n"
    "    --query query.npy --gallery gallery.npy \\\n"
    "    --query-labels query.csv --gallery-labels gallery.csv",
)
@click.argument("settings", metavar="INDEX[@NAME=N,..]...", type=INDEX, nargs=-1, required=True)
@take("query gallery", required=True)
def compare_index(settings: tuple[str, ...], **values: Any) -> None:
    """Compare FAISS indexes with the exact evaluation.

    A setting is an index with its search parameters: IVF1024,PQ16@nprobe=16, HNSW32@efSearch=64,
    or FILE.faiss. For each setting, prints the recall of the k nearest neighbours, the difference
    of each metric with its confidence interval, the build time, the queries per second and the
    size.
    """
    from streameval.run.progress_bar import show_progress

    with show_progress(quiet=values["quiet"]) as progress, at_end(progress.close):
        from streameval.metrics.options import MetricOptions
        from streameval.neighbors import comparison
        from streameval.report.indexes import check_plot, index_blocks, write_plot

        plot, overwrite = values["plot"], values["overwrite"]
        check_effect("overwrite", plot is not None, "give --plot FILE.svg")
        if plot is not None:
            check_plot(plot, overwrite=overwrite)
        opened = inputs.read_inputs(values) | {"progress": progress}
        opened["options"] = MetricOptions(metrics=values["metrics"] or ())
        features = opened.pop("source")
        given = inputs.keywords(comparison.compare_index, opened)
        compared = comparison.compare_index(features, settings, **given)
        progress.close()
        if plot is not None:
            write_plot(compared, plot, overwrite=overwrite)
        print_answer(values, compared.summary, lambda: index_blocks(compared))
