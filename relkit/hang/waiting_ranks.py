"""The ranks that are not at fault, folded by what they wait in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.hang.activity import Activity
from relkit.hang.deaths import consequence, left
from relkit.hang.model import RankView, Victims
from relkit.hang.waits import Wait
from relkit.hang.words import exit_words, of_ranks
from relkit.ranks import RankSet

_DIRECT = "wait for "


def victims_of(
    views: Mapping[int, RankView],
    activities: Mapping[int, Activity],
    waits: Sequence[Wait],
    culprits: RankSet,
) -> tuple[Victims, ...]:
    """One entry for each thing that ranks wait in: first who waits for a culprit, then by number.

    Args:
        views, activities: all ranks.
        waits: all waits.
        culprits: the ranks held at fault, which are left out.
    """
    # By wait, not by rank: a large job has thousands of both.
    blamed = [bool(wait.missing & culprits) for wait in waits]
    words = [_words(wait, culprits) for wait in waits]
    own: dict[int, list[int]] = {}
    for number, wait in enumerate(waits):
        for rank in wait.waiters:
            own.setdefault(rank, []).append(number)
    waiting: dict[str, list[int]] = {}
    for rank, view in views.items():
        if rank in culprits:
            continue
        numbers = own.get(rank, [])
        first = next((n for n in numbers if blamed[n]), numbers[0] if numbers else -1)
        in_wait = words[first] if numbers else ""
        waiting.setdefault(_state(view, activities[rank], in_wait), []).append(rank)
    folded = [(RankSet.of(ranks), sentence) for sentence, ranks in waiting.items()]
    folded.sort(
        key=lambda item: (not item[1].startswith(_DIRECT), -len(item[0]), item[0].intervals)
    )
    return tuple(Victims(ranks.fold(), _agree(sentence, len(ranks))) for ranks, sentence in folded)


def _agree(sentence: str, count: int) -> str:
    """Sentences are kept in the plural until it is known how many ranks share them."""
    if count > 1:
        return sentence
    singular = {"wait ": "waits ", "are ": "is ", "have ": "has "}
    for plural, single in singular.items():
        if sentence.startswith(plural):
            return single + sentence[len(plural) :]
    return sentence


def _state(view: RankView, activity: Activity, in_wait: str) -> str:
    """What a rank does, in the plural; `in_wait` where it is in an operation, else ""."""
    if not view.alive:
        if left(view):
            return "have finished normally"
        if view.absent_reason:
            return "are not seen here"
        how = consequence(view) or (exit_words(view.exit_code) if view.exit_code else "")
        return f"failed as a consequence{': ' if how else ''}{how}"
    if in_wait:
        return in_wait
    return f"are {activity.phrase}" if activity.known else "are outside of any collective"


def _words(wait: Wait, culprits: RankSet) -> str:
    blamed = wait.missing & culprits
    if blamed:
        pronoun = "it" if len(culprits) == 1 else "them"
        whom = pronoun if blamed == culprits else of_ranks(blamed)
        return f"{_DIRECT}{whom} in {wait.what}"
    if wait.missing and wait.exact:
        return f"wait in {wait.what}, behind {of_ranks(wait.missing)}"
    return f"wait in {wait.what}"


def unknown_words(waits: Sequence[Wait], views: Mapping[int, RankView]) -> str:
    """Why nobody is named where files of some ranks are missing; "" where none is."""
    absent = {rank: view.absent_reason for rank, view in views.items() if view.absent_reason}
    if not absent or len(absent) == len(views):
        return ""
    ranks = RankSet.of(absent)
    reasons = set(absent.values())
    why = next(iter(reasons)) if len(reasons) == 1 else "no file of them could be used"
    front = next((w for w in waits if w.exact and w.missing and not w.missing - ranks), None)
    if front is None:
        return f"no rank stands out, and nothing is known of {of_ranks(ranks)}: {why}"
    it = "it" if len(front.missing) == 1 else "them"
    return (
        f"{of_ranks(front.missing)} may be late for {front.what}, or wait like the others: nothing "
        f"is known of {it}: {why}"
    )
