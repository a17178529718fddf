"""What a result was made from, and how, in words."""

from __future__ import annotations

from collections.abc import Mapping

from streameval.display.table import duration, plural
from streameval.planning.plan import format_bytes
from streameval.protocols.shipped import saved_protocol
from streameval.typing import JsonObject

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
    for step in inputs.get("steps", ()):
        name, *numbers = (f"{key} {one}" if key != "name" else one for key, one in step.items())
        features += f" · {name} ({', '.join(numbers)})"
    if "neighbors" in inputs:
        return "Neighbours", " · ".join(filter(None, (str(inputs["neighbors"]), features)))
    if "index" in inputs:
        search = f" ({inputs['search']})" if inputs["search"] else ""
        return "Index", f"{inputs['index']}{search} · {features}"
    return "Features", features


def describe_protocol(protocol: JsonObject | None) -> str:
    """Return a protocol and its options in words; nothing where none is known."""
    if protocol is None:
        return ""
    text = f"{protocol['name']} · CMC {protocol['cmc']} · junk ids {describe_junk(protocol)}"
    if protocol["self_match"]:
        text += f" · a query's own image ignored, by {protocol['self_match']}"
    return " · ".join([text, *saved_protocol(protocol).selections])


def describe_junk(protocol: JsonObject) -> str:
    """Return the identities that a protocol ignores."""
    return ", ".join(map(str, protocol["junk_ids"])) or "none"


def describe_difference(provenance: JsonObject) -> str:
    """Return what no option reproduces of the tool whose conventions are used; "" of none."""
    preset = provenance.get("preset", {"remark": ""})
    return f"{preset['name']}: {preset['remark']}" if preset["remark"] else ""


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
