"""What `print` and notebooks show of a result: the tables that a command prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streameval.display.table import Blocks, Table


class Shown:
    """Base class of results: their text, and their HTML in a notebook, are of `_blocks`."""

    def _blocks(self, saved: str | None = None) -> Blocks:
        """Return the result in words and tables; `saved` is where it was written, if it was."""
        raise NotImplementedError

    def _table(self, name: str) -> Table:
        """Return the result as rows for programs; `name` is what it is called."""
        raise NotImplementedError

    def __str__(self) -> str:
        from streameval.display.text import render

        return render(self._blocks(), plain=True).rstrip("\n")

    def _repr_html_(self) -> str:
        from streameval.display.html import as_html

        return as_html(self._blocks())


def blocks_of(result: Shown, saved: str | None = None) -> Blocks:
    """Return a result in words and tables; `saved` is where it was written, if it was."""
    return result._blocks(saved)


def table_of(result: Shown, name: str) -> Table:
    """Return a result as rows for programs, under a name."""
    return result._table(name)
