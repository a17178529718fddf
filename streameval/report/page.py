"""A report as one HTML file that opens offline: no script, no font, nothing from elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streameval.display import comparison, figures, provenance
from streameval.display.text import shown
from streameval.errors import InputError, OptionError, optional_package
from streameval.metrics.confidence import Resampling
from streameval.planning.plan import format_bytes, plural
from streameval.report import inputs, ranked_lists
from streameval.report.ranked_lists import Pictures
from streameval.result import Evaluation, Results
from streameval.result.comparison import Comparison, compare
from streameval.result.saved import read_summary
from streameval.typing import JsonObject

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of a report, by name."""

    results: Results
    provenance: Mapping[str, JsonObject]  # of their summaries: with the version
    comparison: Comparison | None  # with the first, where there are several alike
    reason: str  # why they can't be compared

    @property
    def of_same_queries(self) -> list[Results]:
        """The results, those together that can be compared query by query."""
        if self.comparison is not None:
            return [self.results]
        return [{name: result} for name, result in self.results.items()]


def runs_of(folders: Mapping[str, str], how: Resampling, despite: Collection[str] = ()) -> Runs:
    """Load saved results by their names, and compare them with the first if that is possible.

    Raises OutputError if a folder holds no result.
    """
    results = {name: Evaluation.load(folder) for name, folder in folders.items()}
    told = {name: read_summary(Path(at))["provenance"] for name, at in folders.items()}
    compared: Comparison | None = None
    reason = ""
    if len(results) > 1:
        try:
            compared = compare(*results.values(), names=[*results], **asdict(how), despite=despite)
        except (InputError, OptionError) as error:
            reason = str(error)
    return Runs(results, told, compared, reason)


def render_report(runs: Runs, *, queries: int, pictures: Pictures | None = None) -> bytes:
    """Return the page, with so many of the hardest queries, and their ranked lists as pictures.

    Raises OptionError if jinja2 or matplotlib is not installed.
    """
    template = _environment().get_template("report.html")
    images, missing = figures.images_of(runs.results)
    page = template.render(
        version=version("streameval"),
        runs=runs,
        images=images,
        missing=missing,
        queries=queries,
        pictures=pictures,
    )
    return page.encode("utf-8", errors="replace")


def _environment() -> Environment:
    """Return what renders the page: its template asks modules of the report for tables."""
    with optional_package("jinja2", "plots", "a report"):
        from jinja2 import Environment, PackageLoader, StrictUndefined

    def harmless(value: Any) -> Any:
        """Replace what would turn text around, or is no character of a page."""
        return shown(value) if type(value) is str else value

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=harmless,
        loader=PackageLoader("streameval", "report"),
    )
    environment.globals.update(
        comparison=comparison,
        figures=figures,
        format_bytes=format_bytes,
        inputs=inputs,
        join_command=shlex.join,
        plural=plural,
        provenance=provenance,
        ranked_lists=ranked_lists,
    )
    return environment
