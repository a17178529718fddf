"""What stands behind the numbers: options and conventions, data and its audit, provenance."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from streameval.planning import format_bytes
from streameval.report.bounds import describe_reading
from streameval.report.html.runs import Run
from streameval.report.html.table import Cell, Part, Row, Table, facts
from streameval.report.inputs import describe_inputs
from streameval.report.plots import shortened
from streameval.report.style import duration, plural

COUNTS: Mapping[str, str] = {
    "queries": "Queries",
    "queries_positive": "… in Q+: with a positive",
    "queries_negative": "… in Q−: strangers",
    "queries_excluded": "… excluded: every item of their identity is ignored",
    "gallery": "Gallery items",
    "pairs_positive": "Positive pairs",
    "pairs_ignored": "Ignored pairs",
    "ties": "Ties of a positive and a negative",
}


def options_table(runs: Sequence[Run]) -> Table:
    """Return a row an option, a column a run; where they differ is marked."""
    return _side_by_side("Option", [_options(run) for run in runs], runs)


def counts_table(runs: Sequence[Run]) -> Table:
    """Return a row a count of queries, items or pairs, a column a run."""
    counts = [
        {title: f"{run.result.counts[name]:,}" for name, title in COUNTS.items()} for run in runs
    ]
    return _side_by_side("Number", counts, runs)


def _side_by_side(head: str, columns: Sequence[Mapping[str, str]], runs: Sequence[Run]) -> Table:
    names = {name: None for column in columns for name in column}
    rows = []
    for name in names:
        texts = [column.get(name, "") for column in columns]
        differ = len(set(texts)) > 1
        rows.append(
            Row(
                name,
                tuple(Cell(text, mark="differs" if differ else "") for text in texts),
                "differs" if differ else "",
            )
        )
    heads = (head, *(shortened(run.name) for run in runs))
    return Table(heads, (Part(tuple(rows)),), numbers=False)


def _options(run: Run) -> dict[str, str]:
    result, protocol = run.result, run.result.provenance["protocol"]
    options, used = result.options, result.range
    ignored = [
        said
        for name, said in (
            ("same_identity_and_camera", "same identity and camera"),
            ("same_camera", "same camera"),
            ("listed", "what lists say"),
        )
        if protocol.get(name)
    ]
    if protocol.get("self_match"):
        ignored.append(f"a query's own image, by {protocol['self_match']}")
    between = "not used"
    if used["low"] is not None:
        between = f"{used['low']:.6g} to {used['high']:.6g} ({used['mode']})"
    said = {
        "Protocol": str(protocol["name"]),
        "Ignored pairs": ", ".join(ignored) or "none by camera",
        "Junk identities": ", ".join(str(one) for one in protocol["junk_ids"]) or "none",
        "CMC": options.cmc,
        "Ties": options.ties,
        "Average precision": options.ap,
        "Verification precision (VP)": options.vp,
        "False-rate budget": f"{options.false_rate_budget:,}",
        "Distances of τ = 0 and 1": between,
    }
    if "metric" in run.provenance["inputs"]:
        said = {"Distance": str(run.provenance["inputs"]["metric"]), **said}
    if run.provenance.get("refined"):
        said["Refined"] = ", ".join(run.provenance["refined"])
    if "lists" in run.provenance:
        said["Lists"] = " · ".join(text for _, text in describe_reading(run.provenance["lists"]))
    return said


def audit_table(run: Run) -> Table:
    """Return what the audit of the labels said of a run, as far as its result holds it."""
    if "audit" not in run.provenance:
        said = "not recorded: evaluated from Python, or by an earlier version"
        return facts([("Findings", f"{said}; the command audit looks at the inputs")], run.name)
    findings = run.provenance["audit"]
    if not findings:
        said = "none in the labels; the command audit looks at the features, too"
        return facts([("Findings", said)], run.name)
    rows = (
        Row(
            one["severity"].capitalize(),
            (Cell(f"{one['message']}: {one['effect']}", mark="warning"),),
        )
        for one in findings
    )
    return Table((), (Part(tuple(rows)),), run.name, numbers=False)


def provenance_table(run: Run) -> Table:
    """Return where a run comes from: inputs, machine, time, versions, command."""
    told = run.provenance
    name, inputs = describe_inputs(told["inputs"])
    rows = [(name, inputs), *_labels(told)]
    if "ledger" in told:
        ledger = told["ledger"]
        rows.append(("Ledger", f"{ledger['path']}, snapshot {ledger['snapshot']}"))
    for kind in ("fingerprints", "label_fingerprints"):
        rows += [(f"Fingerprint of {what}", str(text)) for what, text in told.get(kind, {}).items()]
    if "command" in told:
        rows.append(("Command", shlex.join(told["command"])))
    rows.append(("Folder", str(told.get("folder") or "")))
    rows += [("Started", str(told.get("started", ""))), *_effort(told), *_machine(told)]
    versions = {"streameval": told.get("streameval", ""), **told.get("versions", {})}
    said = ", ".join(f"{package} {version}" for package, version in versions.items())
    rows += [("Versions", said), ("Evaluation", str(told.get("evaluation", "")))]
    return facts(rows, run.name)


def _labels(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for side, uris in told.get("labels", {}).items():
        said = ", ".join(f"{name} {uri}" for name, uri in uris.items() if uri is not None)
        rows.append((f"Labels, {side}", said))
    for name in ("good", "junk"):
        uri = told.get("listed", {}).get(name)
        rows.append((f"List of {name} pairs", str(uri or "")))
    return rows


def _effort(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "plan" not in told:
        return []
    plan = told["plan"]
    on = [plural(plan["threads"], "thread")]
    if plan.get("workers"):
        on.insert(0, plural(plan["workers"], "worker"))
    peak, memory = format_bytes(plan["projected_peak"]), format_bytes(plan["memory"])
    took = f"{duration(told['seconds'])} on {' of '.join(on)}"
    return [("Took", f"{took}; memory projected {peak} of {memory}")]


def _machine(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "machine" not in told:
        return []
    own = told["machine"]
    cores = f"{own['cores']} of {plural(own['cores_in_all'] or own['cores'], 'core')}"
    said = [own["processor"], cores, f"{format_bytes(own['memory'])} of memory", own["system"]]
    return [("Machine", " · ".join(str(one) for one in said))]
