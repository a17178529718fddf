"""What the inputs of a result are, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streameval.report.style import plural


def describe_inputs(inputs: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the inputs are, and their names, from a result's provenance."""
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
