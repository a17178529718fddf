"""Figures by matplotlib, of curves and of pairs of cameras: PNG, SVG or PDF, with no display.

Colours are those of Okabe and Ito (2008), which colour-blind readers tell apart; lines differ in
their dashes too, so that they do in a print without colours. Text of labels is set as it is.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.display.table import one_line
from streameval.errors import InputError, OptionError, optional_package
from streameval.metrics.blocks import totals_of
from streameval.metrics.cutoffs import precision_terms
from streameval.protocols.labels import CAMERA_PAIRS
from streameval.typing import FloatArray, JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from streameval.result import Evaluation, Results

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TYPES = ("png", "svg", "pdf")
LABEL_ROOM = 40  # characters of a name in the legend
SIZE = 5.2, 3.6  # inches: a column of a paper holds it at 10 points
MOST_BINS = 50  # of a density, about: more would be noise
LIGHT = 47  # percent: from here on the colour of a heat map is nearer to white than to black
MOST_CAMERAS = 16  # whose pairs a figure in a column of a page has room for
MOST_SVG = 400_000  # bytes in a page: a curve of very many points is a smaller file as pixels
STYLE: Any = {
    "font.size": 10,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "streameval",  # the same figure is the same file
    "pdf.fonttype": 42,
    "path.simplify": False,  # every point of a curve is there
    "text.usetex": False,
    "text.parse_math": False,  # a $ in a name is one
}


@contextmanager
def drawing() -> Iterator[tuple[Figure, Axes]]:
    """Give a new figure with axes; while entered, all is drawn in `STYLE`."""
    with optional_package("matplotlib", "plots", "a figure"):
        import matplotlib as mpl

        from streameval.display.notebook_figure import NotebookFigure
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(figsize=SIZE, layout="constrained")
        yield figure, figure.add_subplot()


def look(at: int, label: str, *, marked: bool = False) -> JsonObject:
    """Return how the line looks that is at a place in the legend, with marks if these are asked."""
    marks = {"marker": MARKERS[at % len(MARKERS)], "markersize": 4} if marked else {}
    return marks | {
        "label": shortened(label),
        "color": COLOURS[at % len(COLOURS)],
        "linestyle": DASHES[at % len(DASHES)],
        "gid": f"curve-{at}",  # its group in an SVG
    }


def shortened(name: str) -> str:
    """Return a name in the legend's width; matplotlib leaves out those that begin with _."""
    text = one_line(name).strip()
    text = text if len(text) <= LABEL_ROOM else f"…{text[1 - LABEL_ROOM :]}"
    return f"\u200b{text}" if text.startswith("_") else text


def set_log(axes: Axes) -> None:
    """Make the x axis logarithmic, with plain numbers."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")


def figure_bytes(figure: Figure, path: str, *, text_as_paths: bool = False) -> bytes:
    """Return a figure as a file of the `file_type` of a path."""
    import matplotlib as mpl

    kind = file_type(path)
    file = io.BytesIO()
    when: JsonObject = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with mpl.rc_context(STYLE | ({"svg.fonttype": "path"} if text_as_paths else {})):
        figure.savefig(file, format=kind, dpi=200, metadata=when)
    return file.getvalue()


def _as_data(figure: Figure) -> str:
    """Return a figure as a data URI: SVG, the same wherever it is opened; or PNG if it is large."""
    kind, content = "svg+xml", figure_bytes(figure, "figure.svg", text_as_paths=True)
    if len(content) > MOST_SVG:
        kind, content = "png", figure_bytes(figure, "figure.png")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def file_type(path: str) -> str:
    """Return the type of a figure by its path's ending; refuse another with an OptionError."""
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in TYPES:
        raise OptionError(
            f"{path} is no {', '.join(TYPES)} by its ending: a figure is one of these"
        )
    return kind


Draw = Callable[["Axes", "Evaluation", JsonObject], None]
"""Draws a result, by the look of its line; raises KeyError if the result lacks the curve."""


@dataclass(frozen=True)
class Curve:
    """One kind of figure: its title, its axes, and how a result is drawn on them."""

    title: str
    x: str
    y: str
    draw: Draw
    metric: str = ""  # one that the result has to hold
    limits: tuple[float | None, float | None] = (None, None)  # of x and y, where these are fixed
    log: bool = False  # x is logarithmic


def _check_known(values: FloatArray, what: str, look: JsonObject) -> None:
    """Refuse, with an InputError, a curve that is undefined everywhere."""
    if np.isnan(values).all():
        raise InputError(f"{look['label']} has no value of {what}")


def _only_bounds(label: str, curve: str, result: Evaluation) -> InputError:
    """Return the error of a curve that lies between bounds, as lists leave it open."""
    depth = "" if result.lists is None else f" of k = {result.lists.depth}"
    return InputError(
        f"{label} holds only bounds of the curve {curve}, which lists{depth} leave open: evaluate "
        "with a larger k, or the features or distances"
    )


def _over_tau(name: str, metric: str, mark: str = "") -> Curve:
    """Return a curve against τ; `mark` is the metric whose place is marked on it."""
    marked = mark.replace("tau", "τ")

    def draw(axes: Axes, result: Evaluation, look: JsonObject) -> None:
        curves = result.curves
        _check_known(curves[name], f"{name} at any τ", look)
        place = result.metrics.scalars.get(mark, math.nan)
        if not math.isnan(place):
            label = f"{look['label']} ({marked} = {place:.2f})"
            look = {**look, "label": label}
            height = curves[name][curves["tau"] == place][:1]
            axes.plot([place], height, "o", color=look["color"], markersize=5)
            axes.axvline(place, color=look["color"], linewidth=0.8, linestyle=":")
        axes.plot(curves["tau"], curves[name], **look)

    title = f"{name} against τ" + (f", with {marked}" if mark else "")
    return Curve(title, "normalised distance τ", name, draw, metric, (1, None))


def _cmc(axes: Axes, result: Evaluation, look: JsonObject) -> None:
    cmc = result.curves["CMC"]
    _check_known(cmc, "CMC: no query has a positive", look)
    axes.step(np.arange(1, len(cmc) + 1), cmc, where="post", **look)


def _precision(axes: Axes, result: Evaluation, look: JsonObject) -> None:
    if result.options.ties == "expected" and result.counts["ties"]:
        raise InputError(
            "an interpolated precision has no closed expectation over tie-breaks: read the result "
            "under another tie rule"
        )
    best = None if result.lists is None else result.lists.best
    ends = [result.statistics] if best is None else [result.statistics, best]
    totals = [totals_of(one, result.options) for one in ends]
    precision, *other = [one.means(precision_terms) for one in totals]
    if not all(np.array_equal(precision, one, equal_nan=True) for one in other):
        raise _only_bounds(look["label"], "precision-recall", result)
    _check_known(precision, "precision: no query has a positive", look)
    axes.plot(np.linspace(0, 1, len(precision)), precision, **look)


def _roc(axes: Axes, result: Evaluation, look: JsonObject) -> None:
    curves = result.curves
    name = next((name for name in curves if name.startswith("DIR@")), "DIR@").partition("/")[0]
    seen = curves["FAR"] > 0  # 0 has no place on a logarithmic axis
    if not seen.any():
        raise InputError(f"{look['label']} has no query of Q−, a stranger, to be accepted falsely")
    _check_known(curves[name], f"{name}: no query has a positive", look)
    shown = {**look, "label": f"{look['label']} ({name})"}
    axes.step(curves["FAR"][seen], curves[name][seen], where="post", **shown)


def _pairs(axes: Axes, result: Evaluation, look: JsonObject) -> None:
    curves = result.curves
    edges = curves["pair_tau"]
    for name, alpha, dashes in (("genuine", 1.0, "-"), ("impostor", 0.55, "--")):
        counts = curves[name][1:-1]  # beyond the edges there is no width
        together = max(len(counts) // MOST_BINS, 1)
        kept = np.append(np.arange(0, len(counts), together), len(counts))
        mass = np.append(0, np.cumsum(counts / max(int(curves[name].sum()), 1)))[kept]
        own = {**look, "alpha": alpha, "linestyle": dashes, "gid": f"{look['gid']}-{name}"}
        own["label"] = f"{look['label']}: {name}"
        density = np.diff(mass) / np.diff(edges[kept])
        axes.stairs(density, edges[kept], **own)


CURVES: Mapping[str, Curve] = {
    "mReP": _over_tau("mReP", "mReP_max", "tau_max"),
    "mFR": _over_tau("mFR", "MFR", "tau_nz"),
    "mRP": _over_tau("mRP", "mReP_max"),
    "mVP": _over_tau("mVP", "mReP_max"),
    "CMC": Curve("CMC", "rank", "matching rate", _cmc, "CMC@1", (None, 1.02)),
    "precision-recall": Curve(
        "Mean interpolated precision at 101 recalls",
        "recall",
        "precision",
        _precision,
        limits=(1, 1.02),
    ),
    "DIR-FAR": Curve(
        "DIR@x against FAR",
        "false accept rate",
        "detection rate",
        _roc,
        "DIR@1|FAR=0.1",
        (None, 1.02),
        log=True,
    ),
    "pairs": Curve(
        "Densities of genuine and impostor distances", "distance", "density", _pairs, "EER"
    ),
}
CAMERAS = "camera-pairs"
"""A heat map of one metric: of one result."""
PLOTS = (*CURVES, CAMERAS)
"""All that can be plotted of results."""


def plot(results: Results, curve: str, *, metric: str = "mAP") -> Figure:
    """Return a figure of a curve of some results, by the names of the legend.

    The curve is a key of `CURVES`, or ``camera-pairs``, which shows a metric. Raises OptionError
    if there is no such curve or matplotlib is not installed, InputError if a result doesn't hold
    it.
    """
    if curve not in PLOTS:
        raise OptionError(
            f"curve is {curve!r}; known: {', '.join(PLOTS)}; a ledger's trajectory is "
            "drawn by streameval ledger plot"
        )
    with drawing() as (figure, axes):
        if curve == CAMERAS:
            _heat_map(figure, axes, results, metric)
        else:
            _lines(axes, results, curve)
    return figure


def _lines(axes: Axes, results: Results, curve: str) -> None:
    kind = CURVES[curve]
    for at, (name, result) in enumerate(results.items()):
        if result.options.average:
            raise InputError(
                f"{name} averages over groups by {result.options.average}, and has no curves: "
                "evaluate without average"
            )
        try:
            kind.draw(axes, result, look(at, name))
        except KeyError as error:
            if f"{error.args[0]}/lower" in result.curves:
                raise _only_bounds(name, curve, result) from error
            raise InputError(
                f"{name} holds no curve {curve}: evaluate, or show, with --metrics "
                f"{kind.metric!r} among its metrics"
            ) from error
    axes.set(xlabel=kind.x, ylabel=kind.y, ylim=(0, kind.limits[1]))
    if kind.limits[0] is not None:
        axes.set_xlim(0, kind.limits[0])
    if kind.log:
        set_log(axes)
    axes.legend(loc="best")


def _heat_map(figure: Figure, axes: Axes, results: Results, metric: str) -> None:
    if len(results) != 1:
        raise OptionError(f"a heat map is of one result; got {len(results)}")
    ((name, result),) = results.items()
    try:
        matrix = result.camera_matrix(metric)
    except KeyError as error:
        raise OptionError(str(error.args[0])) from error
    if not matrix.values.size:
        raise InputError(f"{shortened(name)} has no pair of cameras: no query has a positive")
    percent = 100 * matrix.values
    image = axes.imshow(percent, cmap="cividis", vmin=0, vmax=100)
    for axis, cams, whose in (
        (axes.xaxis, matrix.gallery_cams, "positives"),
        (axes.yaxis, matrix.query_cams, "queries"),
    ):
        axis.set_ticks(range(len(cams)), [shortened(str(one)) for one in cams])
        axis.set_label_text(f"camera of the {whose}")
    axes.set_title(shortened(name))
    axes.grid(visible=False)
    for (row, column), value in np.ndenumerate(percent):
        if not math.isnan(value):
            colour = "white" if value < LIGHT else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour)
    figure.colorbar(image, ax=axes, label=f"{metric} in percent")


def images_of(results: Results) -> tuple[list[tuple[str, str]], list[str]]:
    """Return every curve that all results hold, and heat maps of pairs of cameras, for a page.

    Returns titles with data URIs, and why other curves are not there.
    """
    images, missing = [], []
    for name, curve in CURVES.items():
        try:
            images.append((curve.title, _as_data(plot(results, name))))
        except InputError as error:
            missing.append(f"{curve.title}: {error}")
    for name, result in results.items():
        of = f", {shortened(name)}" if len(results) > 1 else ""
        for metric in _camera_metrics(result):
            figure = plot({name: result}, CAMERAS, metric=metric)
            images.append((f"{metric} by camera of query and of positive{of}", _as_data(figure)))
    return images, missing


def _camera_metrics(result: Evaluation) -> list[str]:
    """Return the metrics to be shown by pairs of cameras; none where there are no such pairs."""
    cams = result.columns.get("cam", ())
    if result.positive_cams is None or result.lists is not None:
        return []
    if not 0 < len(np.unique(cams)) <= MOST_CAMERAS:
        return []
    held = {name for cell in result.grouped(CAMERA_PAIRS).groups.values() for name in cell.scalars}
    return [name for name in ("CMC@1", "mAP") if name in held]
