"""Arrays of other packages: the same numbers as from a file; what can't be, is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from spread import spread
from support.arrays import open_array
from zarr.storage import MemoryStore

import streameval as se
from streameval import InputError, OptionError

QUERIES, GALLERY, WIDTH = 40, 900, 6
Values = np.ndarray


class Later:
    """A package that is imported where it is used: other tests have to do with less memory."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, what: str) -> Any:
        return getattr(import_module(self.name), what)


pd, pl, xr = map(Later, ("pandas", "polars", "xarray"))


def problem() -> tuple[dict[str, Values], dict[str, se.Labels]]:
    """Return features of both sides, their distances, and labels; few values make for ties."""
    rng = np.random.default_rng(3)
    q, g = (rng.integers(1, 5, (n, WIDTH)).astype("f4") for n in (QUERIES, GALLERY))
    matrix = rng.integers(1, 400, (QUERIES, GALLERY)).astype("f4") / 512
    ids = {"query": rng.integers(0, 30, QUERIES), "gallery": rng.integers(-1, 30, GALLERY)}
    sides = {side: se.Labels(id=own, cam=rng.integers(0, 3, len(own))) for side, own in ids.items()}
    return {"q": q, "g": g, "matrix": matrix}, sides


@pytest.fixture(scope="module")
def of_files(tmp_path_factory: pytest.TempPathFactory) -> list[se.Evaluation]:
    """Return the evaluations of the features and of the distances in files."""
    folder, (values, sides) = tmp_path_factory.mktemp("files"), problem()
    for name, own in values.items():
        np.save(folder / f"{name}.npy", own)
    features = se.Features(folder / "q.npy", folder / "g.npy", "euclidean")
    return [se.evaluate(one, **sides) for one in (features, se.Distances(folder / "matrix.npy"))]


def write_zarr(store: Any, values: Values, **options: Any) -> zarr.Array:
    options = {"chunks": (20, 90), "dtype": values.dtype, **options}
    array = zarr.create_array(store, shape=values.shape, **options)
    array[...] = values
    return array


def name_of(values: Values) -> str:
    return "x".join(map(str, values.shape))


def map_of(folder: Path, values: Values, mode: Any) -> Values:
    np.save(folder / f"{name_of(values)}.npy", values)
    return np.load(folder / f"{name_of(values)}.npy", mmap_mode=mode)


def changed_copy(folder: Path, values: Values) -> Values:
    copied = map_of(folder, values + 1, "c")
    copied[...] = values
    return copied


def part_of_map(folder: Path, values: Values) -> Values:
    return map_of(folder, np.concatenate([values[:5], values]), "r")[5:]


def replaced_map(folder: Path, values: Values) -> Values:
    whole = map_of(folder, values, "r")
    (folder / f"{name_of(values)}.npy").rename(folder / "old.npy")
    np.save(folder / f"{name_of(values)}.npy", values + 1)
    return whole


def raw_map(folder: Path, values: Values) -> Values:
    at = 3 * values.shape[1] * values.itemsize
    path = folder / name_of(values)
    path.write_bytes(bytes(at) + values.tobytes())
    return np.memmap(path, values.dtype, "r", at, values.shape)


def read_dataset(folder: Path, values: Values) -> h5py.Dataset:
    with h5py.File(folder / f"{name_of(values)}.h5", "w") as file:
        file["deep/values"] = values
    return h5py.File(folder / f"{name_of(values)}.h5", "r")["deep/values"]


def written_dataset(folder: Path, values: Values) -> h5py.Dataset:
    file = h5py.File(folder / "w.h5", "a")
    dataset = file.create_dataset(name_of(values), values.shape, "f4", chunks=(30, 3))
    dataset[...] = values
    return dataset


def dataset_in_memory(folder: Path, values: Values) -> h5py.Dataset:
    file = h5py.File(folder / f"{name_of(values)}.none", "w", driver="core", backing_store=False)
    return file.create_dataset("values", data=values)


def lazy_data_array(folder: Path, values: Values) -> Any:
    made = xr.Dataset({"values": (("row", "column"), values)})
    made.to_zarr(folder / f"{name_of(values)}.zarr", consolidated=False)
    return xr.open_zarr(folder / f"{name_of(values)}.zarr", chunks=None, consolidated=False)[
        "values"
    ]


def tensor(values: Values, **options: Any) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return torch.tensor(values, **options)


KINDS: dict[str, Callable[[Path, Values], Any]] = {
    "NumPy": lambda folder, values: values,
    "Fortran order": lambda folder, values: np.asfortranarray(values),
    "map": lambda folder, values: map_of(folder, values, "r"),
    "map of Fortran order": lambda folder, values: map_of(folder, np.asfortranarray(values), "r"),
    "map that is written to": lambda folder, values: map_of(folder, values, "r+"),
    "map changed in memory": changed_copy,
    "part of a map": part_of_map,
    "map of a file replaced since": replaced_map,
    "map of raw numbers": raw_map,
    "Zarr": lambda folder, values: write_zarr(folder / f"{name_of(values)}.zarr", values),
    "Zarr of a group": lambda folder, values: write_zarr(
        zarr.open_group(folder / "g.zarr").store, values, name=f"deep/{name_of(values)}"
    ),
    "Zarr in memory": lambda folder, values: write_zarr(MemoryStore(), values),
    "Zarr of shards": lambda folder, values: write_zarr(
        MemoryStore(), values, chunks=(10, 90), shards=(20, 180)
    ),
    "Zarr v2 of Fortran order": lambda folder, values: write_zarr(
        MemoryStore(), values, zarr_format=2, order="F", dtype=">f4"
    ),
    "HDF5": read_dataset,
    "HDF5 being written": written_dataset,
    "HDF5 in memory": dataset_in_memory,
    "lists": lambda folder, values: values.tolist(),
    "rows": lambda folder, values: tuple(values),
    "Dask": lambda folder, values: da.from_array(values, chunks=(70, 400)),
    "Dask, uneven": lambda folder, values: da.concatenate(
        [da.from_array(part, chunks=(13, -1)) for part in np.split(values, [1, 1, 31])]
    ),
    "Dask, computed": lambda folder, values: (
        da.from_array(values * 2, chunks=(64, 5)).rechunk((50, 3)) / 2
    ).astype("f4"),
    "xarray": lambda folder, values: xr.DataArray(values),
    "xarray of Dask": lambda folder, values: xr.DataArray(values).chunk({"dim_0": 33}),
    "xarray of a file": lazy_data_array,
    "pandas": lambda folder, values: pd.DataFrame(values),
    "polars": lambda folder, values: pl.DataFrame(values),
    "PyTorch": lambda folder, values: tensor(values),
    "PyTorch with gradients": lambda folder, values: tensor(values, requires_grad=True),
}
NEED_NAMES = {
    "Zarr in memory",
    "Zarr of shards",
    "Zarr v2 of Fortran order",
    "HDF5 being written",
    "HDF5 in memory",
    "Dask",
    "Dask, uneven",
    "Dask, computed",
    "xarray of Dask",
    "xarray of a file",
}


def outcome(result: se.Evaluation) -> dict[str, Any]:
    """Return everything of a result that is a number, to be compared with ``==``."""
    counted = {name: array.tobytes() for name, array in result.statistics.arrays().items()}
    curves = {name: curve.tobytes() for name, curve in result.curves.items()}
    return {"metrics": result.metrics.scalars, "counts": result.counts, **counted, **curves}


def same(result: se.Evaluation, expected: se.Evaluation) -> bool:
    return repr(outcome(result)) == repr(outcome(expected))


@pytest.mark.parametrize("kind", spread(KINDS))
def test_every_kind_gives_the_numbers_of_a_file(
    tmp_path: Path, kind: str, of_files: list[se.Evaluation]
) -> None:
    values, sides = problem()
    (tmp_path / "held").mkdir()
    q, g, matrix = (KINDS[kind](tmp_path / "held", own) for own in values.values())
    for source, expected in zip(
        (se.Features(q, g, "euclidean"), se.Distances(matrix)), of_files, strict=True
    ):
        assert same(se.evaluate(source, **sides), expected)
    rows, some = np.arange(0, GALLERY, 7), (slice(100, 333), slice(1, 4))
    opened = open_array(g)
    assert np.array_equal(opened.take(rows), values["g"][rows])
    assert np.array_equal(opened.read((100, 333), (1, 4)), values["g"][some])


@pytest.mark.parametrize("kind", spread(KINDS))
def test_what_a_resumed_run_knows_an_array_by(tmp_path: Path, kind: str) -> None:
    values, sides = problem()
    (tmp_path / "held").mkdir()
    matrix = KINDS[kind](tmp_path / "held", values["matrix"])
    kept = {"checkpoint": tmp_path / "kept", **sides}
    if kind in NEED_NAMES:
        with pytest.raises(OptionError, match=r"has no name, and a run .* name=\.\.\.\)"):
            se.evaluate(se.Distances(matrix), **kept)
    named = se.evaluate(se.Distances(matrix, name="model 7"), **kept)
    uri = named.provenance["inputs"]["distances"]
    assert (uri == "model 7") == open_array(matrix).in_memory
    assert same(named, se.evaluate(se.Distances(values["matrix"]), **sides))


def test_a_name_is_of_one_shape_and_dtype(tmp_path: Path) -> None:
    ones = da.ones((4, 5), dtype="f4")
    prints = [
        se.Distances(array, name=name).inputs()[0].fingerprint()
        for array in (ones, ones.T, ones.astype("f8"))
        for name in ("a", "b")
    ]
    assert len(set(prints)) == len(prints)
    held = np.ones((4, 5), "f4")
    own = [se.Distances(array, name="a").inputs()[0].fingerprint() for array in (held, held * 2)]
    assert own[0] != own[1]  # what is in memory is known by its content, whatever its name
    assert own[0] == se.Distances(held).inputs()[0].fingerprint()
    with pytest.raises(OptionError, match="name is of type int; a text is needed"):
        se.Distances(ones, name=3)  # type: ignore[arg-type]


class Chunks:
    """A function of chunks that counts how often it is called for each of them."""

    def __init__(self, values: Values) -> None:
        self.values, self.calls = values, Counter[tuple[int, ...]]()

    def __call__(self, block_info: Any = None) -> Values:
        spans = block_info[None]["array-location"]
        self.calls[tuple(start for start, _ in spans)] += 1
        return self.values[tuple(slice(*span) for span in spans)]

    def array(self, chunks: Any) -> da.Array:
        chunks = da.core.normalize_chunks(chunks, self.values.shape)
        made = da.map_blocks(self, chunks=chunks, dtype=self.values.dtype, meta=self.values[:0, :0])
        self.calls.clear()
        self.sizes, self.count = chunks[0], int(np.prod(list(map(len, made.chunks))))
        self.starts = np.cumsum([0, *self.sizes[:-1]]).tolist()
        return made


UNEVEN = ((2500, 1, 500, 2000, 4999), (5, 3))


@pytest.mark.parametrize("chunks", [(150, 3), (1300, 8), (7000, 8), UNEVEN, (10_000, 8)], ids=str)
def test_each_chunk_of_features_is_computed_once_a_pass(chunks: Any) -> None:
    rng = np.random.default_rng(0)
    q, g = (rng.standard_normal((n, 8)).astype("f4") for n in (600, 10_000))
    gallery, query = Chunks(g), Chunks(q)
    source = se.Features(query.array((250, 8)), gallery.array(chunks))
    sides = {"query": se.Labels(np.arange(600) % 90), "gallery": se.Labels(np.arange(10_000) % 97)}
    options: dict[str, Any] = {**sides, "protocol": "no-camera", "threads": 2}
    result = se.evaluate(source, **options)
    assert set(query.calls.values()) == {1}
    positives = sides["gallery"].id < 90
    ends = {row: row + size for row, size in zip(gallery.starts, gallery.sizes, strict=True)}
    for (row, _), calls in gallery.calls.items():
        assert calls == 1 + positives[row : ends[row]].any()
    assert len(gallery.calls) == gallery.count
    assert same(result, se.evaluate(se.Features(q, g), **options))


@pytest.mark.parametrize("chunks", [((100, 100, 100), (900, 4000, 100)), ((7, 290, 3), (5000,))])
@pytest.mark.parametrize("range", ["minmax", (0, 1000)])
def test_each_chunk_of_distances_is_computed_once_a_pass(chunks: Any, range: Any) -> None:
    matrix = np.random.default_rng(0).integers(0, 900, (300, 5000)).astype("f8")
    sides = {"query": se.Labels(np.arange(300) % 90), "gallery": se.Labels(np.arange(5000) % 97)}
    options = {**sides, "protocol": "no-camera", "threads": 2, "range": range}
    stored = Chunks(matrix)
    result = se.evaluate(se.Distances(stored.array(chunks)), **options)
    assert set(stored.calls.values()) == {2 if range == "minmax" else 1}
    assert len(stored.calls) == stored.count
    assert same(result, se.evaluate(se.Distances(matrix), **options))


@pytest.mark.parametrize("step", [1, 7, 30, 64, 200])
def test_blocks_of_any_size_compute_each_chunk_once(step: int) -> None:
    values = np.arange(300.0).reshape(100, 3)
    held = Chunks(values)
    array = open_array(held.array(((30, 5, 0, 60, 5), (2, 1))))
    read = [array.read((row, min(row + step, 100))) for row in range(0, 100, step)]
    assert np.array_equal(np.concatenate(read), values)
    assert set(held.calls.values()) == {1}


def closed_dataset(folder: Path) -> h5py.Dataset:
    with h5py.File(folder / "closed.h5", "w") as file:
        return file.create_dataset("values", data=np.ones((2, 3)))


def half_written(store: Any, **options: Any) -> zarr.Array:
    array = zarr.create_array(store, shape=(8, 8), chunks=(2, 2), dtype="f4", **options)
    array[:4] = 1
    return array


def written_anew(folder: Path) -> zarr.Array:
    array = write_zarr(folder / "anew.zarr", np.ones((4, 5)))
    write_zarr(folder / "anew.zarr", np.ones((5, 5)), overwrite=True)
    return array


def half_dataset(folder: Path) -> h5py.Dataset:
    dataset = h5py.File(folder / "half.h5", "w").create_dataset("x", (8, 4), "f4", chunks=(2, 4))
    dataset[:3] = 1
    return dataset


MASKED = np.ma.masked_less(np.arange(6.0).reshape(2, 3), 2)
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "ragged": (lambda folder: [[1, 2], [3]], "can't be made an array of NumPy.*inhomogeneous"),
    "texts": (lambda folder: [[1, "a"]], "of dtype <U21; floats or integers are needed"),
    "nothing": (lambda folder: [[1, None]], "of dtype object; numbers"),
    "truths": (lambda folder: [[True, False]], r"of dtype bool; .* \.astype\('uint8'\)"),
    "complex": (lambda folder: [[1j]], "of dtype complex128; .* its real part"),
    "a number": (lambda folder: 3.0, "got a builtins.float; an array, a list of rows"),
    "0-d": (lambda folder: np.array(3.0), r"has shape \(\), 0 dimensions; 1 or 2 are needed"),
    "1-d": (lambda folder: [1.0, 2.0], r"have shape \(2,\); a 2-d array, .* is needed"),
    "3-d": (lambda folder: da.ones((2, 2, 2)), "Dask array has shape .* 3 dimensions"),
    "masked": (lambda folder: MASKED, r"has masked values: fill them in \(\.filled\)"),
    "masked chunk": (lambda folder: da.from_array(MASKED), r"chunk \(0, 0\) has masked values"),
    "unknown rows": (
        lambda folder: (ones := da.ones((5, 5)))[ones[:, 0] > 0],
        r"shape \(nan, 5\), and the number of rows is needed: call compute_chunk_sizes\(\)",
    ),
    "other than declared": (
        lambda folder: da.ones((4, 4), dtype="f4").map_blocks(lambda b: b + 1.5j, dtype="f4"),
        r"computed as ndarray of complex\d+ \(4, 4\), and the array declares float32 \(4, 4\)",
    ),
    "integers declared as floats": (  # of which float64 holds those up to 2^53 alone
        lambda folder: da.ones((4, 4), dtype="i8").map_blocks(lambda b: b + 2**60, dtype="f8"),
        r"computed as ndarray of int64 \(4, 4\), and the array declares float64 \(4, 4\)",
    ),
    "chunk that fails": (
        lambda folder: da.ones((4, 4)).map_blocks(lambda b: 1 // 0, dtype="f8"),
        r"rows 0:4 and columns 0:4 \(ZeroDivisionError: .*\): its chunks there can't be",
    ),
    "objects of Dask": (
        lambda folder: da.from_array(np.array([[None]]), chunks=1),
        "of dtype object",
    ),
    "closed": (closed_dataset, r"file that has been closed: open it again, or give PATH::NAME"),
    "half a dataset": (half_dataset, "has 2 of 4 chunks: the rest was never written"),
    "an HDF5 file": (lambda folder: h5py.File(folder / "f.h5", "w"), "got a h5py.File; an array"),
    "half a Zarr": (lambda folder: half_written(folder / "h.zarr"), "8 of its chunks are absent"),
    "half in memory": (lambda folder: half_written(MemoryStore()), "8 of its chunks are absent"),
    "half of shards": (
        lambda folder: half_written(MemoryStore(), shards=(8, 8)),
        r"8 of its chunks are absent, the first is chunk of rows 4:6, columns 0:2 of shard",
    ),
    "written anew": (written_anew, r"written anew since .* shape is \(5, 5\), and was \(4, 5\)"),
    "a Zarr group": (lambda folder: zarr.create_group(MemoryStore()), "got a zarr.Group; an array"),
    "a Dataset": (lambda folder: xr.Dataset({"x": ("n", [1.0])}), "got a xarray.Dataset"),
    "texts of pandas": (lambda folder: pd.DataFrame({"x": ["a"]}), "of dtype object; numbers"),
    "nothing of polars": (lambda folder: pl.DataFrame({"x": [1, None]}), "row 1, column 0"),
    "nan of Dask": (lambda folder: da.full((5, 3), np.nan), "holds nan in row 0, column 0"),
    "nan of xarray": (lambda folder: xr.DataArray([[1, np.nan]]), "holds nan in row 0, column 1"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_array_of_numbers_is_refused(tmp_path: Path, kind: str) -> None:
    make, words = REFUSED[kind]

    def evaluate(matrix: Any) -> None:
        source = se.Distances(matrix)
        query, gallery = ({"id": range(size)} for size in source.shape)
        se.evaluate(source, query=query, gallery=gallery, protocol="no-camera")

    with pytest.raises(InputError, match=words) as caught:
        evaluate(make(tmp_path))
    assert "\n" not in str(caught.value)


def test_tensors_that_numpy_cannot_hold() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ones = torch.ones(2, 3)
    for refused, words in (
        (ones.bfloat16(), r"torch\.bfloat16 on device cpu can't be held .* give tensor\.float\(\)"),
        (ones.to("meta"), "on device meta, which holds no values"),
        (ones.to_sparse(), r"give tensor\.to_dense\(\)"),
        (ones.bool(), r"of dtype bool"),
    ):
        with pytest.raises(InputError, match=words):
            open_array(refused)


def test_no_package_is_imported_to_tell_what_an_array_is() -> None:
    """A run of NumPy arrays loads none of the packages whose arrays could have been given."""
    others = ["zarr", "h5py", "dask", "xarray", "pandas", "polars", "torch"]
    program = (
        "import sys, numpy as np, streameval as se\n"
        "se.Distances(np.ones((2, 3))), se.Distances([[1.0]])\n"
        f"print([name for name in {others} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("kind", ["Dask", "Dask, computed", "xarray of a file", "Zarr in memory"])
def test_objects_travel_to_workers(tmp_path: Path, kind: str) -> None:
    values = problem()[0]["g"]
    array = open_array(KINDS[kind](tmp_path, values), "a name")
    sent = pickle.dumps(array)
    again = pickle.loads(sent)
    assert np.array_equal(again.read_all(), values)
    assert (again.uri, again.identity) == (array.uri, array.identity)
    assert 0 < array.sent_bytes <= len(sent)


def test_what_is_large_or_is_no_file_is_not_sent(tmp_path: Path) -> None:
    values = np.zeros((200, 1000))
    whole = open_array(da.from_array(values, chunks=(10, 1000)))
    assert values.nbytes <= whole.sent_bytes < 2 * values.nbytes
    graph = open_array(da.zeros((10**6, 1000), chunks=(10**4, 1000)))
    assert graph.sent_bytes < 10**6
    for kind in ("HDF5 being written", "HDF5 in memory"):
        array = open_array(KINDS[kind](tmp_path, values.astype("f4")))
        with pytest.raises(InputError, match=r"can't be sent to workers .* give the path"):
            pickle.dumps(array)
        with pytest.raises(InputError, match="can't be sent to workers"):
            assert array.sent_bytes
