"""Several evaluations in one pass over the data, beside one.

Trials of SYSU-MM01's size (3,803 queries, 6,775 items of 96 identities, four gallery cameras), in
memory; and ten protocols of one large gallery on disk, their results saved. The protocols have
four sets of positives and two of junk, whose union is less than twice the largest.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import streameval as se
from benchmarks.data import make_features
from benchmarks.figure import Bench, Case, Figure, Measured

ONE, THREADS = "one evaluation", 2
QUERIES, ITEMS, WIDTH, IDENTITIES = (3_803, 400), (6_775, 800), 2_048, 96
METRICS = {"all": None, "rank": "CMC@1,CMC@5,CMC@10,CMC@20,mAP,mINP"}
RULE = ("query.cam == 3 and gallery.cam == 2",)
TRIALS = {10: 1.2, 100: 3.0}  # times, and the bound
SYSU = replace(se.PROTOCOLS["market1501"], name="sysu", ignore=RULE, junk_ids=())

MARKET = se.PROTOCOLS["market1501"]
TEN = (
    MARKET,
    se.PROTOCOLS["no-camera"],
    replace(MARKET, name="all-shots", cmc="all-shots"),
    replace(MARKET, name="others", positive="same(id) and not same(cam)", ignore=()),
    replace(MARKET, name="views", ignore=("same(id, view)",)),
    replace(MARKET, name="both", ignore=("same(id, cam)", "same(id, view)")),
    replace(MARKET, name="either", ignore=("same(id, cam, view)",)),
    replace(MARKET, name="junk", junk_ids=(-1, 0)),
    replace(MARKET, name="junk-views", ignore=("same(id, view)",), junk_ids=(-1, 0)),
    replace(MARKET, name="junk-none", ignore=(), junk_ids=(-1, 0)),
)


def _labels(rng: np.random.Generator, rows: int, cams: list[int]) -> dict[str, np.ndarray]:
    return {"id": rng.integers(0, IDENTITIES, rows), "cam": rng.choice(cams, rows)}


def trials(metrics: str, bench: Bench) -> Measured:
    """Measure trials beside an evaluation of the whole gallery: second calls in Python."""
    rng = np.random.default_rng(0)
    rows = bench.count(*QUERIES), bench.count(*ITEMS)
    labels = [_labels(rng, rows[0], [3, 6]), _labels(rng, rows[1], [1, 2, 4, 5])]
    centres = rng.standard_normal((IDENTITIES, WIDTH), np.float32)
    features = [
        centres[own["id"]] + 2 * rng.standard_normal((size, WIDTH), np.float32)
        for own, size in zip(labels, rows, strict=True)
    ]
    source = se.Features(*features)
    given: dict[str, Any] = {"query": labels[0], "gallery": labels[1], "threads": THREADS}
    given["metrics"] = METRICS[metrics]

    def drawn(times: int) -> None:
        draws = se.Trials(per=("id", "cam"), times=times)
        se.evaluate_all(source, protocols=[replace(SYSU, trials=draws)], **given)

    def one() -> None:
        se.evaluate(source, protocol=SYSU, **given)

    one()
    drawn(2)
    sides = {ONE: one} | {f"{times} trials": partial(drawn, times) for times in TRIALS}
    return Measured(bench.time(sides), {"shape": [*rows, WIDTH]})


def protocols(bench: Bench) -> Measured:
    """Measure ten protocols beside one, results saved."""
    shape = bench.count(10_000, 500), bench.count(1_000_000, 50_000)
    made = make_features(bench.folder, *shape, 512)
    rng = np.random.default_rng(1)
    sides = {
        side: {"id": own.id, "cam": own.cam, "view": rng.integers(0, 3, len(own))}
        for side, own in made.labels.items()
    }
    given: dict[str, Any] = {**sides, "threads": THREADS}
    out = Path(bench.folder) / "one-pass"

    def save(result: se.Evaluation | se.Evaluations) -> None:
        shutil.rmtree(out, ignore_errors=True)
        result.save(out)

    def one() -> None:
        save(se.evaluate(made.source("cosine"), protocol=MARKET, **given))

    def ten() -> None:
        save(se.evaluate_all(made.source("cosine"), protocols=TEN, **given))

    samples = bench.time({ONE: one, "ten protocols": ten})
    shutil.rmtree(out, ignore_errors=True)
    return Measured(samples, {"shape": [*shape, 512]})


CASES = (
    *(
        Case(
            tuple(
                Figure(f"one-pass/{metrics}/{times}-trials", (f"{times} trials", ONE), bound)
                for times, bound in TRIALS.items()
            ),
            partial(trials, metrics),
        )
        for metrics in METRICS
    ),
    Case((Figure("one-pass/10-protocols", ("ten protocols", ONE), 1.4),), protocols),
)
