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
    waiting: dict[str, list[int]] = {}
    for rank in views:
        if rank not in culprits:
            waiting.setdefault(_state(rank, views, activities, waits, culprits), []).append(rank)
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


def _state(
    rank: int,
    views: Mapping[int, RankView],
    activities: Mapping[int, Activity],
    waits: Sequence[Wait],
    culprits: RankSet,
) -> str:
    view = views[rank]
    own = [wait for wait in waits if rank in wait.waiters]
    if not view.alive:
        if left(view):
            return "have finished normally"
        if view.absent_reason:
            return "are not seen here"
        how = consequence(view) or (exit_words(view.exit_code) if view.exit_code else "")
        return f"failed as a consequence{': ' if how else ''}{how}"
    if not own:
        activity = activities[rank]
        return f"are {activity.phrase}" if activity.known else "are outside of any collective"
    direct = [wait for wait in own if wait.missing & culprits]
    wait = (direct or own)[0]
    blamed = wait.missing & culprits
    if blamed:
        pronoun = "it" if len(culprits) == 1 else "them"
        whom = pronoun if blamed == culprits else of_ranks(blamed)
        return f"{_DIRECT}{whom} in {wait.what}"
    if wait.missing and wait.exact:
        return f"wait in {wait.what}, behind {of_ranks(wait.missing)}"
    return f"wait in {wait.what}"
