"""Indexes against the truth: what each setting costs in accuracy, and what it saves.

The exact evaluation and each setting of an index are of the same features. A setting is read as a
system deployed: what it does not return is not found. Differences of metrics come with an
interval by a `jackknife`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from streameval.choices import SelfMatch
from streameval.errors import InputError, OptionError, check_type
from streameval.metrics.extremes import cut_names
from streameval.metrics.metric import Measure
from streameval.metrics.options import MetricOptions, is_count
from streameval.metrics.selection import find_measure, in_order, wanted_measures
from streameval.neighbors.count import begin_work, count_outcome, index_of
from streameval.neighbors.faiss_index import is_file, is_flat
from streameval.neighbors.jackknife import CONFIDENCE, LISTED, Difference, differences
from streameval.neighbors.returned import Returned
from streameval.neighbors.source import Neighbors
from streameval.planning import Task
from streameval.planning.range import Range
from streameval.protocols.pairs import Pairs
from streameval.protocols.protocol import Labels
from streameval.request import Request
from streameval.result import Evaluation
from streameval.run.executor import Executor
from streameval.run.job import Job
from streameval.run.orchestrator import run
from streameval.run.passes import listed_distances
from streameval.run.preparation import Prepared, prepare
from streameval.run.progress import Progress, Watch, check_progress
from streameval.run.session import Session, open_session
from streameval.sources.sources import Features
from streameval.statistics import FloatArray, IntArray

__all__ = [
    "CONFIDENCE",
    "LISTED",
    "Comparison",
    "Difference",
    "Outcome",
    "Setting",
    "compare_index",
]


@dataclass(frozen=True)
class Setting:
    """An index and the parameters of its search.

    Attributes
    ----------
    index : str
        Factory string, or file.
    search : str
    """

    index: str
    search: str = ""

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Return the setting of a text, ``IVF1024,PQ16@nprobe=16``.

        Raises
        ------
        OptionError
            If there is no index in it.
        """
        index, _, search = text.partition("@")
        if not index.strip():
            raise OptionError(f"setting {text!r} names no index; expected INDEX[@NAME=N,..]")
        return cls(index.strip(), search.strip())

    def __str__(self) -> str:
        return f"{self.index}@{self.search}" if self.search else self.index


@dataclass(frozen=True)
class Outcome:
    """What a setting gives.

    Attributes
    ----------
    setting : Setting
    recall : float
        Share of the k nearest items, ignored ones among them, that are returned; one as near as
        the k-th counts.
    differences : dict of str to Difference
        By metric; ``mAP (mAP@k/total)`` puts the lists' AP beside the whole mAP.
    build_seconds : float
        NaN where no index was built: of a file, and of ``Flat``.
    search_seconds, queries_per_second : float
    index_bytes : int
        0 of ``Flat``, which has no index.
    """

    setting: Setting
    recall: float
    differences: dict[str, Difference]
    build_seconds: float
    search_seconds: float
    queries_per_second: float
    index_bytes: int


@dataclass(frozen=True)
class Comparison:
    """An exact evaluation, and settings of indexes beside it.

    Attributes
    ----------
    exact : Evaluation
    k : int
    outcomes : tuple of Outcome
    threads : int
    """

    exact: Evaluation
    k: int
    outcomes: tuple[Outcome, ...]
    threads: int

    def summary(self) -> dict[str, Any]:
        """Return it as plain values, for JSON; NaN as None."""
        from streameval.result.summary import plain

        told: dict[str, Any] = plain(
            {
                "k": self.k,
                "threads": self.threads,
                "confidence": CONFIDENCE,
                "exact": {
                    "metrics": self.exact.metrics.scalars,
                    "counts": self.exact.counts,
                    "seconds": self.exact.provenance["seconds"],
                },
                "settings": [
                    {
                        "setting": str(one.setting),
                        "recall": one.recall,
                        "build_seconds": one.build_seconds,
                        "search_seconds": one.search_seconds,
                        "queries_per_second": one.queries_per_second,
                        "index_bytes": one.index_bytes,
                        "metrics": {
                            name: vars(difference) | {"kind": difference.kind.name}
                            for name, difference in one.differences.items()
                        },
                    }
                    for one in self.outcomes
                ],
                "provenance": self.exact.provenance,
            }
        )
        return told


def compare_index(
    features: Features,
    settings: Sequence[str | Setting],
    *,
    k: int,
    query: Labels,
    gallery: Labels,
    options: MetricOptions | None = None,
    rerank: bool = False,
    train_rows: int | None = None,
    protocol: Any = None,
    junk_ids: Any = None,
    self_match: SelfMatch | None = None,
    range: Any = None,
    memory: str | int = "2GB",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare settings of indexes with the exact evaluation of the same features.

    Parameters
    ----------
    features : Features
    settings : sequence of str or Setting
        ``IVF1024,PQ16@nprobe=16``; an index is built once for all its settings that follow one
        another.
    k : int
        Items of a list.
    query, gallery : Labels
    options : MetricOptions, optional
        With the metrics to compare; by default the usual ones, and mAP@k/total and recall@k.
    rerank : bool
        Whether lists are ranked by canonical distances, not by those of the index.
    train_rows : int, optional
    protocol, junk_ids, self_match, range, memory, threads, progress : as of `evaluate`

    Returns
    -------
    Comparison
        The exact evaluation, and an outcome a setting.

    Raises
    ------
    InputError, OptionError, BudgetError
        As `evaluate` does; a setting that can't be is refused before anything is evaluated.
    """
    given = locals()
    if not isinstance(features, Features):
        raise InputError(
            f"features is of type {type(features).__name__}; Features(query, gallery) is needed"
        )
    if not is_count(k):
        raise OptionError(f"k is {k!r}; a whole number of at least 1 is needed")
    check_type("options", options, MetricOptions | None, "MetricOptions(...) is needed")
    check_progress(progress)
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        raise OptionError(f"settings is {settings!r}; a list of them is needed: [{settings!r}]")
    chosen = [one if isinstance(one, Setting) else Setting.parse(one) for one in settings]
    if not chosen:
        raise OptionError("there is no setting to compare: give an index, such as IVF64,Flat")
    asked = Request.of({**given, "source": features})
    measures = compared_measures(asked.options, k)
    options = replace(asked.options, metrics=tuple(one.name for one in measures))
    asked = replace(asked, options=options)
    make = Neighbors(features=features, index="Flat", k=k, missing="never")
    sources = [
        replace(
            make,
            index=one.index,
            search=one.search,
            rerank=rerank,
            train_rows=None if is_flat(one.index) or is_file(one.index) else train_rows,
        )
        for one in chosen
    ]
    with open_session(given) as session:
        return _compare(asked, session, chosen, sources, k, measures)


def _compare(
    asked: Request,
    session: Session,
    chosen: Sequence[Setting],
    sources: Sequence[Neighbors],
    k: int,
    measures: Sequence[Measure],
) -> Comparison:
    """Evaluate exactly, then each setting."""
    options = asked.options
    prepared = [prepare(asked.with_source(source), session) for source in sources]
    truth = Neighbors(features=sources[0].features, index="Flat", k=k, missing="never")
    whole = replace(asked, options=replace(options, metrics=(*options.metrics, LISTED)))
    exact = run(whole, session)
    executor, watch = session.executor, session.watch
    measured = exact_range(exact)
    true_item, furthest = _true_lists(prepare(asked.with_source(truth), session), executor, watch)
    outcomes: list[Outcome] = []
    for _, several in groupby(zip(chosen, prepared, strict=True), key=lambda one: one[0].index):
        group = list(several)
        source = group[0][1].source
        if not isinstance(source, Neighbors):
            raise TypeError("a setting is no neighbours")
        begin_work(group[0][1], source, watch)
        with index_of(group[0][1], source, watch) as (built, told):
            for setting, work in group:
                own = replace(built, search=setting.search)
                work = replace(
                    work, request=work.request.with_source(own), range=measured or work.range
                )
                outcomes.append(
                    _outcome(
                        setting,
                        work,
                        own,
                        told,
                        exact,
                        measures,
                        options,
                        (true_item, furthest),
                        executor,
                        watch,
                    )
                )
    return Comparison(exact, k, tuple(outcomes), session.threads)


def compared_measures(options: MetricOptions, k: int) -> list[Measure]:
    """Return the metrics that are compared: those that a system deployed has.

    Raises
    ------
    OptionError
        If one that is named has no value there.
    """
    named, listed = wanted_measures(options)
    for measure in named:
        if not measure.metric.deployed:
            raise OptionError(
                f"{measure.name} has no value where items are never found: compare "
                f"{' or '.join(cut_names(k))}"
            )
    more = [] if options.metrics else [find_measure(name) for name in cut_names(k)]
    return in_order([*named, *(one for one in listed if one.metric.deployed), *more])


def exact_range(exact: Evaluation) -> Range | None:
    """Return the range of an evaluation, so that lists have the same thresholds."""
    used = exact.range
    if used["low"] is None:
        return None
    # Vectors of length 1 have been looked at; a distance that rounding puts beyond 2 is 2.
    return Range(used["low"], used["high"], unit=used["mode"] == "auto")


def _true_lists(
    prepared: Prepared, executor: Executor, watch: Watch
) -> tuple[list[IntArray], FloatArray]:
    """Return the nearest k items of each query, and the distance of the last of them, [Q]."""
    source = prepared.source
    if not isinstance(source, Neighbors):
        raise TypeError("the true lists are no neighbours")
    blocks: list[Returned] = []
    prepared = replace(prepared, problem=replace(prepared.problem, thresholds=0, edges=0))
    begin_work(prepared, source, watch)
    count_outcome(
        replace(prepared, range=Range(0, 1)),
        source,
        executor,
        watch,
        blocks.append,
    )
    lists = lists_of(blocks)
    furthest = [block.distance[block.indptr[1:] - 1] for block in blocks]
    return lists, np.concatenate(furthest)


def lists_of(blocks: Sequence[Returned]) -> list[IntArray]:
    """Return the items of each list."""
    return [
        block.item[first:last]
        for block in blocks
        for first, last in zip(block.indptr[:-1], block.indptr[1:], strict=True)
    ]


def _outcome(
    setting: Setting,
    work: Prepared,
    source: Neighbors,
    told: dict[str, Any],
    exact: Evaluation,
    measures: Sequence[Measure],
    options: MetricOptions,
    truth: tuple[list[IntArray], FloatArray],
    executor: Executor,
    watch: Watch,
) -> Outcome:
    blocks: list[Returned] = []
    begin_work(work, source, watch)
    counted = count_outcome(work, source, executor, watch, blocks.append)
    facts = counted.facts
    found = Evaluation.compute(
        counted.statistics,
        options,
        range=work.range_summary(counted.range),
        columns=work.columns,
        provenance=facts,
        lists=counted.reading,
    )
    seconds = facts["lists"]["search_seconds"]
    size = told.get("bytes", 0) if source.path is None else source.path.stat().st_size
    return Outcome(
        setting,
        neighbour_recall(work, source, lists_of(blocks), truth, executor, watch),
        differences(exact, found, measures, options),
        told.get("build_seconds", math.nan),
        seconds,
        source.shape[0] / max(seconds, 1e-9),
        size,
    )


def neighbour_recall(
    work: Prepared,
    source: Neighbors,
    lists: Sequence[IntArray],
    truth: tuple[Sequence[IntArray], FloatArray],
    executor: Executor,
    watch: Watch,
) -> float:
    """Return the share of the k nearest items that lists have; one as near as the k-th counts.

    Parameters
    ----------
    work : Prepared
    source : Neighbors
    lists : Q arrays of int64
    truth : (Q arrays of int64, [Q] float64)
        The nearest k items of each query, and the distance of the k-th.
    executor, watch
    """
    features, (nearest, furthest) = source.features, truth
    if features is None:
        raise TypeError("there are no features to compare with")
    total = sum(map(len, nearest))
    hits = 0
    query: list[IntArray] = []
    item: list[IntArray] = []
    for row, (own, true) in enumerate(zip(lists, nearest, strict=True)):
        there = np.isin(own, true)
        hits += int(there.sum())
        item.append(own[~there])
        query.append(np.full(len(item[-1]), row))
    others = np.concatenate(item)
    if len(others):
        of = np.concatenate(query)
        tasks = (Task((0, source.shape[0]), (0, source.shape[1])),)
        job = Job(features, Pairs.assumed(0, 0, 0), replace(work.plan, tasks=tasks))
        distance = listed_distances(job, of, others, executor, watch, "recall")
        hits += int((distance <= furthest[of]).sum())
    return min(hits / total, 1.0) if total else math.nan
