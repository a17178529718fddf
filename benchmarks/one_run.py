"""One evaluation in a process of its own; prints what it took as JSON.

Run as a script, with a JSON object: ``source`` (arguments of Features or Distances), ``labels``
(paths: query_id, query_cam, gallery_id, gallery_cam), ``memory``, ``threads``; and ``protocol``,
where it is not the usual one, ``expanded`` (by name), ``reranked``, ``lists`` (further arguments of
Neighbors), or the ``address`` of a scheduler, in place of threads. It imports little before
streameval, as the time to its first tile is measured from the start of the process.

VmHWM is the peak of resident memory; `ru_maxrss` is inherited from the parent, and wrong.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def peak_bytes() -> int:
    """Return the most memory that this process has held since the last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def reset_peak() -> None:
    """Begin the peak again."""
    Path("/proc/self/clear_refs").write_text("5")


def held_bytes() -> int:
    """Return the resident memory of this process."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def compilations() -> int:
    """Return how many kernels this process compiled, as they were not in the cache."""
    return sum(
        sum(kernel.stats.cache_misses.values())
        for name, module in list(sys.modules.items())
        if name.startswith("streameval.kernels")
        for kernel in vars(module).values()
        if hasattr(kernel, "stats") and kernel.__module__ == name
    )


def main() -> None:
    """Evaluate, and print the report."""
    wanted = json.loads(sys.argv[1])

    import streameval as se

    class FirstTile(se.Progress):
        """Notes when the first tile was counted."""

        counting = False
        at = 0.0

        def start(self, label: str, pairs: int) -> None:
            self.counting = label == "counting"

        def advance(self, pairs: int) -> None:
            if self.counting and not self.at:
                self.at = time.monotonic()

    source, labels = wanted["source"], wanted["labels"]
    opened: Any = se.Distances(**source) if "matrix" in source else se.Features(**source)
    if "expanded" in wanted:
        opened = se.Expanded(opened, wanted["expanded"])
    if wanted.get("reranked"):
        opened = se.Reranked(opened)
    if "lists" in wanted:
        opened = se.Neighbors(features=opened, **wanted["lists"])
    query = se.read_labels(labels["query_id"], labels["query_cam"])
    gallery = se.read_labels(labels["gallery_id"], labels["gallery_cam"])
    evaluate = se.evaluate  # the package is loaded
    where: dict[str, Any] = {"threads": wanted["threads"]}
    if "address" in wanted:
        from distributed import Client

        where = {"client": Client(wanted["address"])}
    reset_peak()
    held = held_bytes()
    first = FirstTile()
    try:
        result = evaluate(
            opened,
            query=query,
            gallery=gallery,
            memory=wanted["memory"],
            **where,
            progress=first,
            protocol=wanted.get("protocol"),
        )
    except se.BudgetError as error:
        print(json.dumps({"refused": str(error)}))
        return
    report = {
        "first_tile": first.at,
        "compilations": compilations(),
        "peak": peak_bytes() - held,
        "held": held,
        "plan": result.provenance["plan"],
        "seconds": result.provenance["seconds"],
        "lists": result.provenance.get("lists"),
        "metrics": {
            name: value for name, value in result.metrics.scalars.items() if value == value
        },
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
