"""What tests of query expansion use beside the public names."""

from __future__ import annotations

from typing import Any

from streameval.expansion.sums import powers as powers
from streameval.request import Request
from streameval.run.session import open_session


def made_features(source: Any, **given: Any) -> Any:
    """Return the features that a source makes, in a session with some keywords of `evaluate`."""
    if "query" in given:
        source = source.check(Request.of({"source": source, **given}))
    with open_session(given) as session:
        return source.ready(session, session.limits(source))


def rows_of(array: Any) -> Any:
    """Return all rows of an array of features."""
    return array.read((0, array.shape[0]))


__all__ = ["made_features", "powers", "rows_of"]
