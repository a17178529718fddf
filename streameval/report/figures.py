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

from streameval.errors import InputError, OptionError
from streameval.metrics.blocks import RankedQueries, Totals
from streameval.metrics.cutoffs import precision_terms
from streameval.protocols.labels import CAMERA_PAIRS
from streameval.result.cells import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from streameval.result import Evaluation
    from streameval.statistics import FloatArray

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TYPES = ("png", "svg", "pdf")
LABEL_ROOM = 40  # characters of a name in the legend
SIZE = 5.2, 3.6  # inches: a column of a paper holds it at 10 points
MOST_BINS = 50  # of a density, about: more would be noise
MOST_CAMERAS = 16  # whose pairs a figure in a column of a page has room for
MOST_SVG = 400_000  # bytes in a page: a curve of very many points is a smaller file as pixels
STYLE: Any = {
    "font.size": 10,
    "axes.grid": True,
    "grid.color": "#dddddd",
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
    """Give a new figure with axes; while entered, all is drawn in `STYLE`.

    Raises
    ------
    OptionError
        If matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError(
            "plots need matplotlib, which is not installed: pip install 'streameval[plots]'"
        ) from error
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        yield figure, figure.add_subplot()


def look(at: int) -> dict[str, Any]:
    """Return how the line of a figure looks that is at a place in its legend."""
    return {
        "color": COLOURS[at % len(COLOURS)],
        "linestyle": DASHES[at % len(DASHES)],
        "gid": f"curve-{at}",  # its group in an SVG
    }


def marker(at: int) -> dict[str, Any]:
    """Return the marks of such a line."""
    return {"marker": MARKERS[at % len(MARKERS)], "markersize": 4}


def shortened(name: str) -> str:
    """Return a name in the legend's width; matplotlib leaves out those that begin with _."""
    text = one_line(name).strip()
    text = text if len(text) <= LABEL_ROOM else f"…{text[1 - LABEL_ROOM :]}"
    return f"\u200b{text}" if text.startswith("_") else text


def set_log(axes: Axes) -> None:
    """Make the x axis logarithmic, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def figure_bytes(figure: Figure, path: str, *, text_as_paths: bool = False) -> bytes:
    """Return a figure as a file of the type that a path's ending names.

    Raises
    ------
    OptionError
        If it is none of `TYPES`.
    """
    import matplotlib as mpl

    kind = file_type(path)
    file = io.BytesIO()
    when: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with mpl.rc_context(STYLE | ({"svg.fonttype": "path"} if text_as_paths else {})):
        figure.savefig(file, format=kind, dpi=200, metadata=when)
    return file.getvalue()


def as_data(figure: Figure) -> str:
    """Return a figure as a data URI: SVG, the same wherever it is opened; or PNG if it is large."""
    kind, content = "svg+xml", figure_bytes(figure, "figure.svg", text_as_paths=True)
    if len(content) > MOST_SVG:
        kind, content = "png", figure_bytes(figure, "figure.png")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def file_type(path: str) -> str:
    """Return the type of a figure by its path's ending.

    Raises
    ------
    OptionError
    """
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in TYPES:
        raise OptionError(
            f"{path} is no {', '.join(TYPES)} by its ending: a figure is one of these"
        )
    return kind


Draw = Callable[["Axes", "Evaluation", dict[str, Any], str], None]
"""Draws one result: axes, the result, how its line looks, what it is called."""


@dataclass(frozen=True)
class Curve:
    """One kind of figure.

    Attributes
    ----------
    title : str
        For listings.
    x, y : str
        What the axes are.
    draw : callable
        Raises KeyError with the metric that a result would have to hold.
    log : bool
        Whether x is logarithmic.
    """

    title: str
    x: str
    y: str
    draw: Draw
    log: bool = False


def _over_tau(name: str, mark: str | None) -> Draw:
    def draw(axes: Axes, result: Evaluation, look: dict[str, Any], label: str) -> None:
        curves = _curves(result, name, "MFR" if name == "mFR" else "mReP_max")
        if np.isnan(curves[name]).all():
            raise InputError(f"{label} has no value of {name} at any τ")
        place = math.nan if mark is None else result.metrics.scalars.get(mark, math.nan)
        if mark is not None and not math.isnan(place):
            label = f"{label} ({mark.replace('tau', 'τ')} = {place:.2f})"
            at = int(np.flatnonzero(curves["tau"] == place)[0])
            dot = {"color": look["color"], "marker": "o", "markersize": 5, "linestyle": "none"}
            axes.plot([place], [curves[name][at]], **dot)
            axes.axvline(place, color=look["color"], linewidth=0.8, linestyle=":")
        axes.plot(curves["tau"], curves[name], label=label, **look)

    return draw


def _curves(result: Evaluation, name: str, metric: str) -> Mapping[str, Any]:
    if name not in result.curves:
        raise KeyError(metric)
    return result.curves


def _cmc(axes: Axes, result: Evaluation, look: dict[str, Any], label: str) -> None:
    cmc = _curves(result, "CMC", "CMC@1")["CMC"]
    axes.step(np.arange(1, len(cmc) + 1), cmc, where="post", label=label, **look)


def _precision_recall(axes: Axes, result: Evaluation, look: dict[str, Any], label: str) -> None:
    totals = Totals.of(RankedQueries(result.statistics, result.options))
    if result.options.ties == "expected" and result.statistics.tied.any():
        raise InputError(
            "an interpolated precision has no closed expectation over tie-breaks: read the result "
            "under another tie rule"
        )
    precision = totals.means(precision_terms)
    axes.plot(np.linspace(0, 1, len(precision)), precision, label=label, **look)


def _roc(axes: Axes, result: Evaluation, look: dict[str, Any], label: str) -> None:
    names = [name for name in result.curves if name.startswith("DIR@")]
    if not names:
        raise KeyError("DIR@1|FAR=0.1")
    far, rates = result.curves["FAR"], result.curves[names[0]]
    seen = far > 0  # 0 has no place on a logarithmic axis
    if not seen.any():
        raise InputError(f"{label} has no query of Q−, a stranger, to be accepted falsely")
    axes.step(far[seen], rates[seen], where="post", label=f"{label} ({names[0]})", **look)


def _pairs(axes: Axes, result: Evaluation, look: dict[str, Any], label: str) -> None:
    curves = _curves(result, "genuine", "EER")
    edges = curves["pair_tau"]
    for name, alpha in (("genuine", 1.0), ("impostor", 0.55)):
        counts = curves[name][1:-1]  # beyond the edges there is no width
        density = counts / max(int(curves[name].sum()), 1) / np.diff(edges)
        own = {**look, "alpha": alpha, "linestyle": "-" if name == "genuine" else "--"}
        own["gid"] = f"{look['gid']}-{name}"
        axes.stairs(*_coarser(density, edges), label=f"{label}: {name}", **own)


def _coarser(density: FloatArray, edges: FloatArray) -> tuple[Any, Any]:
    """Return a density of bins put together: `MOST_BINS`, or some more."""
    together = max(len(density) // MOST_BINS, 1)
    kept = np.append(np.arange(0, len(density), together), len(density))
    mass = np.append(0, np.cumsum(density * np.diff(edges)))[kept]
    return np.diff(mass) / np.diff(edges[kept]), edges[kept]


TAU, RATE = "normalised distance τ", "false accept rate"
CURVES: Mapping[str, Curve] = {
    "mReP": Curve("mReP against τ, with τ_max", TAU, "mReP", _over_tau("mReP", "tau_max")),
    "mFR": Curve("mFR against τ, with τ_nz", TAU, "mFR", _over_tau("mFR", "tau_nz")),
    "mRP": Curve("mRP against τ", TAU, "mRP", _over_tau("mRP", None)),
    "mVP": Curve("mVP against τ", TAU, "mVP", _over_tau("mVP", None)),
    "CMC": Curve("CMC", "rank", "matching rate", _cmc),
    "precision-recall": Curve(
        "Mean interpolated precision at 101 recalls", "recall", "precision", _precision_recall
    ),
    "DIR-FAR": Curve("DIR@x against FAR", RATE, "detection rate", _roc, log=True),
    "pairs": Curve("Densities of genuine and impostor distances", "distance", "density", _pairs),
}
CAMERAS = "camera-pairs"
"""A heat map of one metric: of one result."""


def plot(results: Mapping[str, Evaluation], curve: str, *, metric: str = "mAP") -> Figure:
    """Return a figure of a curve of some results.

    Parameters
    ----------
    results : mapping of str to Evaluation
        By the names of the legend.
    curve : str
        A key of `CURVES`, or ``camera-pairs``.
    metric : str
        Of ``camera-pairs``.

    Raises
    ------
    OptionError
        If there is no such curve, or matplotlib is not installed.
    InputError
        If a result doesn't hold it; says which metric it needs.
    """
    if curve not in (*CURVES, CAMERAS):
        raise OptionError(
            f"curve is {curve!r}; known: {', '.join((*CURVES, CAMERAS))}; a ledger's trajectory is "
            "drawn by streameval ledger plot"
        )
    with drawing() as (figure, axes):
        if curve == CAMERAS:
            _heat_map(figure, axes, results, metric)
        else:
            _lines(axes, results, curve)
    return figure


def _lines(axes: Axes, results: Mapping[str, Evaluation], curve: str) -> None:
    kind = CURVES[curve]
    for at, (name, result) in enumerate(results.items()):
        try:
            kind.draw(axes, result, look(at), shortened(name))
        except KeyError as error:
            raise InputError(
                f"{name} holds no curve {curve}: evaluate, or show, with --metrics "
                f"{error.args[0]!r} among its metrics"
            ) from error
    axes.set_xlabel(kind.x)
    axes.set_ylabel(kind.y)
    axes.set_ylim(0, None if kind.x == TAU or curve == "pairs" else 1.02)
    if kind.x == TAU or curve == "precision-recall":
        axes.set_xlim(0, 1)
    if kind.log:
        set_log(axes)
    axes.legend(loc="best")


def _heat_map(figure: Figure, axes: Axes, results: Mapping[str, Evaluation], metric: str) -> None:
    if len(results) != 1:
        raise OptionError(f"a heat map is of one result; got {len(results)}")
    ((name, result),) = results.items()
    try:
        matrix = result.camera_matrix(metric)
    except KeyError as error:
        raise OptionError(str(error.args[0])) from error
    percent = 100 * matrix.values
    image = axes.imshow(percent, cmap="cividis", vmin=0, vmax=100)
    for side, cams, label in (
        ("x", matrix.gallery_cams, "camera of the positives"),
        ("y", matrix.query_cams, "camera of the queries"),
    ):
        ticks = [shortened(str(one)) for one in cams.tolist()]
        axes.set(**{f"{side}ticks": np.arange(len(ticks)), f"{side}label": label})
        axes.set(**{f"{side}ticklabels": ticks})
    axes.grid(visible=False)
    for (row, column), value in np.ndenumerate(percent):
        if not math.isnan(value):
            colour = "white" if value < 50 else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour)
    figure.colorbar(image, ax=axes, label=f"{metric} in percent")
    axes.set_title(shortened(name), fontsize=10)


def images_of(results: Mapping[str, Evaluation]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return every curve that all results hold, and heat maps of pairs of cameras, for a page.

    Returns
    -------
    images : list of (str, str)
        Titles and data URIs.
    missing : list of str
        Why others are not there.
    """
    images, missing = [], []
    for name, curve in CURVES.items():
        try:
            images.append((curve.title, as_data(plot(results, name))))
        except InputError as error:
            missing.append(f"{curve.title}: {error}")
    for name, result in results.items():
        of = f", {shortened(name)}" if len(results) > 1 else ""
        for metric in _camera_metrics(result):
            figure = plot({name: result}, CAMERAS, metric=metric)
            images.append((f"{metric} by camera of query and of positive{of}", as_data(figure)))
    return images, missing


def _camera_metrics(result: Evaluation) -> list[str]:
    """Return the metrics to be shown by pairs of cameras; none where there are no such pairs."""
    if result.positive_cams is None or "cam" not in result.columns or result.lists is not None:
        return []
    if len(set(result.columns["cam"].tolist())) > MOST_CAMERAS:
        return []
    held = {name for cell in result.grouped(CAMERA_PAIRS).groups.values() for name in cell.scalars}
    return [name for name in ("CMC@1", "mAP") if name in held]
