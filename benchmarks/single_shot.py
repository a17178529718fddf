"""Single gallery shot: what its expectation costs beside the evaluation of the same pairs.

20,000 identities of 10 images each. The protocols compared ignore the same pairs; what differs
is that negatives ahead are counted by identity, too.
"""

from __future__ import annotations

from functools import partial

import streameval as se
from benchmarks.data import FeatureSet, make_features, save_labels
from benchmarks.figure import BUDGET, Bench, Case, Figure, Measured
from benchmarks.memory import ALLOWED, PEAK, PROJECTED, one_run

SHOTS, PLAIN = "single gallery shot", "first match"
PLAIN_PROTOCOL = {"cuhk03": "separate-camera", "cuhk03-torchreid": "market1501"}
WIDTHS = (512, 128)
IMAGES = 10
QUERIES, GALLERY = (2000, 256), (200_000, 40_000)  # full, quick
THREADS = 2


def inputs(width: int, bench: Bench) -> FeatureSet:
    """Return the features of a width, on disk."""
    shape = bench.count(*QUERIES), bench.count(*GALLERY)
    return make_features(bench.folder, *shape, width, name=f"unit-{IMAGES}", images=IMAGES)


def against_plain(width: int, protocol: str, bench: Bench) -> Measured:
    """Measure against the protocol that ignores the same pairs."""
    features = inputs(width, bench)

    def evaluate(protocol: str) -> se.Evaluation:
        source = features.source("cosine")
        return bench.evaluate(source, features.labels, THREADS, protocol=protocol)

    plan = evaluate(protocol).provenance["plan"]
    sides = {SHOTS: protocol, PLAIN: PLAIN_PROTOCOL[protocol]}
    samples = bench.time({side: partial(evaluate, name) for side, name in sides.items()})
    shape = [len(features.labels["query"]), len(features.labels["gallery"]), width]
    return Measured(samples, {"shape": shape, "plan": plan})


def within_budget(bench: Bench) -> Measured:
    """Measure whether the default budget is kept, in a process of its own."""
    features = inputs(WIDTHS[0], bench)
    report = one_run(
        {
            "source": {"query": str(features.query), "gallery": str(features.gallery)},
            "labels": save_labels(bench.folder, features.labels),
            "memory": BUDGET,
            "threads": THREADS,
            "protocol": "cuhk03",
        }
    )
    samples = {
        PEAK: [report["peak"]],
        PROJECTED: [report["plan"]["projected_peak"]],
        ALLOWED: [BUDGET],
    }
    return Measured(samples, report)


CASES = (
    *(
        Case(
            (Figure(f"single-shot/{protocol}-{width}/plain", (SHOTS, PLAIN), 2.0),),
            partial(against_plain, width, protocol),
        )
        for width in WIDTHS
        for protocol in PLAIN_PROTOCOL
    ),
    Case(
        (
            Figure("single-shot/memory/peak", (PEAK, PROJECTED), 1.0, unit="B"),
            Figure("single-shot/memory/plan", (PROJECTED, ALLOWED), 1.0, unit="B"),
        ),
        within_budget,
    ),
)
