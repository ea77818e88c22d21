"""Words without which a pattern cannot match: to look for them costs a tenth of a search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_GROUP_HEAD = re.compile(r"\?(?::|P<\w+>)")
_QUANTIFIER = re.compile(r"[?*+]|\{\d+,?\d*\}")
_NO_LETTERS = frozenset(".^$?*+")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]|.", re.DOTALL)


def needed_words(pattern: str) -> tuple[str, ...]:
    """Lower case; each text that the pattern matches has one of them; "" where none is known.

    Args:
        pattern: of a regular expression that ignores case, as the rules have them: no comments, no
            flags in it, no back references.
    """
    words = {word for tokens in _alternatives(_tokens(pattern)) for word in _needed(tokens)}
    return ("",) if "" in words else tuple(sorted(words))


def _tokens(pattern: str) -> list[str]:
    """Characters with their backslash, classes, whole groups and quantifiers."""
    tokens: list[str] = []
    place = 0
    while place < len(pattern):
        end = _end_of_group(pattern, place) if pattern[place] == "(" else place
        if end == place:
            match = _QUANTIFIER.match(pattern, place) or _TOKEN.match(pattern, place)
            assert match is not None
            end = match.end()
        tokens.append(pattern[place:end])
        place = end
    return tokens


def _end_of_group(pattern: str, place: int) -> int:
    depth = 0
    for match in _TOKEN.finditer(pattern, place):
        depth += (match[0] == "(") - (match[0] == ")")
        if not depth:
            return match.end()
    raise ValueError(f"a group without an end: {pattern[place:]}")


def _alternatives(tokens: list[str]) -> Iterator[list[str]]:
    bars = [-1, *(place for place, each in enumerate(tokens) if each == "|"), len(tokens)]
    for before, bar in pairwise(bars):
        yield tokens[before + 1 : bar]


def _needed(tokens: list[str]) -> tuple[str, ...]:
    """Those of one alternative: of all that must be there, the longest."""
    known: list[tuple[str, ...]] = [("",)]
    run = ""
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        is_repeated = _QUANTIFIER.fullmatch(after) is not None
        may_lack = is_repeated and after != "+"
        if (letter := _letter(token)) and not may_lack:
            run += letter
            if not is_repeated:
                continue
        elif token.startswith("(") and not may_lack:
            known.append(_of_group(token))
        known.append((run,))
        run = ""
    known.append((run,))
    return max(known, key=lambda words: min(map(len, words)))


def _letter(token: str) -> str:
    """What a token stands for if that is one character; else ""."""
    if len(token) == 2 and token[0] == "\\" and not token[1].isalnum():
        return token[1]
    return token.lower() if len(token) == 1 and token not in _NO_LETTERS else ""


def _of_group(token: str) -> tuple[str, ...]:
    """Of `(...)`; a look ahead or behind is no part of what is matched."""
    if not token.startswith("(?"):
        return needed_words(token[1:-1])
    head = _GROUP_HEAD.match(token, 1)
    return ("",) if head is None else needed_words(token[head.end() : -1])
