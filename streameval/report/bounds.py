"""Lists of neighbours in words: how they were read, the intervals, and what would close them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streameval.metrics.extremes import ListMetrics
from streameval.metrics.kind import FRACTION
from streameval.report.style import Style, number_text, packed, plural, unruled_table

if TYPE_CHECKING:
    from rich.table import Table


READINGS = {
    "bounds": "what is missing is no closer than what is returned",
    "never": "what is not returned is never found",
}


def describe_reading(lists: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return rows of what is told of the lists, from a result's provenance."""
    effective = lists["effective_k"]
    bounds = lists["missing"] == "bounds"
    certain = "places certain" if bounds else "valid items returned"
    said = [
        f"k = {lists['k']:,}",
        f"{effective['least']:,} to {effective['most']:,} {certain} "
        f"(median {effective['median']:g})",
        f"{plural(lists['missing_positives'], 'positive')} missing, of "
        f"{plural(lists['queries_missing_positives'], 'query', 'queries')}",
        f"distances {lists['distances']}",
        f"{lists['missing']}: {READINGS[lists['missing']]}",
    ]
    if lists["complete"]:
        said.append("complete: all is known")
    index = lists.get("index")
    rows = packed("Lists", said)
    if index is not None:
        trained = f", trained on {index['train_rows']:,} rows" if index["train_rows"] else ""
        rows.append(("", f"index built in {index['build_seconds']:.3g} s{trained}"))
    return rows


def closing_text(least: int, most: int) -> str:
    """Return in words which k would close an interval."""
    return f"k = {most:,}" if least >= most else f"k from {least:,} to {most:,}"


def bounds_table(metrics: ListMetrics, style: Style) -> Table | None:
    """Return a row a metric that is open: its bounds, how wide, and the k that would close it."""
    wide = [name for name, (low, high) in metrics.bounds.items() if low != high]
    if not wide:
        return None
    table = unruled_table()
    for column, right in (("open", False), ("width", True), ("closed by", False)):
        table.add_column(style.text(column), no_wrap=True, justify="right" if right else "left")
    for name in wide:
        low, high = metrics.bounds[name]
        kind = metrics.details[name].kind
        width = f"{100 * (high - low):.3g}" if kind is FRACTION else number_text(high - low, kind)
        table.add_row(name, width, style.text(closing_text(*metrics.places[name])))
    return table
