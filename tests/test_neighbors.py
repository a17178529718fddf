"""Lists of neighbours as a source: FAISS and files, what they give, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result
from spread import spread
from support.arrays import fingerprint, open_array
from support.cli import main
from support.distances import find_distance
from support.neighbors import Hits
from support.runs import prepare

import streameval as se

QUERIES, GALLERY, WIDTH = 24, 400, 12
CUHK03 = Path(__file__).resolve().parent.parent.parent / "shared/data/cuhk03-detected-100q"
METRICS = ("cosine", "euclidean", "sqeuclidean", "dot")
METRIC_NAMES = ("all", "EER", "AUC", "TAR|FAR=0.01")


def write_inputs(folder: Path, seed: int = 0) -> None:
    """Write features with copies among them, and labels with junk."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((40, WIDTH))
    for side, count in (("query", QUERIES), ("gallery", GALLERY)):
        ids = rng.integers(-1 if side == "gallery" else 0, 36 if side == "gallery" else 40, count)
        rows = (centres[ids] + 0.8 * rng.standard_normal((count, WIDTH))).astype("f4")
        rows[::9] = rows[0]
        np.save(folder / f"{side}.npy", rows)
        np.save(folder / f"{side}_ids.npy", ids)
        np.save(folder / f"{side}_cams.npy", rng.integers(0, 3, count))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def features(metric: Any = "cosine") -> se.Features:
    return se.Features("query.npy", "gallery.npy", metric)


def sides() -> dict[str, se.Labels]:
    return {
        side: se.read_labels(f"{side}_ids.npy", f"{side}_cams.npy") for side in ("query", "gallery")
    }


def search(metric: Any, k: int, index: str = "Flat", **options: Any) -> se.Evaluation:
    source = se.Neighbors(features=features(metric), index=index, k=k, **options)
    return se.evaluate(source, **sides())


def exact_lists(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest k items by Euclidean distance in float64, and these distances."""
    q, g = np.load("query.npy").astype("f8"), np.load("gallery.npy").astype("f8")
    distances = np.sqrt(((q[:, None] - g[None]) ** 2).sum(axis=2))
    indices = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return indices, np.take_along_axis(distances, indices, axis=1)


def contains(found: se.Evaluation, exact: se.Evaluation) -> None:
    bounds = found.metrics.bounds
    assert bounds
    for name, (low, high) in bounds.items():
        assert math.isnan(exact[name]) or low <= exact[name] <= high, name


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("metric", METRICS)
def test_flat_with_the_whole_gallery_is_the_exact_evaluation(metric: Any) -> None:
    options: dict[str, Any] = {**sides(), "metrics": METRIC_NAMES}
    exact = se.evaluate(features(metric), **options)
    for k in (GALLERY, 10 * GALLERY):
        source = se.Neighbors(features=features(metric), index="Flat", k=k)
        found = se.evaluate(source, **options)
        assert found.statistics.equals(exact.statistics)
        assert found.metrics.scalars == pytest.approx(exact.metrics.scalars, abs=0, nan_ok=True)
        assert (found.intervals, found.range, found.counts) == (
            exact.intervals,
            exact.range,
            exact.counts,
        )
        assert all(
            np.array_equal(found.curves[name], one, equal_nan=True)
            for name, one in exact.curves.items()
        )


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("metric", "tighten"), spread(METRICS, [False, True]))
def test_the_exact_value_lies_in_every_interval(metric: Any, tighten: bool) -> None:
    exact = se.evaluate(features(metric), **sides(), metrics="all")
    for k in (1, 10, 60, 200, GALLERY - 1):
        source = se.Neighbors(features=features(metric), index="Flat", k=k, tighten=tighten)
        found = se.evaluate(source, **sides(), metrics="all")
        contains(found, exact)
        for name, value in found.metrics.scalars.items():
            assert math.isnan(value) or value == exact[name]


@pytest.mark.skipif(not CUHK03.exists(), reason=f"{CUHK03} is not here")
@pytest.mark.parametrize("k", [10, 100, 1000])
def test_real_distances(k: int) -> None:
    distances = np.load(CUHK03 / "distances.npy").astype("f8")
    labels = {
        side: se.read_labels(CUHK03 / f"{side}_id.npy", CUHK03 / f"{side}_cam.npy")
        for side in ("query", "gallery")
    }
    options: dict[str, Any] = {**labels, "range": (0, float(distances.max())), "metrics": "all"}
    exact = se.evaluate(se.Distances(distances), **options)
    lists = np.argsort(distances, axis=1)[:, :k]
    source = se.Neighbors(lists, np.take_along_axis(distances, lists, axis=1))
    contains(se.evaluate(source, **options), exact)


@pytest.mark.usefixtures("folder")
def test_tightening_narrows_and_makes_thresholds_exact() -> None:
    exact = se.evaluate(features(), **sides())
    wide, tight = (search("cosine", 100, tighten=tighten) for tighten in (False, True))
    assert {"mReP_max", "MREP", "tau_max"} <= set(wide.metrics.bounds)
    widths = [high - low for low, high in (one.metrics.bounds["MREP"] for one in (wide, tight))]
    assert widths[1] < widths[0]
    for name, (low, high) in wide.metrics.bounds.items():
        least, most = tight.metrics.bounds[name]
        assert low <= least <= most <= high
    # Below the last returned distance all is known: the first points of the curves.
    for name in ("mRP", "mVP", "mReP"):
        known = tight.curves.get(name, tight.curves.get(f"{name}/lower"))
        assert known is not None
        assert known[0] == exact.curves[name][0]


@pytest.mark.usefixtures("folder")
def test_k_grows_until_the_metrics_are_known() -> None:
    exact = se.evaluate(features(), **sides())
    source = se.Neighbors(features=features(), index="Flat", k="auto")
    found = se.evaluate(source, **sides(), metrics="CMC@1,CMC@5")
    assert found.provenance["lists"]["k"] < GALLERY
    assert [found["CMC@1"], found["CMC@5"]] == [exact["CMC@1"], exact["CMC@5"]]
    source = se.Neighbors(features=features(), index="Flat", k="auto", width=0.01)
    low, high = se.evaluate(source, **sides(), metrics="mAP").metrics.bounds["mAP"]
    assert low <= exact["mAP"] <= high <= low + 0.01
    whole = se.evaluate(
        se.Neighbors(features=features(), index="Flat", k="auto"), **sides(), metrics="mAP"
    )
    assert whole["mAP"] == exact["mAP"]


@pytest.mark.usefixtures("folder")
def test_the_places_that_are_said_to_close_a_metric_do() -> None:
    first = se.evaluate(
        se.Neighbors(features=features(), index="Flat", k=5), **sides(), metrics="CMC@20,recall@10"
    )
    places = first.metrics.places
    assert set(places) == {"CMC@20", "recall@10"}
    for name, (least, most) in places.items():
        assert 5 < least <= most <= GALLERY
        source = se.Neighbors(features=features(), index="Flat", k=most)
        assert not math.isnan(se.evaluate(source, **sides(), metrics=name)[name])


@pytest.mark.usefixtures("folder")
def test_a_system_as_deployed_by_hand() -> None:
    gallery = se.Labels(id=np.array([1, -1, 2, 1, 2, 1, 2, 2]))
    lists = se.Neighbors(
        np.array([[0, 1, 2, 3, -1]]), np.array([[0.1, 0.2, 0.3, 0.4, 9.0]]), missing="never"
    )
    names = (
        "CMC@1",
        "CMC@9",
        "mAP@5/total",
        "mAP@5/hits",
        "recall@5",
        "mAP",
        "mReP_max",
        "mVP_max",
        "F1/micro@tau=0.5",
    )
    found = se.evaluate(
        lists,
        query=se.Labels(id=np.array([1])),
        gallery=gallery,
        protocol="no-camera",
        metrics=names,
        range=(0, 1),
    )
    # Valid: + − +, and a positive that is never found.
    assert found["CMC@1"] == found["CMC@9"] == 1.0
    assert found["mAP@5/total"] == (1 + 2 / 3) / 3
    assert found["mAP@5/hits"] == (1 + 2 / 3) / 2
    assert found["recall@5"] == 2 / 3
    assert found["mVP_max"] == 2 / 4
    assert found["F1/micro@tau=0.5"] == 2 * 2 / (2 + 1 + 3)
    assert math.isnan(found["mAP"])
    assert "mAP@5/total" in found.metrics.details["mAP"].reason
    assert found["mReP_max"] == math.sqrt((1 + 2 / 3) / 2 * (2 / 4))


@pytest.mark.usefixtures("folder")
def test_an_index_is_read_as_deployed_and_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(se.StreamevalWarning, match="trained on 400 of 400 gallery rows"):
        built = search(
            "cosine", 30, "IVF16,Flat", search="nprobe=2", save_index="kept.faiss", train_rows=400
        )
    told = built.provenance["lists"]
    assert (told["missing"], told["distances"]) == ("never", "as returned")
    assert told["index"]["train_rows"] == 400
    opened = search("cosine", 30, "kept.faiss", search="nprobe=2")
    assert opened.statistics.equals(built.statistics)
    whole = Path("kept.faiss").read_bytes()
    Path("kept.faiss").write_bytes(whole[:-5] + bytes([whole[-5] ^ 4]) + whole[-4:])
    with pytest.raises(se.InputError, match=r"kept.faiss is damaged or replaced: its digest is"):
        search("cosine", 30, "kept.faiss", search="nprobe=2")
    Path("kept.faiss").write_bytes(whole)
    everywhere = search("cosine", 30, "kept.faiss", search="nprobe=16")
    assert everywhere.provenance["lists"]["missing"] == "bounds"  # it is exact then
    contains(everywhere, se.evaluate(features(), **sides()))
    ranked = search("cosine", 30, "kept.faiss", search="nprobe=2", canonical=True)
    assert ranked.provenance["lists"]["distances"] == "canonical"
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
@pytest.mark.parametrize("metric", METRICS)
def test_an_index_that_looks_everywhere_bounds_every_metric(metric: Any) -> None:
    """FAISS's metrics are those of ours: its values are checked against canonical distances."""
    exact = se.evaluate(features(metric), **sides())
    for k in (20, GALLERY):
        found = search(metric, k, "IVF8,Flat", search="nprobe=8", tighten=True)
        contains(found, exact)
    assert found.statistics.equals(exact.statistics)


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
def test_every_step_is_seen() -> None:
    seen: list[tuple[str, int]] = []

    class Seen(se.Progress):
        def start(self, label: str, pairs: int) -> None:
            seen.append((label, pairs))

        def advance(self, pairs: int) -> None:
            seen[-1] = (seen[-1][0], seen[-1][1] - pairs)

    source = se.Neighbors(
        features=features(), index="IVF8,Flat", search="nprobe=8", k=20, tighten=True
    )
    se.evaluate(source, **sides(), progress=Seen())
    labels = list(dict.fromkeys(label for label, _ in seen))
    assert labels == ["train", "index", "lengths", "search", "distances"]
    assert all(left == 0 for _, left in seen), seen


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("index", ["HNSW8", "SQ8", "IDMap,Flat"])
def test_other_indexes(index: str) -> None:
    if index == "IDMap,Flat":
        made = faiss.index_factory(WIDTH, "IDMap,Flat", faiss.METRIC_L2)
        made.add_with_ids(np.load("gallery.npy"), np.arange(GALLERY) + 7)
        faiss.write_index(made, "shifted.faiss")
        with pytest.raises(se.InputError, match=r"numbered 0 to 399, and −1 is none"):
            search("euclidean", 399, "shifted.faiss")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.StreamevalWarning)
        found = search("euclidean", 50, index)
    assert 0 < found["recall@50"] <= 1


@pytest.mark.usefixtures("folder")
def test_lists_in_every_format_give_the_same() -> None:
    indices, distances = exact_lists(50)
    np.save("i.npy", indices)
    np.save("d.npy", distances)
    np.savez("lists.npz", indices=indices, distances=distances, gallery_rows=[GALLERY])
    group = zarr.open_group("lists.zarr", mode="w")
    group.attrs["gallery_rows"] = GALLERY
    for name, values in (("indices", indices), ("distances", distances)):
        group.create_array(name, data=values)
    with h5py.File("bench.hdf5", "w") as file:  # as ann-benchmarks writes
        file.attrs["distance"] = "euclidean"
        file["train"], file["test"] = np.load("gallery.npy"), np.load("query.npy")
        file["neighbors"], file["distances"] = indices.astype("i4"), distances
    write_vecs("i.ivecs", indices.astype("<i4"))
    write_vecs("d.fvecs", distances.astype("<f4"))
    expected = se.evaluate(se.Neighbors(indices, distances), **sides(), range=(0, 20))
    for uri in ("lists.npz", "lists.zarr", "bench.hdf5"):
        assert se.evaluate(se.Neighbors(uri), **sides(), range=(0, 20)).statistics.equals(
            expected.statistics
        )
    both = se.Neighbors("i.npy", "d.npy")
    assert se.evaluate(both, **sides(), range=(0, 20)).statistics.equals(expected.statistics)
    rounded = se.evaluate(se.Neighbors("i.ivecs", "d.fvecs"), **sides(), range=(0, 20))
    exactly = se.evaluate(se.Neighbors(indices, distances.astype("f4")), **sides(), range=(0, 20))
    assert rounded.statistics.equals(exactly.statistics)
    # With features, canonical distances take the place of those in the file.
    exact = se.evaluate(features("euclidean"), **sides())
    for source in (
        se.Neighbors("i.ivecs", features=features("euclidean"), tighten=True),
        se.Neighbors("bench.hdf5", features=features("euclidean")),
        se.Neighbors("i.ivecs", "d.fvecs", features=features("euclidean"), k=20),
    ):
        contains(se.evaluate(source, **sides()), exact)


@pytest.mark.usefixtures("folder")
def test_fewer_items_of_stored_lists_are_the_nearest_of_them() -> None:
    """Also where a list is not sorted: the first places are not the nearest then."""
    indices, distances = exact_lists(50)
    rng = np.random.default_rng(0)
    order = np.argsort(rng.random(indices.shape), axis=1)
    mixed = [np.take_along_axis(one, order, axis=1) for one in (indices, distances)]
    exact = se.evaluate(features("euclidean"), **sides(), range=(0, 20))
    for missing in ("bounds", "never"):
        sorted_, unsorted = (
            se.Neighbors(*lists, k=20, missing=missing) for lists in ((indices, distances), mixed)
        )
        with pytest.warns(se.StreamevalWarning, match="24 lists were not sorted"):
            found = se.evaluate(unsorted, **sides(), range=(0, 20))
        assert found.statistics.equals(se.evaluate(sorted_, **sides(), range=(0, 20)).statistics)
        if missing == "bounds":
            contains(found, exact)
    of = features("euclidean")
    found = se.evaluate(se.Neighbors(mixed[0], features=of, k=20), **sides(), range=(0, 20))
    contains(found, exact)
    deployed = se.evaluate(
        se.Neighbors(mixed[0], features=of, k=20, missing="never"), **sides(), range=(0, 20)
    )
    assert deployed.provenance["lists"]["distances"] == "canonical"
    flat = search("euclidean", 20, missing="never")
    assert deployed["mAP@20/total"] == flat["mAP@20/total"]


HOSTILE = {
    "copies": lambda rng, rows: np.repeat(rows[: len(rows) // 8], 8, axis=0),
    "nearly copies": lambda rng, rows: 1 + 1e-7 * rows,
    "one sign": lambda rng, rows: np.abs(rows) + 5,
    "of all lengths": lambda rng, rows: rows * 10.0 ** rng.integers(-4, 5, (len(rows), 1)),
    "collapsed": lambda rng, rows: np.ones_like(rows),
    "float64, far from 0": lambda rng, rows: rows.astype("f8") + 1e4,
}


@pytest.mark.parametrize(("metric", "kind"), spread(METRICS, HOSTILE))
def test_features_that_float32_ranks_wrongly(kind: str, metric: Any) -> None:
    """The bound on its error holds: what is taken for certain is, and nothing is refused."""
    rng = np.random.default_rng(1)
    q, g = (HOSTILE[kind](rng, rng.standard_normal((n, 32)).astype("f4")) for n in (16, 320))
    labels = {
        "query": se.Labels(rng.integers(0, 12, 16)),
        "gallery": se.Labels(rng.integers(0, 10, 320)),
    }
    of = se.Features(q, g, metric)
    options: dict[str, Any] = {**labels, "protocol": "no-camera", "metrics": "all"}
    exact = se.evaluate(of, **options)
    for k in (3, 40, 320):
        found = se.evaluate(se.Neighbors(features=of, index="Flat", k=k, tighten=True), **options)
        contains(found, exact)
    assert found.statistics.equals(exact.statistics)


def write_vecs(path: str, rows: np.ndarray) -> None:
    lengths = np.full((len(rows), 1), rows.shape[1], "<i4").view(np.uint8)
    Path(path).write_bytes(
        np.hstack([lengths, rows.view(np.uint8).reshape(len(rows), -1)]).tobytes()
    )


def test_vecs_and_hdf5_by_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.arange(60, dtype="<f4").reshape(12, 5)
    write_vecs("rows.fvecs", rows)
    write_vecs("rows.bvecs", rows.astype("u1"))
    with h5py.File("rows.h5", "w") as file:
        file["only"] = rows
    for uri in ("rows.fvecs", "rows.bvecs", "rows.h5", "rows.h5::only"):
        array = open_array(uri)
        assert array.shape == (12, 5)
        assert np.array_equal(array.read((3, 9), (1, 4)), rows[3:9, 1:4])
        assert np.array_equal(array.take(np.array([0, 4, 11])), rows[[0, 4, 11]])
    Path("cut.fvecs").write_bytes(Path("rows.fvecs").read_bytes()[:-3])
    data = bytearray(Path("rows.fvecs").read_bytes())
    data[24 * 3] = 4
    Path("uneven.fvecs").write_bytes(data)
    Path("no.h5").write_bytes(b"nothing")
    for uri, message in (
        ("cut.fvecs", "no whole number of rows of 5 values"),
        ("rows.fvecs::key", "have no keys"),
        ("rows.h5::other", "has no such dataset"),
        ("no.h5", "can't be read as HDF5"),
    ):
        with pytest.raises(se.InputError, match=message):
            open_array(uri)
    with pytest.raises(se.InputError, match="row 3 is 4 long, row 0 5"):
        open_array("uneven.fvecs").read_all()


LISTS, AWAY = np.array([[0, 1, 2], [3, 4, 5]]), np.array([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]])


def entry(array: np.ndarray, row: int, column: int, value: float) -> np.ndarray:
    changed = array.copy()
    changed[row, column] = value
    return changed


@pytest.mark.parametrize(
    ("indices", "distances", "message"),
    [
        (entry(LISTS, 1, 1, -1), AWAY, "query 1, place 3 holds item 5 at 0.3: −1 stands before it"),
        (
            entry(LISTS, 0, 2, 9),
            AWAY,
            "holds item 9 at 0.3: the 9 gallery items are numbered 0 to 8",
        ),
        (entry(LISTS, 0, 2, -2), AWAY, "holds item -2"),
        (
            LISTS,
            entry(AWAY, 1, 0, np.nan),
            "query 1, place 1 holds item 3 at nan: distances must be",
        ),
        (LISTS, AWAY[:, ::-1], "values fall along every list"),
        (entry(LISTS, 1, 1, 3), AWAY, "query 1 lists item 3 twice, at different distances"),
        (LISTS[:1], AWAY[:1], "have 1 rows, and labels 2 ids"),
        (LISTS, AWAY[:, :2], "one distance an entry is needed"),
        (LISTS.astype("f4"), AWAY, "a 2-d array of integers"),
    ],
)
def test_bad_lists_are_refused(indices: np.ndarray, distances: np.ndarray, message: str) -> None:
    labels = {"query": se.Labels([0, 1]), "gallery": se.Labels(np.arange(9) % 3)}
    with pytest.raises(se.InputError, match=message):
        se.evaluate(se.Neighbors(indices, distances), **labels, protocol="no-camera")


@pytest.mark.parametrize(
    ("indices", "distances", "message"),
    [
        (LISTS[:, [1, 0, 2]], AWAY[:, [1, 0, 2]], "2 lists were not sorted by distance"),
        (
            entry(LISTS, 1, 1, 3),
            entry(AWAY, 1, 1, 0.1),
            r"1 entries name an item .* \(first: query 1\)",
        ),
        (entry(LISTS, 0, 2, -1), AWAY, "1 lists end in −1 before k"),
    ],
)
def test_what_is_repaired_is_said(indices: np.ndarray, distances: np.ndarray, message: str) -> None:
    labels = {"query": se.Labels([0, 1]), "gallery": se.Labels(np.arange(9) % 3)}
    with pytest.warns(se.StreamevalWarning, match=message):
        found = se.evaluate(se.Neighbors(indices, distances), **labels, protocol="no-camera")
    assert sum(found.provenance["lists"]["repaired"].values()) >= 1


@pytest.mark.usefixtures("folder")
def test_lists_of_something_else_are_refused() -> None:
    indices, distances = exact_lists(50)
    other = indices.copy()
    other[:, 0] = GALLERY - 1  # no more the nearest; the positives that it was are missing
    np.savez("of.npz", indices=indices, distances=distances, gallery_rows=[GALLERY + 1])
    stale = fingerprint(open_array("query.npy"))
    np.savez("stale.npz", indices=indices, distances=distances, gallery_fingerprint=[stale])
    with h5py.File("angular.hdf5", "w") as file:
        file.attrs["distance"] = "angular"
        file["neighbors"], file["distances"] = indices, distances
    of = features("euclidean")
    with pytest.raises(se.InputError, match="of a gallery of 401 items, and there are 400"):
        se.evaluate(se.Neighbors("of.npz"), **sides())
    with pytest.raises(se.InputError, match=r"are of another gallery than gallery\.npy"):
        se.Neighbors("stale.npz", features=of)
    with pytest.raises(se.InputError, match="of metric cosine, and euclidean is asked for"):
        se.Neighbors("angular.hdf5", features=of)
    with pytest.MonkeyPatch.context() as patch:  # of these options nothing large is read
        patch.setattr("streameval.neighbors.neighbors.fingerprint", pytest.fail)
        with pytest.raises(se.OptionError, match="choose fewer"):
            se.Neighbors("stale.npz", features=of, k=51)
    for source in (
        se.Neighbors(indices, distances**2, features=of),
        se.Neighbors(indices, distances, features=features()),
    ):
        with pytest.raises(se.InputError, match="of other features, or of another metric"):
            se.evaluate(source, **sides())
    holes = np.array(
        [
            row[np.isin(np.load("gallery_ids.npy")[row], [own], invert=True)][:20]
            for row, own in zip(indices, np.load("query_ids.npy"), strict=True)
        ]
    )
    with pytest.raises(se.InputError, match="the lists are not those of an exact search"):
        se.evaluate(se.Neighbors(holes, features=of, tighten=True), **sides())


@pytest.mark.parametrize("name", ["manhattan", "cosine"])
def test_a_distance_that_faiss_does_not_have_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    distance = replace(find_distance(name), faiss=None)  # whether or not it has a filter
    monkeypatch.setattr(se.Features, "distance", distance)
    features = se.Features(np.eye(4), np.eye(4))
    with pytest.raises(se.OptionError, match="FAISS has no equivalent of the"):
        se.Neighbors(features=features, index="Flat", k=3)


@pytest.mark.usefixtures("folder")
def test_bad_indexes_are_refused() -> None:
    gallery = np.load("gallery.npy")
    made = {
        "narrow": (faiss.IndexFlatL2(5), gallery[:, :5].copy()),
        "inner": (faiss.IndexFlatIP(WIDTH), gallery),
        "short": (faiss.IndexFlatL2(WIDTH), gallery[:100]),
        "untrained": (faiss.index_factory(WIDTH, "IVF4,Flat"), gallery[:0]),
        "other": (faiss.IndexFlatL2(WIDTH), gallery[::-1].copy()),
    }
    for name, (index, rows) in made.items():
        if len(rows):
            index.add(rows)
        faiss.write_index(index, f"{name}.faiss")
    Path("broken.faiss").write_bytes(b"xxxx")
    split = faiss.index_factory(WIDTH, "IVF4,Flat")
    split.train(gallery)
    lists = faiss.OnDiskInvertedLists(split.nlist, split.code_size, "lists.ivfdata")
    split.replace_invlists(lists)
    split.add(gallery)
    faiss.write_index(split, "split.faiss")
    for name, message in (
        ("narrow", "vectors of 5 columns, the gallery features gallery.npy have 12"),
        ("inner", "FAISS's metric inner product, and --metric euclidean needs L2"),
        ("short", "holds 100 vectors, and the gallery features gallery.npy have 400 rows"),
        ("untrained", "is not trained"),
        ("other", "of other features, or of another metric"),
        ("broken", "can't be read as a FAISS index"),
        ("split", r"split.faiss lie in another file \(lists.ivfdata\)"),
        ("nowhere", "can't be opened: No such file"),
    ):
        with pytest.raises(se.InputError, match=message):
            search("euclidean", 10, f"{name}.faiss")
    with pytest.raises(
        se.InputError, match="trained on 10 of 400 gallery rows, and has 16 centroids"
    ):
        search("euclidean", 10, "IVF16,Flat", train_rows=10)
    with pytest.warns(se.StreamevalWarning, match="FAISS asks for 624"):
        search("euclidean", 10, "IVF16,Flat", save_index="built.faiss")
    np.save("gallery.npy", gallery + 1)
    with pytest.raises(se.InputError, match="was built of other features"):
        search("euclidean", 10, "built.faiss")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index": "Nothing7"}, "FAISS makes no index 'Nothing7' for 12 columns"),
        ({"index": "PQ5"}, "multiple of the number of subquantizers"),
        ({"index": "IDMap,Flat"}, "'IDMap,Flat' maps numbers of its own.*leave IDMap out"),
        ({"index": "HNSW8", "missing": "bounds"}, "HNSW8 is approximate"),
        (
            {"index": "HNSW8", "search": "nprobe=4"},
            "'nprobe=4' can't be set on an index of type IndexHNSW",
        ),
        ({"index": "Flat", "search": "nprobe=4"}, "Flat has no search parameters"),
        ({"index": "Flat", "k": None}, "needs k"),
        ({"index": "Flat", "k": 0}, "k is 0; expected a positive integer"),
        ({"index": "Flat", "features": None}, "needs features"),
        ({"index": "Flat", "missing": "perhaps"}, "expected bounds or never"),
        ({"index": "Flat", "missing": "never", "tighten": True}, "leave one out"),
        ({"index": "Flat", "k": "auto", "missing": "never"}, "k auto closes bounds"),
        (
            {"index": "Flat", "save_index": "x.faiss"},
            "expected a file NAME.faiss, and an index other than Flat",
        ),
        ({"lists": LISTS}, "come without distances"),
        ({}, "give lists of neighbours, or an index"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    given = {"k": 10, "features": features(), **options}
    if "lists" in options:
        given |= {"features": None, "k": None}
    with pytest.raises(se.OptionError, match=message):
        se.evaluate(se.Neighbors(**given), **sides())


@pytest.mark.usefixtures("folder")
def test_what_lists_cannot_give_is_refused() -> None:
    source = se.Neighbors(features=features(), index="Flat", k=20)
    with pytest.raises(se.OptionError, match="single gallery shot"):
        se.evaluate(source, **sides(), protocol="cuhk03")
    with pytest.raises(se.OptionError, match="lists hold some of them"):
        se.evaluate(source, **sides(), refine="EER")
    found = se.evaluate(source, **sides(), metrics="EER,mAP")
    assert found.metrics.details["EER"].reason.startswith("needs the distances of all pairs")
    with pytest.raises(se.InputError, match="cam-pair needs the place of every positive"):
        found.grouped("cam-pair")
    with pytest.raises(se.InputError, match="a confidence interval needs the place of every"):
        found.confidence()
    with pytest.raises(se.InputError, match="one is of lists: a comparison needs the place"):
        se.compare(found, found, names=("one", "other"))
    with pytest.raises(se.InputError, match="widen --range"):
        se.evaluate(source, **sides(), range=(0.5, 0.6))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("missing", ["bounds", "never"])
def test_a_result_is_saved_and_read_under_other_options(missing: Any) -> None:
    found = search("cosine", 30, missing=missing).grouped("cam")
    found.save("out")
    loaded = se.Evaluation.load("out")
    assert loaded.summary() == found.summary()
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["provenance"]["lists"]["missing"] == missing
    again = loaded.with_options(ties="optimistic", ap="trapezoid")
    fresh = se.evaluate(
        se.Neighbors(features=features(), index="Flat", k=30, missing=missing),
        **sides(),
        ties="optimistic",
        ap="trapezoid",
    )
    assert again.metrics.scalars == pytest.approx(fresh.metrics.scalars, abs=0, nan_ok=True)
    if missing == "bounds":
        assert summary["bounds"]["mAP"] == list(found.metrics.bounds["mAP"])
        assert again.metrics.bounds == fresh.metrics.bounds
        assert all("mAP" in one.bounds for one in found.groups.values())


def test_ties_are_those_that_the_lists_show() -> None:
    """What is missing may be anywhere: where it is put at best or at worst is no tie."""
    rng = np.random.default_rng(3)
    distances = rng.permutation(20 * 50).reshape(20, 50) / 1000
    labels = {
        "query": se.Labels(id=rng.integers(0, 6, 20)),
        "gallery": se.Labels(id=rng.integers(0, 6, 50)),
    }
    assert se.evaluate(se.Distances(distances), **labels, protocol="no-camera").counts["ties"] == 0
    nearest = np.argsort(distances, axis=1)[:, :9]
    lists = se.Neighbors(nearest, np.take_along_axis(distances, nearest, 1))
    found = se.evaluate(lists, **labels, protocol="no-camera")
    assert (found.per_query["missing_positives"] > 0).any()
    assert found.counts["ties"] == 0
    assert not found.per_query["ties/lower"].any()


def test_a_tie_at_the_end_of_a_list_may_be_of_more() -> None:
    found = se.evaluate(
        se.Neighbors(np.array([[0, 1]]), np.zeros((1, 2))),
        query=se.Labels(id=np.array([1])),
        gallery=se.Labels(id=np.array([1, 2, 3])),
        protocol="no-camera",
        metrics="CMC@1",
    )
    assert found.counts["ties"] == 1
    assert found.per_query["ties/lower"].tolist() == [1]
    assert found.per_query["ties/upper"].tolist() == [2]


@pytest.mark.usefixtures("folder")
def test_a_tight_budget_cuts_the_queries_and_changes_nothing() -> None:
    from dataclasses import replace

    from support import runs

    source = se.Neighbors(features=features(), index="Flat", k=40, tighten=True)
    work = prepare(source, **sides(), threads=2)
    expected = runs.run(work, se.MetricOptions())
    from support.planning import Task

    tasks = tuple(
        Task((q, min(q + 7, QUERIES)), (g, min(g + 90, GALLERY)))
        for q in range(0, QUERIES, 7)
        for g in range(0, GALLERY, 90)
    )
    cut = replace(work, plan=replace(work.plan, tasks=tasks, tile=(7, 40), block=32))
    found = runs.run(cut, se.MetricOptions())
    assert found.statistics.equals(expected.statistics)
    assert found.summary()["bounds"] == expected.summary()["bounds"]
    with pytest.MonkeyPatch.context() as patch:
        runs.plan_any_budget(patch)
        with pytest.raises(se.BudgetError, match="too small for lists"):
            prepare(source, **sides(), memory="10MB")


@pytest.mark.parametrize("seed", range(20))
def test_hits_of_shards_are_the_nearest_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, k, gallery = 5, int(rng.integers(1, 12)), int(rng.integers(1, 30))
    levels = np.linspace(-1, 1, int(rng.integers(1, 40)), dtype=np.float32)
    values = rng.choice(levels, (rows, gallery))
    found = Hits(np.full((rows, k), -1), np.full((rows, k), np.inf, np.float32), 0.0)
    for start in range(0, gallery, 7):
        own = values[:, start : start + 7]
        order = np.argsort(own + rng.random(own.shape) * 1e-6, axis=1)[:, :k]  # ties in any order
        near = np.take_along_axis(own, order, axis=1)
        padded = ((0, 0), (0, int(rng.integers(0, k - order.shape[1] + 1))))
        item = np.pad(order, padded, constant_values=-1)
        found = found.merge(Hits.of(np.pad(near, padded), item, start, float(start)))
    nearest = np.lexsort((np.arange(gallery) * np.ones((rows, 1)), values), axis=1)[:, :k]
    some = nearest.shape[1]
    assert np.array_equal(found.item[:, :some], nearest)
    assert np.array_equal(found.value[:, :some], np.take_along_axis(values, nearest, axis=1))
    assert (found.item[:, some:] == -1).all()
    assert np.isinf(found.value[:, some:]).all()
    assert found.longest == 7 * ((gallery - 1) // 7)


def test_faiss_multiplies_by_blas_while_it_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    q, g = (rng.standard_normal((rows, 64), dtype=np.float32) for rows in (400, 300))
    labels = {"query": se.Labels(np.arange(400) % 9), "gallery": se.Labels(np.arange(300) % 9)}
    seen, whole, usual = [], faiss.knn, faiss.cvar.distance_compute_blas_threshold

    def knn(queries: np.ndarray, *given: Any, **named: Any) -> Any:
        seen.append((len(queries), faiss.cvar.distance_compute_blas_threshold))
        if len(seen) > 8:
            raise MemoryError("no room")
        return whole(queries, *given, **named)

    def lists(rows: int) -> se.Evaluation:
        features = se.Features(q[:rows], g, "euclidean")
        own = {**labels, "query": se.Labels(labels["query"].id[:rows])}
        source = se.Neighbors(features=features, index="Flat", k=20)
        return se.evaluate(source, **own, protocol="no-camera", threads=2)

    expected = lists(400)
    monkeypatch.setattr(faiss, "knn", knn)
    assert lists(400).statistics.equals(expected.statistics)
    assert {threshold for _, threshold in seen} == {1}
    assert faiss.cvar.distance_compute_blas_threshold == usual
    seen.clear()
    lists(3)
    assert seen == [(3, usual)]
    seen.extend([(0, 0)] * 8)
    with pytest.raises((MemoryError, se.StreamevalError)):
        lists(400)
    assert faiss.cvar.distance_compute_blas_threshold == usual


@pytest.mark.parametrize(("queries", "threads"), [(5000, 2), (900, 3), (40, 8)])
def test_a_small_gallery_is_searched_by_all_threads(queries: int, threads: int) -> None:
    rng = np.random.default_rng(0)
    q, g = (rng.standard_normal((rows, 8), dtype=np.float32) for rows in (queries, 200))
    labels = {"query": se.Labels(np.arange(queries) % 9), "gallery": se.Labels(np.arange(200) % 9)}
    source = se.Neighbors(features=se.Features(q, g), index="Flat", k=5)
    plan = prepare(source, **labels, protocol="no-camera", memory="2GB", threads=threads).plan
    spans = [task.queries for task in plan.tasks]
    assert all(task.gallery == (0, 200) for task in plan.tasks)
    assert [stop for _, stop in spans[:-1]] == [start for start, _ in spans[1:]]
    assert (spans[0][0], spans[-1][1]) == (0, queries)
    assert len(spans) >= min(threads, -(-queries // 32))
    assert plan.bytes_read >= len(spans) * g.nbytes


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("index", ["Flat", "IVF8,Flat", "HNSW8", "stored"])
@pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
def test_k_beyond_the_gallery_is_the_gallery(index: str) -> None:
    found = []
    for k in (GALLERY, GALLERY + 1, 10**6, 10**30):
        if index == "stored":
            source: Any = se.Neighbors(*exact_lists(GALLERY), k=k)
        else:
            source = se.Neighbors(features=features(), index=index, k=k)
        work = prepare(source, **sides(), memory="2GB")
        result = se.evaluate(source, **sides(), memory="2GB")
        lists = result.provenance["lists"]
        figures = result.metrics.scalars, result.summary()["bounds"], lists["k"]
        found.append((work.plan.parts, work.plan.tile, work.source.options()["k"], figures))
    assert all(one == found[0] for one in found[1:])


@pytest.mark.usefixtures("folder")
def test_stored_lists_wider_than_the_gallery_are_planned_as_wide_as_they_are() -> None:
    indices, distances = exact_lists(GALLERY)
    wide = [np.pad(one, ((0, 0), (0, 5000)), constant_values=-1) for one in (indices, distances)]
    expected = se.evaluate(se.Neighbors(indices, distances), **sides())
    found = se.evaluate(se.Neighbors(*wide), **sides())
    assert found.statistics.equals(expected.statistics)
    assert found.metrics.scalars == expected.metrics.scalars
    plans = [prepare(se.Neighbors(*one), **sides()).plan for one in ((indices, distances), wide)]
    assert plans[1].parts["lists"] * GALLERY == plans[0].parts["lists"] * (GALLERY + 5000)


def run(*arguments: str) -> Result:
    labels = [
        f"--{side}-{what}={side}_{what}.npy"
        for side in ("query", "gallery")
        for what in ("ids", "cams")
    ]
    return CliRunner().invoke(main, ["evaluate", *arguments, *labels, "--quiet"])


@pytest.mark.usefixtures("folder")
def test_on_the_command_line() -> None:
    both = ("--query", "query.npy", "--gallery", "gallery.npy")
    done = run(*both, "--index", "Flat", "-k", "20")
    assert done.exit_code == 0, done.output
    assert "places certain" in done.output
    told = [
        json.loads(run(*both, "--index", "Flat", "-k", k, "--json").stdout)
        for k in (str(GALLERY), "1000000", "1" + 30 * "0")
    ]
    assert told[0]["metrics"] == told[1]["metrics"] == told[2]["metrics"]
    assert "closed by" in done.output
    done = run(*both, "--index", "Flat", "-k", "20", "--json", "--tighten", "--out", "out")
    assert done.exit_code == 0, done.output
    bounds = json.loads(done.stdout)["bounds"]
    assert bounds["mAP"][0] < bounds["mAP"][1]
    assert (
        json.loads(
            run(
                *both,
                "--index",
                "Flat",
                "-k",
                "20",
                "--tighten",
                "--json",
                "--out",
                "out",
                "--resume",
            ).stdout
        )["bounds"]
        == bounds
    )
    done = run(*both, "--index", "HNSW8", "--search", "efSearch=40", "-k", "20", "--dry-run")
    assert "training, index, search" in done.output
    indices, distances = exact_lists(20)
    np.savez("lists.npz", indices=indices, distances=distances)
    assert run("--neighbors", "lists.npz").exit_code == 0
    assert "never found" in run("--neighbors", "lists.npz", "--missing", "never", "-k", "5").output
    Path("kept.faiss").write_text("an index that took hours")
    for arguments, message in (
        (
            (*both, "--index", "HNSW8", "-k", "9", "--save-index", "kept.faiss"),
            "kept.faiss exists already; choose another, or replace it: --overwrite",
        ),
        (("-k", "20", *both), "got -k, which has no effect here: give --neighbors"),
        (("--neighbors", "lists.npz", "--index", "Flat"), "choose one of them"),
        (("--neighbors", "lists.npz", "--metric", "dot"), "leave --metric out"),
        (("--neighbors", "lists.npz", "--query", "query.npy"), "--gallery is missing"),
        ((*both, "--index", "Flat", "-k", "many"), "-k is 'many'"),
        (
            (*both, "--index", "Flat", "-k", "9", "--close-to", "0.1"),
            "got --close-to, which has no effect here: give -k auto",
        ),
        (
            ("--neighbors", "lists.npz", "-k", "21"),
            "k is 21, and the lists of lists.npz::indices have 20",
        ),
    ):
        done = run(*arguments)
        assert (done.exit_code, message in done.output) == (2, True), done.output
    built = ("--index", "HNSW8", "-k", "9", "--save-index", "kept.faiss", "--overwrite")
    assert run(*both, *built).exit_code == 0
    assert run(*both, "--index", "kept.faiss", "-k", "9").exit_code == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore::streameval.errors.StreamevalWarning")
def test_a_result_of_an_index_file_that_was_built_again_is_not_resumed() -> None:
    both = ("--query", "query.npy", "--gallery", "gallery.npy")
    for train_rows in (40, 300):
        built = ("--index", "IVF16,Flat", "--save-index", "kept.faiss", "--overwrite")
        done = run(*both, *built, "-k", "9", "--train-rows", str(train_rows))
        assert done.exit_code == 0, done.output
        shutil.copy("kept.faiss", f"{train_rows}.faiss")
    Path("kept.faiss.json").unlink()
    arguments = (*both, "--index", "kept.faiss", "-k", "9", "--out", "out", "--resume", "--json")
    first = run(*arguments)
    assert run(*arguments).stdout == first.stdout
    shutil.move("kept.faiss", "moved.faiss")
    moved = [one.replace("kept.faiss", "moved.faiss") for one in arguments]
    assert run(*moved).stdout == first.stdout
    shutil.copy("40.faiss", "kept.faiss")
    other = run(*arguments)
    assert other.exit_code == 2
    assert "out holds the result of another evaluation" in other.output
