"""How far the members of each process group have come, those alike in one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.hang.groups import Group, Member
from relkit.hang.model import RankView
from relkit.hang.words import numbered, size
from relkit.hang_picture.model import GroupProgress, Progress
from relkit.hook.model import Op
from relkit.ranks import RankSet

MAX_ROWS = 64


def age_s(view: RankView | None, op: Op) -> float | None:
    """How long an operation has been in flight, by the rank's own clock; None where not known."""
    if view is None or view.hook is None or op.end_ns:
        return None
    return max(0, view.hook.now_ns - op.start_ns) / 1e9


def longest(ages: Sequence[float | None]) -> float | None:
    """The largest age that is known, rounded for people."""
    known = [age for age in ages if age is not None]
    return round(max(known), 3) if known else None


def group_progress(
    groups: Sequence[Group], views: Mapping[int, RankView], culprits: RankSet
) -> list[GroupProgress]:
    """One table a group: first those whose members differ, and of these those with a culprit.

    Args:
        groups: of the job; views: by rank; culprits: the ranks at fault.
    """
    tables = [(_is_odd(table), group, table) for group in groups for table in [_of(group, views)]]
    tables.sort(key=lambda row: (-row[0], not (row[1].ranks & culprits), -row[1].size, row[1].key))
    return [table for _, _, table in tables]


def _is_odd(table: GroupProgress) -> int:
    """2 where members differ, 1 where they are all in one call, 0 where nothing goes on."""
    if not table.agrees:
        return 2
    return 1 if any(row.in_flight for row in table.members) else 0


def _of(group: Group, views: Mapping[int, RankView]) -> GroupProgress:
    alike: dict[tuple[int, int, str], list[int]] = {}
    for rank, member in sorted(group.members.items()):
        alike.setdefault((member.newest, _completed(member), _call(member)), []).append(rank)
    newest = max((key[0] for key in alike), default=-1)
    rows = [
        Progress(
            ranks=RankSet.of(ranks).fold(),
            count=len(ranks),
            completed=completed,
            in_flight=call,
            in_flight_s=longest(
                [age_s(views.get(r), op) for r in ranks for op in group.members[r].stuck[:1]]
            ),
            is_behind=started < newest,
        )
        for (started, completed, call), ranks in sorted(alike.items())
    ]
    unseen = group.ranks - RankSet.of(group.members)
    return GroupProgress(
        title=group.title,
        size=group.size,
        agrees=len(rows) < 2 and not unseen,
        members=tuple(rows[:MAX_ROWS]),
        unseen=unseen.fold(),
        left_out=max(0, len(rows) - MAX_ROWS),
    )


def _completed(member: Member) -> int:
    ended = [seq for seq, op in member.ops.items() if op.end_ns and not op.failed]
    if not member.stuck:
        return max([member.newest, *ended])
    # What ended long ago is not kept, but a group's collectives begin in order.
    return max([member.stuck[0].seq - 1, *ended])


def _call(member: Member) -> str:
    if not member.stuck:
        return ""
    op = member.stuck[0]
    more = f" and {len(member.stuck) - 1} more" if len(member.stuck) > 1 else ""
    ended = ", which failed" if op.failed else ""
    return f"{numbered(op.name, op.seq)} ({size(op.size_bytes)}){ended}{more}"
