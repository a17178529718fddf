"""Figures by matplotlib: PNG, SVG or PDF, or as data within a page; with no display.

Colours are those of Okabe and Ito (2008), which colour-blind readers tell apart; lines differ in
their dashes too, so that they do in a print without colours. Text of labels is set as it is.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.result.cells import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TYPES = ("png", "svg", "pdf")
LABEL_ROOM = 40  # characters of a name in the legend
SIZE = 5.2, 3.6  # inches: a column of a paper holds it at 10 points
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
