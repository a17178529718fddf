"""What `print` and notebooks show of a result: the tables that a command prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streameval.display.table import Blocks


class Shown:
    """Base class of results: their text, and their HTML in a notebook, are of `_blocks`."""

    def _blocks(self) -> Blocks:
        """Return the result in words and tables."""
        raise NotImplementedError

    def __str__(self) -> str:
        from streameval.display.text import render

        return render(self._blocks(), plain=True).rstrip("\n")

    def _repr_html_(self) -> str:
        from streameval.display.html import as_html

        return as_html(self._blocks())
