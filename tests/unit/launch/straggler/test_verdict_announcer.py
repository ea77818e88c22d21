"""What the terminal is told of stragglers: a line each, and no more than is worth one."""

from __future__ import annotations

from dataclasses import replace

from relkit.launch.straggler.verdict_announcer import VerdictAnnouncer
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.model import Cause, Subject, Verdict


def straggler(cost_s: float, first_step: int = 1) -> RaisedVerdict:
    """Rank 6, slow because of its host."""
    return RaisedVerdict(Verdict(Subject.RANK, Cause.HOST, 0.2, 0.95, first_step, cost_s, (), 6), 1)


def test_one_that_comes_and_goes_is_named_once_a_minute() -> None:
    said: list[str] = []
    announcer = VerdictAnnouncer("j", {6: "h1"}, said.append)
    raised = straggler(1.0)
    for now_s in (0.0, 20.0, 40.0, 70.0):
        announcer.announce([raised], [raised], now_s)
        announcer.announce([replace(raised, ended_step=2)], [], now_s + 5.0)
    announcer.end()
    assert ["slow-host" in line for line in said] == [True, False, True, False]


def test_one_that_slows_down_again_within_the_minute_and_stays_slow_is_named_after_it() -> None:
    said: list[str] = []
    announcer = VerdictAnnouncer("j", {6: "h1"}, said.append)
    raised = straggler(1.0)
    announcer.announce([raised], [raised], 0.0)
    announcer.announce([replace(raised, ended_step=2)], [], 5.0)
    announcer.announce([raised], [raised], 20.0)
    announcer.announce([], [raised], 59.0)
    assert ["slow-host" in line for line in said] == [True, False]
    announcer.announce([], [raised], 60.0)
    announcer.announce([], [raised], 61.0)
    assert ["slow-host" in line for line in said] == [True, False, True]


def test_one_that_is_faster_for_a_moment_has_not_recovered() -> None:
    said: list[str] = []
    announcer = VerdictAnnouncer("j", {6: "h1"}, said.append)
    raised, over = straggler(1.0), replace(straggler(1.0), ended_step=2)
    announcer.announce([raised], [raised], 0.0)
    for now_s in (100.0, 200.0):
        announcer.announce([over], [], now_s)
        announcer.announce([raised], [raised], now_s + 9.0)
        announcer.announce([], [raised], now_s + 20.0)
    assert len(said) == 1
    # Of the same rank, but for another reason.
    other = replace(raised, verdict=replace(raised.verdict, cause=Cause.COMPUTE))
    announcer.announce([over], [], 300.0)
    announcer.announce([other], [other], 301.0)
    assert ["slow-compute" in line for line in said] == [False, True]
    announcer.announce([replace(other, ended_step=7)], [], 400.0)
    announcer.announce([], [], 409.0)
    assert len(said) == 2
    announcer.announce([], [], 410.0)
    announcer.end()
    assert "is as fast as the others again (step 7)" in said[2]
    assert len(said) == 3


def test_a_straggler_is_announced_once_it_has_cost_a_second() -> None:
    lines: list[str] = []
    announcer = VerdictAnnouncer("j", {6: "h1"}, lines.append)
    announcer.announce([straggler(0.03)], [straggler(0.03)], 0.0)
    announcer.announce([], [straggler(0.99)], 1.0)
    assert lines == []
    announcer.announce([], [straggler(1.0)], 2.0)
    announcer.announce([], [straggler(3.0)], 3.0)
    (line,) = lines
    assert "1.0 s lost so far" in line
    announcer.announce([replace(straggler(3.0), ended_step=9)], [], 4.0)
    announcer.end()
    assert "is as fast as the others again" in lines[1]


def test_a_straggler_that_recovers_before_it_has_cost_a_second_is_not_announced() -> None:
    lines: list[str] = []
    announcer = VerdictAnnouncer("j", {6: "h1"}, lines.append)
    announcer.announce([straggler(0.4)], [straggler(0.4)], 0.0)
    announcer.announce([replace(straggler(0.4), ended_step=9)], [], 1.0)
    assert lines == []


def test_what_one_cost_before_a_moment_of_recovery_counts_as_well() -> None:
    lines: list[str] = []
    announcer = VerdictAnnouncer("j", {6: "h1"}, lines.append)
    for number, now_s in enumerate((0.0, 10.0, 20.0)):
        raised = straggler(0.4, first_step=10 * number)
        announcer.announce([raised], [raised], now_s)
        if number < 2:
            announcer.announce([replace(raised, ended_step=10 * number + 9)], [], now_s + 5.0)
    (line,) = lines
    assert "since step 0, 1.2 s lost so far" in line


def test_what_one_cost_in_a_step_counts_once() -> None:
    # A link's cost goes on from its first step, though no verdict held for a moment.
    lines: list[str] = []
    announcer = VerdictAnnouncer("j", {6: "h1"}, lines.append)
    for cost_s, now_s in ((0.4, 0.0), (0.6, 10.0), (0.8, 20.0), (0.9, 30.0)):
        raised = straggler(cost_s)
        announcer.announce([raised], [raised], now_s)
        announcer.announce([replace(raised, ended_step=int(now_s) + 10)], [], now_s + 5.0)
    assert lines == []
    raised = straggler(1.1)
    announcer.announce([raised], [raised], 40.0)
    assert "since step 1, 1.1 s lost so far" in lines[0]
    # Of one whose first step lies amid those of the verdict before it, those before count.
    announcer = VerdictAnnouncer("j", {6: "h1"}, lines.append)
    before, after = straggler(0.8, first_step=1), straggler(0.7, first_step=6)
    announcer.announce([before], [before], 0.0)
    announcer.announce([replace(before, ended_step=8)], [], 5.0)
    announcer.announce([after], [after], 10.0)
    assert "since step 1, 1.2 s lost so far" in lines[1]


def test_what_one_cost_long_before_or_for_another_reason_does_not_count() -> None:
    lines: list[str] = []
    announcer = VerdictAnnouncer("j", {6: "h1"}, lines.append)
    raised = straggler(0.9)
    other = replace(raised, verdict=replace(raised.verdict, cause=Cause.COMPUTE))
    for now_s in (0.0, 100.0, 200.0):
        for one in (raised, other):
            announcer.announce([one], [one], now_s)
            announcer.announce([replace(one, ended_step=9)], [], now_s + 1.0)
    for now_s in (400.0, 470.0):
        announcer.announce([raised], [raised], now_s)
        announcer.announce([replace(raised, ended_step=9)], [], now_s + 1.0)
    # Three seconds in ten minutes, at times that are close enough.
    for now_s in range(1000, 1600, 50):
        announcer.announce([straggler(0.25)], [straggler(0.25)], float(now_s))
        announcer.announce([replace(straggler(0.25), ended_step=9)], [], now_s + 1.0)
    assert lines == []
