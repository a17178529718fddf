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
        return replace(place, uri=found.uri, files=found.files)

    if name is not None:
        segment = named(head, name)
        if all(place.content != found.content for place in segment.places):
            raise InputError(
                f"{found.uri} does not hold what segment {name!r} held when it came "
                f"({segment.places[0].uri}): nothing has been changed; give the same data, or "
                "remove the segment and append it anew"
            )
    batches = tuple(
        replace(one, place=put(one.place))
        if one.place is not None and name is None and one.place.content == found.content
        else one
        for one in head.batches
    )
    if (
        name is None
        and batches == head.batches
        and all(one.place is None or one.place.content != found.content for one in head.batches)
    ):
        raise InputError(
            f"{found.uri} holds none of the queries' data as they were when they came: nothing has "
            "been changed; give the same data"
        )
    segments = tuple(
        replace(
            one,
            places=tuple(
                put(place) if place.content == found.content else place for place in one.places
            ),
        )
        if name is not None or head.settings.metric is None
        else one
        for one in head.segments
    )
    return state.with_head(batches=batches, segments=segments)
