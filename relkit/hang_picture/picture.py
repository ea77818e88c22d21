"""From what is known of a job, and who is at fault, to all that the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from relkit.hang.activity import Activity
from relkit.hang.advice import ENTRIES
from relkit.hang.frames import printable
from relkit.hang.groups import Group, groups_of
from relkit.hang.model import Category, Culprit, HangVerdict, JobView, RankView
from relkit.hang.stackclass import classify
from relkit.hang.transfers import Transfer, transfers_of
from relkit.hang.waits import Wait, waits_of
from relkit.hang.words import exit_words
from relkit.hang_picture.actions import Action
from relkit.hang_picture.model import (
    Blamed,
    HangPicture,
    LeftOut,
    StackClass,
    TransferFact,
    WaitFact,
)
from relkit.hang_picture.runbook import RUNBOOK, HangFiles, advice_on, commands_for
from relkit.hang_picture.sequences import age_s, group_progress, longest
from relkit.hang_picture.timeline import timeline
from relkit.hang_picture.wait_graph import wait_graph
from relkit.ranks import RankSet
from relkit.stacks.merge import PathClass
from relkit.stacks.model import Frame

MAX_BLAMED = 64
MAX_WAITS = 256
MAX_GROUPS = 64
MAX_TRANSFERS = 512
MAX_CLASSES = 48
_NO_FILES = HangFiles()
_NOBODY = RankSet()
MAX_FRAMES = 40


def hang_picture(
    job: JobView,
    verdict: HangVerdict,
    classes: Sequence[PathClass] = (),
    *,
    files: HangFiles = _NO_FILES,
    gone: RankSet = _NOBODY,
    actions: Sequence[Action] = (),
    notes: Sequence[str] = (),
) -> HangPicture:
    """All facts of the page.

    Args:
        job: all ranks, with their recorders and stacks as far as there are any.
        verdict: who is at fault.
        classes: the main threads by path, from the merged stacks.
        files: of the hang, for the commands to type.
        gone: ranks whose processes have ended since.
        actions: what relkit did, by time.
        notes: what could not be read.
    """
    views = {view.rank: view for view in job.ranks}
    activities = {
        rank: classify(view.dump, view.hook.in_flight if view.hook else None)
        for rank, view in views.items()
    }
    culprits = RankSet.of(culprit.rank for culprit in verdict.culprits)
    groups = groups_of(job)
    waits = waits_of(views, activities, groups)
    ages_s = [_age_s(wait, views) for wait in waits]
    within = _waiters(waits)
    others = {rank: _doing(views[rank], activities[rank]) for rank in views if rank not in within}
    progress = group_progress(groups, views, culprits)
    transfers = transfer_facts(views, groups, culprits)
    stacks = stack_classes(classes, views, activities, culprits)
    lanes, lanes_left_out = timeline(views, waits, culprits)
    return HangPicture(
        blamed=_blamed(verdict, views, activities, files, gone),
        waiting=len(_waiters(wait for wait in waits if wait.missing) - culprits),
        waits=tuple(_fact(w, age) for w, age in zip(waits, ages_s, strict=True))[:MAX_WAITS],
        wait_graph=wait_graph(waits, ages_s, verdict.culprits, others),
        groups=tuple(progress[:MAX_GROUPS]),
        transfers=tuple(transfers[:MAX_TRANSFERS]),
        stack_classes=tuple(stacks[:MAX_CLASSES]),
        timeline=tuple(lanes),
        left_out=LeftOut(
            waits=max(0, len(waits) - MAX_WAITS),
            groups=max(0, len(progress) - MAX_GROUPS),
            transfers=max(0, len(transfers) - MAX_TRANSFERS),
            stack_classes=max(0, len(stacks) - MAX_CLASSES),
            timeline=lanes_left_out,
        ),
        actions=tuple(actions),
        notes=tuple(notes),
    )


def _waiters(waits: Iterable[Wait]) -> RankSet:
    return RankSet.from_intervals(i for wait in waits for i in wait.waiters.intervals)


def _fact(wait: Wait, in_flight_s: float | None) -> WaitFact:
    return WaitFact(wait.what, wait.waiters.fold(), wait.missing.fold(), wait.exact, in_flight_s)


def _age_s(wait: Wait, views: Mapping[int, RankView]) -> float | None:
    if wait.transfer is not None:
        return longest([age_s(views.get(wait.transfer.rank), wait.transfer.op)])
    if wait.group is None:
        return None
    members = wait.group.members
    return longest(
        [age_s(views.get(r), members[r].ops[wait.seq]) for r in wait.waiters if r in members]
    )


def _doing(view: RankView, activity: Activity) -> str:
    if view.absent_reason:
        return printable(view.absent_reason)
    if not view.alive:
        return exit_words(view.exit_code)
    return activity.sentence() if activity.known else "outside of any operation"


def _blamed(
    verdict: HangVerdict,
    views: Mapping[int, RankView],
    activities: Mapping[int, Activity],
    files: HangFiles,
    gone: RankSet,
) -> tuple[Blamed, ...]:
    first: dict[int, Culprit] = {}
    for culprit in verdict.culprits:
        first.setdefault(culprit.rank, culprit)
    if not first:
        return (_nobody(verdict, files),)
    return tuple(
        _blame(
            culprit,
            views.get(culprit.rank),
            activities.get(culprit.rank),
            files,
            is_gone=culprit.rank in gone,
        )
        for culprit in list(first.values())[:MAX_BLAMED]
    )


def _blame(
    culprit: Culprit,
    view: RankView | None,
    activity: Activity | None,
    files: HangFiles,
    *,
    is_gone: bool,
) -> Blamed:
    text, commands = advice_on(culprit, files, is_gone=is_gone)
    place = activity.place if activity else ""
    return Blamed(
        rank=culprit.rank,
        host=printable(culprit.host),
        pid=culprit.pid,
        category=culprit.category.value,
        finding=ENTRIES[culprit.category].id,
        place=place or (printable(view.called_from) if view else ""),
        doing=culprit.sentence,
        score=culprit.score,
        advice=text,
        commands=commands,
    )


def _nobody(verdict: HangVerdict, files: HangFiles) -> Blamed:
    """What to do where no rank stands out: of no rank in particular."""
    category = Category.INCONCLUSIVE
    return Blamed(
        rank=-1,
        host="",
        pid=0,
        category=category.value,
        finding=ENTRIES[category].id,
        place="",
        doing=verdict.inconclusive,
        score=0.0,
        advice=RUNBOOK[category].text,
        commands=commands_for(category, "", 0, files),
    )


def stack_classes(
    classes: Sequence[PathClass],
    views: Mapping[int, RankView],
    activities: Mapping[int, Activity],
    culprits: RankSet,
) -> list[StackClass]:
    """Outliers first: small classes before large ones, and of equal ones those with a culprit.

    Args:
        classes: from the merged stacks; where there are none, ranks are told apart by where
            their newest operation was called.
        views, activities: by rank; culprits: the ranks at fault.
    """
    rows = [_of(each, activities, culprits) for each in classes] or _call_sites(views, culprits)
    return sorted(rows, key=lambda row: (row.count, not row.culprit, row.ranks))


def _of(each: PathClass, activities: Mapping[int, Activity], culprits: RankSet) -> StackClass:
    first = next((activities[rank] for rank in each.ranks if rank in activities), None)
    shown = [_line(frame) for frame in each.frames[:MAX_FRAMES]]
    if len(each.frames) > len(shown):
        shown.append(f"and {len(each.frames) - len(shown)} more frames")
    return StackClass(
        ranks=each.ranks.fold(),
        count=len(each.ranks),
        culprit=bool(each.ranks & culprits),
        place=first.place if first else "",
        doing=first.phrase if first else "",
        frames=tuple(shown),
    )


def _line(frame: Frame) -> str:
    return printable(f"{frame.func}  {frame.source}".strip())[:400]


def _call_sites(views: Mapping[int, RankView], culprits: RankSet) -> list[StackClass]:
    sites: dict[str, list[int]] = {}
    for rank, view in sorted(views.items()):
        if view.called_from:
            sites.setdefault(view.called_from, []).append(rank)
    return [
        StackClass(
            ranks=RankSet.of(ranks).fold(),
            count=len(ranks),
            culprit=bool(RankSet.of(ranks) & culprits),
            place=site,
            doing="called its newest operation there",
            frames=(),
        )
        for site, ranks in sites.items()
    ]


def transfer_facts(
    views: Mapping[int, RankView], groups: Sequence[Group], culprits: RankSet
) -> list[TransferFact]:
    """One row a transfer: first those that wait for a culprit, then all whose peer has not come.

    Args:
        views: by rank; groups: of the job; culprits: the ranks at fault.
    """
    titles = {
        (rank, member.index): group.title
        for group in groups
        for rank, member in group.members.items()
    }
    transfers = sorted(
        transfers_of(views, groups),
        key=lambda t: (not (t.missing and t.peer in culprits), not t.missing, t.rank, t.op.seq),
    )
    return [_transfer_fact(each, views, titles) for each in transfers]


def _transfer_fact(
    each: Transfer, views: Mapping[int, RankView], titles: Mapping[tuple[int, int], str]
) -> TransferFact:
    return TransferFact(
        rank=each.rank,
        direction="recv" if each.receives else "send",
        peer=each.peer,
        group=titles.get((each.rank, each.op.communicator), ""),
        size_bytes=each.op.size_bytes,
        tag=each.op.tag,
        number=each.op.seq,
        in_flight_s=longest([age_s(views.get(each.rank), each.op)]),
        peer_called=each.called,
        peer_size_bytes=each.peer_size_bytes,
        missing=each.missing,
    )
