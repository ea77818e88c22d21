"""A kind of line, and what it stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from relkit.why.rules.bounded import bounded
from relkit.why.rules.needed_words import needed_words
from relkit.why.rules.told import Kind


@dataclass(frozen=True, slots=True)
class LineRule:
    """What a kind of line stands for.

    Args:
        cause: name in the table of causes; kind: how much it says.
        words: see needed_words; a line that holds none of them is not looked at.
        pattern: that must be in it; its group `pid` is the process that it is about,
            `at` the device, `ranks` those that are to blame, whoever says it.
    """

    cause: str
    kind: Kind
    words: tuple[str, ...]
    pattern: re.Pattern[str]


def line_rule(cause: str, kind: Kind, pattern: str) -> LineRule:
    """A rule whose words follow from its pattern.

    Args:
        cause, kind: as of LineRule.
        pattern: may repeat without end.
    """
    ends = bounded(pattern)
    return LineRule(cause, kind, needed_words(ends), re.compile(ends, re.IGNORECASE | re.ASCII))
