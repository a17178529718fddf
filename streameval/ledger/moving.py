"""Data of a ledger that have moved."""

from __future__ import annotations

from dataclasses import replace

from streameval.errors import InputError, OptionError
from streameval.ledger.head import Head, Place, Segment
from streameval.ledger.state import State


def named(head: Head, name: str) -> Segment:
    """Return the segment of a name.

    Raises
    ------
    OptionError
        If there is none.
    """
    for segment in head.segments:
        if segment.name == name:
            return segment
    known = ", ".join(segment.name for segment in head.segments) or "none"
    raise OptionError(f"there is no segment {name!r}; there are {known}")


def moved(state: State, name: str | None, found: Place) -> State:
    """Return the state with the new place of a segment's data, or (None) of queries' data.

    Distances of queries that came later are those of all segments, too: of each the place is told.

    Raises
    ------
    OptionError
        If there is no such segment.
    InputError
        If what is there is not what came.
    """
    head = state.head

    def put(place: Place) -> Place:
        if place.content != found.content:
            return place
        return replace(place, uri=found.uri, files=found.files)

    if name is not None:
        segment = named(head, name)
        if all(place.content != found.content for place in segment.places):
            raise InputError(
                f"{found.uri} does not hold what segment {name!r} held when it came "
                f"({segment.places[0].uri}): nothing has been changed; give the same data, or "
                "remove the segment and append it anew"
            )
    elif all(one.place is None or one.place.content != found.content for one in head.batches):
        raise InputError(
            f"{found.uri} holds none of the queries' data as they were when they came: nothing has "
            "been changed; give the same data"
        )
    after = head.with_places(put)
    if name is not None:
        after = replace(after, batches=head.batches)
    elif head.settings.metric is not None:
        after = replace(after, segments=head.segments)
    return replace(state, head=after)
