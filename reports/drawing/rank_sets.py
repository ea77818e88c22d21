"""Rank sets as short text: abbreviations, and one table a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relkit.ranks import RankSet
from relkit.stacks.native_fold import native_fold

LABEL_LIMIT = 256
"""Characters of rank list that a label spells out before it is abbreviated."""


def badge(ranks: RankSet, present: int) -> str:
    """What a box says at its right end: `rank 2`, `ranks 0-1,3`, `all but 1`, `412 ranks`."""
    count = len(ranks)
    if count >= present > 0:
        return "all"
    if count == 1:
        return f"rank {ranks.fold()}"
    folded = ranks.fold() if ranks.interval_count <= 3 else ""
    if 0 < len(folded) <= 9:
        return f"ranks {folded}"
    return f"all but {present - count}" if present - count < 10 else f"{count:,} ranks"


def short_badge(ranks: RankSet, present: int) -> str:
    """The same for a narrow box: `r2`, `7/8`, or `all-1` for all but one."""
    count = len(ranks)
    if count >= present > 0:
        return "all"
    if count == 1:
        return f"r{ranks.fold()}"
    return (
        f"{count}/{present}" if present < 1000 or present - count > 99 else f"all-{present - count}"
    )


@dataclass(frozen=True, slots=True)
class SetText:
    """What a picture says of one rank set.

    Args:
        number: its line in the table.
        count: ranks in it.
        label: `stuck|leak` as in the guide; a side beyond LABEL_LIMIT is abbreviated and refers
            to the table: `0/2/4/…/9998 (5000 ranks) #s3`.
        badge, short_badge: for the right end of a box.
    """

    number: int
    count: int
    label: str
    badge: str
    short_badge: str


def _fold_strided() -> Callable[[RankSet, str], str]:
    return native_fold() or RankSet.fold_strided


@dataclass(slots=True)
class SetTable:
    """Every distinct rank set of one picture, once; boxes refer to it by number.

    Args:
        present: ranks that were read.
        world_size: ranks of the job.
        budget_bytes: how much text the table may take; what is beyond is abbreviated, said so,
            and the rarest sets come first when it is spent.
    """

    present: RankSet
    world_size: int
    budget_bytes: int = 300_000
    sets: list[RankSet] = field(default_factory=list)
    _numbers: dict[RankSet, int] = field(default_factory=dict)
    _texts: dict[int, SetText] = field(default_factory=dict)
    _fold: Callable[[RankSet, str], str] = field(default_factory=_fold_strided)

    def text(self, ranks: RankSet) -> SetText:
        """Everything to say of this set; entered into the table on first use."""
        number = self._number(ranks)
        if number not in self._texts:
            self._texts[number] = self._make(number, ranks)
        return self._texts[number]

    def _make(self, number: int, ranks: RankSet) -> SetText:
        leak = self.present - ranks
        # Against the world, not against those read: ten absent ranks of fifteen are not "all".
        unread = bool(ranks) and leak == self.present
        against = self.world_size if unread else len(self.present)
        return SetText(
            number,
            len(ranks),
            f"{self._side(ranks)}|{self._side(leak)}",
            badge(ranks, against),
            short_badge(ranks, against),
        )

    def _number(self, ranks: RankSet) -> int:
        number = self._numbers.get(ranks)
        if number is None:
            number = self._numbers[ranks] = len(self.sets)
            self.sets.append(ranks)
        return number

    def _side(self, ranks: RankSet) -> str:
        # Two characters is the least that one more interval takes: no need to fold a huge set.
        if ranks.interval_count * 2 - 1 <= LABEL_LIMIT:
            folded = ranks.fold("/")
            if len(folded) <= LABEL_LIMIT:
                return folded
        return f"{ranks.fold_briefly('/')} #s{self._number(ranks)}"

    def texts(self) -> list[str]:
        """The table's lines in number order; `~...` marks a set that is not spelled out."""
        lines = [""] * len(self.sets)
        left = self.budget_bytes
        refused = 0
        counts = [len(ranks) for ranks in self.sets]
        for i in sorted(range(len(self.sets)), key=lambda i: (counts[i], i)):
            ranks = self.sets[i]
            # Folding costs time for each interval; after a few vain tries only short sets get one.
            hopeless = refused > 8 and ranks.interval_count > 64
            text = "" if hopeless else self._fold(ranks, ",")
            if not text or len(text) > left:
                refused += 1
                text = f"~{ranks.fold_briefly()}"
            left -= len(text)
            lines[i] = text
        return lines
