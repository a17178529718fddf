"""What is fixed when a ledger is created, and what can't be kept up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from streameval.arrays.array import Array
from streameval.errors import OptionError
from streameval.kernels.canonical import Metric
from streameval.ledger.head import Settings
from streameval.metrics.options import MetricOptions
from streameval.metrics.selection import required_fields
from streameval.protocols.presets import Preset, pair_options
from streameval.protocols.protocol import SINGLE_GALLERY_SHOT, Protocol, with_options
from streameval.run.preparation import (
    BINS,
    THRESHOLDS,
    RangeOption,
    check_shots,
    parse_bytes,
    resolve_options,
    resolve_range,
)
from streameval.sources.sources import Features


def settings_of(
    array: Array | None,
    metric: Metric | None,
    preset: Preset | None,
    protocol: str | Protocol | None,
    junk_ids: Sequence[int | str] | None,
    self_match: Literal["index", "key"] | None,
    range_: RangeOption | None,
    options: MetricOptions,
    keep: str | int,
) -> Settings:
    """Return what is fixed in a ledger; refuse what can't be kept up to date."""
    if array is None and metric is not None:
        raise OptionError(
            f"got metric {metric} without query features: give them, or leave it out where "
            "distances are stored"
        )
    pairs = pair_options(preset, protocol=protocol, junk_ids=junk_ids, range=range_, listed=None)
    chosen = with_options(
        pairs["protocol"],
        junk_ids=pairs["junk_ids"],
        self_match=self_match,
    )
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
    options = resolve_options(options, chosen, ())
    needs = required_fields(options)
    if chosen.cmc == SINGLE_GALLERY_SHOT:
        raise OptionError(
            f"protocol {chosen.name} draws one item of each gallery identity, which is no sum over "
            "segments: choose market1501 or separate-camera, or evaluate the whole gallery"
        )
    check_shots(options, chosen)
    wanted: RangeOption = pairs["range"]
    given = not isinstance(wanted, str)
    thresholds = THRESHOLDS if "negatives_within" in needs or given else 0
    edges = BINS + 1 if "impostor_histogram" in needs else 0
    features = None if array is None else Features(array, array, metric or "cosine")
    used = None
    if thresholds or edges:
        used = resolve_range(wanted, features)
        if used is None:
            raise OptionError(
                f"range is {wanted}, and would be the least and greatest distance of the data: it "
                "moves when the gallery grows, and all that was counted with it; give a range that "
                "stays (--range LO,HI), or metrics that need none (--metrics CMC@1,mAP,mINP)"
            )
    size = parse_bytes(keep, "keep")
    of = None if features is None else features.metric
    return Settings(of, chosen, options, used, thresholds, edges, size)
