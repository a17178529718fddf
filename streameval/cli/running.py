"""``streameval evaluate`` at work: opens what the options name, evaluates, saves and prints."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
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
    from streameval.protocols.protocol import Labels, Protocol
    from streameval.result import Evaluation
    from streameval.source import Source

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
        from streameval.metrics.selection import split_names
        from streameval.report.evaluation import render_evaluation, results_table
        from streameval.report.export import FORMATS
        from streameval.report.plan import plan_summary, render_plan
        from streameval.report.terminal import stdout_style
        from streameval.request import Request, metric_options
        from streameval.run.orchestrator import carry_out
        from streameval.run.preparation import prepare
        from streameval.run.session import open_session
        from streameval.run.sizes import parse_bytes

        resampling = parse_level(given.ci)
        values = vars(given) | {
            "metrics": None if given.metrics is None else split_names(given.metrics),
            "refine": None if given.refine is None else split_names(given.refine),
            "range": None if given.range is None else parse_range(given.range),
            "protocol": open_protocol(given.protocol),
            "progress": progress,
        }
        if given.self_match not in (None, *SELF_MATCHES):
            known = ", ".join(SELF_MATCHES)
            raise OptionError(f"--self-match is {given.self_match!r}; known: {known}")
        options = metric_options(values)
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
        query = gallery = listed = None
        if not planned:
            query, gallery = open_labels(
                given.label_options("query"), given.label_options("gallery"), given.group_by
            )
            listed = open_listed(given.good, given.junk, given.listed_as, query, gallery)
            if trec is not None:
                trec.name(query, gallery)
        groups = None if given.group_by is None or planned else open_groups(given.group_by)
        values |= {
            "source": source,
            "query": query,
            "gallery": gallery,
            "listed": listed,
            "junk_ids": None if gallery is None else parse_junk_ids(given.junk_id, gallery),
            "group_by": groups,
            "without_labels": planned,
        }
        request = Request.of(values)
        session = stack.enter_context(open_session(values | {"resume": False}))
        prepared = prepare(request, session)
        findings: list[Finding] = []
        if query is not None and gallery is not None:
            findings = _warn_of_labels(query, gallery, request.protocol)
        # The labels of a large gallery are large.
        del query, gallery, listed, request, values
        rate = None if given.rate is None else parse_bytes(given.rate, "rate")
        failure: Exception | None = None
        if given.dry_run:
            text = (
                as_json(plan_summary(prepared, rate))
                if given.json
                else render_plan(prepared, stdout_style(), rate)
            )
        else:
            prepared, result = recording.start(prepared)
            counted, there = result, result is not None
            if trec is not None:
                trec.start(prepared.pairs)
            if result is None:
                session = replace(
                    session,
                    record=recording.record,
                    collect=None if trec is None else trec.collect,
                )
                result = carry_out(prepared, session)
                result = described(recording.identified(result), given, told, findings)
            else:
                result = result.with_options(**vars(prepared.request.options))
            replaces = given.overwrite
            if groups is not None and counted is not None:
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
                text = str(FORMATS[given.format](results_table({given.out or "this run": result})))
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
