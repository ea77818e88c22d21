"""Who is at fault: fuses sequence numbers, stacks, process states and deaths; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relkit.hang.activity import Activity, ThreadState
from relkit.hang.cycles import astray, left_out
from relkit.hang.death_cause import alike_words, outside_words
from relkit.hang.deaths import (
    collateral,
    died,
    ended_from_outside,
    left,
    may_have_aborted,
    primary_deaths,
)
from relkit.hang.device_stalled import device_stalls, lagging, unfinished_here
from relkit.hang.finding_builder import (
    FindingBuilder,
    for_disagreement,
    host_category,
    idle_s,
    is_stopped,
    is_uninterruptible,
    spins,
)
from relkit.hang.groups import Group, groups_of
from relkit.hang.mismatched_transfers import holds_transfer, strayed, unequal
from relkit.hang.model import Category, Culprit, HangVerdict, JobView, RankView
from relkit.hang.sequence import Disagreement, disagreements
from relkit.hang.stackclass import at_work, classify, not_in_calls
from relkit.hang.transfers import posted_by, transfers_of
from relkit.hang.waiting_ranks import unknown_words, victims_of
from relkit.hang.waits import Wait, common_blocker, sinks, waits_of
from relkit.hang.words import numbered, of_ranks
from relkit.ranks import RankSet

_ENOUGH = (Category.DEAD, Category.MISMATCH, Category.SKIPPED, Category.UNEQUAL_TRANSFER)
# Of a failed job, captured in mid-step, these prove little.
_MERELY_BUSY = (Category.GIL_HELD, Category.SPINNING, Category.BLOCKED)
# What a verdict is worth where operations were not recorded, or overwritten.
_INCOMPLETE = 0.9
_ORDER = {category: place for place, category in enumerate(Category)}


@dataclass(frozen=True, slots=True)
class JobAnalysis:
    """The job with everything that is derived from it.

    Args:
        views, activities: of all ranks; groups: all process groups.
        waits: all that ranks wait in; differ: where the members of a group called other things.
        hang_timeout_s: the user's limit, s.
        sees_all, is_sample, is_from_files: see `JobView`.
    """

    views: Mapping[int, RankView]
    activities: Mapping[int, Activity]
    groups: tuple[Group, ...]
    waits: tuple[Wait, ...]
    differ: tuple[Disagreement, ...]
    hang_timeout_s: float
    sees_all: bool
    is_sample: bool = False
    is_from_files: bool = False

    @property
    def ends(self) -> tuple[RankSet, ...]:
        """Where the chains of waiting end, see `sinks`; of a sample, among its ranks."""
        return sinks(self.waits, RankSet.of(self.views) if self.is_sample else None)

    def builder(self, rank: int) -> FindingBuilder:
        return FindingBuilder(self.views[rank], self.activities[rank], self.waits, self.groups)


def attribute(job: JobView, analysis: JobAnalysis | None = None) -> HangVerdict:
    """Name the ranks at fault, most likely first, and say what the others wait in.

    What proves most comes first: a rank of which nothing is known, one that died on its own, one
    that is stopped, one that made another call than its group; then the ranks at which the
    chains of waiting end; then rings of ranks that wait for one another. Only ranks that are held
    to be at fault are named; where no rank stands out, `inconclusive` says what is known.

    Args:
        job: all ranks, with stacks where they could be captured.
        analysis: of that job, where the caller has it already.
    """
    analysis = analysis or analyse(job)
    known = [view for view in analysis.views.values() if not view.absent_reason]
    if not known:
        return HangVerdict((), (), "nothing is known of any rank: no launcher has reported")
    if (number := ended_from_outside(known)) is not None:
        return HangVerdict((), (), f"somebody ended the job: {outside_words(known, number)}")
    if not analysis.is_sample and (alike := alike_words(tuple(analysis.views.values()))):
        return HangVerdict((), (), alike, all_alike=True)
    if (over := _slow_to_exit(analysis)) is not None:
        return HangVerdict(over, ())
    culprits = _proven(analysis)
    inconclusive = ""
    if not any(c.category in _ENOUGH for c in culprits):
        culprits += _late(analysis, {c.rank for c in culprits})  # fmt: skip
    if not culprits:
        culprits, inconclusive = _in_rings(analysis)
    culprits = _as_recorded(culprits, analysis)
    culprits.sort(key=lambda c: (-c.score, _ORDER[c.category], c.rank))
    names = RankSet.of(c.rank for c in culprits)
    victims = victims_of(analysis.views, analysis.activities, analysis.waits, names)
    return HangVerdict(tuple(culprits), victims, inconclusive)


def _as_recorded(culprits: list[Culprit], analysis: JobAnalysis) -> list[Culprit]:
    """Worth less, and said, where recorders had no room for all operations."""
    lost = {r: v.hook.dropped for r, v in analysis.views.items() if v.hook and v.hook.dropped > 0}
    if not lost:
        return culprits
    whose = "recorder" if len(lost) == 1 else "recorders"
    said = (
        f"the {whose} of {of_ranks(RankSet.of(lost))} had no room for {max(lost.values())} earlier "
        "operations"
    )
    return [
        replace(c, reasons=(*c.reasons, said), score=round(c.score * _INCOMPLETE, 2))
        for c in culprits
    ]


def analyse(job: JobView) -> JobAnalysis:
    """What follows from a job's ranks before anybody is accused."""
    views = {view.rank: view for view in sorted(job.ranks, key=lambda v: v.rank)}
    for rank in () if job.is_sample else range(job.world_size):
        views.setdefault(
            rank, RankView(rank, "", 0, alive=False, absent_reason="no launcher has reported it")
        )
    views = {rank: views[rank] for rank in sorted(views)}
    activities = {
        rank: classify(view.dump, view.hook.in_flight if view.hook else None)
        for rank, view in views.items()
    }
    groups = groups_of(replace(job, ranks=tuple(views.values())))
    waits = waits_of(views, activities, groups)
    differ = disagreements(groups)
    return JobAnalysis(
        views=views,
        activities=activities,
        groups=groups,
        waits=waits,
        differ=differ,
        hang_timeout_s=job.hang_timeout_s,
        sees_all=job.sees_all,
        is_sample=job.is_sample,
        is_from_files=job.is_from_files,
    )


def _slow_to_exit(analysis: JobAnalysis) -> tuple[Culprit, ...] | None:
    """The ranks that still exit, where all scripts have ended and no rank has failed.

    Nobody waits for them: they join threads, write files, free memory.
    """
    living = []
    for rank, view in analysis.views.items():
        if view.absent_reason and not analysis.sees_all:
            continue
        if view.alive:
            in_flight = view.hook is not None and bool(view.hook.in_flight)
            exits = analysis.activities[rank].exits and not in_flight
            if is_stopped(view) or not exits:
                return None
            living.append(analysis.builder(rank).culprit(Category.SLOW_EXIT))
        elif not left(view):
            return None
    return tuple(living) or None


def _proven(analysis: JobAnalysis) -> list[Culprit]:
    """Faults that can be seen without knowing who waits for whom."""
    culprits = []
    for rank, view in analysis.views.items():
        if view.absent_reason:
            if analysis.sees_all and not analysis.is_from_files:
                culprits.append(analysis.builder(rank).culprit(Category.ABSENT))
        elif is_stopped(view):
            culprits.append(analysis.builder(rank).culprit(Category.STOPPED))
    accused = {c.rank for c in culprits}
    for differ in analysis.differ:
        for rank in differ.odd:
            if rank not in accused:
                accused.add(rank)
                culprits.append(for_disagreement(analysis.builder(rank), differ))
    for culprit in _unequal(analysis):
        if culprit.rank not in accused:
            accused.add(culprit.rank)
            culprits.append(culprit)
    culprits += _behind_on_device(analysis, accused)
    certain = any(differ.certain for differ in analysis.differ)
    if not certain and not any(c.category is Category.UNEQUAL_TRANSFER for c in culprits):
        # A call that its group did not make can kill any of the group: deaths prove less then.
        for place, view in enumerate(primary_deaths(list(analysis.views.values()))):
            weight = 0.75 if view.exit_code is None else 1.0
            builder = analysis.builder(view.rank)
            culprits.append(builder.culprit(Category.DEAD, weight=weight, is_first=not place))
    return culprits


def _behind_on_device(analysis: JobAnalysis, accused: set[int]) -> list[Culprit]:
    """Ranks on which a call has not ended that others of its group have done with."""
    differing = {differ.group.key: differ.seq for differ in analysis.differ}
    culprits = []
    for each in unfinished_here(analysis.groups, analysis.views, at_once=analysis.is_from_files):
        different = differing.get(each.group.key)
        if each.rank in accused or (different is not None and different <= each.op.seq):
            continue
        category = Category.DEVICE if each.op.enqueue_ns else Category.BLOCKED
        reasons = ("no rank is late to call it, and no member ends it before all have joined",)
        builder = analysis.builder(each.rank)
        culprits.append(builder.culprit(category, each.sentence(), reasons, weight=0.95))
    return culprits


def _unequal(analysis: JobAnalysis) -> list[Culprit]:
    aborted = [rank for rank, view in analysis.views.items() if may_have_aborted(view)]
    transfers = (
        *transfers_of(analysis.views, analysis.groups),
        *posted_by(aborted, analysis.views, analysis.groups),
    )
    ranks = {rank for t in transfers for rank in (t.rank, t.peer) if rank in analysis.views}
    builders = {rank: analysis.builder(rank) for rank in ranks}
    return unequal(transfers, analysis.views, builders)


def _late(analysis: JobAnalysis, accused: set[int]) -> list[Culprit]:
    """Ranks that others wait for and that themselves wait for nobody."""
    if not analysis.waits:
        return [] if accused else _all_on_the_host(analysis)
    waiting = RankSet.of(rank for wait in analysis.waits for rank in wait.waiters)
    ends = [next(iter(end)) for end in analysis.ends if len(end) == 1]
    ends = [rank for rank in ends if rank not in waiting]
    finished = RankSet.of(rank for rank in ends if left(analysis.views[rank]))
    all_finished = len(finished) == len(ends) and not analysis.is_sample
    if all_finished and len(finished) > len(waiting):
        return _one_call_too_many(analysis, waiting, finished)
    living = {rank: analysis.views[rank] for rank in ends if analysis.views[rank].alive}
    crowd = _crowd_of(living, analysis.activities) if _only_stacks(living) else RankSet()
    late = []
    for rank in ends:
        builder = analysis.builder(rank)
        if (
            rank in crowd
            or rank in accused
            or builder.view.absent_reason
            or collateral(builder.view)
        ):
            continue
        known = builder.activity.known or not builder.view.alive
        category = host_category(builder.view, builder.activity)
        late.append(builder.culprit(category, weight=1.0 if known else 0.8))
    return _of_a_failure(analysis, late) if _has_victims(analysis) else late


def _only_stacks(views: Mapping[int, RankView]) -> bool:
    """No recorder says of these ranks that they are in no operation."""
    return all(view.hook is None for view in views.values())


def _has_victims(analysis: JobAnalysis) -> bool:
    return any(died(view) and collateral(view) for view in analysis.views.values())


def _of_a_failure(analysis: JobAnalysis, late: list[Culprit]) -> list[Culprit]:
    """A failed job is captured in mid-step: a rank that merely computes is no suspect.

    The first rank that the launcher sees fail can be a victim, while the one that caused it is
    still exiting.
    """
    ending = [c for c in late if c.category not in _MERELY_BUSY]
    stuck = [
        c
        for c in late
        if c not in ending and (idle_s(analysis.views[c.rank]) or 0.0) >= analysis.hang_timeout_s
    ]
    if ending or stuck:
        return ending + stuck
    return [replace(c, score=round(c.score / 2, 2)) for c in late]


def _one_call_too_many(analysis: JobAnalysis, waiting: RankSet, finished: RankSet) -> list[Culprit]:
    """Most ranks have finished normally: the few that still wait made one call too many."""
    culprits = []
    for rank in waiting:
        own = next(wait for wait in analysis.waits if rank in wait.waiters)
        sentence = f"called {own.what}, which {of_ranks(finished)} finished without"
        culprits.append(analysis.builder(rank).culprit(Category.MISMATCH, sentence, weight=0.8))
    return culprits


def _all_on_the_host(analysis: JobAnalysis) -> list[Culprit]:
    """No rank is in an operation, so no rank can be a victim."""
    living = {rank: view for rank, view in analysis.views.items() if view.alive}
    if analysis.is_from_files and (
        not_in_calls(analysis.views, analysis.activities)
        or at_work(analysis.views, analysis.activities)
    ):
        return []
    crowd = _crowd_of(living, analysis.activities)
    late = [rank for rank in living if rank not in crowd]
    shared = (
        f"no rank is in a collective: all of {of_ranks(RankSet.of(late))} are on the host, so "
        "first look for something that they share",
    )
    if crowd:
        shared = (_apart_from(crowd, analysis.activities),)
    culprits = []
    for rank in late:
        builder = analysis.builder(rank)
        category = host_category(builder.view, builder.activity)
        reasons = shared if len(living) > 1 else ()
        culprits.append(builder.culprit(category, reasons=reasons, weight=0.5 if reasons else 1.0))
    return culprits


def _crowd_of(views: Mapping[int, RankView], activities: Mapping[int, Activity]) -> RankSet:
    """The ranks, more than half of these, that run at one and the same line; empty for none.

    A rank that waits for its device runs as one that computes does, and the many wait for the few.

    Args:
        views, activities: ranks that are in no operation as far as is known.
    """
    places = {
        rank: activities[rank].place
        for rank, view in views.items()
        if activities[rank].place and spins(view, activities[rank])
    }
    common, count = next(iter(Counter(places.values()).most_common(1)), ("", 0))
    if count == len(views) or 2 * count <= len(views):
        return RankSet()
    return RankSet.of(rank for rank, place in places.items() if place == common)


def _apart_from(crowd: RankSet, activities: Mapping[int, Activity]) -> str:
    """The reason to name those that are not in the crowd."""
    place = activities[next(iter(crowd))].place
    return (
        f"{of_ranks(crowd)} all run in {place}, as ranks do that wait for their devices, and this "
        "one is elsewhere"
    )


def _in_rings(analysis: JobAnalysis) -> tuple[list[Culprit], str]:
    """No rank is late on the host: ranks wait for one another, or for the network."""
    rings = [end for end in analysis.ends if len(end) > 1]
    culprits = []
    for ring in rings:
        apart = _on_the_host_after_all(analysis, ring)
        culprits += apart
        if not apart and holds_transfer(ring, analysis.waits):
            builders = {rank: analysis.builder(rank) for rank in ring}
            culprits += strayed(ring, analysis.waits, analysis.views, builders)
            continue
        for rank in () if apart else astray(ring, analysis.waits, analysis.groups):
            wait = left_out(rank, analysis.waits)
            if wait is not None:
                culprits.append(_skipped(analysis, rank, wait))
    culprits += _stalled_devices(analysis)
    if not culprits:
        culprits += _lagging(analysis)
    if not culprits and analysis.is_from_files:
        culprits += _absent_blocker(analysis)
    if culprits:
        return culprits, ""
    for rank, view in analysis.views.items():
        if is_uninterruptible(view):
            builder = analysis.builder(rank)
            culprits.append(builder.culprit(Category.UNINTERRUPTIBLE, weight=0.7))
    return culprits, "" if culprits else _why_inconclusive(analysis, rings)


def _stalled_devices(analysis: JobAnalysis) -> list[Culprit]:
    culprits = []
    for stall in device_stalls(analysis.waits, analysis.views):
        hook = analysis.views[stall.rank].hook
        assert hook is not None
        others = stall.wait.waiters - RankSet.of([stall.rank])
        reasons = (
            f"{of_ranks(others)} reached {stall.wait.what} too, and no rank is late to call it",
        )
        sentence = stall.sentence(hook.now_ns)
        culprits.append(analysis.builder(stall.rank).culprit(Category.DEVICE, sentence, reasons))
    return culprits


def _lagging(analysis: JobAnalysis) -> list[Culprit]:
    culprits = []
    for lag in lagging(analysis.waits, analysis.views):
        builder = analysis.builder(lag.rank)
        category = host_category(builder.view, builder.activity)
        place = f"; {builder.activity.sentence()}" if builder.activity.place else ""
        culprits.append(builder.culprit(category, lag.sentence() + place, weight=0.7))
    return culprits


def _absent_blocker(analysis: JobAnalysis) -> list[Culprit]:
    blocker = common_blocker(analysis.waits, analysis.views)
    if blocker is None:
        return []
    rank, reasons = blocker
    return [analysis.builder(rank).culprit(Category.ABSENT, reasons=reasons, weight=0.7)]


def _on_the_host_after_all(analysis: JobAnalysis, ring: RankSet) -> list[Culprit]:
    """Ranks of a ring whose main thread is elsewhere: their operation runs in the background."""
    late = [
        rank
        for rank in ring
        if analysis.views[rank].alive
        and analysis.activities[rank].place
        and not analysis.activities[rank].waits_for_peers
        and analysis.activities[rank].thread_state is not ThreadState.UNKNOWN
    ]
    if len(late) == len(ring):
        return []
    builders = [analysis.builder(rank) for rank in late]
    return [b.culprit(host_category(b.view, b.activity), weight=0.9) for b in builders]


def _skipped(analysis: JobAnalysis, rank: int, wait: Wait) -> Culprit:
    builder = analysis.builder(rank)
    own = next((w for w in analysis.waits if rank in w.waiters), None)
    on = f" and went on to {own.what}" if own else ""
    place = f", in {builder.activity.place}" if builder.activity.place else ""
    reasons = (f"it waits itself in {own.what} for {of_ranks(own.missing)}",) if own else ()
    return builder.culprit(Category.SKIPPED, f"skipped {wait.what}{on}{place}", reasons)


def _is_queued(wait: Wait, rank: int) -> bool:
    return wait.group is not None and wait.group.members[rank].ops[wait.seq].queued


def _why_inconclusive(analysis: JobAnalysis, rings: Sequence[RankSet]) -> str:
    for differ in analysis.differ:
        if not differ.certain:
            return (
                f"members of {differ.group.title} disagree at #{differ.seq}: "
                f"{numbered(differ.rest_op.name, -1)} against {numbered(differ.odd_op.name, -1)}, "
                "and neither side is in the majority"
            )
    is_once = analysis.is_from_files and not analysis.waits
    if is_once and not_in_calls(analysis.views, analysis.activities):
        return (
            "no call is open in these dumps: the job went on or had ended when they were written, "
            "or all ranks were outside of communication, which their stacks would show"
        )
    if is_once and (running := at_work(analysis.views, analysis.activities)):
        doing = analysis.activities[next(iter(running))].sentence()
        return (
            f"{of_ranks(running)} ran when these stacks were taken ({doing}), and no rank waits: "
            "whether they move on shows only in a second look"
        )
    if rings:
        return (
            f"{of_ranks(rings[0])} wait for one another in different operations, and neither "
            "a majority nor their history shows which of them deviated"
        )
    if analysis.is_sample:
        return (
            f"none of the {len(analysis.views)} ranks that were looked at more closely stands out"
        )
    if analysis.is_from_files and (said := unknown_words(analysis.waits, analysis.views)):
        return said
    elsewhere = [rank for rank, view in analysis.views.items() if view.absent_reason]
    if elsewhere:
        return (
            "no rank of this node stands out, and it sees none of "
            f"{of_ranks(RankSet.of(elsewhere))}, which other nodes watch"
        )
    full = [w for w in analysis.waits if w.exact and w.waiters and not w.missing]
    if full:
        wait = max(full, key=lambda w: len(w.waiters))
        if all(_is_queued(wait, rank) for rank in wait.waiters):
            return (
                f"all ranks have enqueued {wait.what} and no device has begun it: work "
                "ahead of it on their streams does not finish"
            )
        return (
            f"all ranks have called {wait.what} and it does not finish: no rank is late, which "
            "points to the network between them"
        )
    if analysis.waits:
        what = "; ".join(f"{of_ranks(w.waiters)} in {w.what}" for w in analysis.waits[:3])
        return f"every rank waits for another ({what}), and the recorders do not show for which"
    return "every rank has exited, and none of them on its own"
