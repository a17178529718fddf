"""The result of an evaluation: its metrics, for a terminal, side by side and as rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streameval.metrics.bounds import ListMetrics
from streameval.metrics.metric import FRACTION, TAU, Kind
from streameval.metrics.selection import find_measure
from streameval.planning import format_bytes
from streameval.report.groups import group_blocks
from streameval.report.metric_list import PARTS
from streameval.report.numbers import (
    DASH,
    amount,
    duration,
    interval_text,
    number_text,
    percent,
    plural,
    value_text,
)
from streameval.report.provenance import (
    describe_inputs,
    describe_protocol,
    describe_queries,
    describe_range,
    describe_reading,
)
from streameval.report.table import Cell, Facts, Part, Row, Table, facts, number
from streameval.report.terminal import Style, render

if TYPE_CHECKING:
    from streameval.metrics import Detail
    from streameval.metrics.confidence import Confidence
    from streameval.result import Evaluation

ARROWS = {"higher": "↑", "lower": "↓", "neither": ""}


@dataclass(frozen=True)
class Score:
    """What there is to say of a metric of a result.

    Attributes
    ----------
    name, value : str
    ties : str
        The interval that ties leave open.
    error, place : str
        How far it may be off, and the distance at which it is reached.
    reason : str
        Why it has no value, or no single one.
    confidence : str
        Its confidence interval.
    kind : Kind
    """

    name: str
    value: str
    ties: str = ""
    error: str = ""
    place: str = ""
    reason: str = ""
    confidence: str = ""
    kind: Kind = FRACTION

    @property
    def remark(self) -> str:
        """All but the value and its intervals."""
        return self.reason or ", ".join(filter(None, (self.error, self.place)))

    def row(self, *, confidence: bool) -> Row:
        """Return a row of the table for terminals."""
        blanks = " " * (len(" %") - len(self.kind.unit))  # numbers stand below each other
        value = self.value if self.value == DASH else self.value + blanks
        between = self.confidence if len(self.confidence) < 2 else self.confidence + blanks
        notes = (f"{self.ties} by ties" if self.ties else "", self.remark)
        cell = Cell(value, " · ".join(filter(None, notes)))
        return (Cell(self.name), cell, *([Cell(between)] if confidence else []))


def render_evaluation(evaluation: Evaluation, style: Style, *, saved: str | None = None) -> str:
    """Return the result as text: what was evaluated, the metrics, and how they were read.

    Parameters
    ----------
    evaluation : Evaluation
    style : Style
    saved : str, optional
        Where it was written.
    """
    closing: Facts = [
        ("Conventions", _conventions(evaluation)),
        ("Run", _run(evaluation)),
        *_confidence_rows(evaluation.chosen_confidence),
    ]
    if saved is not None:
        closing.append(("Written to", saved))
    blocks: list[str | Table] = [facts(_opening(evaluation)), "", metrics_table(evaluation)]
    bounds = _bounds_table(evaluation)
    if bounds is not None:
        blocks += ["", bounds]
    return render(style, [*blocks, *group_blocks(evaluation), "", facts(closing)])


def metrics_table(evaluation: Evaluation) -> Table:
    """Return the metrics part by part, with their intervals."""
    chosen = evaluation.chosen_confidence
    level = [] if chosen is None else [f"{100 * chosen.how.level:g} %"]
    parts = (
        Part(
            tuple(score.row(confidence=chosen is not None) for score in scores),
            title,
            _population(title, evaluation),
        )
        for title, scores in scores_of(evaluation).items()
    )
    return Table(("", "", *level), tuple(parts))


def scores_of(evaluation: Evaluation) -> dict[str, list[Score]]:
    """Return all metrics by the title of their part; a reason is given once in a row."""
    parts: dict[str, list[Score]] = {title: [] for title in PARTS.values()}
    reasons: dict[str, str] = {}  # of the score above in a part
    for name, detail in evaluation.metrics.details.items():
        title = PARTS[detail.part]
        score = score_of(evaluation, name)
        repeated = score.value == DASH and reasons.get(title) == score.reason
        parts[title].append(replace(score, reason="") if repeated else score)
        reasons[title] = score.reason if score.value == DASH else ""
    return {title: scores for title, scores in parts.items() if scores}


def score_of(evaluation: Evaluation, name: str) -> Score:
    """Return what there is to say of a metric."""
    metrics = evaluation.metrics
    value, detail = metrics.scalars[name], metrics.details[name]
    kind, bounds = detail.kind, None
    if isinstance(metrics, ListMetrics) and detail.open:
        bounds = metrics.bounds.get(name)
    if bounds is not None:
        score = Score(name, interval_text(*bounds, kind), kind=kind)
    elif math.isnan(value):
        score = Score(name, DASH, reason=detail.reason, kind=kind)
    else:
        interval = metrics.intervals.get(name)
        score = Score(
            name,
            value_text(value, kind),
            ties="" if interval is None else interval_text(*interval, kind),
            error=f"± {percent(detail.error, 4)}" if detail.error else "",
            place=_tau_place(value, evaluation.range) if kind is TAU else _place(detail),
            kind=kind,
        )
    chosen = evaluation.chosen_confidence
    if chosen is None:
        return score
    if name in chosen.intervals:
        return replace(score, confidence=interval_text(*chosen.intervals[name], kind))
    return replace(score, confidence=DASH if name in chosen.reasons else "")


def _place(detail: Detail) -> str:
    if detail.threshold is None or not math.isfinite(detail.threshold):
        return ""
    bound = detail.threshold_error
    return f"distance {detail.threshold:.4g}" + (f" ± {bound:.2g}" if 0 < bound < math.inf else "")


def _tau_place(tau: float, value_range: Mapping[str, Any]) -> str:
    low, high = value_range["low"], value_range["high"]
    return f"distance {low + tau * (high - low):.4g}"


def _population(title: str, evaluation: Evaluation) -> str:
    """Return what the metrics of a part are over."""
    counts = evaluation.counts
    if title == PARTS["verification"]:
        impostors = int(evaluation.statistics.negatives.sum())
        return f"{counts['pairs_positive']:,} genuine, {impostors:,} impostor pairs"
    positive = f"{plural(counts['queries_positive'], 'query', 'queries')} of Q+"
    if title == PARTS["retrieval"]:
        return positive
    return f"{positive}, {counts['queries_negative']:,} of Q−"


def _bounds_table(evaluation: Evaluation) -> Table | None:
    """Return a row a metric that is open: how wide, and the k that would close it."""
    metrics = evaluation.metrics
    if not isinstance(metrics, ListMetrics):
        return None
    rows = []
    for name, (low, high) in metrics.bounds.items():
        if low != high:
            kind = metrics.details[name].kind
            is_share = kind is FRACTION
            width = f"{100 * (high - low):.3g}" if is_share else number_text(high - low, kind)
            least, most = metrics.places[name]
            needed = f"k = {most:,}" if least >= most else f"k from {least:,} to {most:,}"
            rows.append((name, width, needed))
    return Table.of(("open", "width", "closed by"), rows, align="lrl") if rows else None


def _opening(evaluation: Evaluation) -> Facts:
    counts, provenance = evaluation.counts, evaluation.provenance
    ties = plural(counts["ties"], "tie") if counts["ties"] else "no ties"
    rows: Facts = [
        describe_inputs(provenance["inputs"]),
        ("Protocol", describe_protocol(provenance["protocol"])),
        ("Queries", f"{describe_queries(counts)}, {counts['queries_excluded']:,} excluded"),
        (
            "Gallery",
            f"{plural(counts['gallery'], 'item')} · "
            f"{plural(counts['pairs_positive'], 'positive pair')} · "
            f"{counts['pairs_ignored']:,} ignored · {ties}",
        ),
    ]
    if "lists" in provenance:
        rows.append(("Lists", describe_reading(provenance["lists"])))
    return rows


def _conventions(evaluation: Evaluation) -> list[str]:
    options, used = evaluation.options, describe_range(evaluation.range)
    read = [
        f"CMC {options.cmc}",
        f"ties {options.ties}",
        f"AP {options.ap}",
        f"VP {options.vp}",
        f"false-rate budget {options.false_rate_budget:,}",
    ]
    return [*read, f"range {used}"] if used else read


def _run(evaluation: Evaluation) -> list[str]:
    counts, provenance = evaluation.counts, evaluation.provenance
    if "ledger" in provenance:
        ledger = provenance["ledger"]
        return [f"snapshot {ledger['snapshot']} of ledger {ledger['path']}"]
    plan, seconds = provenance["plan"], provenance["seconds"]
    rate = counts["queries"] * counts["gallery"] / max(seconds, 1e-3)
    memory = f"{format_bytes(plan['projected_peak'])} of {format_bytes(plan['memory'])}"
    return [
        duration(seconds),
        f"{amount(rate)} pairs/s",
        *([plural(plan["workers"], "worker")] if plan.get("workers") else []),
        plural(plan["threads"], "thread"),
        f"memory projected {memory}",
    ]


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
    names: dict[str, list[str]] = {}
    for name, reason in confidence.reasons.items():
        names.setdefault(reason, []).append(name)
    missing = (f"{', '.join(some)}: {reason}" for reason, some in names.items())
    return [("Confidence", made), *(("No interval", text) for text in missing)]


def compared_metrics(
    results: Mapping[str, Evaluation], heads: tuple[str, ...], *, mark: bool
) -> Table:
    """Return a row a metric, a column a result.

    Parameters
    ----------
    results : mapping of str to Evaluation
    heads : tuple of str
        What they are called.
    mark : bool
        Whether the best value of a row is marked.
    """
    details = {name: one for result in results.values() for name, one in _details(result)}
    parts = (
        Part(
            tuple(
                _compared_row(name, list(results.values()), mark=mark)
                for name, detail in details.items()
                if detail.part == part
            ),
            title,
        )
        for part, title in PARTS.items()
    )
    return Table(("Metric", *heads), tuple(part for part in parts if part.rows))


def _details(result: Evaluation) -> list[tuple[str, Detail]]:
    return list(result.metrics.details.items())


def _compared_row(name: str, results: list[Evaluation], *, mark: bool) -> Row:
    better = find_measure(name).metric.better
    cells = [_compared_cell(name, result) for result in results]
    values = [result.metrics.scalars.get(name, math.nan) for result in results]
    known = [value for value in values if not math.isnan(value)]
    best = (max if better == "higher" else min)(known, default=math.nan)
    best_texts = {cell.text for cell, value in zip(cells, values, strict=True) if value == best}
    if mark and better != "neither" and len({cell.text for cell in cells}) > 1:
        cells = [
            replace(cell, mark="best") if cell.text in best_texts else cell for cell in cells
        ]  # in the digits that are shown
    return (Cell(name, ARROWS[better]), *cells)


def _compared_cell(name: str, result: Evaluation) -> Cell:
    if name not in result.metrics.scalars:
        return Cell("", "not computed")
    score = score_of(result, name)
    if math.isnan(result.metrics.scalars[name]):
        return Cell(score.value, score.reason if score.value == DASH else "left open")
    notes = [f"{score.ties} by ties" if score.ties else "", score.error]
    chosen = result.chosen_confidence
    if chosen is not None and name in chosen.intervals:
        notes.append(f"{100 * chosen.how.level:g} %: {score.confidence}")
    return Cell(score.value, " · ".join(filter(None, notes)))


def results_table(results: Mapping[str, Evaluation]) -> Table:
    """Return a row a result, a column a metric of any of them; and its interval, if it has one."""
    kinds = {name: detail.kind for result in results.values() for name, detail in _details(result)}
    intervals = any(result.chosen_confidence is not None for result in results.values())
    heads = ["run"]
    for name in kinds:
        heads += [name, f"{name} low", f"{name} high"] if intervals else [name]
    rows = []
    for run, result in results.items():
        cells: list[str | Cell] = [run]
        chosen = result.chosen_confidence
        between = {} if chosen is None else chosen.intervals
        for name, kind in kinds.items():
            cells.append(number(result.metrics.scalars.get(name), kind))
            if intervals:
                cells += [number(end, kind) for end in between.get(name, (None, None))]
        rows.append(cells)
    return Table.of(heads, rows)
