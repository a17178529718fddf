"""Object stores and web servers, through obstore: retried with back-off, refused in words.

Credentials and endpoints come from the environment, as for other tools: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT; GOOGLE_SERVICE_ACCOUNT; and so on.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any

from streameval.arrays.array import reading
from streameval.errors import InputError, optional_package

SCHEMES = ("s3://", "gs://", "https://", "http://")
# Of a server of one's own, say: keys are not sent in the clear else.
_ALLOWED = {"AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP"}
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")

RETRIES = 8
FIRST_BACK_OFF = timedelta(milliseconds=100)  # doubled each time
MOST_BACK_OFF = timedelta(seconds=10)


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
        from zarr.storage import ObjectStore

        return ObjectStore(_from_url(url), read_only=True)


def _from_url(url: str) -> Any:
    from obstore.store import from_url

    return from_url(
        url,
        client_options={
            "connect_timeout": "10s",
            "timeout": "60s",
            "allow_http": url.startswith("http://") or not _ALLOWED.isdisjoint(os.environ),
        },
        retry_config={
            "max_retries": RETRIES,
            "backoff": {"init_backoff": FIRST_BACK_OFF, "max_backoff": MOST_BACK_OFF, "base": 2},
            "retry_timeout": timedelta(minutes=2),
        },
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
        return (
            "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "AWS_SKIP_SIGNATURE=true for a public bucket (GOOGLE_SERVICE_ACCOUNT of gs://)"
        )
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
        found = [entry for batch in obstore.list(_from_url(url)) for entry in batch]
    return sorted(f"{entry['path']} {entry['size']} {entry['e_tag']}\n" for entry in found)
