"""Which of the states that ranks have is loaded: the newest that all have and none refuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from relkit.errors import DeadlineExceeded
from relkit.flash_checkpoint.choice import choose
from relkit.flash_checkpoint.rank_group import RankGroup
from relkit.flash_checkpoint.rank_memory import RankMemory
from relkit.flash_checkpoint.save_handle import OwnSaves, Waited


class Ranks:
    """This rank is the first; the answers of a second one are given."""

    rank = 0

    def __init__(self, others: Iterable[object], waited: Waited | None = None) -> None:
        self._others, self._waited = iter(others), waited or Waited()

    def meet(self, own: object, _timeout_s: float) -> list[object]:
        """As RankGroup's."""
        return [own, self._waited.plain()]

    def all_gather(self, own: object) -> list[object]:
        """As RankGroup's."""
        return [own, next(self._others)]


@dataclass
class Memory:
    """The slots of this rank, by step, with the reason why one cannot be loaded."""

    steps: Mapping[int, str]
    adopted: int | None = -1

    why_no_replica = ""

    def origin_of(self, _step: int) -> str:
        return "from memory"

    def slots(self) -> tuple[dict[int, Any], list[str]]:
        """As RankMemory's."""
        return {s: SimpleNamespace(header=SimpleNamespace(sequence=s)) for s in self.steps}, []

    def load(self, slot: Any) -> tuple[str, str]:  # noqa: ANN401
        """As RankMemory's."""
        step = slot.header.sequence
        return f"state of step {step}", self.steps[step]

    def adopt(self, sequence: int | None) -> None:
        """As RankMemory's."""
        self.adopted = sequence


def offer(*steps: int) -> dict[str, Any]:
    return {"steps": list(steps), "disk": -1}


@pytest.mark.parametrize(
    ("steps", "others", "step", "adopted", "why"),
    [
        # The newest that both have.
        ({4: "", 5: ""}, [[], offer(3, 4), ""], 4, 4, ""),
        # The other rank refuses step 5, this one step 4.
        ({3: "", 4: "torn", 5: ""}, [[], offer(3, 4, 5), "damaged", offer(3, 4), "", offer(3), ""],
         3, 3, ""),
        ({5: ""}, [[], offer(5), "damaged", offer()], -1, None,
         "; memory is not used: rank 1: damaged"),
        ({5: ""}, [[], offer(4)], -1, None, ""),
        # The other rank has nothing, because its file was refused: rank 0 says so.
        ({5: ""}, [["foreign"], offer()], -1, None, "; memory is not used: rank 1: foreign"),
    ],
)  # fmt: skip
def test_all_ranks_load_one_step(
    tmp_path: Path,
    steps: dict[int, str],
    others: list[object],
    step: int,
    adopted: int | None,
    why: str,
) -> None:
    memory = Memory(steps)
    chosen = choose(cast(RankGroup, Ranks(others)), cast(RankMemory, memory), tmp_path, OwnSaves())
    assert (chosen.step, memory.adopted, chosen.why_not_memory) == (step, adopted, why)
    assert chosen.state == (None if step < 0 else f"state of step {step}")


def test_a_state_that_cannot_be_used_is_refused_and_the_reason_said_once(tmp_path: Path) -> None:
    memory = Memory({3: "", 4: "", 5: "torn"})
    others = [[], offer(3, 4, 5), "", offer(3, 4), "", "divided", offer(3), "", "divided", offer()]
    asked: list[str] = []

    def check(state: str) -> str:
        asked.append(state)
        return "divided"

    chosen = choose(
        cast(RankGroup, Ranks(others)), cast(RankMemory, memory), tmp_path, OwnSaves(), check
    )
    assert (chosen.step, memory.adopted) == (-1, None)
    assert chosen.why_not_memory == "; memory is not used: rank 0: torn; divided"
    assert asked == ["state of step 4", "state of step 3"]


@pytest.mark.parametrize(
    ("steps", "others", "origin", "why"),
    [
        ({6: "", 7: ""}, [[], offer(6), ""], "from memory; step 7 could not be saved: full", ""),
        ({}, [[], offer()], "from memory", "; step 7 could not be saved: full"),
        # A step that was saved in a later try.
        ({7: ""}, [[], offer(7), ""], "from memory", ""),
    ],
)
def test_a_newer_step_that_a_rank_could_not_save_is_told(
    tmp_path: Path, steps: dict[int, str], others: list[object], origin: str, why: str
) -> None:
    ranks, memory = Ranks(others, Waited(step=7, why="full")), Memory(steps)
    chosen = choose(cast(RankGroup, ranks), cast(RankMemory, memory), tmp_path, OwnSaves())
    assert (chosen.origin, chosen.why_not_memory) == (origin, why)


def test_no_older_step_is_loaded_while_a_save_is_under_way(tmp_path: Path) -> None:
    ranks = Ranks([[], offer(6), ""], Waited(late="the save of step 7 is under way"))
    memory = Memory({6: ""})
    with pytest.raises(DeadlineExceeded, match=r"^rank 1: the save of step 7 is under way$"):
        choose(cast(RankGroup, ranks), cast(RankMemory, memory), tmp_path, OwnSaves())
    assert memory.adopted == -1
