"""``streameval evaluate`` at work: opens what the options name, evaluates, saves and prints."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streameval.cli.described import described
from streameval.cli.neighbors import open_neighbors
from streameval.cli.options import (
    LabelOptions,
    check_features,
    check_label_options,
    label_options,
    open_groups,
    open_labels,
    open_listed,
    open_protocol,
    open_source,
    parse_junk_ids,
    parse_level,
    parse_range,
)
from streameval.cli.printing import as_json, print_out
from streameval.cli.recording import Recording
from streameval.cli.signals import Interruption
from streameval.cli.trec import open_trec
from streameval.errors import OptionError, StreamevalError, StreamevalWarning

if TYPE_CHECKING:
    from streameval.audit import Finding
    from streameval.metrics.options import MetricOptions
    from streameval.neighbors.source import Source
    from streameval.planning import Workers
    from streameval.protocols.presets import Preset
    from streameval.protocols.protocol import Labels, Protocol
    from streameval.result import Evaluation
    from streameval.run.connection import Connection

SELF_MATCHES = ("index", "key")


@dataclass(frozen=True)
class Given:
    """The argument and the options of the command, as they were given."""

    bundle: str | None
    distances: str | None
    query: str | None
    gallery: str | None
    query_ids: str | None
    gallery_ids: str | None
    query_cams: str | None
    gallery_cams: str | None
    query_keys: str | None
    gallery_keys: str | None
    query_labels: str | None
    gallery_labels: str | None
    metric: str | None
    neighbors: str | None
    neighbor_distances: str | None
    index: str | None
    depth: str | None
    search: str | None
    train_rows: int | None
    save_index: str | None
    missing: str | None
    tighten: bool
    rerank: bool
    close_to: float | None
    preset: str | None
    protocol: str | None
    junk_id: tuple[str, ...]
    self_match: str | None
    shot_draws: int | None
    shot_seed: int | None
    good: str | None
    junk: str | None
    listed_as: Any
    range: str | None
    ties: Any
    ap: Any
    vp: Any
    false_rate_budget: int | None
    metrics: str | None
    group_by: str | None
    refine: str | None
    ci: float | None
    memory: str | None
    threads: int | None
    workers: int | None
    scheduler: str | None
    out: str | None
    overwrite: bool
    resume: bool
    json: bool
    format: str
    quiet: bool
    dry_run: bool
    rate: str | None
    trec_run: str | None
    trec_qrels: str | None

    def label_options(self, side: str) -> LabelOptions:
        """Return ids, cams, keys and table of a side, "query" or "gallery"."""
        return label_options(vars(self), side)


def run(given: Given, told: Mapping[str, Any]) -> None:
    """Evaluate, save and print.

    Parameters
    ----------
    given : Given
    told : mapping of str to object
        The options in force by their keys, for the provenance.
    """
    from streameval.report.progress import show_progress

    quiet = given.quiet or given.dry_run
    with (
        show_progress(quiet=quiet) as progress,
        Interruption(progress.close) as interruption,
        ExitStack() as stack,
    ):
        from streameval import evaluation
        from streameval.metrics.selection import split_names
        from streameval.protocols.presets import find_preset, pair_options
        from streameval.report.export import FORMATS, result_rows
        from streameval.report.plan import plan_summary, render_plan
        from streameval.report.terminal import render_evaluation, stdout_style
        from streameval.run import preparation
        from streameval.run.cluster import ClusterExecutor

        resampling = parse_level(given.ci)
        preset = None if given.preset is None else find_preset(given.preset)
        options = _metric_options(given, preset)
        planned = given.dry_run and _is_declared(given)
        if given.distances is None and given.neighbors is None and given.index is None:
            check_features(given.query, given.gallery)
        for side in ("query", "gallery"):
            if not planned:
                check_label_options(side, *given.label_options(side))
        recording = stack.enter_context(
            Recording(given.out, overwrite=given.overwrite, resume=given.resume)
        )
        interruption.remains = recording.remains
        trec = stack.enter_context(open_trec(given, options.ties))
        if trec is not None:
            stack.enter_context(interruption.discarding(trec.discard))
        source: Source | None = open_neighbors(given)
        if source is not None and resampling is not None:
            raise OptionError(
                "--ci needs the place of every positive, and lists of neighbours may leave some "
                "out: leave it out, or evaluate the features or distances"
            )
        if source is None:
            source = open_source(given.distances, given.query, given.gallery, given.metric)
        query = gallery = None
        if not planned:
            query, gallery = open_labels(
                given.label_options("query"), given.label_options("gallery"), given.group_by
            )
        listed = None
        if query is not None and gallery is not None:
            listed = open_listed(given.good, given.junk, given.listed_as, query, gallery)
            if trec is not None:
                trec.name(query, gallery)
        what: dict[str, Any] = {
            "query": query,
            "gallery": gallery,
            "self_match": given.self_match,
            "shot_draws": given.shot_draws,
            "shot_seed": given.shot_seed,
            "options": options,
            "refine": () if given.refine is None else split_names(given.refine),
            "memory": evaluation.budget(given.memory),
            "threads": given.threads,
            **pair_options(
                preset,
                protocol=open_protocol(given.protocol),
                junk_ids=None if gallery is None else parse_junk_ids(given.junk_id, gallery),
                range=None if given.range is None else parse_range(given.range),
                listed=listed,
            ),
        }
        cluster = stack.enter_context(_cluster(given))
        groups = None if given.group_by is None or planned else open_groups(given.group_by)
        prepared = preparation.prepare(
            source, **what, group_by=groups, workers=_workers(given, cluster, source)
        )
        if groups is not None:
            evaluation.check_groups(groups, prepared)
        findings: list[Finding] = []
        if query is not None and gallery is not None:
            findings = _warn_of_labels(query, gallery, prepared.protocol)
        del query, gallery, listed, what  # the labels of a large gallery are large
        rate = None if given.rate is None else preparation.parse_bytes(given.rate, "rate")
        failure: Exception | None = None
        if given.dry_run:
            text = (
                as_json(plan_summary(prepared, rate))
                if given.json
                else render_plan(prepared, stdout_style(), rate)
            )
        else:
            executor = None if cluster is None else ClusterExecutor(cluster)
            prepared, result = recording.start(prepared, options)
            counted, there = result, result is not None
            if trec is not None:
                trec.start(prepared.pairs)
            if result is None:
                result = evaluation.run(
                    prepared,
                    options,
                    progress,
                    executor=executor,
                    record=recording.record,
                    collect=None if trec is None else trec.collect,
                )
                result = described(recording.identified(result), given, told, findings)
            else:
                chosen = preparation.resolve_options(options, prepared.protocol, prepared.refine)
                result = result.with_options(**vars(chosen))
            replaces = given.overwrite
            if groups is not None:
                result = result.grouped(groups)
            if resampling is not None:
                result = replace(result, resampling=resampling)
            if counted is not None and not _read_alike(counted, result):
                result, there, replaces = described(result, given, told, findings), False, True
            progress.close()
            if given.out is not None:
                try:
                    if not there:
                        save(result, given.out, overwrite=replaces, interruption=interruption)
                    recording.done()
                except (StreamevalError, OSError, MemoryError) as error:
                    failure = error  # the work of hours, perhaps: it is printed all the same
                    recording.keep()
            saved = None if failure else given.out
            if given.json:
                text = as_json(result.summary())
            elif given.format in FORMATS:
                text = str(FORMATS[given.format](result_rows({given.out or "this run": result})))
            else:
                text = render_evaluation(result, stdout_style(), saved=saved)
        print_out(text)
        if failure is not None:
            raise failure


def _read_alike(one: Evaluation, other: Evaluation) -> bool:
    """Tell whether one evaluation has the same options, groups and intervals in both readings."""
    import numpy as np

    for name in ("options", "group_by", "resampling"):
        if getattr(one, name) != getattr(other, name):
            return False
    by = str(one.group_by)  # of no column: without groups, or cam-pair
    return np.array_equal(one.columns.get(by, ()), other.columns.get(by, ()))


def _warn_of_labels(query: Labels, gallery: Labels, protocol: Protocol) -> list[Finding]:
    """Warn of what the labels alone show to be likely a mistake: the cheap part of the audit."""
    from streameval.audit import check_labels

    findings = check_labels(query, gallery, protocol)
    for one in findings:
        warnings.warn(str(one), StreamevalWarning, stacklevel=2)
    return findings


def _is_declared(given: Given) -> bool:
    """Tell whether shapes are given in place of data, and no labels."""
    from streameval.arrays.shape_only import PREFIX

    sources = [uri for uri in (given.distances, given.query, given.gallery) if uri is not None]
    no_labels = not any(any(given.label_options(side)) for side in ("query", "gallery"))
    return no_labels and bool(sources) and all(uri.startswith(PREFIX) for uri in sources)


def _cluster(given: Given) -> AbstractContextManager[Connection | None]:
    """Open the cluster that is asked for; a plan alone needs no processes of our own."""
    from streameval.evaluation import budget
    from streameval.run.connection import open_cluster

    if given.workers is not None and given.workers < 1:
        raise OptionError(f"--workers is {given.workers}; a whole number of at least 1 is needed")
    if given.dry_run and given.workers is not None and given.scheduler is None:
        return nullcontext()
    return open_cluster(
        count=given.workers,
        scheduler=given.scheduler,
        threads=given.threads,
        memory=budget(given.memory),
    )


def _workers(given: Given, cluster: Connection | None, source: Source) -> Workers | None:
    """Return the workers that the work is planned for."""
    from streameval.evaluation import budget, cluster_workers
    from streameval.planning import Workers
    from streameval.run.connection import WORKER_BYTES

    if cluster is None and given.workers is not None:
        return Workers(given.workers, given.threads or 1, budget(given.memory), WORKER_BYTES)
    return cluster_workers(cluster, source, given.memory)


def save(result: Evaluation, out: str, *, overwrite: bool, interruption: Interruption) -> None:
    """Save the result; a signal ends the process and leaves nothing behind.

    Only the renaming itself is not to be interrupted: from then on the result is there.
    """
    from streameval.result.folder import ResultFolder

    folder = ResultFolder(out, overwrite=overwrite)
    with interruption.discarding(folder.discard), folder:
        result.write(folder.partial)
        with interruption.held():
            folder.put_in_place()


def _metric_options(given: Given, preset: Preset | None) -> MetricOptions:
    from streameval.evaluation import check_counted, metric_options
    from streameval.metrics.selection import split_names

    if given.self_match not in (None, *SELF_MATCHES):
        raise OptionError(f"--self-match is {given.self_match!r}; known: {', '.join(SELF_MATCHES)}")
    chosen = {
        "ties": given.ties,
        "ap": given.ap,
        "vp": given.vp,
        "false_rate_budget": given.false_rate_budget,
        "metrics": None if given.metrics is None else split_names(given.metrics),
    }
    options = metric_options(chosen, preset)
    check_counted(options)
    return options
