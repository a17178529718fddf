"""evaluate(): a request from keywords, carried out in a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy.typing as npt

from streameval.choices import AveragePrecision, SelfMatch, TieRule, VerificationPrecision
from streameval.errors import entry_point
from streameval.metrics.options import MetricOptions
from streameval.planning.range import Range
from streameval.protocols.labels import Labels
from streameval.protocols.listed import ListedPairs
from streameval.protocols.protocol import Protocol
from streameval.request import Request
from streameval.result.evaluation import Evaluation
from streameval.run.orchestrator import run
from streameval.run.progress import Progress
from streameval.run.session import open_session
from streameval.source import Source

if TYPE_CHECKING:
    from distributed import Client


@entry_point
def evaluate(
    source: Source,
    *,
    query: Labels,
    gallery: Labels,
    protocol: str | Protocol | None = None,
    junk_ids: Sequence[int | str] | None = None,
    self_match: SelfMatch | None = None,
    shot_draws: int | None = None,
    shot_seed: int | None = None,
    listed: ListedPairs | None = None,
    range: Literal["auto", "minmax"] | Sequence[float] | Range | None = None,
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
    progress: Progress | bool | None = None,
) -> Evaluation:
    """Evaluate a ranking: every metric, exactly, without the distance matrix in memory.

    The counts are those of float64 distances, whatever the memory, threads, tiles or workers.

    Parameters
    ----------
    source : Features, Distances, Computed or Neighbors
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
    progress : Progress or bool, optional
        Receives the events. True shows a bar: below the cell in a notebook, on a terminal;
        elsewhere a line on stderr now and then.

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
    given = locals()
    request = Request.of(given)
    with open_session(given) as session:
        return run(request, session)
