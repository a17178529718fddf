"""A saved result as other tools would read it, for ``streameval conventions``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streameval.errors import StreamevalWarning
from streameval.metrics import MetricOptions
from streameval.metrics.selection import available_fields, find_measure
from streameval.protocols.presets import PRESETS, Preset
from streameval.protocols.protocol import PROTOCOLS, saved_protocol
from streameval.report.table import Cell, Table, facts, number
from streameval.report.terminal import Style, render

if TYPE_CHECKING:
    from streameval.metrics.metric import Kind
    from streameval.result import Evaluation

THIS_RUN = "this run"

IRRELEVANT = ("name", "cmc", "shot_draws", "shot_seed")
"""Attributes of a protocol that don't matter for which pairs are ignored."""


@dataclass(frozen=True)
class Reading:
    """The saved statistics under one tool's conventions.

    Attributes
    ----------
    values : dict of str to float
    effects : dict of str to dict of str to float
        For each option that differs from this run's, as ``ap=trapezoid``: by how much it alone
        changes each metric. An option that changes nothing has no entries.
    remarks : tuple of str
        What no option can change: other pairs are ignored, another range.
    """

    values: dict[str, float]
    effects: dict[str, dict[str, float]]
    remarks: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """Return what ``--json`` prints; NaN as None."""
        values = {name: None if math.isnan(v) else v for name, v in self.values.items()}
        return {"metrics": values, "effects": self.effects, "remarks": list(self.remarks)}


def compare_conventions(
    evaluation: Evaluation, metrics: Sequence[str] | None = None
) -> dict[str, Reading]:
    """Read the statistics of a result under its own options, and under every preset.

    Parameters
    ----------
    evaluation : Evaluation
    metrics : sequence of str, optional
        Names of metrics; those that each tool reports.

    Returns
    -------
    dict of str to Reading
        By name; first ``this run``.

    Raises
    ------
    OptionError
        If a metric is unknown, or the statistics don't allow it.
    """
    held = available_fields(evaluation.statistics)
    reported = (name for preset in PRESETS.values() for name in preset.metrics)
    possible = [
        name
        for name in reported
        if find_measure(name).metric.needs_under(evaluation.options) <= held
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
    wanted = {**preset.options, "cmc": PROTOCOLS[preset.protocol].cmc} if options.metrics else {}
    changes = {name: value for name, value in wanted.items() if getattr(options, name) != value}
    effects: dict[str, dict[str, float]] = {}
    for name, value in changes.items():
        alone = _scalars(evaluation, replace(options, **{name: value}))
        effects[f"{name}={value}"] = {
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
    wanted = PROTOCOLS[preset.protocol]
    junk = list(wanted.junk_ids if preset.junk_ids is None else preset.junk_ids)
    used, wanted = saved_protocol(saved), replace(wanted, junk_ids=tuple(junk))
    if replace(wanted, **{name: getattr(used, name) for name in IRRELEVANT}) == used:
        return ""
    return (
        f"ignores other pairs ({preset.protocol}, junk ids {junk or 'none'}) than this run "
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


def render_conventions(readings: dict[str, Reading], style: Style) -> str:
    """Return the readings as text: a row a metric, and why they differ."""
    return render(style, [_table(readings), "", facts(_reasons(readings), wraps=True)])


def _table(readings: dict[str, Reading]) -> Table:
    starred = {name: "*" if _is_other(reading) else "" for name, reading in readings.items()}
    rows = (
        (metric, *(_cell(metric, reading.values) for reading in readings.values()))
        for metric in readings[THIS_RUN].values
    )
    return Table.of(("", *(name + star for name, star in starred.items())), rows)


def _is_other(reading: Reading) -> bool:
    return any("evaluate again" in remark for remark in reading.remarks)


def _cell(metric: str, values: dict[str, float]) -> str | Cell:
    return number(values[metric], _kind(metric)) if metric in values else ""


def _kind(metric: str) -> Kind:
    return find_measure(metric).metric.kind


def _reasons(readings: dict[str, Reading]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, reading in readings.items():
        texts = [_effect(option, changes) for option, changes in reading.effects.items()]
        texts += reading.remarks
        if name != THIS_RUN and not texts:
            texts = ["as this run"]
        rows += [("" if at else name, text) for at, text in enumerate(texts)]
    rows += [("", ""), ("in percent", "tau and ranks as they are")]
    if any(map(_is_other, readings.values())):
        rows.append(("*", "not that tool's own figures: from the pairs and the range of this run"))
    return rows


def _effect(option: str, changes: dict[str, float]) -> str:
    moved = {name: change for name, change in changes.items() if not math.isnan(change)}
    if not moved:
        return f"{option}: changes nothing here"
    texts = (f"{name} {_change(change, _kind(name))}" for name, change in moved.items())
    return f"{option}: " + ", ".join(texts)


def _change(change: float, kind: Kind) -> str:
    shown = kind.scale * change
    return f"{shown:+.2f}" if abs(shown) >= 0.005 else f"{shown:+.1g}"
