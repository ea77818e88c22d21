"""The main threads by where they stand, those that stand apart first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relkit.hang.activity import Activity
from relkit.hang.frames import printable
from relkit.hang.model import RankView
from relkit.hang_picture.model import StackClass
from relkit.ranks import RankSet
from relkit.stacks.merge import PathClass
from relkit.stacks.model import Frame

MAX_FRAMES = 40


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
