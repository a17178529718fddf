"""Characters that a terminal obeys; an error needs this before NumPy is loaded."""

from __future__ import annotations

_HARMFUL = dict.fromkeys(
    [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"
)
"""Characters that would move the cursor, colour the terminal or turn its text around."""


def visible(text: str) -> str:
    """Return a text that does nothing to a terminal, whatever labels are in it."""
    return text.translate(_HARMFUL)
