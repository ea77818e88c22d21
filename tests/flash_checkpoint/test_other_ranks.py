"""Ranks that are not equally quick: at every moment there is a step that all of them have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.flash_checkpoint import memory_saver
from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.errors import NoRoom
from relkit.flash_checkpoint.slots.other_ranks import (
    Neighbours,
    Nobody,
    OnOtherNodes,
    OtherRanks,
    others_of,
    slots_to_keep,
)
from relkit.flash_checkpoint.slots.slot_file import SlotFile
from tests.flash_checkpoint.test_slots import one_thread

__all__ = ["one_thread"]


@dataclass
class Seen:
    """Others whose steps are known; an OtherRanks."""

    of_each: Sequence[Collection[int]]

    def steps(self) -> Sequence[Collection[int]] | None:
        return self.of_each


@pytest.mark.parametrize(
    ("mine", "others", "kept"),
    [
        ([5, 4], Nobody(), 1),
        ([5, 4], Seen([{5, 4}, {6, 5}]), 1),
        ([5, 4], Seen([{5, 4}, {4, 3}]), 2),
        ([6, 5, 4], Seen([{5, 4}, {4, 3}]), 3),
        ([9, 8, 7], Seen([{4, 3}]), 2),
        ([5, 4], Seen([()]), 2),
        ([], Seen([{4}]), 2),
        ([5, 4], OnOtherNodes(), 2),
    ],
)
def test_slots_down_to_the_newest_that_all_have_are_kept(
    mine: list[int], others: OtherRanks, kept: int
) -> None:
    assert slots_to_keep(mine, others) == kept


@dataclass
class ModelRank:
    """A rank as far as its slots go: it saves 0, 1, 2, ... into as many slots as it needs."""

    whole: set[int] = field(default_factory=set)
    saving: int | None = None
    next_step: int = 0

    def may_begin(self, ranks: Sequence[ModelRank]) -> bool:
        """Backward passes bring all together: to begin k, everybody must have k - 2 whole, as an
        optimizer's step waits for the copy of the step before."""
        own = self.next_step - 1
        return self.saving is None and all(
            self.next_step < 2 or self.next_step - 2 in rank.whole or rank.next_step > own
            for rank in ranks
        )

    def begin(self, others: OtherRanks) -> None:
        kept = slots_to_keep(sorted(self.whole, reverse=True), others)
        self.whole = set(sorted(self.whole, reverse=True)[: max(kept, 1)])
        self.saving, self.next_step = self.next_step, self.next_step + 1

    def end(self) -> None:
        assert self.saving is not None
        self.whole.add(self.saving)
        self.saving = None


@pytest.mark.parametrize("are_seen", [True, False])
@given(turns=st.lists(st.integers(0, 2), max_size=60))
def test_there_is_always_a_step_that_all_have(are_seen: bool, turns: list[int]) -> None:
    ranks = [ModelRank() for _ in range(3)]
    for turn in turns:
        rank = ranks[turn]
        if rank.saving is not None:
            rank.end()
        elif rank.may_begin(ranks):
            others = [other.whole for other in ranks if other is not rank]
            rank.begin(Seen(others) if are_seen else OnOtherNodes())
        oldest = min(max(each.whole, default=-1) for each in ranks)
        assert oldest < 0 or all(oldest in each.whole for each in ranks)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(slot_folder, "_SHARED_MEMORY", tmp_path)
    return slot_folder.make("job").path


def saver(folder: Path, rank: int, others: OtherRanks | None = None) -> MemorySaver:
    return MemorySaver(
        slot_folder.slots_path(folder, rank),
        slot_folder.owner(folder, rank, 2),
        1,
        others or others_of(folder, rank, 2, 2),
    )


def steps(folder: Path, rank: int) -> list[int]:
    file = SlotFile.open(slot_folder.slots_path(folder, rank), slot_folder.owner(folder, rank, 2))
    return [slot.header.step for slot in file.whole()]


def save(savers: Sequence[MemorySaver], step: int) -> None:
    for each in savers:
        each.save(step, {"step": step, "state": [0.5] * step * 100}).wait()


def test_ranks_that_keep_pace_have_two_slots(folder: Path) -> None:
    both = [saver(folder, rank) for rank in range(2)]
    for step in range(5):
        save(both, step)
    assert steps(folder, 0) == [4, 3]
    # When it saved step 4, the other had no more than step 3, which it has as well.
    assert steps(folder, 1) == [4, 3]
    for each in both:
        each.close()


def test_a_quick_rank_keeps_what_the_slow_one_has(folder: Path) -> None:
    quick, slow = (saver(folder, rank) for rank in range(2))
    save([quick, slow], 1)
    save([quick], 2)
    save([quick], 3)
    assert steps(folder, 0) == [3, 2, 1]
    save([slow], 2)
    save([quick], 4)
    assert steps(folder, 0) == [4, 3, 2]
    for each in (quick, slow):
        each.close()


def test_without_room_it_keeps_two(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = (saver(folder, rank) for rank in range(2))
    save([quick, slow], 1)
    save([quick], 2)

    def full(_folder: Path, _wanted_bytes: int) -> None:
        raise NoRoom("full")

    monkeypatch.setattr(memory_saver, "require_room", full)
    save([quick], 3)
    assert steps(folder, 0) == [3, 2]
    for each in (quick, slow):
        each.close()


def test_ranks_on_other_nodes_are_thought_to_be_a_save_behind(folder: Path) -> None:
    assert isinstance(others_of(folder, 0, 1, 1), Nobody)
    assert isinstance(others_of(folder, 0, 2, 2), Neighbours)
    alone = saver(folder, 0, others_of(folder, 0, 2, 1))
    for step in range(5):
        save([alone], step)
    assert steps(folder, 0) == [4, 3, 2]
    alone.close()
