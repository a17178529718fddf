"""Lines and tables as HTML, for notebooks: offline, in the colours of the page around it."""

from __future__ import annotations

from html import escape

from streameval.display.table import Blocks, Cell, Table
from streameval.display.text import shown

LEFT, RIGHT = "text-align: left", "text-align: right; white-space: nowrap"
TITLE = f"{LEFT}; padding-top: 0.8em"


def as_html(blocks: Blocks) -> str:
    """Return lines and tables as an element of a page; what is wide scrolls inside it."""
    parts = (_table(one) if isinstance(one, Table) else f"<p>{_text(one)}</p>" for one in blocks)
    inner = "\n".join(part for part in parts if part != "<p></p>")
    return f'<div style="overflow-x: auto">\n{inner}\n</div>'


def _text(text: str) -> str:
    return escape(shown(text))


def _table(table: Table) -> str:
    """Return a table: its heads, names of rows and titles of parts say what they are of."""
    caption = f"<caption>{_text(table.title)}</caption>" if table.title else ""
    heads = "".join(
        f'<th scope="col" style="{RIGHT if side == "r" else LEFT}">{_text(head)}</th>' * bool(head)
        or "<td></td>"
        for head, side in zip(table.heads, table.sides, strict=False)
    )
    head = f"<thead><tr>{heads}</tr></thead>\n" if any(table.heads) else ""
    width = len(table.sides) + any(cell.note for row in table.rows for cell in row)
    rows = "\n".join(_row(row, table.sides, width) for row in table.rows)
    return f"<table>{caption}\n{head}<tbody>\n{rows}\n</tbody></table>"


def _row(row: tuple[Cell, ...], sides: str, width: int) -> str:
    first, *rest = row
    note = _text(" · ".join(cell.note for cell in row if cell.note))
    if first.mark == "title":
        said = f" <small>{note}</small>" if note else ""
        name = f"{_text(first.text)}{said}"
        return f'<tr><th scope="rowgroup" colspan="{width}" style="{TITLE}">{name}</th></tr>'
    kind = 'th scope="row"' if first.text else "td"
    cells = [f'<{kind} style="{LEFT}">{_text(first.text)}</{kind[:2]}>']
    for cell, side in zip(rest, sides[1:], strict=False):
        cells.append(f'<td style="{RIGHT if side == "r" else LEFT}">{_text(cell.text)}</td>')
    if note:
        left = width - len(row)
        cells.append(f'<td colspan="{left}" style="{LEFT}"><small>{note}</small></td>')
    return f"<tr>{''.join(cells)}</tr>"
