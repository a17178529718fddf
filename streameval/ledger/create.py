"""Creating a ledger: its first state, and the options that a growing gallery allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streameval.arrays.array import Array
from streameval.errors import InputError, OptionError
from streameval.ledger.gallery import open_matrix, place_of
from streameval.ledger.head import Batch, Head, Settings
from streameval.ledger.queries import check_rows
from streameval.ledger.state import State
from streameval.ledger.trajectory import NOTHING, entry_of
from streameval.planning.range import Range
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import find_pairs
from streameval.protocols.protocol import SINGLE_GALLERY_SHOT
from streameval.request import Terms
from streameval.run.preparation import BINS, THRESHOLDS
from streameval.run.sizes import parse_bytes
from streameval.sources.features import Features


def first_state(given: Mapping[str, Any]) -> State:
    """Return the state of a ledger without a gallery, from the keywords of `Ledger.create`.

    Raises
    ------
    InputError
        If labels and features don't fit, or the features can't be evaluated.
    OptionError
        If an option is unknown, or can't be kept up to date.
    """
    labels: Labels = given["query_labels"]
    terms, uri = Terms.of(given), given["query"]
    array = None if uri is None else open_matrix(uri, "query features")
    settings = settings_of(array, given["metric"], terms, given["keep"])
    if array is not None and array.shape[0] != len(labels):
        raise InputError(
            f"query features {array.uri} have {array.shape[0]} rows, and {labels.source} "
            f"{len(labels)} ids: one id a query is needed"
        )
    if not len(labels):
        raise InputError(f"{labels.source} has no ids: at least one query is needed")
    nothing = labels.take(np.empty(0, np.int64))
    find_pairs(labels, nothing, settings.protocol)  # what it refuses, it always would
    if array is not None:
        check_rows(array, settings)
    place = None if array is None else place_of(array)
    empty = State.empty(Head(settings, (Batch(0, len(labels), place),)))
    return empty.with_entry(entry_of(empty, empty, labels, ("create", ""), NOTHING, 0.0))


def settings_of(array: Array | None, metric: str | None, terms: Terms, keep: str | int) -> Settings:
    """Return the settings of a ledger, which stay fixed.

    Raises
    ------
    OptionError
        If an option can't be kept up to date while the gallery grows.
    """
    if array is None and metric is not None:
        raise OptionError(
            f"got metric {metric} without query features: give them, or leave it out where "
            "distances are stored"
        )
    chosen = terms.protocol
    if chosen.listed:
        raise OptionError(
            f"protocol {chosen.name} takes its pairs from lists of the whole gallery, which a "
            "ledger does not have beforehand: choose a protocol by identity and camera"
        )
    if chosen.self_match == "index":
        raise OptionError(
            "self_match by index means that query i is gallery item i, and a gallery that grows "
            "has others: match by key"
        )
    if chosen.cmc == SINGLE_GALLERY_SHOT:
        raise OptionError(
            f"protocol {chosen.name} draws one item of each gallery identity, which is no sum over "
            "segments: choose market1501 or separate-camera, or evaluate the whole gallery"
        )
    needs, given = terms.fields_needed, isinstance(terms.range, Range)
    thresholds = THRESHOLDS if "negatives_within" in needs or given else 0
    edges = BINS + 1 if "impostor_histogram" in needs else 0
    features = None if array is None else Features(array, array, metric or "cosine")
    used = None
    if thresholds or edges:
        if isinstance(terms.range, Range):
            used = terms.range
        elif terms.range == "auto" and features is not None:
            used = features.bounds()
        if used is None:
            raise OptionError(
                f"range is {terms.range}, and would be the least and greatest distance of the "
                "data: it moves when the gallery grows, and all that was counted with it; give a "
                "range that stays (--range LO,HI), or metrics that need none (--metrics "
                "CMC@1,mAP,mINP)"
            )
    size = parse_bytes(keep, "keep")
    of = None if features is None else features.metric
    return Settings(of, chosen, terms.options, used, thresholds, edges, size)
