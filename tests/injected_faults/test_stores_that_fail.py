"""Stores that lose, change, forbid, delay or cut objects, or are away, at chosen moments.

The number of one version, or one error that names the object or its URL.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import inputs
import numpy as np
import pytest
import zarr
from profiles import by_night
from servers import answering, bucket, credentials, put_files
from support.arrays import digest, open_array
from support.arrays import remote_module as remote
from test_inputs_that_change import LABELS, MOMENTS, QUERY, Moment, attempt, client, moments
from waiting import PATIENCE

import streameval as se

ITEMS, WIDTH, CHUNKS = 130, 8, (20, 8)
DENIED = b"<Error><Code>AccessDenied</Code><Message>denied</Message></Error>"


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on to a server, unless `fault` answers them."""

    protocol_version = "HTTP/1.1"
    target: ClassVar[str] = ""
    fault: ClassVar[Callable[[Proxy, str], bool] | None] = None
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.fault is not None and type(self).fault(self, self.path):  # type: ignore[misc]
            return
        self.pass_on()

    def do_HEAD(self) -> None:
        self.do_GET()

    def pass_on(self, cut: bool = False) -> None:
        """Answer as the server does; or with half the body, and no more."""
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
            for name in ("Content-Range", "ETag", "Last-Modified", "Content-Type"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            length = answer.headers.get("Content-Length", len(body))
            self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.hang_up()

    def refuse(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *anything: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Run a server with a bucket behind a proxy, and point the environment to that."""
    with bucket() as url, answering(Proxy) as front, pytest.MonkeyPatch.context() as patch:
        Proxy.target = url
        for name, value in credentials(front).items():
            patch.setenv(name, value)
        yield url


@pytest.fixture(autouse=True)
def _no_fault(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(remote, "FIRST_BACK_OFF", timedelta(milliseconds=5))
    monkeypatch.setattr(remote, "MOST_BACK_OFF", timedelta(milliseconds=50))
    Proxy.asked.clear()
    yield
    Proxy.fault = None


class Bucket:
    """Two versions of an array, one of which is at a URL."""

    LAYOUTS: ClassVar[dict[str, dict[str, Any]]] = {
        "plain": {"chunks": CHUNKS},
        "v2": {"chunks": CHUNKS, "zarr_format": 2},
        "shards": {"chunks": (10, 4), "shards": CHUNKS},
    }

    def __init__(self, folder: Path, layout: str, shape: tuple[int, int], server: str) -> None:
        from obstore.store import from_url

        rng = np.random.default_rng(shape)
        self.versions = [rng.integers(1, 100, shape).astype("f4") for _ in range(2)]
        self._folders = [folder / str(number) for number in range(2)]
        for place, values in zip(self._folders, self.versions, strict=True):
            zarr.create_array(place, data=values, **self.LAYOUTS[layout])
        self.url = f"s3://bucket/{folder.name}.zarr"
        self._store: Any = from_url(self.url, endpoint=server)
        put_files(self._folders[0], self._store)
        row = (shape[0] - 1) // CHUNKS[0]
        self.last = f"{row}.0" if layout == "v2" else f"c/{row}/0"

    def put_other(self) -> None:
        put_files(self._folders[1], self._store)

    def put_other_chunk(self) -> None:
        self._store.put(self.last, (self._folders[1] / self.last).read_bytes())

    def delete_chunk(self) -> None:
        self._store.delete(self.last)

    def delete_all(self) -> None:
        for batch in self._store.list():
            for entry in batch:
                self._store.delete(entry["path"])


Fault = Callable[[Bucket], None]


def changed(data: Bucket) -> None:
    data.put_other()


def chunk_changed(data: Bucket) -> None:
    data.put_other_chunk()


def lost(data: Bucket) -> None:
    data.delete_chunk()


def all_lost(data: Bucket) -> None:
    data.delete_all()


def forbidden(data: Bucket) -> None:
    def fault(proxy: Proxy, path: str) -> bool:
        proxy.refuse(403, DENIED)
        return True

    Proxy.fault = fault


def delayed(data: Bucket) -> None:
    def fault(proxy: Proxy, path: str) -> bool:
        time.sleep(0.05)
        return False

    Proxy.fault = fault


def cut(data: Bucket) -> None:
    """Each object is cut in the middle, three times."""
    times: dict[str, int] = {}

    def fault(proxy: Proxy, path: str) -> bool:
        times[path] = times.get(path, 0) + 1
        if times[path] > 3:
            return False
        proxy.pass_on(cut=True)
        return True

    Proxy.fault = fault


def away(data: Bucket) -> None:
    """Have the next fifty requests answered by an error of the server, or not at all."""
    left = iter(range(50))

    def fault(proxy: Proxy, path: str) -> bool:
        number = next(left, None)
        if number is None:
            return False
        if number % 2:
            proxy.refuse(503)
        else:
            proxy.hang_up()
        return True

    Proxy.fault = fault


FAULTS: tuple[Fault, ...] = (
    changed,
    chunk_changed,
    lost,
    all_lost,
    forbidden,
    delayed,
    cut,
    away,
)
PASSING = (delayed, cut, away)  # which no number depends on
TRIED = MOMENTS if by_night() else MOMENTS[::3]


def by_gallery(url: str, **options: Any) -> se.Evaluation:
    source = se.Features(QUERY, url, "euclidean")
    return se.evaluate(source, **LABELS, range="minmax", **{"threads": 1, **options})


def by_matrix(url: str, **options: Any) -> se.Evaluation:
    return se.evaluate(se.Distances(url), **LABELS, range="minmax", threads=1, **options)


def by_workers(url: str, **options: Any) -> se.Evaluation:
    return by_gallery(url, client=client(), threads=None, **options)


ROUTES: dict[str, tuple[tuple[int, int], str, Callable[..., se.Evaluation]]] = {
    "gallery": ((ITEMS, WIDTH), "gallery", by_gallery),
    "matrix": ((len(QUERY), ITEMS), "distances", by_matrix),
    "workers": ((ITEMS, WIDTH), "gallery", by_workers),
}


@pytest.mark.parametrize(
    ("route", "layout", "fault", "when"),
    inputs.pairwise_first(ROUTES, Bucket.LAYOUTS, FAULTS, TRIED, daily=3, sampled=False),
)
def test_a_store_that_fails(
    route: str, layout: str, fault: Fault, when: Moment, tmp_path: Path, server: str
) -> None:
    shape, key, evaluate = ROUTES[route]
    data = Bucket(tmp_path, layout, shape, server)
    with moments({when: lambda: fault(data)}) as progress:
        found = attempt(lambda: evaluate(data.url, progress=progress))
    Proxy.fault = None
    if isinstance(found, str):
        assert fault not in PASSING, found
        assert data.url in found
        return
    same = [found.statistics.equals(evaluate(one).statistics) for one in data.versions]
    assert any(same)
    told = found.provenance["read"][key]["digest"]
    own = data.versions[same.index(True)]
    assert told == f"{digest.total(digest.of_rows(own), np.arange(len(own))):016x}"


def test_an_object_is_read_in_one_version(tmp_path: Path, server: str) -> None:
    data = Bucket(tmp_path, "plain", (ITEMS, WIDTH), server)
    array = open_array(data.url)
    whole = array.read((0, ITEMS))
    data.put_other_chunk()
    assert np.array_equal(array.read((0, 120)), whole[:120])
    message = f"{data.url}/c/6/0 has changed since it was first read: it is another version"
    with pytest.raises(se.InputError, match=message):
        array.read((100, ITEMS))
    data.delete_chunk()
    with pytest.raises(se.InputError, match=r"/c/6/0 has changed .*: it is absent"):
        array.read((100, ITEMS))


def test_a_refusal_is_said_at_once(tmp_path: Path, server: str) -> None:
    data = Bucket(tmp_path, "plain", (ITEMS, WIDTH), server)
    array = open_array(data.url)
    forbidden(data)
    Proxy.asked.clear()
    with pytest.raises(se.InputError, match=r"access is denied; check the credentials"):
        array.read((0, 20))
    assert len(Proxy.asked) == 1
    with pytest.raises(se.InputError, match=r"access is denied; check the credentials"):
        open_array(data.url)


def test_a_store_that_may_not_be_listed_is_read(tmp_path: Path, server: str) -> None:
    data = Bucket(tmp_path, "plain", (ITEMS, WIDTH), server)

    def fault(proxy: Proxy, path: str) -> bool:
        if "list-type" not in path:
            return False
        proxy.refuse(403, DENIED)
        return True

    Proxy.fault = fault
    assert open_array(data.url).files is None
    found = by_gallery(data.url)
    assert found.statistics.equals(by_gallery(data.versions[0]).statistics)  # type: ignore[arg-type]


class Said(logging.Handler):
    """Notes what is said, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[float, str]] = []
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((time.monotonic(), record.getMessage()))
        self.came.set()


@pytest.fixture
def said() -> Iterator[Said]:
    handler = Said()
    logging.getLogger("streameval").addHandler(handler)
    yield handler
    logging.getLogger("streameval").removeHandler(handler)


@pytest.mark.parametrize("seconds", [0.5, pytest.param(20.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("when", ["opened", "read"])
def test_a_store_that_is_away_for_some_time(
    seconds: float,
    when: str,
    said: Said,
    tmp_path: Path,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is waited for until a line has said so, and longer: eight retries take a second or two."""
    if seconds < 1:
        monkeypatch.setattr(remote, "SAID_AFTER", 0.1)
    data = Bucket(tmp_path, "plain", (ITEMS, WIDTH), server)
    array = None if when == "opened" else open_array(data.url)
    begun = time.monotonic()

    def fault(proxy: Proxy, path: str) -> bool:
        if said.came.is_set() and time.monotonic() > begun + seconds:
            return False
        proxy.refuse(503)
        return True

    Proxy.fault = fault
    array = array or open_array(data.url)
    assert np.array_equal(array.read((0, ITEMS)), data.versions[0])
    (first, waited), (_, ended), *_ = said.lines  # a slow machine waits again
    assert waited.startswith(f"waiting for {data.url}: no answer")
    assert ended == f"{data.url} answers again"
    assert first - begun < max(10, PATIENCE)


def test_a_store_that_stays_away(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", timedelta(seconds=1))
    data = Bucket(tmp_path, "plain", (ITEMS, WIDTH), server)

    def fault(proxy: Proxy, path: str) -> bool:
        proxy.refuse(503)
        return True

    Proxy.fault = fault
    begun = time.monotonic()
    with pytest.raises(se.InputError, match=f"{data.url} .*the store did not answer"):
        open_array(data.url)
    assert time.monotonic() - begun >= 1
