"""Which of several dead ranks died first and of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.hang.deaths import collateral, ended_from_outside, oom_killed, primary_deaths
from relkit.hang.model import RankView
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
