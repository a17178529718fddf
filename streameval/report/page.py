"""A report as one HTML file that opens offline: no script, no font, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streameval.errors import InputError, OptionError
from streameval.metrics.confidence import Resampling
from streameval.report.comparison import (
    changed_queries,
    compared_metrics,
    describe_change,
    describe_method,
    differences_table,
)
from streameval.report.figures import images_of, look, shortened
from streameval.report.provenance import audit_table, counts_table, options_table, provenance_table
from streameval.report.ranked_lists import Pictures, hardest_queries, queries_table
from streameval.report.table import plural
from streameval.report.terminal import Style
from streameval.result import Evaluation, JsonObject, Results
from streameval.result.comparison import Comparison, compare
from streameval.result.same_task import check_despite
from streameval.result.saved import read_summary

if TYPE_CHECKING:
    from jinja2 import Environment

STROKES = {"-": "", "--": "9 4", "-.": "9 3 2 3", ":": "2 3"}
CHANGED = 5  # queries that got better, and worse
QUERY_COLUMNS = 9  # side by side


@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of a report, by name."""

    results: Results
    provenance: Mapping[str, JsonObject]  # of their summaries: with the version
    comparison: Comparison | None = None  # with the first, where there are several alike
    reason: str = ""  # why they can't be compared

    @property
    def of_same_queries(self) -> list[Results]:
        """The results, those together that can be compared query by query."""
        if self.comparison is not None:
            return [self.results]
        return [{name: result} for name, result in self.results.items()]


def runs_of(
    folders: Sequence[str | Path],
    names: Sequence[str],
    how: Resampling,
    despite: Collection[str] = (),
) -> Runs:
    """Load saved results by different names, and compare them with the first if that is possible.

    Raises OutputError if a folder holds no result, OptionError if `despite` can't be.
    """
    check_despite(despite)
    places = dict(zip(names, map(Path, folders), strict=True))
    results = {name: Evaluation.load(folder) for name, folder in places.items()}
    runs = Runs(results, {name: read_summary(at)["provenance"] for name, at in places.items()})
    if len(results) < 2:
        return runs
    try:
        compared = compare(
            *results.values(),
            names=names,
            **asdict(how),
            despite=despite,
        )
    except (InputError, OptionError) as error:
        return replace(runs, reason=str(error))
    return replace(runs, comparison=compared)


def render_report(runs: Runs, *, queries: int, pictures: Pictures | None = None) -> bytes:
    """Return the page, with so many of the hardest queries, and their ranked lists as pictures.

    Raises OptionError if jinja2 or matplotlib is not installed.
    """
    environment = _environment()
    results, comparison = runs.results, runs.comparison
    heads = tuple(shortened(name) for name in results)
    every = list(results.values())
    images, missing = images_of(results)
    hardest = []
    for group in runs.of_same_queries:
        chosen = hardest_queries(list(group.values()), queries)
        shown = [] if pictures is None else [pictures.of_query(query, group) for query in chosen]
        name = next(iter(group)) if len(results) > 1 and comparison is None else ""
        hardest.append((name, queries_table(group, chosen).cut(QUERY_COLUMNS), shown))
    page = environment.get_template("report.html").render(
        title=f"Evaluation of {plural(len(results), 'run')}",
        version=version("streameval"),
        runs=[(*run, look(at, run[0])) for at, run in enumerate(results.items())],
        plural=plural,
        strokes=STROKES,
        metrics=compared_metrics(results, heads, mark=comparison is not None).cut(),
        reason=runs.reason,
        comparison=None if comparison is None else _comparison(comparison),
        figures=images,
        missing=missing,
        hardest=hardest,
        options=options_table(every, heads).cut(),
        counts=counts_table(every, heads).cut(),
        audits=[audit_table(*run) for run in runs.provenance.items()],
        provenance=[provenance_table(*run) for run in runs.provenance.items()],
    )
    return page.encode("utf-8", errors="replace")


def _comparison(comparison: Comparison) -> JsonObject:
    """Return what the page says of runs that are compared."""
    first = shortened(comparison.first)
    differences, changes = [], []
    for run in comparison.others:
        heads = (first, shortened(run))
        differences.append(differences_table(comparison, run, heads))
        text = describe_change(comparison.changes(run)["AP"])
        scores = [f"{what} {name}" for what in ("AP", "First rank") for name in heads]
        changed = changed_queries(comparison, run, CHANGED, scores)
        changes.append((f"{run}, by AP: {text}", changed))
    return {
        "remarks": comparison.remarks,
        "differences": differences,
        "method": describe_method(comparison),
        "changes": changes,
    }


def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise OptionError(
            "a report needs jinja2, which is not installed: pip install 'streameval[plots]'"
        ) from error
    style = Style(plain=False)

    def harmless(value: Any) -> Any:
        """Replace what would turn text around, or is no character of a page."""
        return style.text(value) if type(value) is str else value

    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=harmless,
        loader=PackageLoader("streameval", "report"),
    )
