"""Text in a CSV that a spreadsheet may open (pure)."""

from __future__ import annotations

from relkit.text.printable import printable_line

# A spreadsheet takes a cell that begins so for a formula.
_FORMULAS = ("=", "+", "-", "@")


def cell(text: str) -> str:
    """The text on one line; what would be a formula begins with an apostrophe."""
    line = printable_line(text)
    return f"'{line}" if line.startswith(_FORMULAS) else line
