"""Who is at fault: fuses sequence numbers, stacks, process states and deaths; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relkit.hang.accuse import (
    Case,
    for_disagreement,
    host_category,
    idle_s,
    is_stopped,
    is_uninterruptible,
)
from relkit.hang.activity import Activity, Doing
from relkit.hang.cycles import astray, left_out
from relkit.hang.deaths import collateral, died, left, primary_deaths
from relkit.hang.device_stalled import held_on_device
from relkit.hang.groups import Group, groups_of
from relkit.hang.model import Category, Culprit, JobView, RankView, Verdict
from relkit.hang.sequence import Disagreement, disagreements
from relkit.hang.stackclass import classify
from relkit.hang.waiting_ranks import victims_of
from relkit.hang.waits import Wait, sinks, waits_of
from relkit.hang.words import numbered, of_ranks
from relkit.ranks import RankSet

_ORDER = {category: place for place, category in enumerate(Category)}


@dataclass(frozen=True, slots=True)
class _Scene:
    """The job with everything derived from it once."""

    views: Mapping[int, RankView]
    activities: Mapping[int, Activity]
    groups: tuple[Group, ...]
    waits: tuple[Wait, ...]
    differ: tuple[Disagreement, ...]
    hang_timeout_s: float

    def case(self, rank: int) -> Case:
        return Case(self.views[rank], self.activities[rank], self.waits, self.groups)


def attribute(job: JobView) -> Verdict:
    """Name the ranks at fault, most likely first, and say what the others wait in.

    What proves most comes first: a rank of which nothing is known, one that died of itself, one
    that is stopped, one that made another call than its group; then the ranks at which the
    chains of waiting end; then rings of ranks that wait for one another. Only ranks that are held
    to be at fault are named; where nothing singles one out, `undecided` says what is known.

    Args:
        job: all ranks, with stacks where they could be captured.
    """
    scene = _scene(job)
    known = [view for view in scene.views.values() if not view.absent_reason]
    if not known:
        return Verdict((), (), "nothing is known of any rank: no launcher has reported")
    culprits = _proven(scene)
    undecided = ""
    if not any(
        c.category in (Category.DEAD, Category.MISMATCH, Category.SKIPPED) for c in culprits
    ):
        culprits += _late(scene, {c.rank for c in culprits})  # fmt: skip
    if not culprits:
        culprits, undecided = _in_rings(scene)
    culprits.sort(key=lambda c: (-c.score, _ORDER[c.category], c.rank))
    names = RankSet.of(c.rank for c in culprits)
    victims = victims_of(scene.views, scene.activities, scene.waits, names)
    return Verdict(tuple(culprits), victims, undecided)


def _scene(job: JobView) -> _Scene:
    views = {view.rank: view for view in sorted(job.ranks, key=lambda v: v.rank)}
    for rank in range(job.world_size):
        views.setdefault(
            rank, RankView(rank, "", 0, alive=False, absent_reason="no launcher has reported it")
        )
    views = {rank: views[rank] for rank in sorted(views)}
    activities = {
        rank: classify(view.dump, view.hook.in_flight if view.hook else ())
        for rank, view in views.items()
    }
    groups = groups_of(replace(job, ranks=tuple(views.values())))
    waits = waits_of(views, activities, groups)
    return _Scene(views, activities, groups, waits, disagreements(groups), job.hang_timeout_s)


def _proven(scene: _Scene) -> list[Culprit]:
    """Faults that need no reasoning about who waits for whom."""
    found = []
    for rank, view in scene.views.items():
        if view.absent_reason:
            found.append(scene.case(rank).verdict(Category.ABSENT))
        elif is_stopped(view):
            found.append(scene.case(rank).verdict(Category.STOPPED))
    accused = {c.rank for c in found}
    for differ in scene.differ:
        for rank in differ.odd:
            if rank not in accused:
                accused.add(rank)
                found.append(for_disagreement(scene.case(rank), differ))
    if not any(differ.certain for differ in scene.differ):
        # A call that its group did not make can kill any of the group: deaths prove less then.
        for view in primary_deaths(list(scene.views.values())):
            weight = 0.75 if view.exit_code is None else 1.0
            found.append(scene.case(view.rank).verdict(Category.DEAD, weight=weight))
    return found


def _late(scene: _Scene, accused: set[int]) -> list[Culprit]:
    """Ranks that others wait for and that wait for nobody."""
    if not scene.waits:
        return [] if accused else _all_on_the_host(scene)
    waiting = RankSet.of(rank for wait in scene.waits for rank in wait.waiters)
    ends = [next(iter(end)) for end in sinks(scene.waits) if len(end) == 1]
    ends = [rank for rank in ends if rank not in waiting]
    finished = RankSet.of(rank for rank in ends if left(scene.views[rank]))
    if finished and len(finished) == len(ends) and len(finished) > len(waiting):
        return _one_call_too_many(scene, waiting, finished)
    found = []
    for rank in ends:
        case = scene.case(rank)
        if rank in accused or collateral(case.view):
            continue
        known = case.activity.known or not case.view.alive
        category = host_category(case.view, case.activity)
        found.append(case.verdict(category, weight=1.0 if known else 0.8))
    return _of_a_failure(scene, found) if _has_victims(scene) else found


def _has_victims(scene: _Scene) -> bool:
    return any(died(view) and collateral(view) for view in scene.views.values())


def _of_a_failure(scene: _Scene, late: list[Culprit]) -> list[Culprit]:
    """A job that failed is looked at in mid-step: who merely computes is no suspect.

    The first rank that the launcher sees fail can be a victim, while the one that took it down
    is still on its way out.
    """
    ending = [c for c in late if c.category not in (Category.SPINNING, Category.BLOCKED)]
    stuck = [
        c
        for c in late
        if c not in ending and (idle_s(scene.views[c.rank]) or 0.0) >= scene.hang_timeout_s
    ]
    if ending or stuck:
        return ending + stuck
    return [replace(c, score=round(c.score / 2, 2)) for c in late]


def _one_call_too_many(scene: _Scene, waiting: RankSet, finished: RankSet) -> list[Culprit]:
    """Most ranks have finished normally: the few that still wait are the odd ones."""
    found = []
    for rank in waiting:
        own = next(wait for wait in scene.waits if rank in wait.waiters)
        sentence = f"called {own.what}, which {of_ranks(finished)} finished without"
        found.append(scene.case(rank).verdict(Category.MISMATCH, sentence, weight=0.8))
    return found


def _all_on_the_host(scene: _Scene) -> list[Culprit]:
    """Nobody is in an operation, so that nobody can be a victim."""
    late = [rank for rank, view in scene.views.items() if view.alive]
    shared = (
        f"no rank is in a collective: all of {of_ranks(RankSet.of(late))} are on the host, so "
        "look first for something that they share",
    )
    found = []
    for rank in late:
        case = scene.case(rank)
        category = host_category(case.view, case.activity)
        reasons = shared if len(late) > 1 else ()
        found.append(case.verdict(category, reasons=reasons, weight=0.5 if reasons else 1.0))
    return found


def _in_rings(scene: _Scene) -> tuple[list[Culprit], str]:
    """Nobody is late on the host: ranks wait for one another, or for the network."""
    rings = [end for end in sinks(scene.waits) if len(end) > 1]
    found = []
    for ring in rings:
        apart = _on_the_host_after_all(scene, ring)
        found += apart
        for rank in () if apart else astray(ring, scene.waits, scene.groups):
            wait = left_out(rank, scene.waits)
            if wait is not None:
                found.append(_skipped(scene, rank, wait))
    found += _held(scene)
    if found:
        return found, ""
    for rank, view in scene.views.items():
        if is_uninterruptible(view):
            case = scene.case(rank)
            found.append(case.verdict(Category.UNINTERRUPTIBLE, weight=0.7))
    return found, "" if found else _why_undecided(scene, rings)


def _held(scene: _Scene) -> list[Culprit]:
    found = []
    for held in held_on_device(scene.waits, scene.views):
        hook = scene.views[held.rank].hook
        assert hook is not None
        others = held.wait.waiters - RankSet.of([held.rank])
        reasons = (
            f"{of_ranks(others)} reached {held.wait.what} too, and no rank is late to call it",
        )
        sentence = held.sentence(hook.now_ns)
        found.append(scene.case(held.rank).verdict(Category.DEVICE, sentence, reasons))
    return found


def _on_the_host_after_all(scene: _Scene, ring: RankSet) -> list[Culprit]:
    """Ranks of a ring whose main thread is elsewhere: what they have in flight runs behind it."""
    late = [
        rank
        for rank in ring
        if scene.views[rank].alive
        and scene.activities[rank].place
        and not scene.activities[rank].waits_for_peers
        and scene.activities[rank].doing is not Doing.UNKNOWN
    ]
    if len(late) == len(ring):
        return []
    cases = [scene.case(rank) for rank in late]
    return [c.verdict(host_category(c.view, c.activity), weight=0.9) for c in cases]


def _skipped(scene: _Scene, rank: int, wait: Wait) -> Culprit:
    case = scene.case(rank)
    own = next((w for w in scene.waits if rank in w.waiters), None)
    on = f" and went on to {own.what}" if own else ""
    place = f", in {case.activity.place}" if case.activity.place else ""
    reasons = (f"it waits itself in {own.what} for {of_ranks(own.missing)}",) if own else ()
    return case.verdict(Category.SKIPPED, f"left out {wait.what}{on}{place}", reasons)


def _is_queued(wait: Wait, rank: int) -> bool:
    return wait.group is not None and wait.group.members[rank].ops[wait.seq].queued


def _why_undecided(scene: _Scene, rings: Sequence[RankSet]) -> str:
    for differ in scene.differ:
        if not differ.certain:
            return (
                f"members of {differ.group.title} disagree at #{differ.seq}: "
                f"{numbered(differ.rest_op.name, -1)} against {numbered(differ.odd_op.name, -1)}, "
                "and neither side is in the majority"
            )
    if rings:
        return (
            f"{of_ranks(rings[0])} wait for one another in different operations, and neither "
            "their number nor their history tells which of them went astray"
        )
    full = [w for w in scene.waits if w.exact and w.waiters and not w.missing]
    if full:
        wait = max(full, key=lambda w: len(w.waiters))
        if all(_is_queued(wait, rank) for rank in wait.waiters):
            return (
                f"all ranks have enqueued {wait.what} and no device has begun it: what stands "
                "before it on their streams does not end"
            )
        return (
            f"all ranks have arrived in {wait.what} and it does not finish: by its sequence no "
            "rank is at fault, which points to the network between them"
        )
    if scene.waits:
        what = "; ".join(f"{of_ranks(w.waiters)} in {w.what}" for w in scene.waits[:3])
        return f"every rank waits for another ({what}), and for whom is not recorded"
    return "every rank has ended, and none of them of itself"
