"""Texts in tables that spreadsheets open."""

from __future__ import annotations

from contextlib import suppress

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def harmless(text: str) -> str:
    """Return a text in one line that no spreadsheet takes for a formula.

    One that it might take for one is put after ``'``. Numbers, such as -1, stay. Source: OWASP,
    CSV Injection.
    """
    text = one_line(text)
    with suppress(ValueError):
        float(text)
        return text
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def one_line(text: str) -> str:
    """Return a text with a blank for each character that is not to be printed."""
    return "".join(one if one.isprintable() else " " for one in text)
