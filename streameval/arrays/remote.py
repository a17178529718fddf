"""Object stores and web servers, through obstore: asked again while they are away.

Each object is read in one version: with the tag that it had when it was first read.

Credentials and endpoints come from the environment, as for other tools: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT; GOOGLE_SERVICE_ACCOUNT; and so on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from typing import Any

from streameval.arrays.array import reading
from streameval.errors import ChangedError, InputError, optional_package

SCHEMES = ("s3://", "gs://", "https://", "http://")
# Of a server of one's own, say: keys are not sent in the clear else.
_ALLOWED = {"AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP"}
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")

PATIENCE = timedelta(minutes=2)  # for a store that is away
RETRIES = 1_000_000  # PATIENCE is over before
FIRST_BACK_OFF = timedelta(milliseconds=100)
MOST_BACK_OFF = timedelta(seconds=10)
GROWTH = 3  # a pause is drawn from the first to so many times the last
SAID_AFTER = 5.0  # seconds without an answer
_CREDENTIALS = re.compile("(AWS|GOOGLE)_.*(KEY|TOKEN|CREDENTIALS|ACCOUNT|SKIP)")


def is_remote(uri: str) -> bool:
    """Tell whether a URI names an array in an object store that can be read."""
    scheme = re.match(r"\w[\w+.-]*://", uri)
    if scheme is None:
        return False
    if scheme.group() not in SCHEMES:
        raise InputError(f"{uri} is of unknown scheme; known are {', '.join(SCHEMES)}, and paths")
    return True


def remote_store(url: str) -> Any:
    """Return the zarr store at a URL."""
    with optional_package("obstore", "object-stores", url):
        import obstore  # noqa: F401 - the kind may be known from before

        kind = _one_version_store()
    _check_credentials(url)
    return kind(_from_url(url), read_only=True, url=url)


def _check_credentials(url: str) -> None:
    """Ask once where the environment names no credentials: those of a cloud's machine."""
    if url.startswith("http") or any(map(_CREDENTIALS.match, os.environ)):
        return
    import obstore

    try:
        obstore.head(_from_url(url, retries=1), METADATA[0])
    except Exception as error:
        if explain(error) == _NO_CREDENTIALS:
            with reading(url, "read", _NO_CREDENTIALS):
                raise


def _from_url(url: str, retries: int | None = None) -> Any:
    from obstore.store import from_url

    return from_url(
        url,
        client_options={
            "connect_timeout": "10s",
            "timeout": "60s",
            "allow_http": url.startswith("http://") or not _ALLOWED.isdisjoint(os.environ),
        },
        retry_config={
            "max_retries": RETRIES if retries is None else retries,
            "backoff": {
                "init_backoff": FIRST_BACK_OFF,
                "max_backoff": MOST_BACK_OFF,
                "base": GROWTH,
            },
            "retry_timeout": PATIENCE,
        },
    )


class Silence:
    """The silence of a store: a line says when it is long, another when it has ended."""

    def __init__(self, url: str) -> None:
        self._url, self._is_said = url, False

    def say(self) -> None:
        """Say what is waited for, once."""
        if not self._is_said:
            self._is_said = True
            logging.getLogger("streameval").warning(
                "waiting for %s: no answer for %.0f s; it is asked again for %.0f s in all",
                self._url,
                SAID_AFTER,
                PATIENCE.total_seconds(),
            )

    def end(self) -> None:
        """Note an answer."""
        if self._is_said:
            self._is_said = False
            logging.getLogger("streameval").warning("%s answers again", self._url)


def _pauses() -> Iterator[float]:
    """Yield pauses between requests, in seconds, while there is patience."""
    end = time.monotonic() + PATIENCE.total_seconds()
    pause = FIRST_BACK_OFF.total_seconds()
    while time.monotonic() < end:
        yield pause
        pause = min(GROWTH * pause, MOST_BACK_OFF.total_seconds())


def _pause_after(error: Exception, pauses: Iterator[float]) -> float:
    """Return the pause after an answer that was cut short, which obstore doesn't ask for again.

    Any other error is raised.
    """
    pause = next(pauses, None) if "response body" in str(error) else None
    if pause is None:
        raise error
    return pause


@cache
def _one_version_store() -> Any:
    """Return the class of stores each object of which is read in one version."""
    import obstore
    from obstore.exceptions import PreconditionError
    from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype
    from zarr.storage import ObjectStore

    def span_of(request: ByteRequest) -> Any:
        match request:
            case RangeByteRequest(start, end):
                return start, end
            case OffsetByteRequest(offset):
                return {"offset": offset}
            case SuffixByteRequest(suffix):
                return {"suffix": suffix}

    class OneVersionStore(ObjectStore[Any]):
        def __init__(self, store: Any, *, read_only: bool = True, url: str = "") -> None:
            super().__init__(store, read_only=read_only)
            self._url, self._silence = url, Silence(url)
            self._versions: dict[str, Any] = {}  # of objects, as they were first read

        async def get(
            self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
        ) -> Buffer | None:
            known = self._versions.get(key)
            options: Any = {} if byte_range is None else {"range": span_of(byte_range)}
            if isinstance(known, str) and not known.startswith("W/"):
                options["if_match"] = known
            timer = asyncio.get_running_loop().call_later(SAID_AFTER, self._silence.say)
            try:
                meta, content = await self._answer(key, options)
            except FileNotFoundError:
                if known is None:
                    return None
                raise self._changed(key, "it is absent") from None
            except PreconditionError as error:
                raise self._changed(key, "it is another version") from error
            finally:
                timer.cancel()
            self._silence.end()
            version = meta["e_tag"] or (meta["size"], meta["last_modified"])
            if self._versions.setdefault(key, version) != version:
                raise self._changed(key, "it is another version")
            return prototype.buffer.from_bytes(content)

        async def _answer(self, key: str, options: Any) -> tuple[Any, Any]:
            """Return what is known of an object, and its content."""
            pauses = _pauses()
            while True:
                try:
                    answer = await obstore.get_async(self.store, key, options=options)
                    return answer.meta, await answer.bytes_async()
                except Exception as error:
                    pause = _pause_after(error, pauses)
                await asyncio.sleep(pause)

        def _changed(self, key: str, how: str) -> ChangedError:
            return ChangedError(
                f"{self._url}/{key} has changed since it was first read: {how}; no number is given "
                "of data that change: run it again once nothing writes to them"
            )

    return OneVersionStore


_NO_CREDENTIALS = (
    "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "AWS_SKIP_SIGNATURE=true for a public bucket (GOOGLE_SERVICE_ACCOUNT of gs://)"
)


def explain(error: BaseException) -> str | None:
    """Return what to do about an error of an object store; None if it is not one's."""
    try:
        from obstore import exceptions
    except ImportError:
        return None
    if not isinstance(error, exceptions.BaseError):
        return None
    if isinstance(error, exceptions.UnauthenticatedError | exceptions.PermissionDeniedError):
        return (
            "access is denied; check the credentials in the environment (AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or GOOGLE_SERVICE_ACCOUNT) and what they may read"
        )
    if re.search("/latest/api/token|credential", str(error), re.IGNORECASE):
        return _NO_CREDENTIALS
    if isinstance(error, exceptions.NotFoundError):
        return "there is no such bucket or key; check the URL"
    return "the store did not answer as it should, again and again; check it, and the network"


def remote_state(url: str) -> list[str]:
    """Return a line for each object under a URL: name, size, tag; none where there is no list."""
    if url.startswith("http"):
        return []
    with optional_package("obstore", "object-stores", url):
        import obstore
    with reading(url, "listed", lambda error: explain(error) or "check the store"):
        silence = Silence(url)
        timer = threading.Timer(SAID_AFTER, silence.say)
        timer.start()
        try:
            found = _listed(lambda: obstore.list(_from_url(url)))
            silence.end()
        finally:
            timer.cancel()
    return sorted(f"{entry['path']} {entry['size']} {entry['e_tag']}\n" for entry in found)


def _listed(ask: Callable[[], Any]) -> list[Any]:
    """Return all that a listing yields; it is asked for again if it is cut short."""
    pauses = _pauses()
    while True:
        try:
            return [entry for batch in ask() for entry in batch]
        except Exception as error:
            pause = _pause_after(error, pauses)
        time.sleep(pause)
