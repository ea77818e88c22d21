"""Who holds up what takes too long: the same reasoning as for a hang, on what costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relkit.hang.attribute import JobAnalysis, analyse, attribute
from relkit.hang.model import Category, Culprit, HangVerdict, JobView, Manner, Suspicion
from relkit.hang.suspicion.limits import Overdue
from relkit.hang.waits import Wait
from relkit.hang.words import of_ranks, operation
from relkit.ranks import RankSet

# What is said at once of a job that several ranks hold up in different ways.
MAX_SUSPICIONS = 4
# Says more than what waits for such a rank.
_SAYS_ALL = (
    Category.ABSENT,
    Category.MISMATCH,
    Category.SKIPPED,
    Category.SKIPPED_TRANSFER,
    Category.SWAPPED_TRANSFERS,
    Category.UNEQUAL_TRANSFER,
    Category.DEVICE,
    Category.LEFT,
)


def suspicions_of(
    job: JobView,
    overdue: Overdue,
    manner_of: Callable[[int], Manner],
    words_of: Callable[[int], str],
) -> tuple[Suspicion, ...]:
    """At least one; ranks that seem to hold the job up in the same way share one.

    Args:
        job: without stacks; ranks that are not in it are nobody's concern.
        overdue: what takes too long.
        manner_of, words_of: what a rank did in the last seconds.
    """
    analysis = analyse(job)
    verdict = attribute(job, analysis)
    seen = RankSet.of(view.rank for view in job.ranks if view.alive or view.exit_code == 0)
    culprits = [culprit for culprit in verdict.culprits if culprit.rank in seen]
    if not culprits:
        return (_nobody(verdict, overdue),)
    alike: dict[tuple[str, Manner], list[int]] = {}
    for culprit in culprits:
        what, manner = _what(culprit, analysis, overdue), manner_of(culprit.rank)
        alike.setdefault((what, manner), []).append(culprit.rank)
    suspicions = []
    for (what, manner), ranks in list(alike.items())[:MAX_SUSPICIONS]:
        who = RankSet.of(ranks)
        sentence = of_ranks(who) + _agreeing(what, len(ranks))
        words = words_of(ranks[0])
        if words:
            sentence += f"; {words}"
        suspicions.append(Suspicion(who, sentence, manner, overdue.age_s))
    return tuple(suspicions)


def _what(culprit: Culprit, analysis: JobAnalysis, overdue: Overdue) -> str:
    """What a rank has not done, after its name: ` has not joined all_reduce #41 ...`."""
    so_far = f"for {overdue.age_s:.0f} s (so far at most {overdue.longest_s:.1f} s)"
    if culprit.category in _SAYS_ALL:
        return f": {culprit.sentence}; the job stalls {so_far}"
    wait = _oldest_wait(culprit.rank, analysis.waits, overdue)
    if wait is None:
        return f" has finished no operation {so_far}"
    if wait.transfer is not None:
        return f" has not called its half of {wait.what} of {of_ranks(wait.waiters)} {so_far}"
    return f" has not joined {wait.what} {so_far}"


def _agreeing(what: str, count: int) -> str:
    return f" have{what[4:]}" if count > 1 and what.startswith(" has ") else what


def _oldest_wait(rank: int, waits: Sequence[Wait], overdue: Overdue) -> Wait | None:
    """What waits for a rank for longest, of what is overdue where any of that does."""
    direct = [wait for wait in waits if wait.exact and rank in wait.missing]
    for flight in overdue.flights:
        for wait in direct:
            seq = wait.seq if wait.transfer is None else wait.transfer.op.seq
            if flight.rank in wait.waiters and flight.op.seq == seq:
                return wait
    return direct[0] if direct else None


def _nobody(verdict: HangVerdict, overdue: Overdue) -> Suspicion:
    so_far = f"for {overdue.age_s:.0f} s (so far at most {overdue.longest_s:.1f} s)"
    if overdue.flights:
        first = overdue.flights[0]
        what = operation(first.op, first.state)
        who = RankSet.of(each.rank for each in overdue.flights if each.op.name == first.op.name)
        said = f"{of_ranks(who)} {'is' if len(who) == 1 else 'are'} in {what} {so_far}"
    else:
        said = f"nothing was finished {so_far}"
    why = f"; {verdict.inconclusive}" if verdict.inconclusive else ""
    return Suspicion(RankSet(), said + why, Manner.UNKNOWN, overdue.age_s)
