"""Zarr in object stores: s3:// of a server on loopback, http:// of another; retried, refused."""

from __future__ import annotations

import re
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import zarr
from clusters import cluster, labels, write_inputs
from servers import answering, bucket, credentials, free_port, moto, put_files, serving
from support.arrays import fingerprint, open_array
from support.arrays import remote_module as remote
from waiting import PATIENCE
from zarr.storage import ObjectStore

import streameval as se
from streameval import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_inputs(tmp_path_factory.mktemp("inputs"))
    for name in ("q", "g", "qid", "gid"):
        values = np.load(folder / f"{name}.npy")
        chunks = (250, *values.shape[1:])
        zarr.create_array(folder / "all.zarr" / name, data=values, chunks=chunks)
    zarr.open_group(folder / "all.zarr", mode="a")
    return folder


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[str]:
    """Run a server with the inputs in a bucket, and point the environment to it."""
    from obstore.store import from_url

    with bucket() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in credentials(url).items():
            patch.setenv(name, value)
        for name in ("all.zarr", "d.zarr"):
            put_files(folder / name, from_url(f"s3://bucket/data/{name}"))
        yield url


def features(base: str) -> tuple[se.Features, dict[str, se.Labels]]:
    source = se.Features(f"{base}::q", f"{base}::g")
    sides = {"query": "q", "gallery": "g"}
    return source, {side: se.read_labels(f"{base}::{name}id") for side, name in sides.items()}


@pytest.mark.usefixtures("store")
def test_features_and_labels_from_s3_are_those_on_disk(folder: Path) -> None:
    found, expected = (
        se.evaluate(source, **sides, protocol="no-camera")
        for source, sides in map(features, ("s3://bucket/data/all.zarr", f"{folder}/all.zarr"))
    )
    assert found.statistics.equals(expected.statistics)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("layout", ["strips", "features"])
@pytest.mark.slow
def test_workers_open_s3_by_themselves(folder: Path, layout: str) -> None:
    if layout == "features":
        sources: list[Any] = [
            features(base)[0] for base in ("s3://bucket/data/all.zarr", f"{folder}/all.zarr")
        ]
    else:
        sources = [se.Distances(f"{base}/d.zarr") for base in ("s3://bucket/data", str(folder))]
    with cluster(2) as (_, client):
        found = se.evaluate(sources[0], **labels(folder), client=client)
    assert found.statistics.equals(se.evaluate(sources[1], **labels(folder)).statistics)


def test_a_web_server(folder: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port)]
    with serving([*command, "--bind", "127.0.0.1", "--directory", str(folder)], port) as url:
        source = se.Features(f"{url}/all.zarr::q", f"{url}/all.zarr::g")
        found = se.evaluate(source, **labels(folder))
        expected = se.evaluate(features(f"{folder}/all.zarr")[0], **labels(folder))
        with pytest.raises(InputError, match=r"no array 'x' in group http://"):
            open_array(f"{url}/all.zarr::x")
    assert found.statistics.equals(expected.statistics)


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on; of each address, some are answered with an error first."""

    target = ""
    failures = 0
    seen: ClassVar[dict[str, int]] = {}
    status = 503

    def do_GET(self) -> None:
        self._pass_on()

    def do_HEAD(self) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        number = self.seen[self.path] = self.seen.get(self.path, 0) + 1
        if number <= self.failures:
            if number == 1:  # cut off, without an answer
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(self.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        own = ("host", "connection")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in own}
        request = urllib.request.Request(
            self.target + self.path, headers=headers, method=self.command
        )
        try:
            answer = urllib.request.urlopen(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            body = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Length", "Content-Range", "ETag", "Last-Modified"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    def log_message(self, *anything: Any) -> None:
        pass


@contextmanager
def proxy(target: str, failures: int) -> Iterator[str]:
    Proxy.target, Proxy.failures = target, failures
    Proxy.seen.clear()
    with answering(Proxy) as url:
        yield url


@pytest.mark.slow
def test_errors_that_pass_are_tried_again(
    folder: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "FIRST_BACK_OFF", timedelta(milliseconds=5))
    expected = features(f"{folder}/all.zarr")[0].gallery.read_all()
    with proxy(store, failures=3) as url:
        monkeypatch.setenv("AWS_ENDPOINT", url)
        found = open_array("s3://bucket/data/all.zarr::g").read_all()
        assert min(Proxy.seen.values()) == 4  # every request was refused three times
        assert len(Proxy.seen) >= 12  # twelve chunks
    assert np.array_equal(found, expected)


def test_errors_that_stay_are_told(
    folder: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "FIRST_BACK_OFF", timedelta(milliseconds=1))
    monkeypatch.setattr(remote, "RETRIES", 2)
    array = open_array("s3://bucket/data/all.zarr::g")
    assert array.shape == (3000, 24)
    with proxy(store, failures=10**6) as url:
        monkeypatch.setenv("AWS_ENDPOINT", url)
        with pytest.raises(InputError, match=r"all\.zarr::g can't be opened .*the store did not"):
            open_array("s3://bucket/data/all.zarr::g")


@pytest.mark.usefixtures("store")
def test_what_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(InputError, match=r"s3://bucket/data/none\.zarr is no Zarr array or group"):
        open_array("s3://bucket/data/none.zarr")
    with pytest.raises(InputError, match=r"s3://nobucket/x\.zarr is no Zarr array or group"):
        open_array("s3://nobucket/x.zarr")
    with pytest.raises(InputError, match=r"no array 'x' in group .*: g, gid, q, qid"):
        open_array("s3://bucket/data/all.zarr::x")
    with pytest.raises(InputError, match=r"ftp://host/x\.zarr is of unknown scheme; known are s3"):
        open_array("ftp://host/x.zarr")


@pytest.mark.usefixtures("store")
def test_an_absent_chunk_is_an_error_and_no_zeros() -> None:
    from obstore.store import from_url

    target = from_url("s3://bucket/data/half.zarr")
    array = zarr.create_array(ObjectStore(target), shape=(100, 4), chunks=(10, 4), dtype="f4")
    array[:50] = 1.0
    opened = open_array("s3://bucket/data/half.zarr")
    assert (opened.read((0, 50)) == 1).all()
    with pytest.raises(InputError, match=r"rows 45:55 .*chunk c/5/0 is absent"):
        opened.read((45, 55))


@pytest.mark.slow
@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("location", ["start", "end"])
def test_a_chunk_that_is_absent_from_a_shard_is_an_error(location: str) -> None:
    from obstore.store import from_url

    target = from_url(f"s3://bucket/data/half-{location}.zarr")
    array = zarr.create_array(
        ObjectStore(target),
        shape=(101, 6),
        chunks=(10, 2),
        shards={"shape": (20, 4), "index_location": location},  # type: ignore[arg-type]
        dtype="f4",
    )
    array[:50] = 1.0
    opened = open_array(f"s3://bucket/data/half-{location}.zarr")
    assert (opened.read((0, 40)) == 1).all()
    assert (opened.read((35, 40), (1, 5)) == 1).all()
    message = r"rows 40:50 .*chunk of rows 50:60, columns 0:2 of shard c/2/0 is absent"
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            opened.read((40, 50))
    with pytest.raises(InputError, match=r"chunk c/3/[01] is absent"):
        opened.read((60, 70))
    array[50:] = 1.0
    assert (open_array(f"s3://bucket/data/half-{location}.zarr").read_all() == 1).all()


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_a_fingerprint_tells_that_an_object_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.store import from_url

    monkeypatch.setattr("streameval.arrays.fingerprint.READ_BYTES", 100)
    target = from_url("s3://bucket/data/changing.zarr")
    values = np.random.default_rng(0).standard_normal((500, 4))
    array = zarr.create_array(ObjectStore(target), data=values, chunks=(10, 4))
    first = fingerprint(open_array("s3://bucket/data/changing.zarr"))
    assert fingerprint(open_array("s3://bucket/data/changing.zarr")) == first
    array[222, 1] = 0.0
    assert fingerprint(open_array("s3://bucket/data/changing.zarr")) != first


@pytest.mark.usefixtures("store")
def test_keys_that_are_wrong_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = {"INITIAL_NO_AUTH_ACTION_COUNT": "0"}  # moto asks for keys that it knows: it has none
    with moto(**strict) as url:
        monkeypatch.setenv("AWS_ENDPOINT", url)
        message = (
            r"s3://bucket/data/all\.zarr::g can't be opened .*access is denied; check the cred"
        )
        with pytest.raises(InputError, match=message):
            open_array("s3://bucket/data/all.zarr::g")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(remote, "RETRIES", 1)
    with pytest.raises(InputError, match=re.escape("there are no credentials; set AWS_ACCESS_KEY")):
        open_array("s3://bucket/data/all.zarr::g")
