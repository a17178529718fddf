"""A figure that a notebook shows without pyplot, which keeps every figure until it is closed."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

DOTS = 110  # per inch


class NotebookFigure(Figure):
    """A figure of matplotlib that says what it looks like."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=DOTS)
        return file.getvalue()
