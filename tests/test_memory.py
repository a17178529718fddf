"""Memory: measured ≤ projected ≤ allowed, beyond what the process holds when it is called."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

WIDTH, QUERIES, PIECE = 256, 500, 50_000

# Runs the command line in this process, then says how much it ever held (VmHWM) beyond what it
# held when it was called: with its labels read, when the budget is asked for.
MEASURED = """
import sys
import psutil
from streameval.cli import main
from streameval.run import session

held = []
budget = session._given_budget

def noted(*given):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # VmHWM begins again
    held.append(psutil.Process().memory_info().rss)
    return budget(*given)

session._given_budget = noted
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(int(line.split()[1]) * 1024 - held[0], file=sys.stderr)
"""


def write_gallery(folder: Path, gallery: int) -> None:
    """Write features in pieces: identities are clusters, a tenth of the queries' are missing."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20_000, WIDTH), dtype=np.float32)
    ids = rng.integers(0, 18_000, gallery)
    header = {"descr": "<f4", "fortran_order": False, "shape": (gallery, WIDTH)}
    with (folder / f"g{gallery}.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, gallery, PIECE):
            some = ids[start : start + PIECE]
            noise = rng.standard_normal((len(some), WIDTH), dtype=np.float32)
            file.write((centres[some] + noise).tobytes())
    np.save(folder / f"gid{gallery}.npy", ids)
    np.save(folder / f"gcam{gallery}.npy", rng.integers(0, 8, gallery))
    query = rng.integers(0, 20_000, QUERIES)
    noise = rng.standard_normal((QUERIES, WIDTH), dtype=np.float32)
    np.save(folder / "q.npy", centres[query] + noise)
    np.save(folder / "qid.npy", query)
    np.save(folder / "qcam.npy", rng.integers(0, 8, QUERIES))


def measure(folder: Path, gallery: int, memory: str, *more: str) -> tuple[dict, int]:
    """Return the summary of an evaluation in a process of its own, and what it took in bytes."""
    arguments = ["evaluate", "--query", "q.npy", "--gallery", f"g{gallery}.npy"]
    arguments += ["--query-ids", "qid.npy", "--gallery-ids", f"gid{gallery}.npy"]
    arguments += ["--query-cams", "qcam.npy", "--gallery-cams", f"gcam{gallery}.npy"]
    arguments += ["--memory", memory, "--threads", "2", "--json", *more]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), int(done.stderr.split()[-1])


@pytest.mark.slow
def test_a_million_images_in_one_gigabyte_and_two_million_in_no_more(tmp_path: Path) -> None:
    peaks: dict[int, float] = {}
    for gallery in (1_000_000, 2_000_000):
        write_gallery(tmp_path, gallery)
        runs = [measure(tmp_path, gallery, "1GB") for _ in range(5)]
        for summary, peak in runs:
            assert summary["counts"]["gallery"] == gallery
            assert summary["counts"]["queries"] == QUERIES
            assert summary["counts"]["queries_negative"] > 0
            assert peak <= summary["provenance"]["plan"]["projected_peak"] <= 10**9
        # The median: when the two threads hold most does not depend on the gallery.
        peaks[gallery] = statistics.median(peak for _, peak in runs)
        (tmp_path / f"g{gallery}.npy").unlink()
    assert peaks[1_000_000] < 1.2e9, peaks
    codes = 9 * 1_000_000  # of the labels of further items: what the plan has for them
    assert peaks[2_000_000] - codes <= 1.05 * peaks[1_000_000], peaks


@pytest.mark.slow
def test_the_edges_of_a_histogram_are_in_the_plan(tmp_path: Path) -> None:
    write_gallery(tmp_path, 100_000)
    lean, usual, pairs = (
        measure(tmp_path, 100_000, "1GB", *more)
        for more in (("--metrics", "mAP"), (), ("--metrics", "all", "--refine", "EER"))
    )
    projected = [summary["provenance"]["plan"]["projected_peak"] for summary, _ in (usual, pairs)]
    assert projected[1] > projected[0] + 3 * 10**7  # 500 × 1,001 × 32 bytes, twice
    for summary, peak in (lean, usual, pairs):
        assert peak <= summary["provenance"]["plan"]["projected_peak"] <= 10**9


@pytest.mark.slow
@pytest.mark.parametrize("index", ["Flat", "IVF64,SQ4"])
def test_lists_of_an_index_never_hold_the_gallery(tmp_path: Path, index: str) -> None:
    gallery = 600_000
    write_gallery(tmp_path, gallery)  # 614 MB; as codes of 4 bits, 77
    summary, peak = measure(tmp_path, gallery, "700MB", "--index", index, "-k", "50")
    assert summary["provenance"]["lists"]["k"] == 50
    assert peak <= summary["provenance"]["plan"]["projected_peak"] <= 7 * 10**8


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [("--rerank", "k-reciprocal"), ("--expand", "dba"), ("--rerank-with", "gallery")]
)
def test_what_stages_before_counting_hold_is_in_the_plan(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    write_gallery(tmp_path, 30_000)
    if options[0] == "--rerank-with":
        options = ("--rerank", "k-reciprocal", *options)
    summary, peak = measure(tmp_path, 30_000, "1GB", *options)
    assert peak <= summary["provenance"]["plan"]["projected_peak"] <= 10**9


LABELS = """
import json, sys, time
import numpy as np, psutil
import streameval as se

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

queries, gallery, identities, memory = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
q = se.Labels(rng.integers(0, identities, queries), rng.integers(0, 6, queries))
g = se.Labels(rng.integers(0, identities, gallery), rng.integers(0, 6, gallery))
width = 8
features = se.Features(rng.standard_normal((queries, width)), rng.standard_normal((gallery, width)))
evaluate = se.evaluate  # the package is loaded
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
held = psutil.Process().memory_info().rss
plan, refused = None, None
try:
    plan = evaluate(features, query=q, gallery=g, memory=memory, threads=2).provenance["plan"]
except se.BudgetError as error:
    refused = str(error)
labels = sum(own.nbytes for side in (q, g) for own in side.columns.values())
print(json.dumps({"beyond": peak() - held, "plan": plan, "refused": refused, "labels": labels}))
"""


def measure_labels(*sizes: int) -> dict:
    """Evaluate Q queries, G items and H identities in a process of its own; see `LABELS`."""
    arguments = [sys.executable, "-W", "ignore", "-c", LABELS, *map(str, sizes)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_many_positives_are_in_the_plan() -> None:
    found = measure_labels(1000, 30_000, 20, 4 * 10**9)  # 1.25 million positives
    assert found["beyond"] <= found["plan"]["projected_peak"] <= 4 * 10**9


@pytest.mark.slow
def test_more_positives_than_the_budget_holds_are_finished_in_rounds() -> None:
    found = measure_labels(10_000, 20_000, 20, 5 * 10**8)  # 10 million positives
    assert found["beyond"] <= found["plan"]["projected_peak"] <= 5 * 10**8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "memory"), [((20_000, 20_000, 20), 25 * 10**7), ((10_000, 2_000_000, 1), 4 * 10**8)]
)
def test_a_refusal_takes_no_more_than_the_labels(sizes: tuple[int, int, int], memory: int) -> None:
    found = measure_labels(*sizes, memory)
    assert "too small" in found["refused"]
    assert found["beyond"] <= max(100_000_000, 1.2 * found["labels"])
