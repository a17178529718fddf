"""Single gallery shot: what its expectation costs beside the evaluation of the same pairs.

20,000 identities of 10 images each. The protocols compared ignore the same pairs; what differs
is that negatives ahead are counted by identity, too. Single gallery shot gets no more memory than
the plan of the other takes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import streameval as se
from benchmarks.data import FeatureSet, make_features, save_labels
from benchmarks.figure import BUDGET, Bench, Case, Figure, Measured
from benchmarks.memory import PEAK, PROJECTED, one_run

SHOTS, PLAIN = "single gallery shot", "first match"
PLAIN_PEAK, PLAIN_PROJECTED = "peak of first match", "projected for first match"
PLAIN_PROTOCOL = {"cuhk03": "separate-camera", "cuhk03-torchreid": "market1501"}
WIDTHS = (512, 128)
IMAGES = 10
QUERIES, GALLERY = (2000, 256), (200_000, 40_000)  # full, quick
THREADS = 2


def inputs(width: int, bench: Bench) -> FeatureSet:
    """Return the features of a width, on disk."""
    shape = bench.count(*QUERIES), bench.count(*GALLERY)
    return make_features(bench.folder, *shape, width, name=f"unit-{IMAGES}", images=IMAGES)


def within(projected: int, bench: Bench) -> int:
    """Return a plan's memory as a budget; more where the sizes are too small to mean anything."""
    return projected if bench.shrink == 1 else BUDGET


def against_plain(width: int, protocol: str, bench: Bench) -> Measured:
    """Measure against the protocol that ignores the same pairs, within its memory."""
    features = inputs(width, bench)

    def evaluate(protocol: str, memory: int = BUDGET) -> se.Evaluation:
        source = features.source("cosine")
        return bench.evaluate(source, features.labels, THREADS, protocol=protocol, memory=memory)

    plain = PLAIN_PROTOCOL[protocol]
    evaluate(plain)
    allowed = within(evaluate(plain).provenance["plan"]["projected_peak"], bench)
    plan = evaluate(protocol, allowed).provenance["plan"]
    sides = {SHOTS: partial(evaluate, protocol, allowed), PLAIN: partial(evaluate, plain)}
    shape = [len(features.labels["query"]), len(features.labels["gallery"]), width]
    return Measured(bench.time(sides), {"shape": shape, "plan": plan})


def within_plain(width: int, protocol: str, bench: Bench) -> Measured:
    """Measure the memory that both take, in processes of their own, within what one plans."""
    features = inputs(width, bench)

    def report(protocol: str, memory: int) -> dict[str, Any]:
        return one_run(
            {
                "source": {"query": str(features.query), "gallery": str(features.gallery)},
                "labels": save_labels(bench.folder, features.labels),
                "memory": memory,
                "threads": THREADS,
                "protocol": protocol,
            }
        )

    plain = report(PLAIN_PROTOCOL[protocol], BUDGET)
    allowed = plain["plan"]["projected_peak"]
    shots = report(protocol, within(allowed, bench))
    samples = {
        PEAK: [shots["peak"]],
        PROJECTED: [shots["plan"]["projected_peak"]],
        PLAIN_PEAK: [plain["peak"]],
        PLAIN_PROJECTED: [allowed],
    }
    return Measured(samples, {SHOTS: shots, PLAIN: plain})


BOTH = tuple((width, protocol) for width in WIDTHS for protocol in PLAIN_PROTOCOL)

CASES = (
    *(
        Case(
            (Figure(f"single-shot/{protocol}-{width}/plain", (SHOTS, PLAIN), 2.0),),
            partial(against_plain, width, protocol),
        )
        for width, protocol in BOTH
    ),
    *(
        Case(
            (
                Figure(f"single-shot/{name}/peak", (PEAK, PROJECTED), 1.0, unit="B"),
                Figure(f"single-shot/{name}/plan", (PROJECTED, PLAIN_PROJECTED), 1.0, unit="B"),
                Figure(f"single-shot/{name}/measured", (PEAK, PLAIN_PEAK), 1.05, unit="B"),
            ),
            partial(within_plain, width, protocol),
        )
        for width, protocol in BOTH
        for name in [f"{protocol}-{width}/memory"]
    ),
)
