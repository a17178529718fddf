"""gs:// of a server on loopback that answers as Google Cloud Storage does (its XML API)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pytest
import zarr
from clusters import labels, write_inputs
from servers import answering
from support.arrays import fingerprint, open_array
from support.arrays import remote_module as remote

import streameval as se
from streameval import InputError


class Bucket(BaseHTTPRequestHandler):
    """Objects of a bucket ``bucket``, by path: whole, in part, their headers, and a list."""

    objects: ClassVar[dict[str, bytes]] = {}
    failures: ClassVar[dict[str, int]] = {}
    status = 200

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        bucket, _, name = unquote(url.path).lstrip("/").partition("/")
        self.failures[name] = self.failures.get(name, 0) + 1
        if self.status != 200 or self.failures[name] == 1:  # the first request of each fails
            self.answer(self.status if self.status != 200 else 503, b"<Error/>")
        elif bucket == "bucket" and "list-type" in url.query:
            self.answer(200, self.listed(parse_qs(url.query).get("prefix", [""])[0]))
        elif bucket == "bucket" and name in self.objects:
            self.send_object(self.objects[name])
        else:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_HEAD(self) -> None:
        self.do_GET()

    def listed(self, prefix: str) -> bytes:
        entries = "".join(
            f"<Contents><Key>{name}</Key><Size>{len(content)}</Size><ETag>{hash(content)}</ETag>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for name, content in sorted(self.objects.items())
            if name.startswith(prefix)
        )
        whole = f"<IsTruncated>false</IsTruncated>{entries}"
        return f"<ListBucketResult>{whole}</ListBucketResult>".encode()

    def send_object(self, content: bytes) -> None:
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self.answer(200, content)
            return
        first, last = wanted.groups()
        start = int(first) if first else len(content) - int(last)
        stop = int(last) + 1 if first and last else len(content)
        span = f"bytes {start}-{min(stop, len(content)) - 1}/{len(content)}"
        self.answer(206, content[start:stop], {"Content-Range": span})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        own = {"Content-Length": str(len(body)), "ETag": '"1"'}
        own["Last-Modified"] = "Mon, 01 Jan 2024 00:00:00 GMT"
        for name, value in (own | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *anything: Any) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run a server with inputs in a bucket, and name it in a file of a service account."""
    folder = write_inputs(tmp_path)
    for name in ("q", "g"):
        layout = {"shards": (1000, 24)} if name == "g" else {}
        values = np.load(folder / f"{name}.npy")
        zarr.create_array(folder / "a b.zarr" / name, data=values, chunks=(250, 24), **layout)
    zarr.open_group(folder / "a b.zarr", mode="a")
    for file in (folder / "a b.zarr").rglob("*"):
        if file.is_file():
            Bucket.objects[file.relative_to(folder).as_posix()] = file.read_bytes()
    Bucket.failures.clear()
    Bucket.status = 200
    monkeypatch.setattr(remote, "FIRST_BACK_OFF", timedelta(milliseconds=5))
    account = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(folder / "account.json"))
    monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with answering(Bucket) as url:
        (folder / "account.json").write_text(json.dumps({"gcs_base_url": url, **account}))
        yield folder


def test_features_from_gs_are_those_on_disk(folder: Path) -> None:
    found, expected = (
        se.evaluate(se.Features(f"{base}::q", f"{base}::g"), **labels(folder))
        for base in ("gs://bucket/a b.zarr", f"{folder}/a b.zarr")
    )
    assert found.statistics.equals(expected.statistics)
    assert max(Bucket.failures.values()) > 1  # tried again


def test_what_gs_refuses_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_array("gs://bucket/a b.zarr::g")
    first = fingerprint(opened)
    assert fingerprint(open_array("gs://bucket/a b.zarr::g")) == first
    with pytest.raises(InputError, match=r"no array 'x' in group"):
        open_array("gs://bucket/a b.zarr::x")
    with pytest.raises(InputError, match=r"gs://bucket/none\.zarr is no Zarr array or group"):
        open_array("gs://bucket/none.zarr")
    lacking = "a b.zarr/g/c/1/0"
    content = Bucket.objects.pop(lacking)
    with pytest.raises(InputError, match=r"chunk g/c/1/0 is absent"):
        open_array("gs://bucket/a b.zarr::g").read_all()
    Bucket.objects[lacking] = content
    Bucket.status = 403
    with pytest.raises(InputError, match=r"access is denied; check the credentials .*GOOGLE_SER"):
        open_array("gs://bucket/a b.zarr::g")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(folder / "nothing.json"))
    with pytest.raises(InputError, match=r"gs://bucket/a b\.zarr"):
        open_array("gs://bucket/a b.zarr::g")
