"""Chunks that aren't there: an error that names the first, unless fill values are meant."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from servers import bucket, credentials, put_files
from support.arrays import conversion, open_array
from support.cli import main
from test_inputs_that_change import GALLERY, LABELS, QUERY
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec
from zarr.storage import MemoryStore

import streameval as se

REMEDIES = ("write the array again", "--fill-missing", "fill_missing=True")
LACKING = slice(40, 80)  # rows that are not written, or are removed

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"chunks": (20, 4)},
    "v2": {"chunks": (20, 4), "zarr_format": 2},
    "shards": {"chunks": (10, 4), "shards": (20, 8)},
    **{
        f"index {name}": {
            "chunks": (20, 8),
            "compressors": None,
            "serializer": ShardingCodec(
                chunk_shape=(10, 4),
                codecs=[BytesCodec()],
                index_codecs=codecs,
                index_location=name.split()[0],
            ),
        }
        for name, codecs in {
            "start": [BytesCodec(), Crc32cCodec()],
            "end": [BytesCodec(), Crc32cCodec()],
            "start without checksum": [BytesCodec()],
            "end without checksum": [BytesCodec(endian="big")],
        }.items()
    },
}
INNER = {"shards", *(name for name in LAYOUTS if name.startswith("index"))}


def filled() -> np.ndarray:
    """Return the gallery with zeros where nothing was written."""
    values = GALLERY.copy()
    values[LACKING] = 0
    return values


def create(store: Any, values: np.ndarray, **layout: Any) -> zarr.Array:
    array = zarr.create_array(store, shape=values.shape, dtype=values.dtype, fill_value=0, **layout)
    array[...] = values
    return array


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def partly(store: Any, layout: str) -> zarr.Array:
    """Write the gallery without some rows; within shards, some chunks of a shard are there."""
    values = filled()
    if layout in INNER:
        values[LACKING][10:30] = GALLERY[LACKING][10:30]
    return create(store, values, **LAYOUTS[layout])


def evaluated(gallery: Any, **options: Any) -> se.RankStatistics:
    source = se.Features(QUERY, gallery, "euclidean", **options)
    return se.evaluate(source, **LABELS, range="minmax", threads=1).statistics


def refused(read: Callable[[], object], *words: str) -> None:
    with pytest.raises(se.InputError) as caught:
        read()
    for word in (*words, *REMEDIES):
        assert word in str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["path", "object", "object in memory"])
@pytest.mark.usefixtures("here")
def test_absent_from_the_start(layout: str, kind: str) -> None:
    array = partly(MemoryStore() if kind == "object in memory" else "g.zarr", layout)
    given = "g.zarr" if kind == "path" else array
    refused(lambda: evaluated(given), "rows 40:", "absent")
    assert evaluated(given, fill_missing=True).equals(evaluated(array[...]))


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("index", {"serializer": ShardingCodec(
            chunk_shape=(10, 4), index_codecs=[TransposeCodec(order=(2, 0, 1)), BytesCodec()])}),
        ("nested", {"serializer": ShardingCodec(
            chunk_shape=(20, 8), codecs=[ShardingCodec(chunk_shape=(10, 4))])}),
        ("compressed", {"serializer": ShardingCodec(chunk_shape=(10, 4)),
            "compressors": GzipCodec()}),
        ("turned", {"serializer": ShardingCodec(chunk_shape=(4, 4)),
            "filters": TransposeCodec(order=(1, 0))}),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@pytest.mark.usefixtures("here")
def test_shards_that_do_not_tell(why: str, changes: dict[str, Any]) -> None:
    array = create("g.zarr", filled(), chunks=(20, 8), **{"compressors": None, **changes})
    refused(lambda: evaluated("g.zarr"), "g.zarr is stored in shards", "it can't be seen")
    assert evaluated("g.zarr", fill_missing=True).equals(evaluated(array[...]))


@pytest.mark.parametrize("layout", ["plain", "v2", "shards"])
@pytest.mark.usefixtures("here")
def test_a_link_to_nothing_is_an_error_even_where_fill_values_are_meant(layout: str) -> None:
    create("g.zarr", GALLERY, **LAYOUTS[layout])
    chunk = "2.1" if layout == "v2" else "c/2/0"
    path = Path("g.zarr") / chunk
    path.rename("kept")
    path.symlink_to(Path("kept").absolute())
    assert evaluated("g.zarr").equals(evaluated(GALLERY))
    Path("kept").unlink()
    refused(lambda: evaluated("g.zarr"), f"first is {chunk} (rows 40:60", "a link to nothing")
    with pytest.raises(se.InputError, match="put back what the links lead to"):
        evaluated("g.zarr", fill_missing=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_chunks_of_an_array_in_memory_that_are_deleted(layout: str) -> None:
    """Once it is open; within shards, once a shard was read."""
    store = MemoryStore()
    held = create(store, GALLERY, **LAYOUTS[layout])
    array = open_array(held)
    assert np.array_equal(array.read((0, 130)), GALLERY)
    if layout in INNER:
        held[LACKING] = 0  # Zarr leaves out what holds nothing else
        held[50:60] = 1
    else:
        del store._store_dict["2.0" if layout == "v2" else "c/2/0"]
    refused(lambda: array.read((30, 70)), "absent")
    assert np.array_equal(array.read((0, 20)), GALLERY[:20])
    assert not open_array(held, fill_missing=True).read((40, 50))[:, :4].any()


@pytest.mark.parametrize("layout", ["plain", "v2"])
@pytest.mark.usefixtures("here")
def test_chunks_of_a_folder_that_are_deleted(layout: str) -> None:
    create("g.zarr", GALLERY, **LAYOUTS[layout])
    array = open_array("g.zarr")
    (Path("g.zarr") / ("2.0" if layout == "v2" else "c/2/0")).unlink()
    refused(lambda: array.read((30, 70)), "absent")


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Run a server with a bucket, and point the environment to it."""
    with bucket() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in credentials(url).items():
            patch.setenv(name, value)
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("here", "store")
def test_absent_from_an_object_store(layout: str) -> None:
    from obstore.store import from_url

    url = f"s3://bucket/{layout.replace(' ', '-')}.zarr"
    array = partly("g.zarr", layout)
    put_files(Path("g.zarr"), from_url(url))
    refused(lambda: evaluated(url), url, "absent")
    assert evaluated(url, fill_missing=True).equals(evaluated(array[...]))


@pytest.mark.usefixtures("here")
def test_labels_of_zero_that_zarr_leaves_out() -> None:
    ids = np.repeat([0, 1, 0], 10)
    create("ids.zarr", ids, chunks=(10,))
    refused(lambda: se.read_labels("ids.zarr"), "ids.zarr is incomplete")
    assert se.read_labels("ids.zarr", fill_missing=True).id.tolist() == ids.tolist()


@pytest.mark.usefixtures("here")
def test_a_dataset_of_hdf5() -> None:
    with h5py.File("g.h5", "w") as file:
        dataset = file.create_dataset("g", GALLERY.shape, "f4", chunks=(10, 8))
        dataset[:40], dataset[80:] = GALLERY[:40], GALLERY[80:]
    with pytest.raises(se.InputError, match=r"9 of 13 chunks: the rest .* --fill-missing"):
        evaluated("g.h5::g")
    assert evaluated("g.h5::g", fill_missing=True).equals(evaluated(filled()))


@pytest.mark.usefixtures("here")
def test_conversion() -> None:
    partly("g.zarr", "plain")
    refused(lambda: open_array("g.zarr"), "g.zarr")
    done = CliRunner().invoke(main, ["convert", "g.zarr", "out.zarr"])
    assert done.exit_code == 2
    assert "--fill-missing" in done.stderr
    assert not Path("out.zarr").exists()
    done = CliRunner().invoke(main, ["convert", "g.zarr", "out.zarr", "--fill-missing"])
    assert done.exit_code == 0, done.stderr
    assert np.array_equal(open_array("out.zarr").read_all(), filled())  # all chunks are written


@pytest.mark.usefixtures("here")
def test_chunks_that_vanish_while_they_are_converted() -> None:
    create("g.zarr", GALLERY, chunks=(10, 8), shards=(20, 8))
    source = open_array("g.zarr")
    Path("g.zarr/c/6/0").write_bytes(Path("g.zarr/c/5/0").read_bytes())
    with pytest.raises(se.InputError, match=r"g\.zarr has changed since it was opened"):
        conversion.convert(source, "out.zarr", memory=1 << 30)
    assert not Path("out.zarr").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_ledger_keeps_that_fill_values_are_meant() -> None:
    np.save("q.npy", QUERY)
    partly("g.zarr", "plain")
    ledger = se.Ledger.create(
        "L", query="q.npy", query_labels=LABELS["query"], metric="euclidean", range=(0, 400)
    )
    refused(lambda: ledger.append("g.zarr", LABELS["gallery"]), "g.zarr is incomplete")
    ledger.append("g.zarr", LABELS["gallery"], fill_missing=True)
    assert ledger.segments[0].places[0].fill_missing
    assert ledger.verify() == []
    Path("g.zarr/c/0/0").unlink()
    assert "has changed since it came" in " ".join(ledger.verify())


@pytest.mark.usefixtures("here")
def test_the_command_line() -> None:
    np.save("q.npy", QUERY)
    partly("g.zarr", "plain")
    np.save("whole.npy", filled())
    for side, labels in LABELS.items():
        for column in ("id", "cam"):
            create(f"{side}_{column}.zarr", getattr(labels, column), chunks=(5,))
    inputs = [
        word
        for side in LABELS
        for column in ("id", "cam")
        for word in (f"--{side}-{column}s", f"{side}_{column}.zarr")
    ]

    def run(gallery: str, *more: str) -> Any:
        arguments = [
            "evaluate",
            "--query",
            "q.npy",
            "--gallery",
            gallery,
            *inputs,
            *more,
            "--metric",
            "euclidean",
        ]
        return CliRunner().invoke(main, [*arguments, "--quiet"])

    done = run("g.zarr", "--out", "R")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--fill-missing" in done.stderr
    done = run("g.zarr", "--fill-missing", "--out", "R")
    assert done.exit_code == 0, done.stderr
    done = run("whole.npy", "--fill-missing", "--out", "S")
    assert done.exit_code == 0, done.stderr
    found, expected = se.Evaluation.load("R"), se.Evaluation.load("S")
    assert found.statistics.equals(expected.statistics)
    assert CliRunner().invoke(main, ["verify", "R"]).exit_code == 0
    os.remove("g.zarr/c/0/0")  # noqa: PTH107
    assert CliRunner().invoke(main, ["verify", "R"]).exit_code == 2


def test_a_worker_fills_as_it_is_told(here: Path) -> None:
    import pickle

    partly("g.zarr", "plain")
    for given in (str(here / "g.zarr"), partly(MemoryStore(), "plain")):
        array = pickle.loads(pickle.dumps(open_array(given, fill_missing=True)))
        assert np.array_equal(array.read((0, 130)), filled())
