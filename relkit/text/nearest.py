"""The name that was probably meant, for a command or an option that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(typed: str, candidates: Iterable[str]) -> str | None:
    """The candidate that is spelled most like what was typed; None where none comes close.

    Args:
        typed: a command or an option, as on the command line; `--name=value` counts as `--name`.
        candidates: the names that exist. Dashes, underscores and case make no difference.
    """
    from difflib import get_close_matches

    by_letters: dict[str, str] = {}
    for name in candidates:
        by_letters.setdefault(_letters(name), name)
    letters = _letters(typed.partition("=")[0])
    # What was broken off in the middle is meant, however much is missing from it.
    begun = [whole for whole in by_letters if len(letters) > 1 and whole.startswith(letters)]
    close = get_close_matches(letters, begun or by_letters, n=1, cutoff=0.0 if begun else 0.6)
    return by_letters[close[0]] if close else None


def no_such(kind: str, typed: str, candidates: Iterable[str]) -> str:
    """The one sentence for an unknown name: "No such command 'lanch'. Did you mean 'launch'?".

    Args:
        kind: "command" or "option".
        typed, candidates: as for nearest().
    """
    name = typed.partition("=")[0]
    meant = nearest(name, candidates)
    return f"No such {kind} {name!r}." + (f" Did you mean {meant!r}?" if meant else "")


def _letters(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()
