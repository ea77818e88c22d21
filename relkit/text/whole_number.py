"""A whole number in a text that somebody else has written."""

from __future__ import annotations

# 19 digits at most: longer ones are no number of anything, and cost time.
LARGEST = 10**19 - 1


def whole_number(text: str | None, largest: int = LARGEST) -> int | None:
    """The number, where a text is one in the digits 0 to 9 and not too large; None for all else.

    Args:
        text: of any length; None stands for one that is missing.
        largest: that is taken, LARGEST at most.
    """
    if text is None or len(text) > len(str(LARGEST)) or not (text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if number <= largest else None
