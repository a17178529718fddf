"""evaluate(): inputs, protocol, plan, passes and metrics put together."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import psutil

from streameval.counting.features import count_features
from streameval.counting.stored import count_stored
from streameval.counting.thresholds import threshold_distances
from streameval.errors import InputError, OptionError, StreamevalWarning
from streameval.execution.job import UNIT_TOLERANCE, Job, NotUnitError, Range
from streameval.execution.passes import count_all, find_extremes, find_positives
from streameval.execution.progress import Progress, Watch
from streameval.execution.threads import ThreadExecutor
from streameval.inputs.sources import BadRowError, Distances, Features
from streameval.metrics import MetricOptions
from streameval.metrics.options import AveragePrecision, TieRule, VerificationPrecision
from streameval.pairs import Pairs, find_pairs
from streameval.planning import RESERVED, Plan, Problem, make_plan
from streameval.protocol import AnyArray, Labels, Protocol, with_options
from streameval.result import Evaluation
from streameval.statistics import FloatArray, RankStatistics

RangeOption = Literal["auto", "minmax"] | tuple[float, float]

LIBRARY_BYTES = 160 << 20  # kernels, compiled or loaded, codecs, allocators
USED_LIBRARY_BYTES = 48 << 20  # what these may still take where they have been used before
DEFAULT_MEMORY = "2GB"
THRESHOLDS = 101


def evaluate(
    source: Features | Distances,
    *,
    query: Labels,
    gallery: Labels,
    protocol: str | Protocol = "market1501",
    junk_ids: Sequence[int | str] | None = None,
    self_match: Literal["index", "key"] | None = None,
    range: RangeOption = "auto",
    ties: TieRule | None = None,
    ap: AveragePrecision | None = None,
    vp: VerificationPrecision | None = None,
    false_rate_budget: int | None = None,
    options: MetricOptions | None = None,
    memory: str | int = DEFAULT_MEMORY,
    threads: int | None = None,
    tile: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a ranking: every metric, exactly, without the distance matrix in memory.

    Parameters
    ----------
    source : Features or Distances
        Of Q queries and G gallery items.
    query, gallery : Labels
        Of the same Q and G items.
    protocol : str or Protocol
        Which pairs are ignored: ``market1501``, ``separate-camera``, ``no-camera``.
    junk_ids : sequence of int or str, optional
        Gallery identities to ignore, in place of the protocol's own (−1).
    self_match : {"index", "key"}, optional
        Ignore each query's own image in the gallery.
    range : {"auto", "minmax"} or (float, float)
        What τ = 0 and τ = 1 of GOM stand for. ``auto``: the metric's own bounds ([0, 2] of
        cosine, and of euclidean on unit vectors), else ``minmax``: the least and greatest
        distance of all non-ignored pairs, which costs one more pass.
    ties, ap, vp, false_rate_budget
        See `MetricOptions`.
    options : MetricOptions, optional
        All metric options; the four above, where given, go before it.
    memory : str or int
        Budget for the whole process: bytes, or a text such as "2GB", "500MiB".
    threads : int, optional
        Worker threads; as many as the process may use.
    tile : (int, int), optional
        Query rows and gallery items of a GEMM tile; the result does not depend on it.
    progress : Progress, optional
        Receives the events.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        If the inputs don't fit together or hold what can't be evaluated.
    OptionError
        If an option is unknown or does not fit the inputs.
    BudgetError
        If the memory budget is too small; nothing has been read then.
    """
    given = {"ties": ties, "ap": ap, "vp": vp, "false_rate_budget": false_rate_budget}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options = replace(options or MetricOptions(), **chosen)
    prepared = prepare(
        source,
        query=query,
        gallery=gallery,
        protocol=protocol,
        junk_ids=junk_ids,
        self_match=self_match,
        range=range,
        memory=memory,
        threads=threads,
        tile=tile,
    )
    return run(prepared, options, progress)


def run(prepared: Prepared, options: MetricOptions, progress: Progress | None = None) -> Evaluation:
    """Run what `prepare` has prepared; the gallery's labels are not needed any more.

    Raises
    ------
    InputError
        If the inputs hold what can't be evaluated.
    """
    begin = time.perf_counter()
    progress = progress or Progress()
    try:
        statistics = _count(prepared, Watch(progress))
    except NotUnitError:  # the range must come from the data after all
        prepared = prepared.with_range_from_data()
        statistics = _count(prepared, Watch(progress))
    except BadRowError as error:  # a pass may meet a later one first
        prepared.source.first_bad_row(error.row)
        raise
    return Evaluation.compute(
        statistics,
        options,
        range=prepared.range_summary(),
        query_id=prepared.query_id,
        provenance=_provenance(prepared, time.perf_counter() - begin),
    )


@dataclass
class Prepared:
    """An evaluation that is checked and planned, before anything large is read.

    Attributes
    ----------
    source : Features or Distances
    pairs : Pairs
    protocol : Protocol
    problem : Problem
    plan : Plan
    range : Range or None
        None: to be found in a pass over the data.
    query_id : [Q] array
        Identities of the queries, for the per-query table.
    """

    source: Features | Distances
    pairs: Pairs
    protocol: Protocol
    problem: Problem
    plan: Plan
    range: Range | None
    query_id: AnyArray
    found: Range | None = field(default=None)

    def with_range_from_data(self) -> Prepared:
        """Return the same evaluation, cut in the same way, with ``range="minmax"``."""
        problem = replace(self.problem, passes_for_range=1)
        plan = make_plan(
            problem,
            memory=self.plan.memory,
            threads=self.plan.threads,
            reserved=self.plan.parts[RESERVED],
            tile=self.plan.tile,
        )
        return replace(self, problem=problem, plan=plan, range=None)

    def range_summary(self) -> dict[str, Any]:
        """Return the range used, for the summary."""
        used = self.found or self.range
        if used is None:
            raise RuntimeError("the range is not known before the evaluation has run")
        mode = "minmax" if self.range is None else "given" if used.strict else "auto"
        return {"mode": mode, "low": used.low, "high": used.high}


def prepare(
    source: Features | Distances,
    *,
    query: Labels,
    gallery: Labels,
    protocol: str | Protocol = "market1501",
    junk_ids: Sequence[int | str] | None = None,
    self_match: Literal["index", "key"] | None = None,
    range: RangeOption = "auto",
    memory: str | int = DEFAULT_MEMORY,
    threads: int | None = None,
    tile: tuple[int, int] | None = None,
) -> Prepared:
    """Check the inputs and plan the work; the parameters are those of `evaluate`.

    Raises
    ------
    InputError, OptionError, BudgetError
        As `evaluate` does.
    """
    for side, labels in (("query", query), ("gallery", gallery)):
        if not isinstance(labels, Labels):
            raise InputError(
                f"{side} is of type {type(labels).__name__}; Labels are needed: "
                f"{side}=Labels(id=..., cam=...)"
            )
    _check_rows(source, query, gallery)
    junk = None if junk_ids is None else tuple(junk_ids)
    protocol = with_options(protocol, junk_ids=junk, self_match=self_match)
    threads = _cores() if threads is None else threads
    if not isinstance(threads, int) or threads < 1:
        raise OptionError(f"threads is {threads!r}; a whole number of at least 1 is needed")
    if tile is not None and not (len(tile) == 2 and all(size >= 1 for size in tile)):
        raise OptionError(f"tile is {tile!r}; two sizes of at least 1 are needed")
    wanted = resolve_range(range, source)
    pairs = find_pairs(query, gallery, protocol)
    problem = _problem(source, pairs, passes_for_range=int(wanted is None))
    plan = make_plan(
        problem,
        memory=parse_bytes(memory),
        threads=threads,
        reserved=reserved_bytes(),
        tile=tile,
    )
    return Prepared(source, pairs, protocol, problem, plan, wanted, query.id)


def _cores() -> int:
    """Return how many cores the process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_range(wanted: RangeOption, source: Features | Distances) -> Range | None:
    """Return the range of the distances, or None where it must come from the data.

    Raises
    ------
    OptionError
        If the range is unknown, or not two ascending finite numbers.
    """
    if wanted == "minmax":
        return None
    if wanted == "auto":
        if isinstance(source, Distances) or source.metric == "dot":
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


def parse_bytes(size: str | float) -> int:
    """Return a number of bytes from a number or a text such as "2GB", "500 MiB".

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
            raise OptionError(f"memory is {size!r}; expected a size such as 2GB or 500MiB")
        number, prefix, binary = match.groups()
        base = 1024 if binary else 1000
        count = int(float(number) * base ** " KMGT".index(prefix.upper() or " "))
    if count <= 0:
        raise OptionError(f"memory is {size!r}; a positive size is needed")
    return count


def _check_rows(source: Features | Distances, query: Labels, gallery: Labels) -> None:
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
    else:
        described = (
            f"query features {source.query.uri} have {queries} rows",
            f"gallery features {source.gallery.uri} have {items} rows",
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


def _problem(source: Features | Distances, pairs: Pairs, *, passes_for_range: int) -> Problem:
    stored = source.gallery if isinstance(source, Features) else source.matrix
    return Problem(
        queries=source.shape[0],
        gallery=source.shape[1],
        positives=int(np.count_nonzero(pairs.positive)),
        listed=len(pairs.item),
        thresholds=THRESHOLDS,
        width=source.width if isinstance(source, Features) else 0,
        itemsize=source.dtype.itemsize,
        stored_itemsize=stored.dtype.itemsize,
        scratch=stored.read_scratch_bytes,
        chunks=(stored.chunks[0], stored.chunks[1]),
        cameras=pairs.cameras,
        passes_for_range=passes_for_range,
    )


def reserved_bytes() -> int:
    """Return what the process holds, and will for its libraries, beside the evaluation."""
    used_before = count_features.signatures or count_stored.signatures
    libraries = USED_LIBRARY_BYTES if used_before else LIBRARY_BYTES
    return int(psutil.Process().memory_info().rss) + libraries


def _count(prepared: Prepared, watch: Watch) -> RankStatistics:
    executor = ThreadExecutor(prepared.plan.threads)
    nothing: FloatArray = np.empty(0)
    used = prepared.range
    if used is None:
        job = Job(prepared.source, prepared.pairs, prepared.plan, Range(0, 1), nothing)
        low, high = find_extremes(job, executor, watch)
        if low > high:
            warnings.warn(
                "every pair is ignored: there is no distance to take a range from",
                StreamevalWarning,
                stacklevel=3,
            )
            low, high = 0.0, 1.0
        if not np.isfinite(high - low):
            raise InputError(
                f"distances from {low!r} to {high!r} have no finite range: scale them down"
            )
        used = prepared.found = Range(low, high)
    thresholds = threshold_distances(used.low, used.high, clipped=used.unit)
    job = Job(prepared.source, prepared.pairs, prepared.plan, used, thresholds)
    return count_all(find_positives(job, executor, watch), executor, watch)


def _provenance(prepared: Prepared, seconds: float) -> dict[str, Any]:
    source, plan = prepared.source, prepared.plan
    if isinstance(source, Features):
        inputs = {
            "query": source.query.uri,
            "gallery": source.gallery.uri,
            "metric": source.metric,
            "width": source.width,
        }
    else:
        inputs = {"distances": source.matrix.uri}
    protocol = prepared.protocol
    return {
        "inputs": inputs,
        "protocol": {
            "name": protocol.name,
            "junk_ids": list(protocol.junk_ids),
            "self_match": protocol.self_match,
            "cmc": protocol.cmc,
        },
        "plan": {
            "layout": plan.layout,
            "tasks": len(plan.tasks),
            "tile": list(plan.tile),
            "threads": plan.threads,
            "memory": plan.memory,
            "projected_peak": plan.peak,
        },
        "gallery": source.shape[1],
        "seconds": round(seconds, 3),
    }
