"""Commands that a site names in an option: words, and never a shell's line."""

from __future__ import annotations

import shlex

from relkit.errors import UsageProblem


def command_words(option: str, text: str) -> tuple[str, ...]:
    """Split what an option was given into the words of a command; no shell will see them.

    Args:
        option: its name, for the sentence.
        text: as it was typed.

    Raises:
        UsageProblem: it is empty, or a quote is left open.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageProblem(f"{option} {text!r}: {error}") from error
    if not words:
        raise UsageProblem(f"{option} names no command")
    return words
