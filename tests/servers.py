"""Servers on 127.0.0.1: of a command, of a handler, and of a bucket of S3."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import SystemRandom
from typing import Any

from waiting import PATIENCE, wait_until

BIN = Path(sys.executable).parent


PORTS = range(10_000, 30_000)  # systems give none of these to whoever binds to port 0


def free_port() -> int:
    """Return a port for a server that is started next; nothing else takes it by chance."""
    while True:
        port = SystemRandom().choice(PORTS)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


@contextmanager
def serving(arguments: list[str], port: int, **environment: str) -> Iterator[str]:
    """Run a server until the block ends; yield its URL once it answers."""
    process = subprocess.Popen(
        arguments,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, f"{arguments[0]} has ended: is port {port} taken?"
        try:
            urllib.request.urlopen(url, timeout=PATIENCE).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            return False
        return process.poll() is None

    try:
        wait_until(answers)
        yield url
    finally:
        process.kill()
        process.wait()


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests in this process until the block ends; yield the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def moto(**environment: str) -> Iterator[str]:
    """Run a server that answers as S3 does, with nothing in it; yield its URL."""
    port = free_port()
    command = [str(BIN / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with serving(command, port, **environment) as url:
        yield url


@cache
def _lasting_moto() -> str:
    """Run such a server until this process ends; return its URL."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(moto())


@contextmanager
def bucket() -> Iterator[str]:
    """Have a server of S3 with an empty bucket ``bucket``, one at a time; yield its URL."""
    url = _lasting_moto()
    for method, place in (("POST", "moto-api/reset"), ("PUT", "bucket")):
        request = urllib.request.Request(f"{url}/{place}", method=method)
        urllib.request.urlopen(request, timeout=PATIENCE).close()
    yield url


def credentials(url: str) -> dict[str, str]:
    """Return the environment that points to such a server."""
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",  # nothing is asked beyond loopback
        "NO_PROXY": "127.0.0.1",
    }


def put_files(folder: Path, store: Any) -> None:
    """Put the files of a folder into an object store of obstore, by their names in it."""
    for file in folder.rglob("*"):
        if file.is_file():
            store.put(file.relative_to(folder).as_posix(), file.read_bytes())
