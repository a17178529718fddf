"""The page: its parts put together, and a template in which every text is escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.rankings import Item, Kind, RankedList
from streameval.report.html.background import (
    audit_table,
    counts_table,
    options_table,
    provenance_table,
)
from streameval.report.html.figures import figures_of
from streameval.report.html.pictures import Images, Thumbnail
from streameval.report.html.queries import hardest_queries, queries_table
from streameval.report.html.runs import Run, Runs
from streameval.report.html.summary import (
    change_tables,
    comparison_tables,
    method_of,
    metrics_table,
    without_interval,
)
from streameval.report.plots import COLOURS, DASHES
from streameval.report.style import Style, plural

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE, STYLESHEET = "report.html", "report.css"
STROKES = {"-": "", "--": "9 4", "-.": "9 3 2 3", ":": "2 3"}
SIGNS: Mapping[Kind, str] = {Kind.MATCH: "✓", Kind.MISMATCH: "✗", Kind.IGNORED: "–"}


@dataclass(frozen=True)
class Picture:
    """An item of a ranked list, as shown.

    Attributes
    ----------
    image : Thumbnail
    kind : {"query", "match", "mismatch", "ignored"}
    lines : tuple of str
        Below it: rank, distance, labels.
    line : bool
        Whether the line of τ_max stands before it.
    far : bool
        Whether others lie between it and the one before.
    """

    image: Thumbnail
    kind: str
    lines: tuple[str, ...]
    line: bool = False
    far: bool = False


@dataclass(frozen=True)
class Strip:
    """The ranked list of one query and one run, as shown."""

    run: str
    about: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Gallery:
    """The ranked lists of one query, a strip a run."""

    query: int
    about: str
    picture: Picture
    strips: tuple[Strip, ...]


Lists = Mapping[str, Mapping[int, RankedList]]
"""Ranked lists by run and query."""


def render_report(
    runs: Runs,
    *,
    queries: int,
    images: Mapping[str, Images] | None = None,
    lists: Lists | None = None,
) -> bytes:
    """Return the page.

    Parameters
    ----------
    runs : Runs
    queries : int
        How many of the hardest are shown.
    images : mapping of str to Images, optional
        Of each run; without them there are no pictures.
    lists : mapping of str to mapping of int to RankedList, optional
        Of each run, its hardest queries' ranked lists.

    Raises
    ------
    OptionError
        If jinja2 or matplotlib is not installed.
    """
    environment = _environment()
    drawn, missing = figures_of(runs.results)
    hardest = []
    for group in runs.of_same_queries:
        chosen = hardest_queries(group, queries)
        galleries = [_gallery(query, group, images, lists) for query in chosen if images and lists]
        name = group[0].name if len(runs.all) > 1 and runs.comparison is None else ""
        hardest.append((name, queries_table(group, chosen).cut(9), galleries))
    comparison = runs.comparison
    page = environment.get_template(TEMPLATE).render(
        title=f"Evaluation of {plural(len(runs.all), 'run')}",
        version=version("streameval"),
        runs=[(run, _subtitle(run), *_look(at)) for at, run in enumerate(runs.all)],
        metrics=list(metrics_table(runs).cut()),
        reason=runs.reason,
        comparison=comparison,
        differences=[] if comparison is None else comparison_tables(comparison),
        method="" if comparison is None else method_of(comparison),
        without=[] if comparison is None else without_interval(comparison),
        changes=[] if comparison is None else change_tables(comparison),
        figures=drawn,
        missing=missing,
        hardest=hardest,
        pictures=images is not None,
        options=list(options_table(runs.all).cut()),
        counts=list(counts_table(runs.all).cut()),
        audits=[audit_table(run) for run in runs.all],
        provenance=[provenance_table(run) for run in runs.all],
    )
    return page.encode("utf-8", errors="replace")


def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise OptionError(
            "a report needs jinja2, which is not installed: pip install 'streameval[plots]'"
        ) from error
    folder, style = files(__package__ or ""), Style(plain=False)

    def harmless(value: Any) -> Any:
        """Replace what would turn text around, or is no character of a page."""
        return style.text(value) if type(value) is str else value

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=harmless,
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
    )
    stylesheet = (folder / STYLESHEET).read_text(encoding="utf-8")
    environment.globals["stylesheet"] = Markup(stylesheet)
    return environment


def _look(at: int) -> tuple[str, str]:
    """Return the colour and the dashes of a run's line in the figures."""
    return COLOURS[at % len(COLOURS)], STROKES[DASHES[at % len(DASHES)]]


def _subtitle(run: Run) -> str:
    counts = run.result.counts
    return (
        f"{plural(counts['queries'], 'query', 'queries')} × "
        f"{plural(counts['gallery'], 'gallery item')} · {run.provenance['protocol']['name']}"
    )


def _gallery(
    query: int,
    group: Sequence[Run],
    images: Mapping[str, Images],
    lists: Lists,
) -> Gallery:
    columns = group[0].result.columns
    labels = [f"{name} {columns[name][query]}" for name in ("id", "cam") if name in columns]
    image = images[group[0].name].thumbnail("query", query)
    strips = tuple(_strip(run, lists[run.name][query], images[run.name]) for run in group)
    picture = Picture(image, "query", ("query",))
    return Gallery(query, " · ".join(labels), picture, strips)


def _strip(run: Run, ranked: RankedList, images: Images) -> Strip:
    limit = tau_max_distance(run)
    beyond = [limit is not None and item.distance > limit for item in ranked.items]
    pictures = [
        _picture(item, images, line=late and not any(beyond[:at]))
        for at, (item, late) in enumerate(zip(ranked.items, beyond, strict=True))
    ]
    about = ""
    if ranked.next_match is not None:
        last = max((item.rank or 0 for item in ranked.items), default=0)
        pictures.append(
            _picture(
                ranked.next_match,
                images,
                line=not any(beyond) and limit is not None and ranked.next_match.distance > limit,
                far=(ranked.next_match.rank or 0) > last + 1,
            )
        )
    if limit is not None:
        within = "" if any(one.line for one in pictures) else "; all shown are within it"
        about = f"τ_max: distance {limit:.4g}{within}"
    return Strip(run.name, about, tuple(pictures))


def _picture(item: Item, images: Images, *, line: bool, far: bool = False) -> Picture:
    rank = "ignored" if item.rank is None else f"{item.rank:,}"
    lines = f"{SIGNS[item.kind]} {rank}", f"{item.distance:.4g}", images.label("gallery", item.row)
    thumbnail = images.thumbnail("gallery", item.row)
    return Picture(thumbnail, item.kind.name.lower(), lines, line, far)


def tau_max_distance(run: Run) -> float | None:
    """Return the distance that τ_max of a run stands for; None where it has none."""
    tau = run.result.metrics.scalars.get("tau_max", math.nan)
    thresholds = run.result.statistics.thresholds
    if math.isnan(tau) or not len(thresholds):
        return None
    return float(thresholds[round(tau * (len(thresholds) - 1))])
