"""What a result was made from: inputs, protocol, options, data, machine; in words and tables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from streameval.planning.plan import format_bytes
from streameval.protocols.protocol import saved_protocol
from streameval.report.table import Cell, Facts, Table, duration, facts, plural
from streameval.result import Evaluation, JsonObject

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
READINGS = {
    "bounds": "what is missing is no closer than what is returned",
    "never": "what is not returned is never found",
}


def describe_inputs(inputs: JsonObject) -> tuple[str, str]:
    """Return what the inputs are, and their names."""
    if "distances" in inputs:
        return "Distances", str(inputs["distances"])
    features = ""
    if "metric" in inputs:
        features = f"{inputs['query']} × {inputs['gallery']} · {inputs['metric']}"
        if "width" in inputs:  # a ledger's segments may not be known yet
            features += f", {plural(inputs['width'], 'column')}"
    if "neighbors" in inputs:
        return "Neighbours", " · ".join(filter(None, (str(inputs["neighbors"]), features)))
    if "index" in inputs:
        search = f" ({inputs['search']})" if inputs["search"] else ""
        return "Index", f"{inputs['index']}{search} · {features}"
    return "Features", features


def describe_protocol(protocol: JsonObject) -> str:
    """Return a protocol and its options in words."""
    text = f"{protocol['name']} · CMC {protocol['cmc']} · junk ids {_junk(protocol)}"
    if protocol["self_match"]:
        text += f" · a query's own image ignored, by {protocol['self_match']}"
    return text


def _junk(protocol: JsonObject) -> str:
    return ", ".join(map(str, protocol["junk_ids"])) or "none"


def describe_reading(provenance: JsonObject) -> list[str]:
    """Return in words how long lists of neighbours are, and how they are read; if there are any."""
    lists = provenance.get("lists")
    if lists is None:
        return []
    effective, index = lists["effective_k"], lists.get("index") or {"train_rows": None}
    certain = "places certain" if lists["missing"] == "bounds" else "valid items returned"
    trained = f", trained on {index['train_rows']:,} rows" if index["train_rows"] else ""
    return [
        f"k = {lists['k']:,}",
        f"{effective['least']:,} to {effective['most']:,} {certain} "
        f"(median {effective['median']:g})",
        f"{plural(lists['missing_positives'], 'positive')} missing, of "
        f"{plural(lists['queries_missing_positives'], 'query', 'queries')}",
        f"distances {lists['distances']}",
        f"{lists['missing']}: {READINGS[lists['missing']]}",
        "complete: all is known" if lists["complete"] else "",
        f"index built in {index['build_seconds']:.3g} s{trained}" if lists.get("index") else "",
    ]


def describe_queries(counts: Mapping[str, int]) -> str:
    """Return in words how many queries there are, on each side."""
    return (
        f"{counts['queries']:,}: {counts['queries_positive']:,} in Q+, "
        f"{counts['queries_negative']:,} in Q−"
    )


def describe_range(used: JsonObject) -> str:
    """Return in words the distances of τ = 0 and 1; nothing where they are not used."""
    if used["low"] is None:
        return ""
    return f"{used['low']:.6g} to {used['high']:.6g} ({used['mode']})"


def describe_threads(plan: JsonObject) -> list[str]:
    """Return in words the workers, if there are any, and threads of a plan."""
    workers = [plural(plan["workers"], "worker")] if plan.get("workers") else []
    return [*workers, plural(plan["threads"], "thread")]


def describe_effort(provenance: JsonObject) -> list[str]:
    """Return in words the time, threads and memory that a run took; nothing of a ledger's."""
    if "plan" not in provenance:
        return []
    plan = provenance["plan"]
    peak, memory = format_bytes(plan["projected_peak"]), format_bytes(plan["memory"])
    took = duration(provenance["seconds"])
    return [took, *describe_threads(plan), f"memory projected {peak} of {memory}"]


def options_table(results: Sequence[Evaluation], heads: Sequence[str]) -> Table:
    """Return a row an option, a column a result; where they differ is marked."""
    return _side_by_side("Option", heads, [_options(result) for result in results])


def counts_table(results: Sequence[Evaluation], heads: Sequence[str]) -> Table:
    """Return a row a count of queries, items or pairs, a column a result."""
    columns = [
        {title: f"{result.counts[name]:,}" for name, title in COUNTS.items()} for result in results
    ]
    return _side_by_side("Number", heads, columns)


def _side_by_side(head: str, heads: Sequence[str], columns: Sequence[Mapping[str, str]]) -> Table:
    rows = []
    for name in {name: None for column in columns for name in column}:
        texts = [column.get(name, "") for column in columns]
        mark = "differs" if len(set(texts)) > 1 else ""
        rows.append((Cell(name, mark), *(Cell(text, mark=mark) for text in texts)))
    return Table.of((head, *heads), rows, align="l" * (len(heads) + 1))


def _options(result: Evaluation) -> dict[str, str]:
    protocol, inputs = result.provenance["protocol"], result.provenance["inputs"]
    options = result.options
    ignored = saved_protocol(protocol).ignored()
    texts = {
        "Distance": str(inputs.get("metric", "")),
        "Protocol": str(protocol["name"]),
        "Ignored pairs": "; ".join(ignored) or "none by camera",
        "Junk identities": _junk(protocol),
        "CMC": options.cmc,
        "Ties": options.ties,
        "Average precision": options.ap,
        "Verification precision (VP)": options.vp,
        "False-rate budget": f"{options.false_rate_budget:,}",
        "Distances of τ = 0 and 1": describe_range(result.range) or "not used",
        "Refined": ", ".join(result.provenance.get("refined", ())),
        "Lists": " · ".join(filter(None, describe_reading(result.provenance))),
    }
    return {name: text for name, text in texts.items() if text}


def audit_table(name: str, provenance: JsonObject) -> Table:
    """Return what the audit of the labels found for a run, as far as its result holds it."""
    text = "none in the labels; the command audit looks at the features, too"
    if "audit" not in provenance:
        text = (
            "not recorded: evaluated from Python, or by an earlier version; the command audit "
            "looks at the inputs"
        )
    rows: list[tuple[object, ...]] = [
        (one["severity"].capitalize(), Cell(f"{one['message']}: {one['effect']}", mark="warning"))
        for one in provenance.get("audit", ())
    ]
    return Table.of((), rows or [("Findings", text)], name, align="ll")


def provenance_table(name: str, provenance: JsonObject) -> Table:
    """Return where a run comes from: inputs, machine, time, versions, command."""
    rows: Facts = [describe_inputs(provenance["inputs"])]
    for side, uris in provenance.get("labels", {}).items():
        named = ", ".join(f"{column} {uri}" for column, uri in uris.items() if uri is not None)
        rows.append((f"Labels, {side}", named))
    listed = provenance.get("listed", {})
    rows += [(f"List of {kind} pairs", str(listed.get(kind) or "")) for kind in ("good", "junk")]
    if "ledger" in provenance:
        ledger = provenance["ledger"]
        rows.append(("Ledger", f"{ledger['path']}, snapshot {ledger['snapshot']}"))
    for kind in ("fingerprints", "label_fingerprints"):
        prints = provenance.get(kind, {})
        rows += [(f"Fingerprint of {what}", str(text)) for what, text in prints.items()]
    versions = {"streameval": provenance.get("streameval", ""), **provenance.get("versions", {})}
    rows += [
        ("Command", shlex.join(provenance.get("command", ()))),
        ("Folder", str(provenance.get("folder") or "")),
        ("Started", str(provenance.get("started", ""))),
        ("Took", describe_effort(provenance)),
        ("Machine", _machine(provenance.get("machine"))),
        ("Versions", ", ".join(f"{package} {number}" for package, number in versions.items())),
        ("Evaluation", str(provenance.get("evaluation", ""))),
    ]
    return facts(rows, name)


def _machine(machine: JsonObject | None) -> str:
    if machine is None:
        return ""
    cores = f"{machine['cores']} of {plural(machine['cores_in_all'] or machine['cores'], 'core')}"
    memory = f"{format_bytes(machine['memory'])} of memory"
    return " · ".join((machine["processor"], cores, memory, machine["system"]))
