"""evaluate(), evaluate_all(): requests from keywords, carried out in a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from streameval.choices import (
    AveragePrecision,
    RangeName,
    SelfMatch,
    TieRule,
    Unmatched,
    VerificationPrecision,
)
from streameval.errors import entry_point
from streameval.labels.columns import LabelsLike
from streameval.metrics.options import MetricOptions
from streameval.planning.range import Range
from streameval.protocols.listed import ListedPairs
from streameval.protocols.protocol import Protocol
from streameval.request import Request
from streameval.result.evaluation import Evaluation
from streameval.result.several import Evaluations
from streameval.run.orchestrator import run, run_all
from streameval.run.progress import Progress
from streameval.run.session import open_session
from streameval.source import Source

if TYPE_CHECKING:
    from distributed import Client


@entry_point
def evaluate(
    source: Source,
    *,
    query: LabelsLike,
    gallery: LabelsLike,
    protocol: str | Protocol | None = None,
    junk_ids: Sequence[int | str] | None = None,
    self_match: SelfMatch | None = None,
    shot_draws: int | None = None,
    shot_seed: int | None = None,
    trials: int | Literal["all"] | None = None,
    listed: ListedPairs | None = None,
    pairs: Mapping[str, Any] | None = None,
    range: RangeName | Sequence[float] | Range | None = None,
    ties: TieRule | None = None,
    ap: AveragePrecision | None = None,
    vp: VerificationPrecision | None = None,
    false_rate_budget: int | None = None,
    unmatched: Unmatched | None = None,
    average: str | None = None,
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
    progress: Progress | bool | None = None,
) -> Evaluation:
    """Evaluate a ranking exactly, without the distance matrix in memory.

    The counts equal those of float64 distances, for any memory, threads, tiles or workers.

    Parameters
    ----------
    source : Features, Expanded, MultiQuery, Reranked, Distances, Computed or Neighbors
        Distances of Q queries and G gallery items.
    query, gallery : Labels, mapping or table
        Labels of the Q queries and the G items: `Labels`, a mapping such as
        ``{"id": ..., "cam": ...}``, or a table with the Arrow C interface (pandas, polars,
        PyArrow) and these columns. Further columns of integers or strings are further labels.
    protocol : str or Protocol, optional
        Which pairs are ignored, and how CMC counts: a key of `PROTOCOLS` (``market1501`` by
        default), or your own, for example from `read_protocol`.
    junk_ids : sequence of int or str, optional
        Gallery identities to ignore. They replace those of the protocol (−1).
    self_match : {None, "index", "key"}
        Ignore each query's own image in the gallery.
    shot_draws, shot_seed : int, optional
        Number and seed of the draws of ``CMC_sampled@x`` under single gallery shot (protocols
        ``cuhk03`` and ``cuhk03-torchreid``). They replace those of the protocol (10 and 0). Each
        draw takes one item of each gallery identity for each query.
    trials : int or "all", optional
        How many galleries a protocol with ``trials`` draws. With ``"all"``, metrics are exact
        expectations over all draws, see `MetricOptions.over_draws`; other numbers of trials need
        `evaluate_all`.
    listed : ListedPairs, optional
        Positive and ignored pairs, which replace identities and cameras: from
        `read_listed_pairs` or `ListedPairs.of`. The protocol is then ``listed``.
    pairs : mapping of str to PairList, table or Q rows of gallery indices, optional
        Lists of pairs that the protocol's rules name as ``pair.NAME``: from `read_pairs`, or a
        table or mapping with columns ``query`` and ``item`` of row numbers from 0 and, optionally,
        ``value``.
    range : {"auto", "minmax", "minmax-all"} or (float, float), optional
        The distances of GOM's τ = 0 and τ = 1. ``auto`` uses the bounds of the distance ([0, 2]
        for cosine; for unit vectors [0, 2] for euclidean and [0, 4] for sqeuclidean) and, without
        such bounds, ``minmax``. ``minmax`` uses the smallest and largest distance of all pairs
        that are not ignored, ``minmax-all`` of all pairs; both take one more pass.
    ties, ap, vp : str, optional
        Rules for ties, average precision and verification precision: see `MetricOptions`.
    false_rate_budget : int, optional
        See `MetricOptions`.
    unmatched : {"exclude", "miss", "error"}, optional
        What a query without a positive is to means over Q+: left out, a miss that counts as 0,
        or an error. By default what the protocol says, mostly ``exclude``.
    average : str, optional
        A label column of the queries, such as ``id``: means over queries are means over groups of
        the groups' means, see `MetricOptions`.
    metrics : str or sequence of str, optional
        Names of the metrics to compute, or one string ``"CMC@1,mAP"``: see `MetricOptions`.
    preset : str, optional
        A key of `PRESETS`: the conventions of another tool. Other arguments override them.
    group_by : str or [Q] array_like, optional
        Also compute the metrics of groups of queries: by ``id``, ``cam``, another column of the
        queries, or one label per query. ``cam-pair`` groups by the cameras of query and positive,
        see `Evaluation.camera_matrix`.
    refine : str or sequence of str
        Names of metrics at one threshold of the impostor histogram, ``"TAR|FAR=0.001"``, to make
        exact by further passes (mostly one).
    options : MetricOptions, optional
        All metric options. The arguments above of these names, and a preset, override it.
    memory : str or int, optional
        Memory to take beyond what the process, or each worker of a cluster, holds when it is
        called: bytes, or a string such as "2GB" or "500MiB"; at least 200 MB. By default half of
        the free memory, which the workers of a machine share; 8 GB at most.
    threads : int, optional
        Worker threads; as many as the process may use.
    tile : (int, int), optional
        Query rows and gallery items of a GEMM tile; the result does not depend on it.
    client : distributed.Client, optional
        Client of a Dask cluster that runs the evaluation instead of threads of this process. The
        workers open the inputs by their paths; arrays in memory of up to 100 MB are sent to them.
    checkpoint : str or Path, optional
        New folder where finished work is kept, every few seconds, until the evaluation is done.
    resume : bool
        Whether to continue from the checkpoint, if there is one of the same inputs and options.
        Memory, threads and workers may differ. If the plan of the unfinished work does not fit
        them, a warning says what is counted again.
    progress : Progress or bool, optional
        Receives progress events. True shows a progress bar in a notebook or terminal, and
        prints a line on stderr now and then elsewhere.

    Returns
    -------
    Evaluation
        ``result["mAP"]`` is a metric: a fraction in [0, 1], or NaN if undefined.
        ``result.curves``, ``result.per_query`` and ``result.counts`` contain the rest.

    Raises
    ------
    InputError
        If the inputs don't fit together or contain invalid values.
    OptionError
        If an option is unknown or does not fit the inputs.
    BudgetError
        If the memory budget is too small; nothing has been read then.
    OutputError
        If the checkpoint belongs to another evaluation, or can't be written.
    TaskError
        If a task fails repeatedly, or the cluster is lost.
    """
    given = locals()
    request = Request.of(given)
    with open_session(given) as session:
        return run(request, session)


@entry_point
def evaluate_all(
    source: Source,
    *,
    query: LabelsLike,
    gallery: LabelsLike,
    protocols: Sequence[str | Protocol],
    drawn: Sequence[npt.ArrayLike] | None = None,
    trials: int | Literal["all"] | None = None,
    pairs: Mapping[str, Any] | None = None,
    metrics: str | Sequence[str] | None = None,
    range: RangeName | Sequence[float] | Range | None = None,
    group_by: str | npt.ArrayLike | None = None,
    refine: str | Sequence[str] = (),
    options: MetricOptions | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    tile: tuple[int, int] | None = None,
    client: Client | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: Progress | bool | None = None,
) -> Evaluations:
    """Evaluate a ranking under several protocols in one pass over the data.

    Each result equals that of `evaluate`. Protocols that draw trials, or that have several
    galleries, make an evaluation of each.

    Parameters
    ----------
    source, query, gallery
        As of `evaluate`.
    protocols : sequence of str or Protocol
        Keys of `PROTOCOLS`, or your own. Their names must differ.
    drawn : sequence of [n] array_like of int, optional
        The rows of each trial, counted from 0, in place of those that the protocols draw: a list
        of arrays or an array [times, n], or what `read_drawn` returns. They are rows of the
        gallery, or of the queries where the protocol draws these. All protocols need ``trials``.
    trials, pairs, metrics, range, group_by, refine, options, memory, threads, tile, client, \
checkpoint, resume, progress
        As of `evaluate`. They apply to all protocols.

    Returns
    -------
    Evaluations
        A mapping from the names of the protocols to an `Evaluation` each; to an `Average` where
        there are trials or galleries.

    Raises
    ------
    InputError, OptionError, BudgetError, OutputError, TaskError
        As `evaluate`. Also OptionError if two protocols have the same name, and InputError if a
        trial that is given has no rows, has a row twice, or has one that is not there.
    """
    given = locals()
    requests = Request.several(given, protocols)
    with open_session(given) as session:
        return run_all(requests, session)
