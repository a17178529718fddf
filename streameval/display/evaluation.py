"""The result of an evaluation: its metrics, for a terminal, side by side and as rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from streameval.display.provenance import (
    describe_difference,
    describe_effort,
    describe_inputs,
    describe_protocol,
    describe_queries,
    describe_range,
    describe_reading,
)
from streameval.display.table import (
    DASH,
    Blocks,
    Cell,
    Facts,
    Table,
    amount,
    facts,
    interval_text,
    number,
    number_text,
    percent,
    plural,
    value_text,
)
from streameval.metrics.compute import Metrics
from streameval.metrics.confidence import Confidence
from streameval.metrics.groups import NOT_BY_QUERY, camera_matrix
from streameval.metrics.metric import COUNT, FRACTION, TAU, Kind
from streameval.metrics.options import MetricOptions
from streameval.protocols.labels import CAMERA_PAIRS
from streameval.typing import JsonObject

if TYPE_CHECKING:
    from streameval.result import Evaluation, Results

PARTS: Mapping[str, str] = {
    "retrieval": "Retrieval",
    "open-set": "Open set",
    "gom": "GOM",
    "verification": "Verification",
}
"""Titles of the parts of the metrics."""

GROUPS_ROOM = 58  # characters: what a terminal of 80 columns leaves beside label and number
CAMERAS_ROOM = 7  # cameras side by side: what a terminal of 80 columns holds
MATRICES = 2  # metrics shown by pairs of cameras: all are in the summary


def evaluation_blocks(evaluation: Evaluation, saved: str | None = None) -> Blocks:
    """Return the result in words and tables: what was evaluated, the metrics, how they were read.

    `saved` is where it was written, if it was.
    """
    counts, provenance = evaluation.counts, evaluation.provenance
    gallery = [
        plural(counts["gallery"], "item"),
        plural(counts["pairs_positive"], "positive pair"),
        f"{counts['pairs_ignored']:,} ignored",
        plural(counts["ties"], "tie") if counts["ties"] else "no ties",
    ]
    opening: Facts = [
        describe_inputs(provenance.get("inputs", {})),
        ("Protocol", describe_protocol(provenance.get("protocol"))),
        ("Queries", f"{describe_queries(counts)}, {counts['queries_excluded']:,} excluded"),
        ("Gallery", " · ".join(gallery)),
        ("Lists", describe_reading(provenance)),
    ]
    blocks = [*_bounds_blocks(evaluation.metrics), *_group_blocks(evaluation)]
    closing: Facts = [
        ("Conventions", conventions(evaluation.options, describe_range(evaluation.range))),
        ("Run", _run(counts, provenance)),
        *_confidence_rows(evaluation.chosen_confidence),
        ("Written to", saved),
    ]
    shown = [facts(opening), "", metrics_table(evaluation), *blocks, "", facts(closing)]
    difference = describe_difference(provenance)
    return [*shown, facts([("Differences", difference)], wraps=True)] if difference else shown


def metrics_table(evaluation: Evaluation) -> Table:
    """Return the metrics part by part, with their intervals; a reason is given once in a row."""
    chosen = evaluation.chosen_confidence
    level = [] if chosen is None else [f"{100 * chosen.how.level:g} %"]
    rows: list[list[object]] = []
    for title, names in metrics_by_part([evaluation]):
        rows.append([Cell(title, _population(title, evaluation), "title")])
        said = ""
        for name in names:
            cell, place, interval = score_of(evaluation, name)
            kind = evaluation.metrics.details[name].kind
            value, between = aligned(cell.text, kind), aligned(interval, kind)
            note = " · ".join(filter(None, (cell.note, place)))
            reason = note if value == DASH else ""
            row = [name, Cell(value, "" if reason and reason == said else note), between]
            rows.append(row[: 2 + len(level)])
            said = reason
    return Table.of(("", "", *level), rows)


def aligned(text: str, kind: Kind) -> str:
    """Return a text with blanks for a unit that it lacks, so that numbers line up."""
    return text if text in ("", DASH) else text + " " * (len(FRACTION.unit) - len(kind.unit))


def metrics_by_part(results: Iterable[Evaluation]) -> Iterator[tuple[str, list[str]]]:
    """Give the title of each part of the metrics, and the names of those that any result has."""
    details = {name: one for result in results for name, one in result.metrics.details.items()}
    for part, title in PARTS.items():
        names = [name for name, detail in details.items() if detail.part == part]
        if names:
            yield title, names


def score_of(evaluation: Evaluation, name: str) -> tuple[Cell, str, str]:
    """Return a metric as a cell, the distance at which it is reached, and its interval."""
    metrics, chosen = evaluation.metrics, evaluation.chosen_confidence
    cell, detail = value_cell(metrics, name), metrics.details[name]
    confidence = place = ""
    if chosen is not None:
        between = chosen.intervals.get(name)
        missing = DASH if name in chosen.reasons else ""
        confidence = missing if between is None else interval_text(*between, detail.kind)
    if cell.value is None:
        return cell, "", confidence
    if detail.kind == TAU:
        low, high = evaluation.range["low"], evaluation.range["high"]
        place = f"distance {low + cell.value * (high - low):.4g}"
    elif detail.threshold is not None and math.isfinite(detail.threshold):
        bound = f" ± {detail.threshold_error:.2g}" if 0 < detail.threshold_error < math.inf else ""
        place = f"distance {detail.threshold:.4g}{bound}"
    return cell, place, confidence


def value_cell(metrics: Metrics, name: str) -> Cell:
    """Return a metric as a cell; its bounds if it is open, a dash and the reason if undefined."""
    value, detail, bounds = metrics.scalars[name], metrics.details[name], metrics.bounds.get(name)
    if bounds is not None and detail.open:
        return Cell(interval_text(*bounds, detail.kind))
    if math.isnan(value):
        return Cell(DASH, detail.reason)
    notes = [f"± {percent(detail.error, 4)}"] if detail.error else []
    if name in metrics.intervals:
        notes.insert(0, f"{interval_text(*metrics.intervals[name], detail.kind)} by ties")
    return Cell(value_text(value, detail.kind), " · ".join(notes), value=value)


def _population(title: str, evaluation: Evaluation) -> str:
    """Return what the metrics of a part are over."""
    counts = evaluation.counts
    if title == PARTS["verification"]:
        impostors = int(evaluation.metrics.per_query["negatives"].sum())
        return f"{counts['pairs_positive']:,} genuine, {impostors:,} impostor pairs"
    positive = f"{plural(counts['queries_positive'], 'query', 'queries')} of Q+"
    if title == PARTS["retrieval"]:
        missed = counts["queries"] - counts["queries_positive"]
        counted = evaluation.options.unmatched == "miss" and missed
        return f"{positive}, {missed:,} without a positive as misses" if counted else positive
    return f"{positive}, {counts['queries_negative']:,} of Q−"


def _bounds_blocks(metrics: Metrics) -> Blocks:
    """Return a row a metric that is open: how wide, and the k that would close it."""
    rows = []
    for name, (low, high) in metrics.bounds.items():
        if low != high:
            kind = metrics.details[name].kind
            share = f"{100 * (high - low):.3g}"
            width = share if kind == FRACTION else number_text(high - low, kind)
            least, most = metrics.places[name]
            needed = f"k = {most:,}" if least >= most else f"k from {least:,} to {most:,}"
            rows.append((name, width, needed))
    return ["", Table.of(("open", "width", "closed by"), rows, align="lrl")] if rows else []


def conventions(options: MetricOptions, used: str) -> list[str]:
    """Return in words how metrics are read; `used` is the range of τ, nothing without one."""
    return [
        f"CMC {options.cmc}",
        "over all draws" if options.over_draws else "",
        "" if options.unmatched == "exclude" else f"unmatched {options.unmatched}",
        f"average over {options.average}" if options.average else "",
        f"ties {options.ties}",
        f"AP {options.ap}",
        f"VP {options.vp}",
        f"false-rate budget {options.false_rate_budget:,}",
        f"range {used}" if used else "",
    ]


def _run(counts: Mapping[str, int], provenance: JsonObject) -> list[str]:
    if "ledger" in provenance:
        ledger = provenance["ledger"]
        return [f"snapshot {ledger['snapshot']} of ledger {ledger['path']}"]
    if "seconds" not in provenance:
        return []
    rate = counts["queries"] * counts["gallery"] / max(provenance["seconds"], 1e-3)
    took, *effort = describe_effort(provenance)
    return [took, f"{amount(rate)} pairs/s", *effort]


def _confidence_rows(confidence: Confidence | None) -> Facts:
    """Return how intervals were made, and why metrics have none."""
    if confidence is None:
        return []
    how = confidence.how
    made = [
        f"{100 * how.level:g} % intervals",
        f"bootstrap of {plural(confidence.identities, 'identity', 'identities')} of queries",
        f"{how.resamples:,} resamples",
        f"seed {how.seed}",
    ]
    missing = by_reason(confidence.reasons.items())
    return [("Confidence", made), *(("No interval", text) for text in missing)]


def by_reason(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Return each reason once, after the names that it is of."""
    names: dict[str, dict[str, None]] = {}
    for name, reason in reasons:
        names.setdefault(reason, {})[name] = None
    return [f"{', '.join(some)}: {reason}" for reason, some in names.items()]


def results_table(results: Results) -> Table:
    """Return a row a result, a column a metric of any of them; and its interval, if it has one."""
    kinds = {
        name: detail.kind
        for result in results.values()
        for name, detail in result.metrics.details.items()
    }
    intervals = any(result.chosen_confidence is not None for result in results.values())
    ends = ("", " low", " high") if intervals else ("",)
    rows = []
    for run, result in results.items():
        chosen = result.chosen_confidence
        between = {} if chosen is None else chosen.intervals
        cells: list[object] = [run]
        for name, kind in kinds.items():
            values = (result.metrics.scalars.get(name), *between.get(name, (None, None)))
            cells += [number(value, kind) for value in values[: len(ends)]]
        rows.append(cells)
    return Table.of(("run", *(name + end for name in kinds for end in ends)), rows)


def _group_blocks(evaluation: Evaluation) -> Blocks:
    """Return the tables of the groups, or pairs of cameras, of a result; nothing without any."""
    if evaluation.group_by is None:
        return []
    if evaluation.group_by == CAMERA_PAIRS:
        return _camera_blocks(evaluation)
    groups, details = evaluation.groups, evaluation.metrics.details
    intervals = evaluation.group_confidence
    scores = [name for name, one in details.items() if one.kind.is_score]
    cell = len("100.00 (100.00–100.00)" if evaluation.resampling is not None else "100.00")
    widths = accumulate(max(len(name), cell) + 2 for name in scores)
    names = [name for name, width in zip(scores, widths, strict=True) if width <= GROUPS_ROOM]
    rows = (
        (
            label,
            f"{metrics.counts['queries']:,}",
            *(_group_score(metrics, name, intervals.get(label)) for name in names),
        )
        for label, metrics in groups.items()
    )
    heads = (str(evaluation.group_by), "queries", *names)
    blocks: Blocks = ["", Table.of(heads, rows, align="r")]
    if len(names) < len(details):
        blocks.append(
            f"{len(names)} of {len(details)} metrics of each group; --json, and groups.csv of "
            "--out, have all"
        )
    reasons = (
        (name, detail.reason)
        for metrics in groups.values()
        for name, detail in metrics.details.items()
        if detail.reason == NOT_BY_QUERY
    )
    return [*blocks, *by_reason(reasons)]


def _group_score(metrics: Metrics, name: str, confidence: Confidence | None) -> str:
    """Return a score with its confidence interval, if there is one; or its bounds."""
    value, kind = metrics.scalars[name], metrics.details[name].kind
    interval = None if confidence is None else confidence.intervals.get(name)
    if math.isnan(value):
        interval = metrics.bounds.get(name)
    text = "" if interval is None else "–".join(number_text(end, kind) for end in interval)
    if math.isnan(value):
        return text or DASH
    return number_text(value, kind) + (f" ({text})" if text else "")


def _camera_blocks(evaluation: Evaluation) -> Blocks:
    """Return the number of queries, CMC and mAP of every pair of cameras, as matrices.

    Where CMC or mAP is not among the metrics, the first ones are shown.
    """
    scores: dict[str, Kind] = {
        name: detail.kind
        for metrics in evaluation.groups.values()
        for name, detail in metrics.details.items()
        if detail.kind.is_score
    }
    usual = next((name for name in scores if name.startswith("CMC@")), ""), "mAP"
    names = sorted(scores, key=lambda name: name not in usual)[:MATRICES]
    shown = {"queries": COUNT, **{name: scores[name] for name in names}}
    blocks: Blocks = []
    for name, kind in shown.items():
        matrix = camera_matrix(evaluation.groups, name)
        rows = (
            (cam, *(number(value, kind) for value in values))
            for cam, values in zip(matrix.query_cams, matrix.values.tolist(), strict=True)
        )
        heads = ("query cam", *map(str, matrix.gallery_cams.tolist()))
        title = f"{name} in percent" if kind == FRACTION else name.replace("queries", "Queries")
        for table in Table.of(heads, rows, align="r").cut(CAMERAS_ROOM):
            blocks += ["", f"{title}, by camera of positives", table]
    return blocks
