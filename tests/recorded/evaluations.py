"""Fixed evaluations of every kind of source, protocol, tie rule, grouping and ledger history.

A case is a function that takes an empty folder and returns an evaluation. All data are drawn from
fixed seeds, as multiples of 1/8 or as uniform float64 values, so that no library rounds an input.
Only names that `streameval` exports are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import streameval as se

Case = Callable[[Path], se.Evaluation]

RUN_OPTIONS: dict[str, Any] = {}
"""Additional arguments of every evaluation, such as ``threads=1``; no result depends on them."""

TILE: dict[str, tuple[int, int]] = {}
"""``tile=`` for every evaluation of features."""

CASES: dict[str, Case] = {}

CUTOFFS = (
    "CMC@1,CMC@3,mAP@5/hits,mAP@10/min,mAP@3/total,P@1,P@7,P@5/min,recall@4,R-precision,MAP@R,"
    "nDCG@10,MRR,mP@recall=0.3"
)
OPEN_SET = "DIR@1|FAR=0.1,DIR@5|FAR=0.2,FNIR@1|FPIR=0.1,DIR_AUC@1,TTR/set|FTR=0.1"
VERIFICATION = "TAR|FAR=0.01,FNMR|FMR=0.1,EER,AUC,F1_best,F1_max/micro,precision/macro@tau=0.3"


def case(name: str) -> Callable[[Case], Case]:
    """Register a case under a name."""

    def register(function: Case) -> Case:
        assert name not in CASES
        CASES[name] = function
        return function

    return register


def register(name: str, function: Case) -> None:
    """Register a case without a decorator."""
    case(name)(function)


def evaluate(source: Any, **options: Any) -> se.Evaluation:
    """Call `streameval.evaluate` with `RUN_OPTIONS` and `TILE` added."""
    tile = TILE if isinstance(source, se.Features) else {}
    return se.evaluate(source, **{**options, **RUN_OPTIONS, **tile})


@dataclass(frozen=True)
class Scene:
    """Features and labels of queries and a gallery, with queries of every class.

    Attributes
    ----------
    query, gallery : [Q, D], [G, D] float64
    labels : dict of str to Labels
        ``query`` and ``gallery``, as `evaluate` takes them.
    """

    query: np.ndarray
    gallery: np.ndarray
    labels: dict[str, se.Labels] = field(default_factory=dict)

    @property
    def distances(self) -> np.ndarray:
        """Squared distances, [Q, G] float64, exact where features are multiples of 1/8."""
        distances: np.ndarray = ((self.query[:, None] - self.gallery[None]) ** 2).sum(axis=2)
        return distances


def scene(
    seed: int,
    queries: int = 40,
    gallery: int = 240,
    width: int = 12,
    people: int = 16,
    *,
    whole: bool = True,
) -> Scene:
    """Draw images of some people, a third of whom do not occur in the gallery.

    With `whole`, features are multiples of 1/8 and some rows are copies, so that distances tie;
    without, they are uniform values and no distances tie. Each person has a centre.
    """
    rng = np.random.default_rng(seed)
    centres = rng.integers(-6, 7, (people, width)) / 8
    query_id = rng.integers(0, people, queries)
    gallery_id = rng.integers(-1, 2 * people // 3, gallery)
    query_cam, gallery_cam = rng.integers(0, 3, queries), rng.integers(0, 4, gallery)
    # The last query is excluded: all gallery images of its person are from its camera.
    query_id[-1] = 2 * people // 3 - 1
    gallery_cam[gallery_id == query_id[-1]] = query_cam[-1]
    sides = []
    for ids in (query_id, gallery_id):
        shape = len(ids), width
        steps = rng.integers(-12, 13, shape) / 8 if whole else rng.random(shape) * 3 - 1.5
        rows = centres[ids] + steps
        if whole:
            rows[::7] = centres[ids[::7]]  # copies, within each side and across both
        sides.append(rows)
    labels = {
        "query": se.Labels(
            query_id,
            query_cam,
            key=np.arange(queries) * 3,
            more={"weather": np.array(["dry", "wet", "snow"])[rng.integers(0, 3, queries)]},
        ),
        "gallery": se.Labels(gallery_id, gallery_cam, key=np.arange(gallery)),
    }
    return Scene(sides[0], sides[1], labels)


def levels(seed: int, queries: int = 40, gallery: int = 240, values: int = 12) -> Scene:
    """Return a scene with features of width 1, whose distances take few values."""
    drawn = scene(seed, queries, gallery)
    rng = np.random.default_rng(seed + 1000)
    return Scene(
        rng.integers(0, values, (queries, 1)) / 8,
        rng.integers(0, values, (gallery, 1)) / 8,
        drawn.labels,
    )


def matrix(seed: int, queries: int = 40, gallery: int = 240) -> tuple[np.ndarray, Any]:
    """Return distances that take few values, lower for positives, and labels."""
    drawn = scene(seed, queries, gallery)
    rng = np.random.default_rng(seed + 2000)
    distances = rng.integers(4, 40, (queries, gallery)) / 16
    same = drawn.labels["query"].id[:, None] == drawn.labels["gallery"].id[None]
    distances[same] -= rng.integers(0, 5, int(same.sum())) / 16
    return distances, drawn.labels


def as_npy(path: Path, array: np.ndarray) -> str:
    """Write an array; return its URI."""
    np.save(path.with_suffix(".npy"), array)
    return str(path.with_suffix(".npy"))


def as_zarr(path: Path, array: np.ndarray, chunks: tuple[int, int], **options: Any) -> str:
    """Write an array as chunked Zarr; return its URI."""
    path = path.with_suffix(".zarr")
    stored = zarr.create_array(path, shape=array.shape, chunks=chunks, dtype=array.dtype, **options)
    stored[...] = array
    return str(path)


def nearest(distances: np.ndarray, k: int, *, skip: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest items and their distances; ties are in gallery order.

    With `skip`, as an approximate search that misses every item whose index is a multiple of it.
    """
    seen = distances.copy()
    if skip:
        seen[:, ::skip] = np.inf
    order = np.argsort(seen, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(seen, order, axis=1)
    return np.where(np.isfinite(values), order, -1), values


# Features ------------------------------------------------------------------------------------


def _features(
    metric: Any,
    dtype: str,
    store: str,
    seed: int,
    *,
    whole: bool = True,
    width: int = 12,
    **options: Any,
) -> Case:
    """Return a case of features with a metric, a dtype and a storage format."""

    def run(folder: Path) -> se.Evaluation:
        drawn = scene(seed, width=width, whole=whole)
        sides = [side.astype(dtype) for side in (drawn.query, drawn.gallery)]
        uris: list[Any] = sides
        if store == "npy":
            uris = [as_npy(folder / name, side) for name, side in zip("qg", sides, strict=True)]
        elif store == "zarr":
            uris = [
                as_zarr(folder / name, side, (37, 5))
                for name, side in zip("qg", sides, strict=True)
            ]
        return evaluate(se.Features(*uris, metric), **drawn.labels, **options)

    return run


for _name, _case in {
    "features cosine f4 memory": _features("cosine", "f4", "memory", 1),
    "features cosine f4 untied": _features("cosine", "f4", "memory", 2, whole=False),
    "features cosine f8 npy all": _features("cosine", "f8", "npy", 3, whole=False, metrics="all"),
    "features cosine f2 zarr minmax": _features("cosine", "f2", "zarr", 4, range="minmax"),
    "features euclidean f4 npy all": _features("euclidean", "f4", "npy", 5, metrics="all"),
    "features euclidean f2 zarr wide": _features("euclidean", "f2", "zarr", 6, width=32),
    "features euclidean f8 untied": _features("euclidean", "f8", "memory", 7, whole=False),
    "features sqeuclidean f8 zarr all": _features("sqeuclidean", "f8", "zarr", 8, metrics="all"),
    "features sqeuclidean f4 range": _features("sqeuclidean", "f4", "memory", 9, range=(0, 256)),
    "features dot f2 memory minmax": _features("dot", "f2", "memory", 10, range="minmax"),
    "features dot f4 zarr all": _features(
        "dot", "f4", "zarr", 11, metrics="retrieval", range=(-64.0, 64.0)
    ),
    "features dot f8 npy untied": _features("dot", "f8", "npy", 12, whole=False),
    "features cosine no range": _features("cosine", "f4", "memory", 13, metrics="CMC@1,mAP,mINP"),
}.items():
    register(_name, _case)


@case("features integers of two dtypes")
def _(folder: Path) -> se.Evaluation:
    drawn = scene(14)
    query, gallery = (drawn.query * 8).astype("i1"), (drawn.gallery * 8).astype("i2")
    return evaluate(se.Features(query, gallery, "sqeuclidean"), **drawn.labels)


def _unit(metric: Any, metrics: str) -> Case:
    """Return a case of unit vectors, for which the metric has an automatic range."""

    def run(folder: Path) -> se.Evaluation:
        drawn = scene(15)
        rng = np.random.default_rng(15)
        sides = []
        for count in (len(drawn.query), len(drawn.gallery)):
            rows = np.zeros((count, 8))
            place = rng.integers(0, 7, count)
            rows[np.arange(count), place] = rng.choice([-0.6, 0.6], count)
            rows[np.arange(count), place + 1] = rng.choice([-0.8, 0.8], count)
            sides.append(rows)
        return evaluate(se.Features(*sides, metric), **drawn.labels, metrics=metrics)

    return run


register("features euclidean unit vectors", _unit("euclidean", "all"))
register("features sqeuclidean unit vectors", _unit("sqeuclidean", "gom"))


@case("features in a Zarr group")
def _(folder: Path) -> se.Evaluation:
    drawn = scene(16)
    group = zarr.open_group(folder / "all.zarr", mode="w")
    for name in ("query", "gallery"):
        rows = getattr(drawn, name).astype("f4")
        group.create_array(name, shape=rows.shape, chunks=(64, 12), dtype="f4")[...] = rows
    source = se.Features(f"{folder}/all.zarr::query", f"{folder}/all.zarr::gallery", "euclidean")
    return evaluate(source, **drawn.labels, options=se.MetricOptions(cmc_ranks=(2, 4)))


@case("features in small tiles")
def _(folder: Path) -> se.Evaluation:
    drawn = scene(17)
    source = se.Features(drawn.query.astype("f4"), drawn.gallery.astype("f4"), "euclidean")
    return evaluate(source, **drawn.labels, tile=(7, 33), threads=2, protocol="separate-camera")


@case("features with a checkpoint")
def _(folder: Path) -> se.Evaluation:
    drawn = scene(18)
    uris = [as_npy(folder / "q", drawn.query), as_npy(folder / "g", drawn.gallery)]
    how = {"checkpoint": folder / "progress", "resume": True}
    return evaluate(se.Features(*uris, "sqeuclidean"), **drawn.labels, **how)


# Stored distances ----------------------------------------------------------------------------


def _distances(
    dtype: str, chunks: tuple[int, int] | None, seed: int, order: Any = "C", **options: Any
) -> Case:
    """Return a case of a stored matrix: in memory (chunks None), `.npy` ((0, 0)) or Zarr."""

    def run(folder: Path) -> se.Evaluation:
        distances, labels = matrix(seed)
        stored: Any = np.asarray(
            (distances * 16 if dtype[-2] in "iu" else distances), dtype, order=order
        )
        if chunks == (0, 0):
            stored = as_npy(folder / "d", stored)
        elif chunks is not None:
            stored = as_zarr(folder / "d", stored, chunks)
        return evaluate(se.Distances(stored), **labels, **options)

    return run


for _name, _case in {
    "distances f4 memory": _distances("<f4", None, 20),
    "distances f8 npy all": _distances("<f8", (0, 0), 21, metrics="all"),
    "distances f4 npy by columns": _distances("<f4", (0, 0), 22, order="F", range=(0, 4)),
    "distances f8 npy big-endian": _distances(">f8", (0, 0), 23, range="minmax"),
    "distances f4 zarr small chunks": _distances("<f4", (7, 53), 24, metrics="all"),
    "distances f2 zarr strips": _distances("<f2", (40, 16), 25, range=(0, 3)),
    "distances f8 zarr a row a chunk": _distances("<f8", (1, 240), 26),
    "distances u1 zarr": _distances("|u1", (16, 100), 27, metrics="verification"),
    "distances i2 zarr range": _distances("<i2", (9, 240), 28, range=(0, 64)),
}.items():
    register(_name, _case)


@case("distances f4 zarr shards")
def _(folder: Path) -> se.Evaluation:
    distances, labels = matrix(29)
    stored = as_zarr(folder / "d", distances.astype("f4"), (10, 30), shards=(20, 120))
    return evaluate(se.Distances(stored), **labels, metrics="all")


# Protocols -----------------------------------------------------------------------------------


def _protocol(seed: int, **options: Any) -> Case:
    """Return a case of tied distances with options of `evaluate`."""

    def run(folder: Path) -> se.Evaluation:
        distances, labels = matrix(seed)
        return evaluate(se.Distances(distances), **labels, **options)

    return run


SAMPLED = "CMC@1,CMC@5,CMC_sampled@1,CMC_sampled@5,mAP"
CUSTOM = se.Protocol("own", False, same_camera=True, cmc="all-shots", junk_ids=(-1, 3))
CUSTOM_SHOTS = se.Protocol("shots", False, cmc="single-gallery-shot", shot_draws=7, shot_seed=3)
for _name, _case in {
    "protocol allshots": _protocol(30, protocol="allshots", metrics="all"),
    "protocol allshots stable": _protocol(31, protocol="allshots", ties="stable"),
    "protocol cuhk03": _protocol(32, protocol="cuhk03"),
    "protocol cuhk03 all": _protocol(33, protocol="cuhk03", metrics="all", ties="optimistic"),
    "protocol cuhk03 draws": _protocol(
        34, protocol="cuhk03", metrics=SAMPLED, shot_draws=40, shot_seed=11
    ),
    "protocol cuhk03-torchreid": _protocol(35, protocol="cuhk03-torchreid", ties="stable"),
    "protocol cuhk03-torchreid draws": _protocol(
        36, protocol="cuhk03-torchreid", metrics=SAMPLED, shot_seed=5, group_by="cam"
    ),
    "protocol separate-camera": _protocol(37, protocol="separate-camera"),
    "protocol no-camera": _protocol(38, protocol="no-camera", metrics="all"),
    "protocol no-camera self-match key": _protocol(39, protocol="no-camera", self_match="key"),
    "protocol junk ids": _protocol(40, junk_ids=[-1, 2, 5]),
    "protocol no junk ids": _protocol(41, junk_ids=[], protocol="separate-camera"),
    "custom protocol": _protocol(42, protocol=CUSTOM, metrics="retrieval"),
    "custom protocol single-gallery-shot": _protocol(43, protocol=CUSTOM_SHOTS, metrics=SAMPLED),
}.items():
    register(_name, _case)


@case("protocol cuhk03 of features")
def _(folder: Path) -> se.Evaluation:
    drawn = scene(44)
    source = se.Features(drawn.query.astype("f4"), drawn.gallery.astype("f4"), "euclidean")
    return evaluate(source, **drawn.labels, protocol="cuhk03", metrics=SAMPLED)


@case("protocol no-camera, queries in the gallery")
def _(folder: Path) -> se.Evaluation:
    drawn = scene(45, queries=60)
    rows, labels = drawn.query.astype("f4"), drawn.labels["query"]
    return evaluate(
        se.Features(rows, rows.copy()),
        query=labels,
        gallery=labels,
        protocol="no-camera",
        self_match="index",
        metrics="all",
    )


@case("string labels")
def _(folder: Path) -> se.Evaluation:
    distances, sides = matrix(46)
    named = {
        side: se.Labels(
            np.array([f"person {number}" for number in labels.id]),
            np.array([f"c{number}" for number in labels.cam]),
            key=np.array([f"{number}.jpg" for number in labels.key]),
        )
        for side, labels in sides.items()
    }
    return evaluate(
        se.Distances(distances), **named, junk_ids=["person -1", "person 4"], self_match="key"
    )


@case("protocol from a file")
def _(folder: Path) -> se.Evaluation:
    distances, labels = matrix(47)
    (folder / "network.toml").write_text(
        'same_identity_and_camera = true\nsame_camera = true\njunk_ids = [-1, 0]\ncmc = "all-shots"'
    )
    protocol = se.read_protocol(folder / "network.toml")
    return evaluate(se.Distances(distances), **labels, protocol=protocol)


def _lists_of_pairs(seed: int) -> tuple[np.ndarray, Any, list[list[int]], list[list[int]]]:
    distances, labels = matrix(seed)
    rng = np.random.default_rng(seed)
    good, junk = [], []
    for _ in distances:
        listed = rng.permutation(distances.shape[1])[: rng.integers(0, 12)].tolist()
        kept = int(rng.integers(0, len(listed) + 1))
        good.append(listed[:kept])
        junk.append(listed[kept:])
    return distances, labels, good, junk


@case("listed pairs")
def _(folder: Path) -> se.Evaluation:
    distances, labels, good, junk = _lists_of_pairs(48)
    listed = se.ListedPairs.of(good, junk)
    return evaluate(se.Distances(distances), **labels, listed=listed, metrics="all")


@case("listed pairs from a file")
def _(folder: Path) -> se.Evaluation:
    distances, labels, good, _ = _lists_of_pairs(49)
    text = "\n".join(" ".join(str(item + 1) for item in row) for row in good) + "\n"
    (folder / "good.txt").write_text(text)
    listed = se.read_listed_pairs(
        folder / "good.txt", queries=len(distances), gallery=labels["gallery"]
    )
    return evaluate(se.Distances(distances), **labels, listed=listed, group_by="weather")


# Metrics, options and ties -------------------------------------------------------------------


def _tied(seed: int, **options: Any) -> Case:
    """Return a case of features of width 1, most of whose distances are tied."""

    def run(folder: Path) -> se.Evaluation:
        drawn = levels(seed)
        source = se.Features(drawn.query, drawn.gallery, "euclidean")
        return evaluate(source, **drawn.labels, **options)

    return run


for _name, _case in {
    "ties pessimistic": _tied(50, ties="pessimistic", metrics="all"),
    "ties optimistic": _tied(51, ties="optimistic", metrics="all"),
    "ties stable": _tied(52, ties="stable", metrics="all"),
    "ties expected": _tied(53, ties="expected", metrics="all"),
    "ties expected trapezoid": _tied(54, ties="expected", ap="trapezoid", metrics=CUTOFFS),
    "ties expected threshold": _tied(55, ties="expected", ap="threshold"),
    "ties stable trapezoid equation": _tied(56, ties="stable", ap="trapezoid", vp="equation"),
    "ties optimistic threshold": _tied(57, ties="optimistic", ap="threshold", metrics="all"),
    "ties of stored distances": _protocol(58, ties="expected", metrics=CUTOFFS),
    "metrics of cut-offs": _protocol(59, metrics=CUTOFFS),
    "metrics of the open set": _protocol(60, metrics=OPEN_SET, false_rate_budget=5),
    "metrics of verification": _protocol(61, metrics=VERIFICATION),
    "metrics by parts": _protocol(62, metrics="gom,verification", vp="equation"),
    "refined": _protocol(
        63, metrics="CMC@1,EER", refine="TAR|FAR=0.05,TAR|FAR=0.003,FNMR|FMR=0.02,F1_best,EER"
    ),
    "options": _protocol(
        64,
        options=se.MetricOptions(
            ties="stable",
            false_rate_budget=17,
            cmc_ranks=(1, 2, 50),
            max_rank=30,
            false_accept_rates=(0.2, 0.5),
            dir_ranks=(1, 3),
        ),
    ),
}.items():
    register(_name, _case)


@case("refined of features")
def _(folder: Path) -> se.Evaluation:
    drawn = scene(65, whole=False)
    source = se.Features(drawn.query.astype("f4"), drawn.gallery.astype("f4"))
    return evaluate(source, **drawn.labels, refine=("TAR|FAR=0.01", "EER"))


for _at, _preset in enumerate(
    (
        *("torchreid", "fastreid", "open-reid", "market-matlab", "gom-paper", "gom-code", "oml"),
        "cluster-contrast",
    )
):
    register(f"preset {_preset}", _protocol(70 + _at, preset=_preset))


@case("preset with options")
def _(folder: Path) -> se.Evaluation:
    distances, labels = matrix(77)
    return evaluate(
        se.Distances(distances), **labels, preset="open-reid", ties="optimistic", junk_ids=[-1, 1]
    )


# Groups and saved results --------------------------------------------------------------------


for _name, _case in {
    "groups by id": _protocol(80, group_by="id", metrics="CMC@1,mAP,MREP"),
    "groups by camera": _protocol(81, group_by="cam", metrics="all"),
    "groups by an additional label": _protocol(82, group_by="weather", ties="expected"),
    "groups by pairs of cameras": _protocol(83, group_by="cam-pair", metrics="CMC@1,mAP,mINP"),
    "groups by an array": _protocol(
        84, group_by=np.arange(40) % 3, metrics=VERIFICATION, refine="TAR|FAR=0.01"
    ),
}.items():
    register(_name, _case)


@case("groups by pairs of cameras of features")
def _(folder: Path) -> se.Evaluation:
    drawn = scene(85)
    source = se.Features(drawn.query.astype("f4"), drawn.gallery.astype("f4"))
    return evaluate(source, **drawn.labels, group_by="cam-pair", ties="stable")


@case("saved, loaded, other options")
def _(folder: Path) -> se.Evaluation:
    distances, labels = matrix(86)
    evaluate(se.Distances(distances), **labels, metrics="all", group_by="cam").save(
        folder / "saved"
    )
    loaded = se.Evaluation.load(folder / "saved")
    return loaded.with_options(ties="stable", ap="trapezoid", vp="equation").grouped("weather")


@case("saved and loaded")
def _(folder: Path) -> se.Evaluation:
    distances, labels = matrix(87)
    result = evaluate(se.Distances(distances), **labels, protocol="cuhk03", metrics="all")
    result.save(folder / "saved")
    return se.Evaluation.load(folder / "saved")


# Degenerate inputs ---------------------------------------------------------------------


@case("no strangers")
def _(folder: Path) -> se.Evaluation:
    distances, labels = matrix(90)
    known = se.Labels(labels["query"].id % 8, labels["query"].cam)
    return evaluate(se.Distances(distances), query=known, gallery=labels["gallery"], metrics="all")


@case("strangers alone")
def _(folder: Path) -> se.Evaluation:
    distances, labels = matrix(91)
    strange = se.Labels(labels["query"].id + 100, labels["query"].cam)
    return evaluate(
        se.Distances(distances), query=strange, gallery=labels["gallery"], metrics="all"
    )


@case("junk alone")
def _(folder: Path) -> se.Evaluation:
    distances, labels = matrix(92, queries=6, gallery=9)
    junk = se.Labels(np.full(9, -1), labels["gallery"].cam)
    return evaluate(se.Distances(distances), query=labels["query"], gallery=junk, range=(0, 4))


@case("one query, one item")
def _(folder: Path) -> se.Evaluation:
    query = se.Labels([3], [0])
    return evaluate(se.Distances([[0.5]]), query=query, gallery=se.Labels([3], [1]), range=(0, 1))


# Lists of neighbours -------------------------------------------------------------------------


def _lists(
    seed: int,
    k: int,
    *,
    with_features: bool = False,
    with_distances: bool = True,
    skip: int = 0,
    read: dict[str, Any] | None = None,
    **options: Any,
) -> Case:
    """Return a case of stored lists."""

    def run(folder: Path) -> se.Evaluation:
        drawn = scene(seed)
        lists, distances = nearest(drawn.distances, k, skip=skip)
        given: dict[str, Any] = dict(read or {})
        if with_features:
            given["features"] = se.Features(drawn.query, drawn.gallery, "sqeuclidean")
        stored: Any = as_npy(folder / "lists", lists)
        known = as_npy(folder / "distances", distances) if with_distances else None
        return evaluate(se.Neighbors(stored, known, **given), **drawn.labels, **options)

    return run


BOUNDED: dict[str, Any] = {"range": (0, 256), "metrics": "all"}
NEVER = {"missing": "never"}
for _name, _case in {
    "lists bounds": _lists(100, 25, **BOUNDED),
    "lists bounds short": _lists(101, 3, metrics="CMC@1,mAP,mINP,DIR@1|FAR=0.1"),
    "lists bounds of all": _lists(102, 240, metrics=VERIFICATION, range=(0, 256)),
    "lists bounds stable": _lists(103, 30, ties="stable", group_by="cam", range=(0, 256)),
    "lists bounds of features": _lists(
        104, 25, with_features=True, with_distances=False, range=(0, 256)
    ),
    "lists tighten": _lists(105, 25, with_features=True, read={"tighten": True}, **BOUNDED),
    "lists k": _lists(106, 40, read={"k": 12}, range=(0, 256)),
    "lists never": _lists(107, 25, skip=5, read=NEVER, **BOUNDED),
    "lists never groups": _lists(108, 60, skip=3, read=NEVER, group_by="weather", range=(0, 256)),
    "lists never of features": _lists(
        109, 25, skip=4, with_features=True, read=NEVER, range=(0, 256), ties="optimistic"
    ),
    "lists never rerank": _lists(
        110, 25, skip=4, with_features=True, read={**NEVER, "canonical": True}, metrics="all"
    ),
    "lists allshots": _lists(111, 50, protocol="allshots", range=(0, 256)),
    "lists no-camera self-match key": _lists(112, 20, protocol="no-camera", self_match="key"),
}.items():
    register(_name, _case)


@case("lists in one file")
def _(folder: Path) -> se.Evaluation:
    drawn = scene(113)
    indices, distances = nearest(drawn.distances, 18)
    np.savez(folder / "lists.npz", indices=indices, distances=distances)
    return evaluate(se.Neighbors(folder / "lists.npz"), **drawn.labels, range=(0, 256))


@case("lists and listed pairs")
def _(folder: Path) -> se.Evaluation:
    distances, labels, good, junk = _lists_of_pairs(114)
    source = se.Neighbors(*nearest(distances, 80))
    return evaluate(source, **labels, listed=se.ListedPairs.of(good, junk), range=(0, 4))


def _index(
    seed: int,
    metric: Any,
    index: str,
    k: Any,
    *,
    read: dict[str, Any] | None = None,
    **options: Any,
) -> Case:
    """Return a case of lists from a FAISS index.

    The result does not depend on FAISS or BLAS: single precision represents the squared distances
    and products of these features exactly, and an IVF index probes all of its cells, so that its
    training has no effect.
    """

    def run(folder: Path) -> se.Evaluation:
        drawn = scene(seed, gallery=400)
        features = se.Features(drawn.query.astype("f4"), drawn.gallery.astype("f4"), metric)
        source = se.Neighbors(features=features, index=index, k=k, **(read or {}))
        return evaluate(source, **drawn.labels, **options)

    return run


ALL_CELLS: dict[str, Any] = {"search": "nprobe=4"}
DEPLOYED: dict[str, Any] = {**ALL_CELLS, "missing": "never"}
for _name, _case in {
    "index Flat euclidean": _index(120, "euclidean", "Flat", 20, range=(0, 16)),
    "index Flat sqeuclidean all": _index(121, "sqeuclidean", "Flat", 30, **BOUNDED),
    "index Flat dot": _index(122, "dot", "Flat", 15, range=(-64, 64)),
    "index Flat cosine of all": _index(123, "cosine", "Flat", 400, metrics="all"),
    "index Flat tighten": _index(
        124, "euclidean", "Flat", 20, read={"tighten": True}, range=(0, 16)
    ),
    "index Flat auto": _index(125, "euclidean", "Flat", "auto", metrics="CMC@1,CMC@5,mAP"),
    "index Flat auto width": _index(
        126, "sqeuclidean", "Flat", "auto", read={"width": 0.2}, metrics="mAP,mINP", ties="stable"
    ),
    "index Flat never": _index(127, "euclidean", "Flat", 20, read=NEVER, range=(0, 16)),
    "index IVF bounds": _index(128, "sqeuclidean", "IVF4,Flat", 20, read=ALL_CELLS, **BOUNDED),
    "index IVF deployed": _index(
        129, "sqeuclidean", "IVF4,Flat", 20, read=DEPLOYED, range=(0, 256), group_by="cam"
    ),
    "index IVF rerank": _index(
        130, "euclidean", "IVF4,Flat", 20, read={**DEPLOYED, "canonical": True}, range=(0, 16)
    ),
}.items():
    register(_name, _case)


# Ledgers -------------------------------------------------------------------------------------

CUTS = (0, 90, 150, 165, 240)


@dataclass(frozen=True)
class History:
    """A ledger in a folder, and the data of its gallery parts."""

    folder: Path
    drawn: Scene
    ledger: se.Ledger
    stored: np.ndarray | None = None
    added: list[int] = field(default_factory=list)

    @classmethod
    def of_features(cls, folder: Path, seed: int, metric: Any, **options: Any) -> History:
        drawn = scene(seed)
        query = as_npy(folder / "query", drawn.query.astype("f4"))
        ledger = se.Ledger.create(
            folder / "L", query=query, query_labels=drawn.labels["query"], metric=metric, **options
        )
        return cls(folder, drawn, ledger)

    @classmethod
    def of_distances(cls, folder: Path, seed: int, **options: Any) -> History:
        distances, labels = matrix(seed)
        drawn = Scene(distances, distances, labels)
        ledger = se.Ledger.create(folder / "L", query_labels=labels["query"], **options)
        return cls(folder, drawn, ledger, distances)

    def append(self, *parts: int) -> None:
        """Append gallery parts as segments ``part 0`` to ``part 3``."""
        gallery = self.drawn.labels["gallery"]
        for part in parts:
            items = slice(CUTS[part], CUTS[part + 1])
            if self.stored is None:
                rows = self.drawn.gallery[items]
            else:
                more = [matrix(seed + part, 9)[0] for seed in self.added]
                rows = np.vstack([self.stored, *more])[:, items]
            uri = as_npy(self.folder / f"part{part}", rows.astype("f4"))
            assert gallery.cam is not None
            assert gallery.key is not None
            labels = se.Labels(gallery.id[items], gallery.cam[items], gallery.key[items])
            self.ledger.append(uri, labels, name=f"part {part}", **RUN_OPTIONS)

    def add_queries(self, seed: int, items: int = 0) -> None:
        """Add 9 queries; with stored distances, give their distances to `items` gallery items."""
        more = scene(seed, queries=9)
        rows = more.query if self.stored is None else matrix(seed, 9, items)[0]
        uri = as_npy(self.folder / f"more{seed}", rows.astype("f4"))
        self.ledger.add_queries(uri, more.labels["query"], **RUN_OPTIONS)
        self.added.append(seed)


def _history(
    seed: int, metric: Any, steps: Callable[[History], Any], at: Any = None, **options: Any
) -> Case:
    """Return a case of a ledger of features, or of stored distances if the metric is None."""

    def run(folder: Path) -> se.Evaluation:
        if metric is None:
            history = History.of_distances(folder, seed, **options)
        else:
            history = History.of_features(folder, seed, metric, **options)
        steps(history)
        return history.ledger.evaluation(at)

    return run


def _grow(history: History) -> None:
    history.append(0, 1, 2, 3)


def _change(history: History) -> None:
    history.append(2, 0, 1)
    history.ledger.remove("part 2")
    history.ledger.forget([1, 4], **RUN_OPTIONS)
    history.add_queries(150, items=150)
    history.append(3)


def _forget(history: History) -> None:
    history.append(0, 3)
    history.ledger.forget([0], **RUN_OPTIONS)
    history.append(1)
    history.ledger.forget([2, 3], **RUN_OPTIONS)
    history.ledger.remove("part 3")


FEW = 12 * 40 * 2  # bytes for two negatives per query, so that old segments are rescanned
for _name, _case in {
    "ledger created": _history(140, "cosine", lambda history: None),
    "ledger of four segments": _history(141, "cosine", _grow, metrics="all"),
    "ledger at a snapshot": _history(142, "cosine", _grow, at=2),
    "ledger at a segment": _history(143, "euclidean", _grow, at="part 2", range=(0, 16)),
    "ledger with few negatives kept": _history(144, "cosine", _grow, keep=FEW, ties="stable"),
    "ledger changed": _history(
        145, "sqeuclidean", _change, range=(0, 256), metrics="all", keep=FEW
    ),
    "ledger that forgets": _history(146, "dot", _forget, range=(-64, 64), metrics="open-set"),
    "ledger without a range": _history(147, "euclidean", _change, metrics="CMC@1,mAP", keep=FEW),
    "ledger separate-camera": _history(148, "cosine", _change, protocol="separate-camera"),
    "ledger self-match key": _history(149, "cosine", _grow, protocol="no-camera", self_match="key"),
    "ledger of distances": _history(150, None, _grow, range=(0, 4), metrics="verification"),
    "ledger of distances changed": _history(151, None, _change, range=(0, 4), keep=FEW),
    "ledger of distances forgets": _history(152, None, _forget, range=(0, 4), ties="expected"),
    "ledger of distances at a snapshot": _history(153, None, _change, range=(0, 4), at=4),
    "ledger under a preset": _history(154, "cosine", _grow, preset="fastreid"),
}.items():
    register(_name, _case)


@case("ledger in groups")
def _(folder: Path) -> se.Evaluation:
    history = History.of_features(folder, 155, "cosine", metrics="CMC@1,mAP,MREP")
    _change(history)
    return history.ledger.evaluation().grouped("cam-pair")
