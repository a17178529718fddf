"""evaluate(): inputs, protocol, plan, passes and metrics put together.

`running` is the second half: the passes of what is prepared, and the metrics of what they count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from streameval.errors import OptionError, check_path, check_type
from streameval.metrics import MetricOptions
from streameval.metrics.options import (
    DEFAULT_OPTIONS,
    AveragePrecision,
    TieRule,
    VerificationPrecision,
)
from streameval.metrics.selection import names_of, wanted_measures
from streameval.neighbors.source import Source
from streameval.planning import Workers
from streameval.protocols.listed import ListedPairs
from streameval.protocols.presets import Preset, find_preset, pair_options
from streameval.protocols.protocol import CAMERA_PAIRS, Labels, Protocol
from streameval.result import Evaluation
from streameval.result.columns import check_camera_pairs, check_group_column, group_labels
from streameval.run.checkpoint import Checkpoint
from streameval.run.cluster import ClusterExecutor
from streameval.run.connection import Connection, open_cluster
from streameval.run.manifest import manifest
from streameval.run.orchestrator import run
from streameval.run.preparation import (
    DEFAULT_MEMORY,
    Prepared,
    RangeOption,
    check_labels,
    check_source,
    parse_bytes,
    prepare,
)
from streameval.run.progress import Progress, check_progress
from streameval.run.worker import check_sent
from streameval.statistics import FIELDS
from streameval.store import check_packages

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "COUNTED",
    "budget",
    "check_counted",
    "check_groups",
    "cluster_workers",
    "evaluate",
    "metric_options",
    "recorded",
    "run",
]

COUNTED = frozenset(FIELDS)
"""The fields of `RankStatistics` that an evaluation counts."""


def evaluate(
    source: Source,
    *,
    query: Labels,
    gallery: Labels,
    protocol: str | Protocol | None = None,
    junk_ids: Sequence[int | str] | None = None,
    self_match: Literal["index", "key"] | None = None,
    shot_draws: int | None = None,
    shot_seed: int | None = None,
    listed: ListedPairs | None = None,
    range: RangeOption | None = None,
    ties: TieRule | None = None,
    ap: AveragePrecision | None = None,
    vp: VerificationPrecision | None = None,
    false_rate_budget: int | None = None,
    metrics: str | Sequence[str] | None = None,
    preset: str | None = None,
    group_by: str | npt.ArrayLike | None = None,
    refine: str | Sequence[str] = (),
    options: MetricOptions | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    tile: tuple[int, int] | None = None,
    client: Client | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a ranking: every metric, exactly, without the distance matrix in memory.

    The counts are those of float64 distances, whatever the memory, threads, tiles or workers.

    Parameters
    ----------
    source : Features, Distances or Neighbors
        Of Q queries and G gallery items.
    query, gallery : Labels
        Of the same Q and G items.
    protocol : str or Protocol, optional
        Which pairs are ignored, and how CMC is read: a key of `PROTOCOLS`, ``market1501``; or
        one of your own, as from `read_protocol`.
    junk_ids : sequence of int or str, optional
        Gallery identities to ignore, in place of the protocol's own (−1).
    self_match : {None, "index", "key"}
        Ignore each query's own image in the gallery.
    shot_draws, shot_seed : int, optional
        Of ``CMC_sampled@x`` under single gallery shot (protocols ``cuhk03`` and
        ``cuhk03-torchreid``), in place of the protocol's own 10 and 0: how often one item of
        each gallery identity is drawn for each query, and from what seed.
    listed : ListedPairs, optional
        Which pairs are positive and which are ignored, in place of identities and cameras: from
        `read_listed_pairs`, or `ListedPairs.of`. The protocol is ``listed`` then.
    range : {"auto", "minmax"} or (float, float), optional
        What τ = 0 and τ = 1 of GOM stand for: two distances; or ``auto``, the metric's own
        bounds ([0, 2] of cosine; on unit vectors [0, 2] of euclidean and [0, 4] of sqeuclidean),
        else ``minmax``, the least and greatest distance of all non-ignored pairs, which costs one
        more pass.
    ties, ap, vp : str, optional
        Rules of ties, of average precision and of verification precision: see `MetricOptions`.
    false_rate_budget : int, optional
        See `MetricOptions`.
    metrics : str or sequence of str, optional
        Names of the metrics to compute, or one text, ``"CMC@1,mAP"``: see `MetricOptions`.
    preset : str, optional
        A key of `PRESETS`: the conventions of another tool, as far as no other argument says
        otherwise.
    group_by : str or [Q] array_like, optional
        ``id``, ``cam``, one of the queries' further labels, or a label a query: the metrics of
        each group, too. ``cam-pair``: of each pair of a query's camera and a positive's, see
        `metrics_by_camera_pair`.
    refine : str or sequence of str
        Names of metrics that are read off the histogram of impostors at one threshold,
        ``"TAR|FAR=0.001"``: further passes, mostly one, make these exact.
    options : MetricOptions, optional
        All metric options; the five above, where given, go before it, and a preset's too.
    memory : str or int, optional
        Budget for the whole process, or for each worker of a cluster: bytes, or a text such as
        "2GB", "500MiB". 2 GB by default; of a worker, what it has.
    threads : int, optional
        Worker threads; as many as the process may use.
    tile : (int, int), optional
        Query rows and gallery items of a GEMM tile; the result does not depend on it.
    client : distributed.Client, optional
        Of a Dask cluster whose workers do the work, in place of threads of this process. They
        open the inputs by their paths; arrays in memory are sent to them up to 100 MB.
    checkpoint : str or Path, optional
        A folder to be made, where finished work is kept every few seconds until all is done.
    resume : bool
        Whether to go on with the work that is kept there, if there is any: of the same inputs,
        options and budget.
    progress : Progress, optional
        Receives the events.

    Returns
    -------
    Evaluation
        ``result["mAP"]`` is a metric, a fraction in [0, 1], NaN where undefined;
        ``result.curves``, ``result.per_query`` and ``result.counts`` hold the rest.

    Raises
    ------
    InputError
        If the inputs don't fit together or hold what can't be evaluated.
    OptionError
        If an option is unknown or does not fit the inputs.
    BudgetError
        If the memory budget is too small; nothing has been read then.
    OutputError
        If the folder of finished work is of another evaluation, or can't be written.
    TaskError
        If a task fails again and again, or the cluster is gone.
    """
    check_source(source)
    check_labels(query=query, gallery=gallery)
    check_type("listed", listed, ListedPairs | None, "ListedPairs are needed")
    check_progress(progress)
    if checkpoint is not None:
        check_path(checkpoint, "checkpoint")
    if resume and checkpoint is None:
        raise OptionError(
            "resume goes on with the work kept in a checkpoint: give its folder, checkpoint=..."
        )
    if metrics is not None:
        metrics = names_of(metrics, "metrics")
    refine = names_of(refine, "refine")
    given = {
        "ties": ties,
        "ap": ap,
        "vp": vp,
        "false_rate_budget": false_rate_budget,
        "metrics": metrics,
    }
    tool = None if preset is None else find_preset(preset)
    options = metric_options(given, tool, options or MetricOptions())
    check_counted(options)
    with open_cluster(client=client, threads=threads, memory=budget(memory)) as connection:
        prepared = prepare(
            source,
            query=query,
            gallery=gallery,
            **pair_options(tool, protocol=protocol, junk_ids=junk_ids, range=range, listed=listed),
            self_match=self_match,
            shot_draws=shot_draws,
            shot_seed=shot_seed,
            options=options,
            refine=refine,
            group_by=group_by,
            memory=budget(memory),
            threads=threads,
            tile=tile,
            workers=cluster_workers(connection, source, memory),
        )
        if group_by is not None:
            check_groups(group_by, prepared)
        executor = None if connection is None else ClusterExecutor(connection)
        if checkpoint is None:
            result = run(prepared, options, progress, executor=executor)
        else:
            check_packages()
            with Checkpoint(Path(checkpoint), resume=resume) as record:
                prepared = recorded(prepared, options, record)
                result = run(prepared, options, progress, executor=executor, record=record)
                record.remove()
    return result if group_by is None else result.grouped(group_by)


def recorded(prepared: Prepared, options: MetricOptions, record: Checkpoint) -> Prepared:
    """Return what is prepared with the plan of a record, so that it goes on with its work.

    Raises
    ------
    OutputError
        If the record is of another evaluation, or its plan does not do here.
    """
    return replace(prepared, plan=record.start(manifest(prepared, options), prepared.plan))


def budget(memory: str | int | None) -> int:
    """Return the budget of a process in bytes: 2 GB where none is given.

    Raises
    ------
    OptionError
        If it is no size.
    """
    return parse_bytes(DEFAULT_MEMORY if memory is None else memory)


def cluster_workers(
    connection: Connection | None, source: Source, memory: str | int | None
) -> Workers | None:
    """Return the workers that the work is planned for, of a cluster that can open the inputs.

    Raises
    ------
    InputError
        If arrays in memory are too large to be sent.
    TaskError
        If there are no workers.
    """
    if connection is None:
        return None
    check_sent(source)
    return connection.workers(None if memory is None else parse_bytes(memory))


def metric_options(
    given: Mapping[str, Any], preset: Preset | None, options: MetricOptions = DEFAULT_OPTIONS
) -> MetricOptions:
    """Return the options under a preset, and under what is given (not None) before that.

    Raises
    ------
    OptionError
        If a value can't be.
    """
    chosen: dict[str, Any] = {}
    if preset is not None:
        chosen |= {**preset.options, "metrics": preset.metrics}
    chosen |= {name: value for name, value in given.items() if value is not None}
    check_type("options", options, MetricOptions, "MetricOptions(...) is needed")
    return replace(options, **chosen)


def check_counted(options: MetricOptions) -> None:
    """Check, before any work, that the metrics exist and an evaluation counts what they need.

    Raises
    ------
    OptionError
    """
    named, _ = wanted_measures(options)
    for measure in named:
        missing = sorted(set(measure.metric.needs) - COUNTED)
        if missing:
            raise OptionError(
                f"{measure.name} needs {', '.join(missing)}, which no evaluation counts yet: "
                "leave it out, or add the field to statistics of your own"
            )


def check_groups(group_by: str | npt.ArrayLike, prepared: Prepared) -> None:
    """Check, before any work, that there is one label of a group a query.

    Raises
    ------
    InputError
    """
    if isinstance(group_by, str) and group_by == CAMERA_PAIRS:
        check_camera_pairs(prepared.query_columns, prepared.positive_cams)
    elif isinstance(group_by, str):
        check_group_column(group_by, prepared.query_columns)
    else:
        group_labels(group_by, prepared.source.shape[0])
