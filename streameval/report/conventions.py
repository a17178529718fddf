"""The list of all metrics; and a saved result as other tools would read it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from streameval.display.evaluation import PARTS
from streameval.display.table import Blocks, Facts, Table, facts, number
from streameval.errors import StreamevalWarning
from streameval.metrics.metric import Kind, Metric
from streameval.metrics.options import CHOICES, MetricOptions
from streameval.metrics.selection import METRICS, available_fields, find_measure, with_changes
from streameval.protocols.presets import PRESETS, Preset
from streameval.protocols.shipped import PROTOCOLS, saved_protocol
from streameval.request import OPTIONS
from streameval.result import Evaluation
from streameval.result.saved import plain
from streameval.typing import JsonObject

THIS_RUN = "this run"
IRRELEVANT = ("name", *OPTIONS, "shot_draws", "shot_seed")
"""Attributes of a protocol that don't matter for which pairs are ignored."""


def metrics_summary() -> list[JsonObject]:
    """Return every declaration as text, for ``streameval metrics --json``."""
    return [
        {
            "name": metric.name,
            "also": metric.also,
            "part": metric.part,
            "default": metric.default,
            "parameters": {name: one.expects for name, one in metric.parameters.items()},
            "examples": [measure.name for measure in metric.measures(MetricOptions())],
            "over": metric.over,
            "formula": metric.formula,
            "source": metric.source,
            "needs": metric.needs,
            "needs_under_cmc": needs_by_reading(metric),
        }
        for metric in METRICS
    ]


def needs_by_reading(metric: Metric) -> dict[str, list[str]]:
    """Return the statistics that it needs under some readings of CMC alone, by these."""
    options = (with_changes(MetricOptions(), {"cmc": reading}) for reading in CHOICES["cmc"])
    needs = {one.cmc: sorted(metric.needs_under(one).difference(metric.needs)) for one in options}
    return {reading: more for reading, more in needs.items() if more}


def describe_needs(metric: Metric) -> str:
    """Return in words which statistics it needs."""
    more = (f"; under {cmc} also {', '.join(own)}" for cmc, own in needs_by_reading(metric).items())
    return ", ".join(metric.needs) + "".join(more)


def metrics_blocks() -> Blocks:
    """Return the list in words, part by part; a star marks what is computed by default."""
    blocks: Blocks = []
    for part, title in PARTS.items():
        blocks.append(title.upper())
        for metric in METRICS:
            if metric.part == part:
                star = " *" if metric.default else ""
                blocks += [f"{metric.name}{star}", _declaration(metric)]
        blocks.append("")
    return [
        *blocks,
        "* computed by default",
        "over: the metric is a mean or rate over these, and undefined without any",
    ]


def _declaration(metric: Metric) -> Table:
    also = ", ".join(metric.also)
    where = (f"{name} {one.expects}" for name, one in metric.parameters.items())
    rows = [
        ("    formula", metric.formula),
        ("    over", ", ".join(metric.over)),
        ("    source", metric.source),
        ("    needs", describe_needs(metric)),
        ("    also", f"{also} (in other tools)" if also else ""),
        ("    where", "; ".join(where)),
    ]
    return facts(rows, wraps=True)


def protocols_summary() -> dict[str, JsonObject]:
    """Return every protocol as text, for ``streameval protocols --json``."""
    return {
        name: plain(asdict(protocol)) | {"source": PROTOCOLS.source(name)}
        for name, protocol in PROTOCOLS.items()
    }


def protocols_blocks() -> Blocks:
    """Return the protocols in words: their rules, and where each comes from."""
    blocks: Blocks = []
    for name, protocol in PROTOCOLS.items():
        ignored = (*(rule.text for rule in protocol.ignored_by), *protocol.own_image())
        rules = (
            ("    positive", "what a list says" if protocol.listed else protocol.positive),
            ("    ignored", "; ".join(ignored)),
            ("    selected", "; ".join(protocol.selections)),
            ("    junk ids", ", ".join(map(str, protocol.junk_ids))),
            ("    CMC", protocol.cmc),
            ("    unmatched", protocol.unmatched),
            ("    AP", protocol.ap),
            ("    ties", protocol.ties),
            ("    source", PROTOCOLS.source(name)),
        )
        blocks += [name, facts(rules, wraps=True)]
    return [
        *blocks,
        "",
        "streameval protocols NAME prints the file of one, to begin one's own with",
    ]


@dataclass(frozen=True)
class Reading:
    """The saved statistics under one tool's conventions.

    Effects say, for each option that differs from this run's, as ``ap=trapezoid``, by how much it
    alone changes each metric.
    """

    values: dict[str, float]
    effects: dict[str, dict[str, float]]
    remarks: tuple[str, ...]  # what no option can change: other pairs are ignored, another range

    @property
    def is_other(self) -> bool:
        """Whether these are not the tool's own figures."""
        return any("evaluate again" in remark for remark in self.remarks)

    def summary(self) -> JsonObject:
        """Return what ``--json`` prints; NaN as None."""
        return plain({"metrics": self.values, "effects": self.effects, "remarks": self.remarks})


def compare_conventions(
    evaluation: Evaluation, metrics: Sequence[str] | None = None
) -> dict[str, Reading]:
    """Return the readings of a result by name: ``this run``, its own options, and every preset.

    Metrics are those that each tool reports, if none are named; one that is unknown, or that the
    statistics don't allow, raises an OptionError.
    """
    held = available_fields(evaluation.statistics)
    possible = [
        name
        for preset in PRESETS.values()
        for name in preset.metrics
        if find_measure(name).metric.needs_under(evaluation.options) <= held
        and (find_measure(name).metric.is_mean or not evaluation.options.average)
    ]
    names = tuple(dict.fromkeys(metrics or possible))
    options = replace(evaluation.options, metrics=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamevalWarning)  # the table shows what has no value
        before = _scalars(evaluation, options)
        readings = {THIS_RUN: Reading(before, {}, ())}
        for preset in PRESETS.values():
            wanted = names if metrics else tuple(n for n in preset.metrics if n in possible)
            named = replace(options, metrics=wanted)
            readings[preset.name] = _read(evaluation, preset, named, before)
    return readings


def _read(
    evaluation: Evaluation, preset: Preset, options: MetricOptions, before: dict[str, float]
) -> Reading:
    protocol = PROTOCOLS[preset.protocol]
    usual = {"average": "", **{name: getattr(protocol, name) for name in OPTIONS}}
    wanted = {**usual, **preset.options} if options.metrics else {}
    changes = {name: value for name, value in wanted.items() if getattr(options, name) != value}
    effects: dict[str, dict[str, float]] = {}
    for name, value in changes.items():
        alone = _scalars(evaluation, replace(options, **{name: value}))
        effects[f"{name}={value or 'queries'}"] = {
            metric: now - before[metric]
            for metric, now in alone.items()
            if now != before[metric] and not (math.isnan(now) and math.isnan(before[metric]))
        }
    remarks = _other_pairs(evaluation, preset), _other_range(evaluation, preset), preset.remark
    values = _scalars(evaluation, replace(options, **changes))
    return Reading(values, effects, tuple(filter(None, remarks)))


def _scalars(evaluation: Evaluation, options: MetricOptions) -> dict[str, float]:
    if not options.metrics:  # the statistics allow none, and no names would stand for the usual
        return {}
    return evaluation.with_options(options).metrics.scalars


def _other_pairs(evaluation: Evaluation, preset: Preset) -> str:
    """Return a remark where the tool would ignore other pairs than this run."""
    saved = evaluation.provenance["protocol"]
    used, wanted = saved_protocol(saved), PROTOCOLS[preset.protocol]
    junk = wanted.junk_ids if preset.junk_ids is None else preset.junk_ids
    alike = {name: getattr(used, name) for name in IRRELEVANT}
    if replace(wanted, junk_ids=tuple(junk), **alike) == used:
        return ""
    return (
        f"ignores other pairs ({preset.protocol}, junk ids {list(junk) or 'none'}) than this run "
        f"({saved['name']}): for its own figures evaluate again with --as {preset.name}"
    )


def _other_range(evaluation: Evaluation, preset: Preset) -> str:
    mode = evaluation.range["mode"]
    if preset.range is None or preset.range == mode:
        return ""
    if evaluation.range["low"] is None:
        return (
            f"counts at the thresholds, and this run did not: for its figures evaluate again "
            f"with --as {preset.name}"
        )
    return (
        f"normalises distances by {preset.range}, this run by {mode}: for its own figures "
        f"evaluate again with --as {preset.name}"
    )


def conventions_blocks(readings: dict[str, Reading]) -> Blocks:
    """Return the readings in words: a row a metric, and why they differ."""
    heads = (name + "*" * reading.is_other for name, reading in readings.items())
    rows = (
        (
            metric,
            *(
                number(reading.values[metric], _kind(metric)) if metric in reading.values else ""
                for reading in readings.values()
            ),
        )
        for metric in readings[THIS_RUN].values
    )
    reasons: Facts = [(name, _reasons(name, reading)) for name, reading in readings.items()]
    other = any(reading.is_other for reading in readings.values())
    starred = "not that tool's own figures: from the pairs and the range of this run"
    reasons += [
        ("", " "),
        ("in percent", "tau and ranks as they are"),
        ("*", starred if other else ""),
    ]
    return [Table.of(("", *heads), rows), "", facts(reasons, wraps=True)]


def _kind(metric: str) -> Kind:
    return find_measure(metric).metric.kind


def _reasons(name: str, reading: Reading) -> list[str]:
    """Return in words why a reading differs from this run, a line each."""
    effects = (_effect(option, changes) for option, changes in reading.effects.items())
    return [*effects, *reading.remarks] or ["" if name == THIS_RUN else "as this run"]


def _effect(option: str, changes: dict[str, float]) -> str:
    texts = []
    for name, change in changes.items():
        shown = _kind(name).scale * change
        if not math.isnan(shown):
            texts.append(f"{name} {shown:+{'.2f' if abs(shown) >= 0.005 else '.1g'}}")
    return f"{option}: {', '.join(texts) or 'changes nothing here'}"
