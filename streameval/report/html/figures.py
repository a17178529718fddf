"""Curves as images within the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.errors import InputError
from streameval.report import plots
from streameval.result import Evaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SVG = 400_000  # bytes: a curve of very many points is a smaller file as pixels
TEXT_AS_PATHS = {"svg.fonttype": "path"}  # the same wherever it is opened


@dataclass(frozen=True)
class Image:
    """A figure.

    Attributes
    ----------
    title : str
    src : str
        A data URI.
    """

    title: str
    src: str


def figures_of(results: Mapping[str, Evaluation]) -> tuple[list[Image], list[str]]:
    """Draw every curve that all results hold, and heat maps of pairs of cameras.

    Returns
    -------
    images : list of Image
    missing : list of str
        Why others are not there.
    """
    images, missing = [], []
    for name, curve in plots.CURVES.items():
        try:
            figure = plots.plot(results, name)
        except InputError as error:
            missing.append(f"{curve.title}: {error}")
            continue
        images.append(Image(curve.title, as_data(figure)))
    for name, result in results.items():
        for metric in _camera_metrics(result):
            figure = plots.plot({name: result}, plots.CAMERAS, metric=metric)
            title = f"{metric} by camera of query and of positive"
            title += f", {plots.shortened(name)}" if len(results) > 1 else ""
            images.append(Image(title, as_data(figure)))
    return images, missing


def _camera_metrics(result: Evaluation) -> list[str]:
    """Return the metrics to be shown by pairs of cameras; none where there are no such pairs."""
    if result.positive_cams is None or "cam" not in result.columns or result.lists is not None:
        return []
    if len(set(result.columns["cam"].tolist())) > MOST_CAMERAS:
        return []
    held = {name for one in result.grouped("cam-pair").groups.values() for name in one.scalars}
    return [name for name in ("CMC@1", "mAP") if name in held]


MOST_CAMERAS = 16
"""Cameras whose pairs a figure in a column of the page has room for."""


def as_data(figure: Figure) -> str:
    """Return a figure as a data URI: SVG, or PNG where that is large."""
    import matplotlib as mpl

    file = io.BytesIO()
    style: Any = plots.STYLE | TEXT_AS_PATHS
    with mpl.rc_context(style):
        figure.savefig(file, format="svg", metadata={"Date": None})
    content, kind = file.getvalue(), "svg+xml"
    if len(content) > MOST_SVG:
        content, kind = plots.figure_bytes(figure, "figure.png"), "png"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
