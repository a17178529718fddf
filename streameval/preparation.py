"""Preparation: inputs checked, protocol applied, work planned, before anything large is read."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import psutil

from streameval.counting.ahead import ROWS, most_entries
from streameval.counting.features import count_features
from streameval.counting.poisson_binomial import hopeless_from
from streameval.counting.products import advice
from streameval.counting.stored import count_stored
from streameval.errors import InputError, OptionError, StreamevalWarning
from streameval.execution.job import UNIT_TOLERANCE, Range
from streameval.identities import Identities, find_identities
from streameval.inputs.faiss_build import needs_of
from streameval.inputs.fingerprint import of_labels
from streameval.inputs.memory import MemoryArray
from streameval.inputs.neighbors import Neighbors, Source
from streameval.inputs.sources import Distances, Features
from streameval.listed import ListedPairs
from streameval.metrics.camera_pairs import PositiveCameras
from streameval.metrics.metric import Measure
from streameval.metrics.options import DEFAULT_OPTIONS, MetricOptions
from streameval.metrics.selection import (
    refined_measures,
    required_fields,
    wanted_measures,
    with_named,
)
from streameval.pairs import Pairs, find_pairs
from streameval.planning import RESERVED, SHOT_RANKS, Plan, Problem, ShotSizes, Workers, make_plan
from streameval.planning.lists import ListSizes, plan_lists
from streameval.protocol import (
    PROTOCOLS,
    SINGLE_GALLERY_SHOT,
    AnyArray,
    Labels,
    Protocol,
    with_options,
)
from streameval.result.columns import histogram_groups
from streameval.statistics import SHOT_FIELDS, IntArray

RangeOption = Literal["auto", "minmax"] | tuple[float, float]

LIBRARY_BYTES = 160 << 20  # kernels, compiled or loaded, codecs, allocators
USED_LIBRARY_BYTES = 48 << 20  # what these may still take where they have been used before
DEFAULT_MEMORY = "2GB"
UNUSED = "unused"  # the range, where nothing is read off it
THRESHOLDS = 101
ASSUMED_POSITIVES = 50  # a query, where the work is planned before there are labels
BINS = 1000  # of the histogram of impostors


@dataclass(frozen=True, eq=False)
class Prepared:
    """An evaluation that is checked and planned, before anything large is read.

    Attributes
    ----------
    source : Features, Distances or Neighbors
    pairs : Pairs
    protocol : Protocol
    problem : Problem
    plan : Plan
    range : Range or None
        None: to be found in a pass over the data.
    refine : tuple of Measure
        Whose thresholds further passes settle.
    workers : Workers, optional
        Of the cluster that the plan is for.
    groups : [Q] int64, optional
        Which group each query is in, where the histogram of impostors is kept by group, too.
    query_columns : mapping of str to [Q] array
        Labels of the queries, for the per-query table and for groups: ``id``, ``cam`` where
        there is one, and further ones.
    identities : Identities, optional
        Of the gallery, where one item each of them is drawn.
    positive_cams : PositiveCameras, optional
        Of the positive pairs as `Pairs.positives` lists them, where both sides have cameras.
    label_fingerprints : dict of str to str
        What galleries are told apart by, which a result does not hold: see
        `gallery_fingerprints`.
    """

    source: Source
    pairs: Pairs
    protocol: Protocol
    problem: Problem
    plan: Plan
    range: Range | None
    query_columns: Mapping[str, AnyArray]
    refine: tuple[Measure, ...] = ()
    identities: Identities | None = None
    positive_cams: PositiveCameras | None = None
    workers: Workers | None = None
    groups: IntArray | None = None
    label_fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def features(self) -> Features | Distances | None:
        """What distances are computed from, or stored in; None of lists alone."""
        return self.source.features if isinstance(self.source, Neighbors) else self.source

    @property
    def uses_range(self) -> bool:
        """Whether anything is counted that a range of the distances is needed for."""
        return bool(self.problem.thresholds or self.problem.edges)

    def with_range_from_data(self) -> Prepared:
        """Return the same evaluation, cut in the same way, with ``range="minmax"``."""
        if isinstance(self.source, Neighbors):  # all distances are listed, or there is no range
            return replace(self, range=None)
        problem = replace(self.problem, passes_for_range=1)
        again = make_plan(
            problem,
            memory=self.plan.memory,
            threads=self.plan.threads,
            reserved=(self.plan.client or self.plan.parts)[RESERVED],
            tile=self.plan.tile,
            workers=self.workers,
        )
        plan = replace(self.plan, bytes_read=again.bytes_read, flops=again.flops)
        return replace(self, problem=problem, plan=plan, range=None)

    def range_summary(self, used: Range) -> dict[str, Any]:
        """Describe the range that was used, for the summary."""
        if not self.uses_range:
            return {"mode": UNUSED, "low": None, "high": None}
        if np.isnan(used.low):  # lists don't tell
            return {"mode": "unknown", "low": None, "high": None}
        mode = "minmax" if self.range is None else "given" if used.strict else "auto"
        return {"mode": mode, "low": used.low, "high": used.high}


def prepare(
    source: Source,
    *,
    query: Labels | None,
    gallery: Labels | None,
    protocol: str | Protocol = "market1501",
    junk_ids: Sequence[int | str] | None = None,
    self_match: Literal["index", "key"] | None = None,
    shot_draws: int | None = None,
    shot_seed: int | None = None,
    listed: ListedPairs | None = None,
    range: RangeOption = "auto",
    options: MetricOptions = DEFAULT_OPTIONS,
    refine: Sequence[str] = (),
    group_by: str | npt.ArrayLike | None = None,
    memory: str | int = DEFAULT_MEMORY,
    threads: int | None = None,
    tile: tuple[int, int] | None = None,
    workers: Workers | None = None,
) -> Prepared:
    """Check the inputs and plan the work; the parameters are those of `evaluate`.

    `workers` are those of the cluster that the work is planned for, if it is for one. Without
    labels it is planned for some positives a query, and can't be run.

    No more is counted than the metrics of the options need, and those to be refined.

    Raises
    ------
    InputError, OptionError, BudgetError
        As `evaluate` does.
    """
    if query is not None and gallery is not None:
        for side, labels in (("query", query), ("gallery", gallery)):
            if not isinstance(labels, Labels):
                raise InputError(
                    f"{side} is of type {type(labels).__name__}; Labels are needed: "
                    f"{side}=Labels(id=..., cam=...)"
                )
        if isinstance(source, Neighbors):
            source = source.of_gallery(len(gallery))
        check_rows(source, query, gallery)
    if isinstance(source, Neighbors):
        check_lists(source, options, protocol, refine)
        source = source.checked()
    junk = None if junk_ids is None else tuple(junk_ids)
    protocol = with_options(
        protocol,
        junk_ids=junk,
        self_match=self_match,
        shot_draws=shot_draws,
        shot_seed=shot_seed,
    )
    threads = cores() if threads is None else threads
    if not isinstance(threads, int) or threads < 1:
        raise OptionError(f"threads is {threads!r}; a whole number of at least 1 is needed")
    if tile is not None and not (len(tile) == 2 and all(size >= 1 for size in tile)):
        raise OptionError(f"tile is {tile!r}; two sizes of at least 1 are needed")
    measures = tuple(refined_measures(refine))
    options = resolve_options(options, protocol, measures)
    features = source.features if isinstance(source, Neighbors) else source
    if isinstance(source, Features) and advice():
        warnings.warn(advice(), StreamevalWarning, stacklevel=3)
    needs = required_fields(options)
    check_shots(options, protocol)
    wanted = resolve_range(range, features)
    given = wanted is not None and wanted.strict
    columns: Mapping[str, AnyArray] = {}
    identities = cams = None
    fingerprints: Mapping[str, str] = {}
    if query is None or gallery is None:
        pairs = Pairs.assumed(*source.shape, ASSUMED_POSITIVES)
    else:
        pairs, columns = find_pairs(query, gallery, protocol, listed), query_columns(query)
        fingerprints = gallery_fingerprints(gallery, None if listed is None else pairs)
        if protocol.cmc == SINGLE_GALLERY_SHOT and not needs.isdisjoint(SHOT_FIELDS):
            identities = find_identities(gallery, pairs)
        if query.cam is not None and gallery.cam is not None:
            cams = PositiveCameras.of(gallery.cam[pairs.positives()[1]])
    groups = None
    if "impostor_histogram" in needs and group_by is not None and columns:
        groups = histogram_groups(group_by, columns)
    problem = replace(
        problem_of(source, pairs),
        groups=0 if groups is None else int(groups.max()) + 1,
        thresholds=THRESHOLDS if "negatives_within" in needs or given else 0,
        edges=BINS + 1 if "impostor_histogram" in needs else 0,
        passes_to_refine=int(bool(measures)),
        shots=None if identities is None else _shot_sizes(pairs, identities, needs),
    )
    if not problem.thresholds and not problem.edges:
        wanted = Range(0.0, 1.0)  # what for is not asked
    limits: dict[str, Any] = {
        "memory": parse_bytes(memory),
        "threads": threads,
        "reserved": reserved_bytes(),
        "workers": workers,
    }
    if isinstance(source, Neighbors):
        plan = plan_lists(problem, list_sizes(source), **limits)
    else:
        problem = replace(problem, passes_for_range=int(wanted is None))
        plan = make_plan(problem, tile=tile, **limits)
    return Prepared(
        source,
        pairs,
        protocol,
        problem,
        plan,
        wanted,
        columns,
        measures,
        identities,
        cams,
        workers,
        groups,
        fingerprints,
    )


def check_lists(
    source: Neighbors, options: MetricOptions, protocol: str | Protocol, refine: Sequence[str]
) -> None:
    """Check that lists of neighbours can give what is asked for.

    Raises
    ------
    OptionError
    """
    if refine:
        raise OptionError(
            f"{refine[0]} is refined by further passes over all pairs, and lists hold some of "
            "them: leave --refine out, or evaluate the features"
        )
    known = PROTOCOLS.get(protocol) if isinstance(protocol, str) else protocol
    if SINGLE_GALLERY_SHOT in (options.cmc, known and known.cmc):
        raise OptionError(
            "CMC under single gallery shot counts the items of every gallery identity, and lists "
            "leave items out: choose another protocol (separate-camera ignores the same pairs as "
            "cuhk03), or evaluate the features"
        )
    named, _ = wanted_measures(options)
    drawn = [one.name for one in named if "sampled_shots" in one.metric.needs]
    if drawn:
        raise OptionError(f"{drawn[0]} can't be read off lists: leave it out")
    if source.reading == "never" and options.ties == "expected":
        raise OptionError(
            "ties expected has no meaning for what is never found: choose pessimistic, optimistic "
            "or stable"
        )


def list_sizes(source: Neighbors) -> ListSizes:
    """Return the sizes of lists that a plan depends on."""
    features = source.features
    index_bytes, train_rows, builds = 0, 0, False
    if source.path is not None:
        index_bytes = source.path.stat().st_size
    elif source.index is not None and features is not None and not source.is_flat:
        needs = needs_of(str(source.index), features.width, features.metric)
        rows, builds = features.shape[1], True
        train_rows = needs.train_rows(rows, source.train_rows)
        index_bytes = rows * needs.code_bytes
    return ListSizes(
        source.searched,
        source.lists is not None,
        source.is_flat,
        source.canonical,
        index_bytes,
        train_rows,
        builds,
    )


def resolve_options(
    options: MetricOptions, protocol: Protocol, refined: Sequence[Measure]
) -> MetricOptions:
    """Return the options with the protocol's reading of CMC, and with the refined metrics."""
    if options.cmc == DEFAULT_OPTIONS.cmc:
        options = replace(options, cmc=protocol.cmc)
    return with_named(options, refined)


def check_shots(options: MetricOptions, protocol: Protocol) -> None:
    """Check that the protocol draws where metrics need it, and that their ranks are counted then.

    Raises
    ------
    OptionError
    """
    named, listed = wanted_measures(options)
    if protocol.cmc == SINGLE_GALLERY_SHOT:
        for one in (*named, *listed):
            if one.metric.needs_under(options) & SHOT_FIELDS and one.values[0] > SHOT_RANKS:
                raise OptionError(
                    f"{one.name} under single gallery shot (protocol {protocol.name}): ranks up "
                    f"to {SHOT_RANKS} are counted; ask for {one.metric.measure(SHOT_RANKS).name} "
                    "at most, or choose a protocol of another CMC"
                )
        return
    drawn = [one.name for one in named if "sampled_shots" in one.metric.needs]
    if drawn or options.cmc == SINGLE_GALLERY_SHOT:
        raise OptionError(
            f"{drawn[0] if drawn else f'cmc={SINGLE_GALLERY_SHOT}'} needs a protocol that draws "
            f"one item of each gallery identity, and {protocol.name} does not: choose cuhk03 or "
            f"cuhk03-torchreid, or a Protocol with cmc={SINGLE_GALLERY_SHOT!r}"
        )


def query_columns(query: Labels) -> dict[str, AnyArray]:
    """Return the labels of the queries that are kept with a result: ``id``, ``cam``, and more."""
    return {"id": query.id, **({} if query.cam is None else {"cam": query.cam}), **query.more}


def gallery_fingerprints(gallery: Labels, listed: Pairs | None) -> dict[str, str]:
    """Return fingerprints of a gallery's labels, and of the pairs that are listed, if any are.

    Of labels only: they cost little beside `find_pairs`. Features or distances cost a read, and
    differ between the models that are compared, whether or not the images do.
    """
    columns = {"gallery ids": gallery.id, "gallery cams": gallery.cam}
    columns["listed pairs"] = None if listed is None else listed.item
    return {name: of_labels(column) for name, column in columns.items() if column is not None}


def cores() -> int:
    """Return how many cores the process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_range(wanted: RangeOption, source: Features | Distances | None) -> Range | None:
    """Return the range of the distances, or None where it must come from the data.

    Raises
    ------
    OptionError
        If the range is unknown, or not two ascending finite numbers.
    """
    if wanted == "minmax":
        return None
    if wanted == "auto":
        if source is None or isinstance(source, Distances) or source.metric == "dot":
            return None
        if source.metric == "cosine":
            return Range(0.0, 2.0)
        # Taken from the first queries; all others are checked while they are counted.
        _, norms = source.read_query(0, min(source.shape[0], 256))
        if np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
            return None
        return Range(0.0, 2.0 if source.metric == "euclidean" else 4.0, unit=True)
    if isinstance(wanted, str) or len(wanted) != 2:
        raise OptionError(f"range is {wanted!r}; expected auto, minmax, or two numbers LO,HI")
    low, high = (float(bound) for bound in wanted)
    if not (low < high and np.isfinite(high - low)):
        raise OptionError(f"range is {low},{high}; expected two finite numbers LO,HI with LO < HI")
    return Range(low, high, strict=True)


def parse_bytes(size: str | float, what: str = "memory") -> int:
    """Return a number of bytes from a number or a text such as "2GB", "500 MiB".

    Parameters
    ----------
    size : str or float
    what : str
        What messages call it.

    Raises
    ------
    OptionError
        If the text is no size, or not positive.
    """
    if isinstance(size, int | float):
        count = int(size)
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)[bB]?\s*", size)
        if match is None:
            raise OptionError(f"{what} is {size!r}; expected a size such as 2GB or 500MiB")
        number, prefix, binary = match.groups()
        base = 1024 if binary else 1000
        count = int(float(number) * base ** " KMGT".index(prefix.upper() or " "))
    if count <= 0:
        raise OptionError(f"{what} is {size!r}; a positive size is needed")
    return count


def check_rows(source: Source, query: Labels, gallery: Labels) -> None:
    """Check that there is a label a row and column of the source.

    Raises
    ------
    InputError
    """
    queries, items = source.shape
    if isinstance(source, Distances):
        where = source.matrix.uri
        if (len(query), len(gallery)) == (items, queries) and queries != items:
            raise InputError(
                f"{where} is {queries} × {items}, and there are {len(query)} query ids and "
                f"{len(gallery)} gallery ids: the matrix is transposed; store a row a query"
            )
        described = (
            f"distances {where} have {queries} rows",
            f"distances {where} have {items} columns",
        )
    elif isinstance(source, Neighbors) and source.lists is not None:
        where = source.stored.uri
        described = (
            f"neighbours {where} have {queries} rows",
            f"neighbours {where} are of {items} gallery items",
        )
        if source.features is not None and source.features.shape[0] != queries:
            raise InputError(
                f"{described[0]}, and the query features {source.features.query.uri} "
                f"{source.features.shape[0]}: a list a query is needed"
            )
    else:
        features = source.features if isinstance(source, Neighbors) else source
        if features is None:
            raise OptionError("neighbours without lists need features")
        described = (
            f"query features {features.query.uri} have {queries} rows",
            f"gallery features {features.gallery.uri} have {items} rows",
        )
    if len(query) != queries:
        raise InputError(
            f"{described[0]}, and {query.source} {len(query)} ids: one id a query is needed"
        )
    if len(gallery) != items:
        raise InputError(
            f"{described[1]}, and {gallery.source} {len(gallery)} ids: "
            "one id a gallery item is needed"
        )
    if queries == 0:
        raise InputError(f"{described[0]}: at least one query is needed")


def problem_of(source: Source, pairs: Pairs) -> Problem:
    """Return the sizes of an evaluation that reads no thresholds and no histogram."""
    queries, items = source.shape
    if isinstance(source, Neighbors):
        if source.features is None:
            return Problem(
                queries=queries,
                gallery=items,
                positives=int(np.count_nonzero(pairs.positive)),
                listed=len(pairs.item),
                thresholds=0,
                width=0,
                itemsize=8,
                stored_itemsize=8,
                scratch=source.stored.read_scratch_bytes,
                chunks=(1, 1),
                cameras=pairs.cameras,
            )
        source = source.features
    stored = source.gallery if isinstance(source, Features) else source.matrix
    return Problem(
        queries=queries,
        gallery=items,
        positives=int(np.count_nonzero(pairs.positive)),
        listed=len(pairs.item),
        thresholds=0,
        width=source.width if isinstance(source, Features) else 0,
        itemsize=source.dtype.itemsize,
        stored_itemsize=stored.dtype.itemsize,
        scratch=stored.read_scratch_bytes,
        chunks=(stored.chunks[0], stored.chunks[1]),
        converted=stored.dtype != source.dtype or isinstance(stored, MemoryArray),
        cameras=pairs.cameras,
    )


def _shot_sizes(pairs: Pairs, identities: Identities, needs: frozenset[str]) -> ShotSizes:
    indptr = pairs.positives()[0]

    def most_positives(queries: int) -> int:
        starts = np.arange(0, pairs.queries, queries)
        ends = np.minimum(starts + queries, pairs.queries)
        return int((indptr[ends] - indptr[starts]).max())

    rows = ROWS * int(np.diff(indptr).max(initial=0))
    entries = most_entries(identities.items, rows, hopeless_from(SHOT_RANKS))
    return ShotSizes(identities.count, entries, most_positives, len(needs & SHOT_FIELDS))


def reserved_bytes() -> int:
    """Return what the process holds, and will for its libraries, beside the evaluation."""
    used_before = count_features.signatures or count_stored.signatures
    libraries = USED_LIBRARY_BYTES if used_before else LIBRARY_BYTES
    return int(psutil.Process().memory_info().rss) + libraries
