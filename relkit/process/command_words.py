"""Commands that a site names in an option: words, and never a shell's line."""

from __future__ import annotations

import re
import shlex

from relkit.errors import UsageProblem

# As they stand between spaces; what is quoted keeps its quotes, and is no match.
_SHELL = re.compile(r"[0-9]?(?:>>?|<)[^<>\"']*|[0-9]?>&[0-9]|&>>?[^\"']*|\|\|?|&&?|;|[^\"'\\]+;")


def command_words(option: str, text: str) -> tuple[str, ...]:
    """Split what an option was given into the words of a command; no shell will see them.

    Args:
        option: its name, for the sentence.
        text: as it was typed.

    Raises:
        UsageProblem: it is empty, a quote is left open, or only a shell would understand it.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageProblem(f"{option} {text!r}: {error}") from error
    if not words:
        raise UsageProblem(f"{option} names no command")
    if meant := _for_a_shell(text):
        in_a_shell = f"sh -c {shlex.quote(text)}"
        raise UsageProblem(
            f"{option} {text!r}: no shell sees it, and {meant!r} would be a word of the command",
            next_step=f"Name a script, or write: {option} {shlex.quote(in_a_shell)}",
        )
    return words


def _for_a_shell(text: str) -> str:
    """The first word that redirects, joins or ends commands in a shell, and is not quoted."""
    try:
        unquoted = shlex.split(text, posix=False)
    except ValueError:
        return ""
    return next((word for word in unquoted if _SHELL.fullmatch(word)), "")
