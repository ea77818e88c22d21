"""What is said and noted of suspicions: one line a rank and minute, and all of them are counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from relkit.accounting.journal import Journal
from relkit.accounting.suspicions import Suspicions as Noted
from relkit.accounting.suspicions import suspicions_in
from relkit.hang.model import RankView
from relkit.launch.accounting.accounts import Accounts
from relkit.launch.hang.attempt import MAX_TURNS, WatchedRanks, WatchState
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.suspicions import LINE_EVERY_S, Suspicions
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import MemoryMailbox
from tests.unit.hang.suspicion.loops import Loop


class CloseObserver(Observer):
    """Shows the loop's ranks, and counts how often it looked closely."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(None)
        self._loop = loop
        self.closely = 0

    def views(self, *_: object, recent: bool = True) -> tuple[RankView, ...]:
        assert recent
        self.closely += 1
        return self._loop.views()


@dataclass
class Watched(Loop):
    """A loop under a launcher's eyes; ranks 2 and 3 run on another node where there are two."""

    nodes: int = 1
    said: list[str] = field(default_factory=list)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.state = WatchState()
        self.observer = CloseObserver(self)
        attempt = WatchedRanks(
            Attempt("job", self.world),
            self.observer,
            MemoryMailbox(0, self.nodes, {}) if self.nodes > 1 else MemoryMailbox(),
            ranks=list,
            exit_statuses=dict,
        )
        self.suspicions = Suspicions(attempt, self.state, self.timeout_s, self.said.append)

    def look(self, seconds: float = 1.0) -> None:
        self.now_s += seconds
        views = self.views()
        near = len(views) if self.nodes == 1 else 2
        health = self.detector.update(self.now_s, views).health
        self.suspicions.look(self.now_s, self.detector, health, views[:near], views[near:])


def noted(loop: Watched, tmp_path: Path) -> Noted:
    """What a journal keeps of all that a loop's launcher was to note."""
    accounts = Accounts(lambda job, log: Journal(job, log, lambda _: tmp_path / "j"), print)
    accounts.begin("job")
    for turn in loop.state.suspicions:
        accounts.suspicion(turn)
    assert accounts._journal is not None
    return suspicions_in(accounts._journal.records)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_stall_is_one_line_and_its_end_another(tmp_path: Path, nodes: int) -> None:
    loop = Watched(nodes=nodes)
    loop.step(times=30)
    loop.stall(2, 40)
    begun, over = loop.said
    assert begun.startswith("suspicion: rank 2 has not joined all_reduce #30 of the default group")
    assert over == "rank 2 goes on after 41 s"
    assert noted(loop, tmp_path) == Noted(1, 1, 0, "")
    # One node reads what brief looks leave out; several have it in what they send one another.
    assert (loop.observer.closely > 0) is (nodes == 1)


def test_a_rank_has_one_line_a_minute_and_is_counted_each_time(tmp_path: Path) -> None:
    loop = Watched()
    loop.step(times=30)
    for size in (1, 2, 4):
        loop.stall(2, 12, size=size)
        loop.step(times=3)
    assert len(loop.said) == 2
    loop.step(times=int(LINE_EVERY_S))
    loop.stall(2, 12, size=8)
    assert len(loop.said) == 4
    # Another rank is another matter.
    loop.stall(1, 12, size=16)
    assert [line.split(" ", 3)[:3] for line in loop.said[4:]] == [
        ["suspicion:", "rank", "1"],
        ["rank", "1", "goes"],
    ]
    assert noted(loop, tmp_path) == Noted(5, 5, 0, "")


def test_a_suspicion_that_becomes_a_verdict_is_counted_as_that(tmp_path: Path) -> None:
    loop = Watched(timeout_s=30.0)
    loop.step(times=30)
    loop.wait_in([0, 1, 3])
    loop.pause(20)
    assert noted(loop, tmp_path).present.startswith("rank 2 has not joined")
    loop.pause(20)
    (present,) = loop.suspicions.present
    assert present.ranks.fold() == "2"
    assert noted(loop, tmp_path) == Noted(1, 0, 1, "")
    loop.step()
    assert loop.said[-1].startswith("rank 2 goes on after 4")
    assert noted(loop, tmp_path) == Noted(1, 0, 1, "")


def test_where_nobody_is_named_the_job_goes_on() -> None:
    loop = Watched()
    loop.step(times=30)
    loop.wait_in(range(4))
    loop.pause(15)
    loop.step()
    assert loop.said[0].startswith("suspicion: ranks 0-3 are in all_reduce #30")
    assert loop.said[1] == "the job goes on after 16 s"


def test_what_nobody_takes_is_kept_in_a_fixed_room() -> None:
    assert WatchState().suspicions.maxlen == MAX_TURNS


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((1, 0, 0), "1: 1 not decided"),
        ((3, 2, 1), "3: 2 came and went, 1 became a verdict"),
        ((1003, 1000, 3), "1,003: 1,000 came and went, 3 became verdicts"),
    ],
)
def test_counts_in_words(counts: tuple[int, int, int], words: str) -> None:
    assert Noted(*counts).words == words
