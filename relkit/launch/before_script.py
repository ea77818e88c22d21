"""Where the launcher's options end and the script begins.

argparse looks for options in all words, also behind the script, and takes the beginning of a name
for the name: a script's own `--net` would be one of ours, or ambiguous. So only the words before
the script are given to it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence

from relkit.errors import UsageProblem
from relkit.launch.dlrover_options import PAGE, refused_option
from relkit.text.nearest import no_such

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_NEXT_STEP = "See relkit launch --help."


def before_script(
    argv: Sequence[str],
    torchrun: Sequence[argparse.Action],
    own: Sequence[argparse.Action],
    further: Mapping[str, str],
) -> tuple[list[str], list[str]]:
    """Cut a command line behind the script.

    Args:
        argv: all after `relkit launch`.
        torchrun: options of torchrun; the beginning of a name means these first.
        own: options of relkit.
        further: name of an option -> pattern of words that are further values of it where they
            stand right after a value.

    Returns:
        The words up to the script, with whole names of options, and the words behind it.

    Raises:
        UsageProblem: an option is unknown or ambiguous.
    """
    front: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*front, *words[:1]], words[1:]
        if not word.startswith("-") or word == "-":
            return [*front, word], words
        flag, action = _resolved(word, torchrun, own)
        name, equals, value = flag.partition("=")
        takes_value = action.nargs != 0
        if takes_value and not equals:
            if not words or (words[0].startswith("-") and not _NEGATIVE.fullmatch(words[0])):
                return [*front, flag], []
            value = words.pop(0)
        front.append(f"{name}={value}" if takes_value or equals else name)
        while name in further and words and re.fullmatch(further[name], words[0]):
            front.append(f"{name}={words.pop(0)}")
    return front, []


def _resolved(
    word: str, torchrun: Sequence[argparse.Action], own: Sequence[argparse.Action]
) -> tuple[str, argparse.Action]:
    """The word with its option's whole name, and that option."""
    name, equals, value = word.partition("=")
    names = dict(_flags((*torchrun, *own)))
    if name in names:
        return word, names[name]
    short = word[:2]
    if not word.startswith("--") and short in names and names[short].nargs != 0:
        return f"{_long(names[short])}={word[2:]}", names[short]
    for options in (torchrun, own):
        candidates = {id(a): a for flag, a in _flags(options) if flag.startswith(name)}
        if word.startswith("--") and len(candidates) == 1:
            (action,) = candidates.values()
            return f"{_long(action)}{equals}{value}", action
        if word.startswith("--") and candidates:
            could_be = ", ".join(_long(each) for each in candidates.values())
            raise UsageProblem(f"{name} could be {could_be}", next_step=_NEXT_STEP)
    raise _unknown(name, list(names))


def _unknown(name: str, names: Sequence[str]) -> UsageProblem:
    refused = refused_option(name)
    if refused is None:
        return UsageProblem(no_such("option", name, names), next_step=_NEXT_STEP)
    return UsageProblem(
        f"{name} is an option of dlrover-run that relkit launch does not have",
        next_step=f"{refused.instead} All of them: {PAGE}",
    )


def _flags(options: Sequence[argparse.Action]) -> Iterator[tuple[str, argparse.Action]]:
    for action in options:
        for flag in action.option_strings:
            yield flag, action


def _long(action: argparse.Action) -> str:
    return next(flag for flag in action.option_strings if flag.startswith("--"))
