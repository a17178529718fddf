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

from streameval.counting.thresholds import threshold_distances
from streameval.errors import InputError, OptionError, StreamevalWarning
from streameval.execution.job import UNIT_TOLERANCE, Job, NotUnitError, Range
from streameval.execution.passes import count_all, find_extremes, find_positives
from streameval.execution.progress import Progress, Watch
from streameval.execution.threads import ThreadExecutor
from streameval.inputs.sources import Distances, Features
from streameval.metrics import MetricOptions
from streameval.metrics.options import AveragePrecision, TieRule, VerificationPrecision
from streameval.pairs import Pairs, find_pairs
from streameval.planning import Plan, Problem, make_plan
from streameval.protocol import Labels, Protocol, named_protocol
from streameval.result import Evaluation
from streameval.statistics import FloatArray, RankStatistics

RangeOption = Literal["auto", "minmax"] | tuple[float, float]

LIBRARY_BYTES = 200 << 20  # kernels, codecs and allocators, once they have been used
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
    ties: TieRule = "pessimistic",
    ap: AveragePrecision = "step",
    vp: VerificationPrecision = "reference",
    false_rate_budget: int = 3000,
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
        All metric options at once, in place of the four above.
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
    begin = time.perf_counter()
    options = options or MetricOptions(ties=ties, ap=ap, vp=vp, false_rate_budget=false_rate_budget)
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
    progress = progress or Progress()
    try:
        statistics = _run(prepared, Watch(progress))
    except NotUnitError:  # the range must come from the data after all
        prepared = prepared.with_range_from_data()
        statistics = _run(prepared, Watch(progress))
    return Evaluation.compute(
        statistics,
        options,
        range=prepared.range_summary(),
        query_id=query.id,
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
    plan : Plan
    range : Range or None
        None: to be found in a pass over the data.
    """

    source: Features | Distances
    pairs: Pairs
    protocol: Protocol
    plan: Plan
    range: Range | None
    found: Range | None = field(default=None)

    def with_range_from_data(self) -> Prepared:
        """Return the same evaluation with ``range="minmax"``."""
        plan = _plan(
            self.source, self.pairs, self.plan.memory, self.plan.threads, None, minmax=True
        )
        return replace(self, plan=replace(plan, tile=self.plan.tile), range=None)

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
    _check_rows(source, query, gallery)
    if isinstance(protocol, str):
        junk = None if junk_ids is None else tuple(junk_ids)
        protocol = named_protocol(protocol, junk_ids=junk, self_match=self_match)
    threads = len(os.sched_getaffinity(0)) if threads is None else threads
    if threads < 1:
        raise OptionError(f"threads is {threads}; at least 1 is needed")
    wanted = resolve_range(range, source)
    pairs = find_pairs(query, gallery, protocol)
    plan = _plan(source, pairs, parse_bytes(memory), threads, tile, minmax=wanted is None)
    return Prepared(source, pairs, protocol, plan, wanted)


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
        _, norms = source.read_query(0, source.shape[0])
        if np.any(np.abs(norms - 1) > UNIT_TOLERANCE):
            return None
        return Range(0.0, 2.0 if source.metric == "euclidean" else 4.0, unit=True)
    if isinstance(wanted, str):
        raise OptionError(f"range is {wanted!r}; expected auto, minmax, or two numbers LO,HI")
    low, high = (float(bound) for bound in wanted)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise OptionError(f"range is {low},{high}; expected two finite numbers LO,HI with LO < HI")
    return Range(low, high, strict=True)


def parse_bytes(size: str | int) -> int:
    """Return a number of bytes from a number or a text such as "2GB", "500 MiB".

    Raises
    ------
    OptionError
        If the text is no size, or not positive.
    """
    if isinstance(size, int):
        count = size
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
        described = (f"distances {where} have {queries} rows", f"{items} columns")
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


def _plan(
    source: Features | Distances,
    pairs: Pairs,
    memory: int,
    threads: int,
    tile: tuple[int, int] | None,
    *,
    minmax: bool,
) -> Plan:
    stored = source.gallery if isinstance(source, Features) else source.matrix
    arrays = [source.query, source.gallery] if isinstance(source, Features) else [source.matrix]
    problem = Problem(
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
        passes_for_range=int(minmax),
    )
    reserved = reserved_bytes() + sum(array.resident_bytes for array in arrays)
    return make_plan(problem, memory=memory, threads=threads, reserved=reserved, tile=tile)


def reserved_bytes() -> int:
    """Return what the process holds, and will for its libraries, beside the evaluation."""
    return int(psutil.Process().memory_info().rss) + LIBRARY_BYTES


def _run(prepared: Prepared, watch: Watch) -> RankStatistics:
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
