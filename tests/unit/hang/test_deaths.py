"""Which of several dead ranks died first and of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from relkit.findings import Finding
from relkit.hang.attribute import attribute
from relkit.hang.deaths import (
    collateral,
    ended_from_outside,
    failed_alike,
    oom_killed,
    primary_deaths,
)
from relkit.hang.model import JobView, RankView
from relkit.hang.report import hang_report, headline
from relkit.hook.model import Communicator
from relkit.post_mortem.model import DeathEvidence
from tests.unit.hang.hang_builders import op, state, view

WORLD = 4


def dead(
    rank: int, code: int | None, at_s: float = 0.0, error: str = "", end: str = "host"
) -> RankView:
    """A dead rank whose last collective ended well, failed, or never ended."""
    last = op(seq=5, age_s=3, in_flight=end == "inside", failed=end == "failed")
    done, flying = ([], [last]) if end == "inside" else ([last], [])
    return view(
        rank, WORLD, hook=state(rank, WORLD, done, flying), alive=False, exit_code=code,
        failed_unix_s=at_s, error=error,
    )  # fmt: skip


def first(*views: RankView) -> list[int]:
    return [v.rank for v in primary_deaths(views)]


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by "
        "peer [127.0.0.1]:35561",
        "RuntimeError: ... Read error [10.0.0.1]:2022: Connection reset by peer",
        "RuntimeError: ... writev [10.0.0.1]:2022: Broken pipe",
        "RuntimeError: ... Timed out waiting 1800000ms for recv operation to complete",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        "RuntimeError: NCCL error: remote process exited or there was a network error",
        "RuntimeError: [enforce fail at ../pair.cc:431] op.preamble.length <= op.nbytes. 64 vs 4",
    ],
)
def test_errors_of_a_broken_connection_are_consequences(error: str) -> None:
    assert collateral(dead(1, 1, error=error))


@pytest.mark.parametrize(
    "error", ["", "ValueError: bad batch", "RuntimeError: CUDA error: device-side assert triggered"]
)
def test_other_errors_are_not(error: str) -> None:
    assert not collateral(dead(1, 1, error=error))


def test_a_sigterm_in_a_collective_beside_another_death_is_nobody_s_fault() -> None:
    lost_its_peer = dead(2, 1, error="RuntimeError: Connection closed by peer [127.0.0.1]:35561")
    assert first(dead(0, -15, end="inside"), lost_its_peer) == []
    assert first(dead(0, -11, end="inside"), lost_its_peer) == [0]


def test_the_last_operation_that_failed_marks_a_consequence_without_any_text() -> None:
    assert collateral(dead(1, 1, end="failed"))
    assert first(dead(0, 1, end="failed"), dead(2, 1), dead(3, 1, end="failed")) == [2]


def test_what_the_launcher_ends_afterwards_is_a_consequence() -> None:
    assert first(dead(0, -15, 5.0, end="inside"), dead(1, 7, 4.0), dead(2, -9, 9.0)) == [1]
    assert first(dead(0, -15, end="inside"), dead(1, -11)) == [1]


def test_a_rank_killed_before_the_others_failed_is_the_first() -> None:
    lost = "RuntimeError: Connection closed by peer"
    assert first(dead(0, 1, 2.0, lost), dead(1, -9, 1.0), dead(2, -15, 3.0, end="inside")) == [1]
    # Killed for memory while it waited in a collective.
    assert first(dead(0, 1, 2.0, lost), dead(1, -9, 1.0, end="inside")) == [1]


def test_of_ranks_that_all_sat_in_communication_the_terminated_are_the_launchers_doing() -> None:
    assert first(dead(0, -15, 1.0, end="inside"), dead(1, -9, 2.0, end="inside")) == [1]


def test_a_rank_killed_while_it_computed_before_another_failed_is_named_with_it() -> None:
    assert first(dead(0, 7, 2.0), dead(1, -9, 1.0)) == [1, 0]
    assert first(dead(0, 7, 1.0), dead(1, -9, 2.0)) == [0]


def test_a_death_without_a_time_comes_after_those_with_one() -> None:
    assert first(dead(0, 7), dead(1, 7, 5.0)) == [1, 0]


def test_of_several_terminated_ranks_the_first_is_named_while_others_live() -> None:
    alive = view(2, WORLD)
    assert first(dead(0, -15, end="inside")) == [0]
    assert first(dead(0, -15, 2.0), dead(1, -15, 1.0), alive) == [1]
    assert first(dead(0, -15, 2.0), dead(1, -15, 1.0, end="inside"), alive) == [0]


@pytest.mark.parametrize("code", [-15, -2, -1])
def test_nobody_is_at_fault_where_somebody_ended_all_ranks(code: int) -> None:
    ranks = [dead(rank, code, 2.0 - rank, end="inside" if rank else "host") for rank in range(3)]
    assert first(*ranks) == []
    assert ended_from_outside(ranks) == -code
    absent = view(3, WORLD, alive=False, absent_reason="its node sent nothing")
    assert ended_from_outside([*ranks, absent]) == -code


def test_ranks_that_lost_their_peers_before_they_were_asked_change_nothing() -> None:
    lost = dead(2, 1, 2.0, "RuntimeError: Connection closed by peer", end="failed")
    unknown = dead(3, None)
    assert ended_from_outside([dead(0, -15), dead(1, -15), lost, unknown]) == 15
    assert first(dead(0, -15), dead(1, -15), lost, unknown) == []
    # Seen: the second of two raised before it was asked itself, and ended by that all the same.
    lost_and_asked = replace(lost, exit_code=-15)
    assert ended_from_outside([dead(0, -15, end="inside"), lost_and_asked]) == 15
    # One that computed died on its own, and the launcher may have ended the other.
    assert ended_from_outside([dead(0, -15), lost_and_asked]) is None
    assert first(dead(0, -15), lost_and_asked) == [0]
    assert ended_from_outside([dead(0, -15, end="inside"), lost]) is None
    # One alone was asked: it took the others down.
    assert ended_from_outside([dead(0, -15), lost, unknown]) is None


def test_ranks_that_did_not_all_end_alike_were_not_ended_from_outside() -> None:
    assert ended_from_outside([dead(0, -15)]) is None
    assert ended_from_outside([dead(0, -15), view(1, WORLD)]) is None
    assert ended_from_outside([dead(0, -15), dead(1, -9)]) is None
    assert ended_from_outside([dead(0, -9), dead(1, -9)]) is None
    assert ended_from_outside([dead(0, 1), dead(1, 1)]) is None


def test_who_was_asked_to_end_beside_one_that_was_killed_is_not_at_fault() -> None:
    # Seen: rank 2 was killed while it imported torch, all four in the same look.
    killed = view(2, WORLD, alive=False, exit_code=-9, failed_unix_s=5.0)
    ended = [view(r, WORLD, alive=False, exit_code=-15, failed_unix_s=5.0) for r in (0, 1, 3)]
    assert first(*ended, killed) == [2]


def test_a_rank_killed_for_memory_is_at_fault_however_it_stood() -> None:
    line = "Memory cgroup out of memory: Killed process 77 (python3) total-vm:1kB"
    oom = dead(2, -9, 3.0, end="inside")
    by_log = replace(oom, death=DeathEvidence(kernel_lines=(line.replace("77", str(oom.pid)),)))
    by_count = replace(oom, death=DeathEvidence(oom_kills=1))
    for told in (by_log, by_count):
        assert oom_killed(told)
        assert first(dead(0, -15, 1.0), dead(1, -15, 1.0, end="inside"), told) == [2]
    assert not oom_killed(replace(oom, death=DeathEvidence(kernel_lines=(line,))))
    assert not oom_killed(replace(oom, death=DeathEvidence(oom_kills=0)))
    assert not oom_killed(replace(by_count, exit_code=1))


def test_two_independent_deaths_are_both_named_the_earlier_first() -> None:
    assert first(dead(0, -11, 3.0), dead(3, -7, 2.0)) == [3, 0]


def test_without_a_recorder_only_the_earliest_is_named() -> None:
    views = [view(r, WORLD, alive=False, exit_code=1, failed_unix_s=9.0 - r) for r in range(3)]
    assert first(*views) == [2]


def test_nobody_is_named_where_all_are_consequences_or_normal_ends() -> None:
    lost = "RuntimeError: Connection closed by peer"
    assert first(dead(0, 1, error=lost), dead(1, 0), dead(2, 1, error=lost)) == []


def test_a_known_cause_outranks_an_unknown_one() -> None:
    assert first(dead(0, None), dead(1, -11)) == [1]
    assert first(dead(0, None), dead(1, 1, end="failed")) == [0]


def raiser(
    rank: int,
    error: str,
    at: str = "/job/train.py:3",
    code: int = 1,
    **more: Any,  # noqa: ANN401
) -> RankView:
    """A rank that has left word of the exception that ended it, before its first step."""
    place = DeathEvidence(raised=error, raised_at=at)
    none = state(rank, WORLD, groups=[Communicator(0, rank, WORLD, "0", seq=-1)])
    return view(rank, WORLD, alive=False, exit_code=code, error=error, death=place,
                **{"hook": none, **more})  # fmt: skip


def world(made: Callable[[int], RankView]) -> list[RankView]:
    return [made(rank) for rank in range(WORLD)]


LOST = "RuntimeError: Connection closed by peer"
ALIKE: dict[str, tuple[list[RankView], str]] = {
    "the same": (world(lambda rank: raiser(rank, "ModuleNotFoundError: No module named 'x'")),
        "raised ModuleNotFoundError: No module named 'x' at /job/train.py:3"),
    "at the same place": (world(lambda rank: raiser(rank, f"ValueError: bad batch {rank}")),
        "raised ValueError at /job/train.py:3 (rank 0: bad batch 0)"),
    "without words": (world(lambda rank: raiser(rank, "AssertionError")),
        "raised AssertionError at /job/train.py:3"),
    "ended by torch on the way": (world(lambda r: raiser(r, "KeyError: 1", code=-15 if r else 1)),
        "raised KeyError: 1 at /job/train.py:3"),
    "aborted on the way": (world(lambda r: raiser(r, "KeyError: 1", code=-6 if r else 1)),
        "raised KeyError: 1 at /job/train.py:3"),
    "no way to the store": (world(lambda r: raiser(r, "torch.DistStoreError: timed out after 9 s")),
        "raised torch.DistStoreError: timed out after 9 s at /job/train.py:3"),
    "wrong options": (world(lambda r: dead(r, 2)), "exited with code 2"),
    "without recorders": (world(lambda r: replace(dead(r, 2), hook=None)), "exited with code 2"),
    "another place": (world(lambda r: raiser(r, "ValueError: x", f"/job/train.py:{r}")), ""),
    "another kind": (world(lambda r: raiser(r, "KeyError: 1" if r else "ValueError: 1")), ""),
    "one lost its peer": (world(lambda r: raiser(r, LOST if r else "RuntimeError: bad")), ""),
    "one lives": ([*world(lambda r: raiser(r, "ValueError: x"))[1:], view(0, WORLD)], ""),
    "one is not known": ([*world(lambda r: raiser(r, "ValueError: x"))[1:],
        view(0, WORLD, alive=False, absent_reason="silent")], ""),
    "one left no word": ([dead(0, 1), *world(lambda r: raiser(r, "ValueError: x"))[1:]], ""),
    "other codes": (world(lambda r: dead(r, 2 + r)), ""),
    "all killed": (world(lambda r: dead(r, -9)), ""),
    "all done": (world(lambda r: dead(r, 0)), ""),
    "codes of victims": (world(lambda r: dead(r, 1, end="failed" if r else "host")), ""),
    "alone": ([raiser(0, "ValueError: x")], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", ALIKE)
def test_ranks_that_fail_alike_are_told_from_one_that_takes_others_down(case: str) -> None:
    views, words = ALIKE[case]
    assert failed_alike(views) == words


def test_all_ranks_are_named_for_what_all_of_them_raised() -> None:
    views = world(lambda rank: raiser(rank, "ModuleNotFoundError: No module named 'x'"))
    seen = JobView("j", WORLD, tuple(views), 10.0)
    verdict = attribute(seen)
    report = hang_report(seen, verdict)
    (finding,) = report.findings
    assert finding.id == "RK-DEATH-006"
    assert finding.title == (
        "all 4 ranks raised ModuleNotFoundError: No module named 'x' at /job/train.py:3"
    )
    assert (verdict.all_alike, headline(verdict)) == (True, finding.title)
    assert "-1" not in json.dumps([report.to_json()["findings"], report.facts["ranks"]])
    # Of a sample nothing is known of the rest.
    assert not attribute(replace(seen, is_sample=True)).all_alike


def finding_of(views: list[RankView]) -> Finding:
    seen = JobView("j", WORLD, tuple(views), 10.0)
    return hang_report(seen, attribute(seen)).findings[0]


def test_some_that_raised_the_same_are_named_together_and_their_victims_are_not() -> None:
    views = world(
        lambda r: raiser(r, "ValueError: x" if r < 2 else LOST, f"/job/train.py:{r // 2}")
    )
    finding = finding_of(views)
    assert (finding.id, finding.ranks) == ("RK-HANG-002", "0-1")
    assert "raised ValueError: x at /job/train.py:0" in finding.title
    assert "consequences" in finding.advice


def test_nobody_is_a_consequence_who_raised_something_else() -> None:
    errors = ["ValueError: timeout must be above 0", "KeyError: 'x'", LOST, LOST]
    views = [raiser(rank, error, f"/job/train.py:{rank}") for rank, error in enumerate(errors)]
    named = attribute(JobView("j", WORLD, tuple(views), 10.0)).culprits
    assert [culprit.rank for culprit in named] == [0, 1]
    finding = finding_of(views)
    assert "ValueError: timeout must be above 0 at /job/train.py:0" in finding.title
    assert "consequences" not in finding.advice


def test_the_first_to_raise_is_named_where_the_others_lose_their_connections() -> None:
    def made(rank: int) -> RankView:
        first = rank == 2
        error = "RuntimeError: CUDA error: an illegal memory access" if first else LOST
        return raiser(rank, error, f"/job/a.py:{rank if first else 9}",
                      failed_unix_s=50.0 if first else 50.1)  # fmt: skip

    finding = finding_of(world(made))
    assert finding.ranks == "2"
    assert (
        "raised RuntimeError: CUDA error: an illegal memory access at /job/a.py:2" in finding.title
    )
    assert "-1" not in f"{finding.reasons}{finding.evidence}"
