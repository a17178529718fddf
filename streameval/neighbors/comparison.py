"""Indexes against the truth: what each setting costs in accuracy, and what it saves.

The exact evaluation and each setting of an index are of the same features. A setting is read as a
system deployed: what it does not return is not found. Differences of metrics come with intervals
from a jackknife over the queries, which leaves out a group at a time (Quenouille; Efron and
Tibshirani 1993, §11): that does for every metric that is smooth in the queries, and not for a
threshold or a median.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any, cast

import numpy as np

from streameval.choices import SelfMatch
from streameval.errors import InputError, OptionError, StreamevalWarning, entry_point, refuse
from streameval.labels.columns import LabelsLike
from streameval.metrics.bounds import ListReading, compute_list_metrics, cut_names
from streameval.metrics.compute import metrics_of
from streameval.metrics.metric import FRACTION, Kind, Measure
from streameval.metrics.options import MetricOptions, is_count
from streameval.metrics.selection import find_measure, in_order, wanted_measures
from streameval.neighbors.count import begin_work, count_built, distances_of
from streameval.neighbors.faiss_index import is_file
from streameval.neighbors.index_search import IndexSearch
from streameval.neighbors.lists import Lists
from streameval.planning.plan import Plan
from streameval.planning.range import Range
from streameval.request import Request
from streameval.result import Evaluation
from streameval.run.orchestrator import run
from streameval.run.preparation import Prepared, prepare
from streameval.run.progress import Progress
from streameval.run.session import Session, open_session
from streameval.source import Counted
from streameval.sources.features import Features
from streameval.typing import FloatArray, JsonObject

GROUPS = 20  # of queries, one of which is left out at a time
CONFIDENCE = 0.95
LISTED = "mAP"  # of the exact evaluation, beside which mAP@k/total of the lists is put


@dataclass(frozen=True)
class Setting:
    """An index and its search parameters.

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
        """Return the setting of a text, ``IVF1024,PQ16@nprobe=16``."""
        index, _, search = map(str.strip, text.partition("@"))
        if not index:
            raise OptionError(f"setting {text!r} names no index; expected INDEX[@NAME=N,..]")
        return cls(index, search)

    def source(
        self, features: Features, k: int, canonical: bool = False, train_rows: int | None = None
    ) -> IndexSearch:
        """Return the search of k items, read as a system deployed."""
        trained = self.index != "Flat" and not is_file(self.index)
        return IndexSearch(
            features=features,
            index=self.index,
            k=k,
            search=self.search,
            missing="never",
            canonical=canonical,
            train_rows=train_rows if trained else None,
        )

    def __str__(self) -> str:
        return f"{self.index}@{self.search}" if self.search else self.index


@dataclass(frozen=True)
class Difference:
    """Difference of a metric between a setting and the exact evaluation.

    Attributes
    ----------
    exact, deployed, value : float
        Value of the exact evaluation, value of the setting, and their difference, as fractions
        in [0, 1] or τ; NaN if there is none.
    low, high : float
        Bounds of the 95 % interval of the difference, by a jackknife that leaves out a twentieth
        of the queries at a time; NaN where there is none.
    kind : Kind
        What the values are.
    """

    exact: float
    deployed: float
    value: float
    low: float = math.nan
    high: float = math.nan
    kind: Kind = FRACTION


@dataclass(frozen=True)
class Outcome:
    """Accuracy, speed and size of a setting.

    Attributes
    ----------
    setting : Setting
    recall : float
        Fraction of the k nearest items (including ignored items) that are returned. An item as
        near as the k-th counts as one of them.
    differences : dict of str to Difference
        Differences by metric. ``mAP (mAP@k/total)`` compares the AP of the lists with the full
        mAP.
    build_seconds : float
        NaN if no index was built: for a file, and for ``Flat``.
    search_seconds, queries_per_second : float
    index_bytes : int
        0 for ``Flat``, which has no index.
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
    """An exact evaluation compared with index settings.

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

    def summary(self) -> JsonObject:
        """Return it as plain values, for JSON; NaN as None."""
        from streameval.result.saved import plain

        return plain(
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


@entry_point
def compare_index(
    features: Features,
    settings: Sequence[str | Setting],
    *,
    k: int,
    query: LabelsLike,
    gallery: LabelsLike,
    options: MetricOptions | None = None,
    canonical: bool = False,
    train_rows: int | None = None,
    protocol: Any = None,
    junk_ids: Any = None,
    self_match: SelfMatch | None = None,
    range: Any = None,
    memory: str | int | None = None,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> Comparison:
    """Compare FAISS indexes with the exact evaluation of the same features.

    Parameters
    ----------
    features : Features
    settings : sequence of str or Setting
        Indexes with search parameters: ``IVF1024,PQ16@nprobe=16``. Consecutive settings of one
        index share it; it is built once.
    k : int
        Items per list; the gallery's size if that is less.
    query, gallery : Labels, mapping or table
    options : MetricOptions, optional
        Metrics to compare; by default the default metrics, mAP@k/total and recall@k.
    canonical : bool
        Whether to rank lists by canonical distances instead of those of the index.
    train_rows : int, optional
    protocol, junk_ids, self_match, range, memory, threads, progress : as of `evaluate`

    Returns
    -------
    Comparison
        The exact evaluation, and one outcome per setting.

    Raises
    ------
    InputError, OptionError, BudgetError
        As in `evaluate`. An invalid setting is refused before anything is evaluated.
    """
    given = locals()
    if not isinstance(features, Features):
        raise InputError(
            f"features is of type {type(features).__name__}; Features(query, gallery) is needed"
        )
    refuse(
        OptionError,
        not is_count(k) and f"k is {k!r}; a whole number of at least 1 is needed",
        (isinstance(settings, str) or not isinstance(settings, Iterable))
        and f"settings is {settings!r}; a list of them is needed: [{settings!r}]",
    )
    chosen = [one if isinstance(one, Setting) else Setting.parse(one) for one in settings]
    if not chosen:
        raise OptionError("there is no setting to compare: give an index, such as IVF64,Flat")
    request = Request.of({**given, "source": features})
    if request.options.average:
        raise OptionError(
            f"average is {request.options.average!r}, and indexes are compared by means over "
            "queries: leave it out"
        )
    k = min(int(k), max(features.shape[1], 1))
    measures = _compared_measures(request.options, k)
    names = tuple(measure.name for measure in measures)
    request = replace(request, options=replace(request.options, metrics=names))
    with open_session(given) as session:
        sources = (setting.source(features, k, canonical, train_rows) for setting in chosen)
        prepared = [prepare(request.with_source(source), session) for source in sources]
        whole = replace(request.options, metrics=(*names, LISTED))
        exact = run(replace(request, options=whole), session)
        truth = _true_lists(request.with_source(Setting("Flat").source(features, k)), session)
        groups = groupby(zip(chosen, prepared, strict=True), key=lambda pair: pair[0].index)
        outcomes = (_outcomes(list(same), truth, exact, measures, session) for _, same in groups)
        return Comparison(exact, k, tuple(chain.from_iterable(outcomes)), session.threads)


def _compared_measures(options: MetricOptions, k: int) -> list[Measure]:
    """Return the metrics that are compared: those that a system deployed has."""
    named, listed = wanted_measures(options)
    for measure in named:
        if not measure.metric.deployed:
            raise OptionError(
                f"{measure.name} has no value where items are never found: compare "
                f"{' or '.join(cut_names(k))}"
            )
    more = () if options.metrics else map(find_measure, cut_names(k))
    return in_order([*named, *(one for one in listed if one.metric.deployed), *more])


def _true_lists(request: Request, session: Session) -> Lists:
    """Return the nearest k items of each query, by an exact search."""
    blocks: list[Lists] = []
    first = replace(request.options, metrics=("CMC@1",))  # which needs no range
    run(replace(request, options=first), replace(session, collect=blocks.append))
    return Lists.stack(blocks)


def _recall(features: Features, truth: Lists, lists: Lists, plan: Plan, session: Session) -> float:
    """Return the share of the true items that lists have; one as near as the k-th counts."""
    queries, items = features.shape
    pairs, wanted = (one.query * items + one.item for one in (lists, truth))
    missed = ~np.isin(pairs, wanted)
    query, hits = lists.query[missed], np.count_nonzero(~missed)
    if len(query):
        furthest = np.full(queries, -np.inf)
        np.maximum.at(furthest, truth.query, truth.distance)
        distance = distances_of(features, plan, session, query, lists.item[missed], "recall")
        hits += np.count_nonzero(distance <= furthest[query])
    return min(hits / len(wanted), 1.0) if len(wanted) else math.nan


def _outcomes(
    group: Sequence[tuple[Setting, Prepared]],
    truth: Lists,
    exact: Evaluation,
    measures: Sequence[Measure],
    session: Session,
) -> Iterator[Outcome]:
    """Yield the outcomes of settings of one index, which is built once."""
    first = group[0][1]
    source, used = cast("IndexSearch", first.source), exact.range
    begin_work(source, first, session)
    with source.built(first.plan, session) as (built, facts):
        for setting, prepared in group:
            search, blocks = replace(built, search=setting.search), list[Lists]()
            if used["low"] is not None:  # so that lists have the same thresholds
                # Vectors of length 1 have been looked at; rounding puts none beyond 2.
                same = Range(used["low"], used["high"], unit=used["mode"] == "auto")
                prepared = replace(prepared, range=same)
            begin_work(search, prepared, session)
            counted = count_built(search, prepared, replace(session, collect=blocks.append))
            seconds = counted.facts["lists"]["search_seconds"]
            yield Outcome(
                setting,
                _recall(search.features, truth, Lists.stack(blocks), prepared.plan, session),
                _differences(exact, counted, measures, prepared.request.options),
                facts.get("build_seconds", math.nan),
                seconds,
                search.shape[0] / max(seconds, 1e-9),
                search.index_bytes,
            )


def _differences(
    exact: Evaluation, counted: Counted, measures: Sequence[Measure], options: MetricOptions
) -> dict[str, Difference]:
    """Return the difference of each metric, with an interval from a jackknife over the queries."""
    statistics, reading = counted.statistics, cast("ListReading", counted.reading)
    found, queries = compute_list_metrics(statistics, reading, options).scalars, statistics.queries
    kinds = {one.name: one.metric.kind for one in measures}
    pairs = {name: (name, name) for name in kinds}
    for name in kinds:
        if name.startswith("mAP@") and "/total" in name:
            pairs[f"{LISTED} ({name})"] = LISTED, name
    wanted, groups = [*measures, find_measure(LISTED)], min(GROUPS, queries)
    group = np.random.default_rng(0).permutation(queries) % groups
    left: list[list[float]] = []
    for part in range(groups):
        kept = np.flatnonzero(group != part)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StreamevalWarning)
            whole = metrics_of(exact.statistics.take(kept), options, wanted)
            lists = compute_list_metrics(statistics.take(kept), reading.take(kept), options)
        left.append([lists.scalars[other] - whole.scalars[name] for name, other in pairs.values()])
    result: dict[str, Difference] = {}
    for (key, (name, other)), values in zip(pairs.items(), np.transpose(left), strict=True):
        one, two, kind = exact[name], found[other], kinds.get(name, FRACTION)
        between = interval(two - one, values) if kind == FRACTION else (math.nan, math.nan)
        result[key] = Difference(one, two, two - one, *between, kind)
    return result


def interval(value: float, left: FloatArray) -> tuple[float, float]:
    """Return the interval of a value, from its values without each of the groups."""
    from scipy.stats import t

    groups = len(left)
    if groups < 2 or np.isnan(left).any():
        return math.nan, math.nan
    error = math.sqrt((groups - 1) / groups * float(((left - left.mean()) ** 2).sum()))
    reach = float(t.ppf((1 + CONFIDENCE) / 2, groups - 1)) * error
    return value - reach, value + reach
