"""Indexes against the truth: what each setting costs in accuracy, and what it saves.

The exact evaluation and each setting of an index are of the same features. A setting is read as a
system deployed: what it does not return is not found. Differences of metrics come with an
interval by a `jackknife`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import numpy as np

from streameval.choices import SelfMatch
from streameval.errors import InputError, OptionError
from streameval.metrics.bounds import cut_names
from streameval.metrics.metric import Measure
from streameval.metrics.options import MetricOptions, is_count
from streameval.metrics.selection import find_measure, in_order, wanted_measures
from streameval.neighbors.count import begin_work, count_built
from streameval.neighbors.faiss_index import is_file, is_flat
from streameval.neighbors.index_search import IndexSearch
from streameval.neighbors.jackknife import CONFIDENCE, LISTED, Difference, differences
from streameval.neighbors.lists import Lists
from streameval.neighbors.search import distances_of
from streameval.planning import Plan
from streameval.planning.range import Range
from streameval.protocols.labels import Labels
from streameval.request import Request
from streameval.result import Evaluation
from streameval.run.orchestrator import run
from streameval.run.preparation import Prepared, prepare
from streameval.run.progress import Progress
from streameval.run.session import Session, open_session
from streameval.sources.features import Features

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

    def source(
        self, features: Features, k: int, rerank: bool = False, train_rows: int | None = None
    ) -> IndexSearch:
        """Return the search of k items, read as a system deployed."""
        trained = not is_flat(self.index) and not is_file(self.index)
        return IndexSearch(
            features=features,
            index=self.index,
            k=k,
            search=self.search,
            missing="never",
            rerank=rerank,
            train_rows=train_rows if trained else None,
        )

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
        from streameval.result.saved import plain

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
                    {name: value for name, value in vars(one).items() if name != "differences"}
                    | {
                        "setting": str(one.setting),
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
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        raise OptionError(f"settings is {settings!r}; a list of them is needed: [{settings!r}]")
    chosen = [one if isinstance(one, Setting) else Setting.parse(one) for one in settings]
    if not chosen:
        raise OptionError("there is no setting to compare: give an index, such as IVF64,Flat")
    request = Request.of({**given, "source": features})
    measures = compared_measures(request.options, k)
    names = tuple(measure.name for measure in measures)
    request = replace(request, options=replace(request.options, metrics=names))
    with open_session(given) as session:
        prepared = [
            (setting, prepare(request.with_source(source), session))
            for setting in chosen
            for source in [setting.source(features, k, rerank, train_rows)]
        ]
        whole = replace(request.options, metrics=(*names, LISTED))
        exact = run(replace(request, options=whole), session)
        truth = Truth.of(request.with_source(Setting("Flat").source(features, k)), session)
        outcomes: list[Outcome] = []
        for _, group in groupby(prepared, key=lambda one: one[0].index):
            outcomes += _outcomes(list(group), truth, exact, measures, session)
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


@dataclass(frozen=True, eq=False)
class Truth:
    """The nearest k items of each query.

    Attributes
    ----------
    features : Features
    lists : Lists
    """

    features: Features
    lists: Lists

    @classmethod
    def of(cls, request: Request, session: Session) -> Truth:
        """Return the lists of an exact search."""
        prepared = prepare(request, session)
        problem = replace(prepared.problem, thresholds=0, edges=0)
        prepared = replace(prepared, problem=problem, range=Range(0, 1))
        blocks: list[Lists] = []
        prepared.source.count(prepared, replace(session, collect=blocks.append))
        return cls(cast("IndexSearch", prepared.source).features, Lists.stack(blocks))

    def recall(self, lists: Lists, plan: Plan, session: Session) -> float:
        """Return the share of the items that lists have; one as near as the k-th counts."""
        items = self.features.shape[1]
        pairs, wanted = (one.query * items + one.item for one in (lists, self.lists))
        hit = np.isin(pairs, wanted)
        query, item = lists.query[~hit], lists.item[~hit]
        hits = int(hit.sum())
        if len(item):
            furthest = np.full(self.features.shape[0], -np.inf)
            np.maximum.at(furthest, self.lists.query, self.lists.distance)
            distance = distances_of(self.features, plan, session, query, item, "recall")
            hits += int((distance <= furthest[query]).sum())
        return min(hits / len(wanted), 1.0) if len(wanted) else math.nan


def _outcomes(
    group: Sequence[tuple[Setting, Prepared]],
    truth: Truth,
    exact: Evaluation,
    measures: Sequence[Measure],
    session: Session,
) -> Iterator[Outcome]:
    """Yield the outcomes of settings of one index, which is built once."""
    first = group[0][1]
    source = cast("IndexSearch", first.source)
    begin_work(source, first, session)
    with source.built(first.plan, session) as (built, facts):
        for setting, prepared in group:
            search = replace(built, search=setting.search)
            request = prepared.request.with_source(search)
            used = exact_range(exact) or prepared.range
            prepared = replace(prepared, request=request, range=used)
            blocks: list[Lists] = []
            begin_work(search, prepared, session)
            counted = count_built(search, prepared, replace(session, collect=blocks.append))
            result = Evaluation.compute(
                counted.statistics,
                request.options,
                range=prepared.range_summary(counted.range),
                columns=prepared.columns,
                provenance=counted.facts,
                lists=counted.reading,
            )
            seconds = counted.facts["lists"]["search_seconds"]
            yield Outcome(
                setting,
                truth.recall(Lists.stack(blocks), prepared.plan, session),
                differences(exact, result, measures, request.options),
                facts.get("build_seconds", math.nan),
                seconds,
                search.shape[0] / max(seconds, 1e-9),
                search.sizes().index_bytes,
            )
