"""What an audit says, and the audit of labels: identities, cameras, classes of queries, order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from streameval.arrays.composed import natural_order
from streameval.protocols.agreement import Agreement, distinct
from streameval.protocols.labels import Labels, missing
from streameval.protocols.pairs import Pairs
from streameval.protocols.protocol import Protocol
from streameval.protocols.rules import SIDES, Side
from streameval.typing import AnyArray, BoolArray, IntArray, JsonObject

_SHOWN = 5
_IMAGES = (1, 2, 6, 11, 51)  # where the groups of identities by number of images begin


@dataclass(frozen=True)
class Finding:
    """Something in the inputs that is likely not what was meant, or worth to be known."""

    name: str
    severity: Literal["warning", "note"]
    message: str  # what was found, where
    effect: str  # what it changes, and what to do

    def __str__(self) -> str:
        return f"{self.message}: {self.effect}"


@dataclass(frozen=True)
class Audit:
    """Facts by their names, and findings."""

    facts: JsonObject = field(default_factory=dict)  # numbers, texts, or dicts of such
    findings: list[Finding] = field(default_factory=list)

    def __add__(self, other: Audit) -> Audit:
        return Audit(self.facts | other.facts, self.findings + other.findings)

    def warn(self, name: str, message: str, effect: str) -> None:
        """Add a warning."""
        self.findings.append(Finding(name, "warning", message, effect))

    def note(self, name: str, message: str, effect: str) -> None:
        """Add what is worth to be known."""
        self.findings.append(Finding(name, "note", message, effect))

    def summary(self) -> JsonObject:
        """Return what ``--json`` prints."""
        return {"facts": self.facts, "findings": [asdict(one) for one in self.findings]}


def check_all(query: Labels, gallery: Labels, protocols: Sequence[Protocol]) -> list[Finding]:
    """Return what `check_labels` finds under several protocols, each finding once.

    Labels are those of all queries and items. Of protocols that select some, nothing is found.
    """
    found = [
        finding
        for protocol in protocols
        if not protocol.selects
        for finding in check_labels(query, gallery, protocol)
    ]
    return list({str(finding): finding for finding in found}.values())


def check_labels(query: Labels, gallery: Labels, protocol: Protocol) -> list[Finding]:
    """Return what the labels alone show to be likely a mistake, with few passes over them.

    They have passed `find_pairs`: columns that the protocol compares are of one kind.
    """
    audit = Audit()
    if query.cam is not None and gallery.cam is not None and "cam" in protocol.columns:
        _check_cameras(audit, query.cam, gallery.cam, protocol)
    if (
        protocol.self_match == "key"
        and query.key is not None
        and gallery.key is not None
        and not Agreement(query, gallery, ("key",)).counts().any()
    ):
        audit.warn(
            "no-own-image",
            f"no query has the key of a gallery item ({_some(query.key)}; {_some(gallery.key)})",
            "--self-match key ignores nothing; if the images are the same under other names, each "
            "query finds itself: give both sides the same keys",
        )
    for side, labels in zip(SIDES, (query, gallery), strict=True):
        _check_missing(audit, side, labels, protocol)
    same_set = (
        len(query) == len(gallery) > 1
        and np.array_equal(query.id, gallery.id)
        and (query.cam is None or gallery.cam is None or np.array_equal(query.cam, gallery.cam))
    )
    ignored = "cam" in protocol.columns or protocol.self_match is not None or protocol.lists
    if same_set and not ignored:
        audit.warn(
            "same-set",
            f"queries and gallery have the same {len(query):,} labels in the same order",
            "they may be one set, in which each query finds itself first, at distance 0, and "
            "CMC@1 is near 1; ignore a query's own image: --self-match index",
        )
    return audit.findings


def _check_cameras(audit: Audit, query: AnyArray, gallery: AnyArray, protocol: Protocol) -> None:
    own, others = distinct(query), distinct(gallery)
    alone = np.setdiff1d(own, others)
    if len(own) == len(others) == 1 and not len(alone):
        effect = "no query has a positive then"
        if "same(cam)" not in protocol.ignore:
            effect = "every pair of the same identity is ignored, and no query has a positive"
        audit.warn(
            "one-camera",
            f"all queries and items are of camera {own[0]}",
            f"{effect}; choose --protocol no-camera, or give the true cameras",
        )
    elif len(alone) == len(own) and len(alone):
        audit.warn(
            "cameras-apart",
            f"queries and gallery have no camera in common ({_some(own)}; {_some(others)})",
            f"protocol {protocol.name} ignores no pair by camera; if the sides number one set of "
            "cameras in two ways, positives are easier than they should be",
        )
    elif len(alone):
        audit.warn(
            "camera-of-one-side",
            f"{_some(alone)} of the queries' cameras are not in the gallery, which has "
            f"{_some(others)}",
            "pairs of these queries are never ignored by camera; if the sides count cameras from "
            "different numbers, the wrong pairs are",
        )


def audit_labels(query: Labels, gallery: Labels, protocol: Protocol, pairs: Pairs) -> Audit:
    """Return the facts that the labels tell, and all findings in them.

    `pairs` are those that the protocol makes of them.
    """
    audit = Audit(findings=check_labels(query, gallery, protocol))
    positives, _, same_identity = pairs.counts_in(0, pairs.gallery)
    classes = {
        "positive": _count(positives > 0),
        "negative": _count(same_identity == 0),
        "excluded": _count((same_identity > 0) & (positives == 0)),
    }
    sought = np.isin(gallery.id, query.id)
    identities, images = np.unique(gallery.id[~pairs.junk], return_counts=True)
    ignored = pairs.same_identity & ~pairs.positive
    audit.facts.update(
        queries={"rows": len(query), "identities": len(np.unique(query.id)), **classes},
        gallery={
            "rows": len(gallery),
            "identities": len(identities),
            "junk": _count(pairs.junk),
            "distractors": _count(~pairs.junk & ~sought),
            "identities_by_images": _by_images(images),
        },
        pairs={
            "positive": _count(pairs.positive),
            "ignored_of_same_identity": _count(ignored),
        },
    )
    _audit_cameras(audit, query, gallery)
    if not classes["positive"]:
        audit.warn(
            "no-positives",
            "no query has a positive",
            "CMC, mAP and GOM have no value; the ids of the two sides may be of different sets",
        )
    elif classes["excluded"]:
        audit.note(
            "excluded",
            f"{classes['excluded']:,} of {len(query):,} queries are excluded: protocol "
            f"{protocol.name} ignores every item of their identity",
            f"metrics are over the {classes['positive']:,} others in Q+, and the "
            f"{classes['negative']:,} in Q-",
        )
    for side, labels in zip(SIDES, (query, gallery), strict=True):
        _audit_order(audit, side, labels)
    if query.key is not None and gallery.key is not None and protocol.self_match is None:
        both = _count(np.isin(query.key, gallery.key) & ~missing(query.key))
        if both:
            audit.warn(
                "keys-of-both-sides",
                f"{both:,} queries have the key of a gallery item",
                "these images may be their own match, at distance 0: --self-match key ignores them",
            )
    return audit


def _audit_cameras(audit: Audit, query: Labels, gallery: Labels) -> None:
    if query.cam is None or gallery.cam is None:
        return
    own, others = distinct(query.cam), distinct(gallery.cam)
    audit.facts["cameras"] = {"query": own.tolist(), "gallery": others.tolist()}
    alone = np.setdiff1d(others, own)
    if 0 < len(alone) < len(others):
        audit.note(
            "cameras-of-the-gallery-alone",
            f"{_some(alone)} of the gallery's cameras have no query",
            "what is found across them is not measured",
        )


def _audit_order(audit: Audit, side: str, labels: Labels) -> None:
    if labels.key is None or len(labels.key) < 3 or labels.key.dtype.kind != "U":
        return
    keys = labels.key.tolist()
    if keys == sorted(keys) and keys != sorted(keys, key=natural_order):
        audit.warn(
            "order-of-names",
            f"the {side} keys are in the order of characters (10 before 2)",
            "if the features were written in natural order, or by number, rows and labels don't "
            "belong together",
        )


def _check_missing(audit: Audit, side: Side, labels: Labels, protocol: Protocol) -> None:
    for column in protocol.columns_of(side):
        count = _count(missing(labels.columns[column]))
        if count:
            audit.warn(
                "missing-labels",
                f"{count:,} of {len(labels):,} labels of column {column} of the {side} are missing",
                "a missing label equals nothing, so that no pair is the same in it",
            )


def _by_images(images: IntArray) -> dict[str, int]:
    """Count identities by their number of images."""
    counts, _ = np.histogram(images, [*_IMAGES, np.inf])
    names = [f"{low}-{end - 1}" if end > low + 1 else f"{low}" for low, end in pairwise(_IMAGES)]
    return dict(zip([*names, f"{_IMAGES[-1]}+"], counts.tolist(), strict=True))


def _count(chosen: BoolArray) -> int:
    return int(np.count_nonzero(chosen))


def _some(labels: AnyArray) -> str:
    shown = ", ".join(str(one)[:50] for one in labels[:_SHOWN].tolist())
    return shown if len(labels) <= _SHOWN else f"{shown}, ... ({len(labels)} in all)"
