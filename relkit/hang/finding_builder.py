"""States why one rank is at fault: a Culprit for each category."""

from __future__ import annotations

from dataclasses import dataclass

from relkit.hang.activity import Activity, ThreadState
from relkit.hang.death_cause import reasons_of
from relkit.hang.deaths import (
    last_communication,
    oom_killed,
    raised,
    raised_before_abort,
    raised_words,
)
from relkit.hang.frames import printable
from relkit.hang.groups import Group
from relkit.hang.model import Category, Culprit, RankView
from relkit.hang.sequence import Disagreement
from relkit.hang.waits import Wait
from relkit.hang.words import exit_words, for_seconds, numbered, of_ranks, shortened
from relkit.ranks import RankSet

BUSY_SHARE = 0.5
_IDLE_SHARE = 0.05
_STOPPED = ("T", "t")

_SCORES = {
    Category.ABSENT: 0.9,
    Category.DEAD: 0.95,
    Category.STOPPED: 0.97,
    Category.UNINTERRUPTIBLE: 0.85,
    Category.MISMATCH: 0.9,
    Category.SKIPPED: 0.85,
    Category.SKIPPED_TRANSFER: 0.85,
    Category.SWAPPED_TRANSFERS: 0.85,
    Category.UNEQUAL_TRANSFER: 0.9,
    Category.GIL_HELD: 0.9,
    Category.SPINNING: 0.85,
    Category.BLOCKED: 0.85,
    Category.DEVICE: 0.85,
    Category.LEFT: 0.9,
    Category.SLOW_EXIT: 0.9,
}


def idle_s(view: RankView) -> float | None:
    """Seconds since it finished its last operation, on its own clock; None where unknown."""
    if view.hook is None or not view.hook.last_finish_ns:
        return None
    return max(0, view.hook.now_ns - view.hook.last_finish_ns) / 1e9


def cpu_share(view: RankView) -> float | None:
    """Part of one core that it uses; None where it was sampled only once."""
    return view.cpu.used_s / view.cpu.window_s if view.cpu.window_s > 0 else None


def is_stopped(view: RankView) -> bool:
    """Stopped by a signal or a debugger."""
    return view.alive and view.process_state[:1] in _STOPPED


def is_uninterruptible(view: RankView) -> bool:
    """In a kernel wait that no signal ends."""
    return view.alive and view.process_state[:1] == "D"


def spins(view: RankView, activity: Activity) -> bool:
    """It uses CPU time, and nothing in its stack shows a wait."""
    if not activity.may_be_busy:
        return False
    share = cpu_share(view)
    runnable = activity.runs or view.process_state[:1] == "R"
    if share is None:
        return runnable
    # On an overloaded host a busy loop gets less than half a core, but is runnable.
    return share > BUSY_SHARE or (runnable and share > _IDLE_SHARE)


def host_category(view: RankView, activity: Activity) -> Category:
    """The kind of fault of a rank that is late on the host."""
    if view.absent_reason:
        return Category.ABSENT
    if not view.alive:
        return Category.LEFT if view.exit_code == 0 else Category.DEAD
    if is_stopped(view):
        return Category.STOPPED
    if is_uninterruptible(view):
        return Category.UNINTERRUPTIBLE
    if activity.thread_state in (ThreadState.EXIT, ThreadState.EXCEPTION):
        return Category.DEAD
    if activity.gil:
        return Category.GIL_HELD
    return Category.SPINNING if spins(view, activity) else Category.BLOCKED


@dataclass(frozen=True, slots=True)
class FindingBuilder:
    """Builds the statement about one rank from what is known of it.

    Args:
        view, activity: the rank.
        waits: all waits of the job.
        groups: all groups of the job.
    """

    view: RankView
    activity: Activity
    waits: tuple[Wait, ...]
    groups: tuple[Group, ...]

    def culprit(
        self,
        category: Category,
        sentence: str = "",
        reasons: tuple[str, ...] = (),
        weight: float = 1.0,
        is_first: bool = False,
    ) -> Culprit:
        """The statement that this rank is at fault.

        Args:
            category: the fault.
            sentence: replaces the sentence that the category makes of the facts.
            reasons: come before those that the facts give.
            weight: 0..1, how much of the category's certainty holds here.
            is_first: of the ranks that died on their own.
        """
        view = self.view
        proof = self._proof(category, is_first=is_first)
        facts = (*reasons, *proof, *self._waited_for(), *self._details(category))
        return Culprit(
            rank=view.rank,
            host=view.host,
            pid=view.pid,
            category=category,
            sentence=sentence or self._sentence(category),
            reasons=tuple(dict.fromkeys(facts)),
            score=round(_SCORES[category] * weight, 2),
        )

    def _sentence(self, category: Category) -> str:
        view, activity = self.view, self.activity
        idle = for_seconds(idle_s(view))
        where = f"; {activity.sentence()}" if activity.place else ""
        if category is Category.ABSENT:
            return printable(view.absent_reason) or "nothing is known of it"
        if category is Category.DEAD:
            if view.alive:
                return f"is exiting on its own, {activity.sentence()}{idle}"
            if oom_killed(view):
                return f"{exit_words(view.exit_code)}: the kernel's OOM killer"
            if raised(view):
                then = "" if view.exit_code == 1 else f", and then {exit_words(view.exit_code)}"
                return raised_words(view) + then
            if text := raised_before_abort(view):
                return f"raised {shortened(printable(text), 160)}, and then aborted"
            if view.error and view.exit_code is None:
                return f"raised {shortened(printable(view.error), 200)}"
            error = f": {shortened(printable(view.error), 160)}" if view.error else ""
            return f"{exit_words(view.exit_code)}{error}"
        if category is Category.SLOW_EXIT:
            doing = "" if activity.thread_state is ThreadState.EXIT else f", {activity.phrase}"
            return f"exiting{doing}{idle}"
        if category is Category.LEFT:
            last = self._newest_call()
            return "finished normally (exit code 0)" + (f" after {last}" if last else "")
        if category is Category.STOPPED:
            by = "a debugger" if view.process_state[:1] == "t" else "a signal"
            place = f", in {activity.place}" if activity.place else ""
            return f"stopped by {by}{idle}{place}"
        if category is Category.UNINTERRUPTIBLE:
            inside = f" in {activity.kernel}" if activity.kernel else ""
            return f"in an uninterruptible kernel wait{inside}{idle}{where}"
        if category is Category.SPINNING:
            share = cpu_share(view)
            load = "" if share is None else f" at {share:.0%} of a core"
            place = f"in {activity.place}, " if activity.place else ""
            # Even where the stack of a busy thread cannot be read, it is known to be busy.
            phrase = activity.phrase if activity.known else "running"
            return f"{place}{phrase}{load}{idle}"
        if not activity.known:
            return f"on the host, outside of any collective{idle}"
        return f"{activity.sentence()}{idle}"

    def _proof(self, category: Category, *, is_first: bool) -> tuple[str, ...]:
        """What proves by itself that this rank is at fault."""
        view = self.view
        reasons = []
        if category is Category.DEAD:
            last = last_communication(view)
            if view.alive:
                reasons.append("its own last collective did not fail, so no peer caused its exit")
            elif last is not None and last.end_ns and not last.failed:
                reasons.append("it died outside of any collective, so no peer caused it")
            if is_first and view.failed_unix_s:
                reasons.append("it was the first of the ranks that died on their own")
        elif category is Category.STOPPED:
            reasons.append(f"/proc shows state {view.process_state[:1]}")
        elif category is Category.UNINTERRUPTIBLE:
            reasons.append("/proc shows state D: it waits for a device or a file system")
        elif category is Category.GIL_HELD:
            reasons += [self.activity.gil, *self._not_in_flight()]
        elif category is Category.SLOW_EXIT:
            reasons.append("its script has ended: the interpreter is shutting down")
        elif category in (Category.SPINNING, Category.BLOCKED):
            reasons += self._not_in_flight()
        return tuple(reasons)

    def _details(self, category: Category) -> tuple[str, ...]:
        """Further details of the fault."""
        view, activity = self.view, self.activity
        details = []
        share = cpu_share(view)
        if category is Category.SPINNING and share is not None:
            details.append(f"it used {share:.0%} of a core between two samples")
        if category is Category.SLOW_EXIT and share is not None:
            details.append(f"it used {share:.1%} of a core between two samples")
        if category in (Category.BLOCKED, Category.GIL_HELD, Category.SLOW_EXIT):
            details += [f"another of its threads: {other}" for other in activity.others]
            if activity.leaf:
                details.append(f"its innermost frame is {activity.leaf}")
            if activity.kernel:
                details.append(f"it sleeps in the kernel function {activity.kernel}")
        if category is Category.DEAD and not view.alive:
            details += reasons_of(view)
        if view.called_from:
            details.append(f"its newest operation was called in {printable(view.called_from)}")
        elif view.alive and view.dump is None:
            details.append("its stack could not be read")
        return tuple(details)

    def _not_in_flight(self) -> list[str]:
        hook = self.view.hook
        if hook is None:
            return [
                "it has no recorder: relkit did not start it, it has made no hooked call yet, or "
                "the hook is off"
            ]
        communicates = any(op.communicates for op in hook.in_flight)
        return [] if communicates else ["it has no collective in flight"]

    def _waited_for(self) -> tuple[str, ...]:
        rank = self.view.rank
        reasons = []
        reported: set[str] = set()
        for wait in self.waits:
            waiters = wait.waiters - RankSet.of([rank])
            transfer = wait.transfer
            if transfer is not None and waiters and rank in wait.missing:
                called = f"; {transfer.progress}" if transfer.progress else ""
                reasons.append(f"{of_ranks(waiters)} waits for it in {wait.what}{called}")
                continue
            if not (wait.exact and waiters and rank in wait.missing and wait.group):
                continue
            # Later operations of the same group wait behind the first, and prove no more.
            if wait.group.title in reported:
                continue
            reported.add(wait.group.title)
            member = wait.group.members.get(rank)
            verb = "waits" if len(waiters) == 1 else "wait"
            reached = ""
            if member is not None:
                newest = f"#{member.newest}" if member.newest >= 0 else "none"
                reached = f"; the last one that it started there is {newest}"
            reasons.append(f"{of_ranks(waiters)} {verb} for it in {wait.what}{reached}")
        return tuple(reasons)

    def _newest_call(self) -> str:
        calls = []
        for group in self.groups:
            member = group.members.get(self.view.rank)
            if member is not None and member.newest in member.ops:
                op = member.ops[member.newest]
                calls.append((op.start_ns, f"{numbered(op.name, op.seq)} of {group.title}"))
        return max(calls)[1] if calls else ""


def for_disagreement(builder: FindingBuilder, disagreement: Disagreement) -> Culprit:
    """A rank that made a different call than its group."""
    category = Category.SKIPPED if disagreement.skipped else Category.MISMATCH
    majority = (
        f"{of_ranks(disagreement.rest)} called "
        f"{numbered(disagreement.rest_op.name, disagreement.seq)} of {disagreement.group.title}"
    )
    place = f", in {builder.activity.place}" if builder.activity.place else ""
    reasons = [majority]
    outvoted = len(disagreement.rest) > len(disagreement.odd)
    if not outvoted:
        reasons.append("the whole group made that call at the same point of earlier steps")
    weight = 1.0 if outvoted else 0.85
    return builder.culprit(category, disagreement.sentence() + place, tuple(reasons), weight)
