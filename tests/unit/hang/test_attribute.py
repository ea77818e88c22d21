"""The seven faults of the demo, and what a cluster adds to them: who is named, and as what."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from relkit.hang.attribute import attribute
from relkit.hang.model import Category, CpuUse, JobView, RankView
from relkit.hook.model import Communicator, OpKind
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from tests.unit.hang.hang_builders import (
    BUCKETS,
    PER_STEP,
    job,
    named,
    op,
    others_wait,
    state,
    steps,
    trained,
    two_groups,
    view,
    waiting_for_buckets,
)

WORLD = 4
BAD = 2


def metrics_wait(culprit: RankView) -> JobView:
    """All ranks but one wait in the loss's all_reduce of step 6, after its buckets."""
    buckets = [op(seq=6 * PER_STEP + i, size=size, age_s=11.5) for i, size in enumerate(BUCKETS)]
    flying = [op(seq=6, group=1, size=4, age_s=11.0, in_flight=True)]
    return job(
        [
            culprit
            if rank == culprit.rank
            else view(
                rank, WORLD, stack="all_reduce", hook=trained(rank, WORLD, 6, flying, buckets)
            )
            for rank in range(WORLD)
        ]
    )


@pytest.mark.parametrize("stack", ["lock", "queue", "dataloader", "sleep"])
def test_a_rank_blocked_on_the_host_is_named_with_its_line_and_the_time(stack: str) -> None:
    verdict = attribute(others_wait(view(BAD, WORLD, stack=stack, hook=trained(BAD, WORLD))))
    assert named(verdict) == [(BAD, Category.BLOCKED)]
    assert "examples/train.py:" in verdict.culprits[0].sentence
    assert "for 12." in verdict.culprits[0].sentence
    assert [(v.ranks, v.sentence) for v in verdict.victims] == [
        ("0-1,3", "wait for it in all_reduce #12 of the default group")
    ]


def test_the_sentence_of_the_issue() -> None:
    verdict = attribute(others_wait(view(BAD, WORLD, stack="lock", hook=trained(BAD, WORLD))))
    assert verdict.culprits[0].sentence == (
        "in examples/train.py:88 Loader.next_batch, waiting on a lock for 12.0 s"
    )


def test_a_busy_loop_is_told_from_a_wait() -> None:
    verdict = attribute(others_wait(view(BAD, WORLD, stack="spin", hook=trained(BAD, WORLD))))
    assert named(verdict) == [(BAD, Category.SPINNING)]
    assert verdict.culprits[0].sentence.startswith(
        "in examples/train.py:120 train, running at 99% of a core for 12."
    )


@pytest.mark.parametrize(
    ("share", "state", "category"),
    [
        (0.6, "S", Category.SPINNING),
        (0.2, "R", Category.SPINNING),
        (0.2, "S", Category.BLOCKED),
        (0.01, "R", Category.BLOCKED),
    ],
    ids=["most-of-a-core", "crowded-host", "works-and-sleeps", "hardly-runs"],
)
def test_on_a_crowded_host_a_busy_loop_gets_less_than_half_a_core(
    share: float, state: str, category: Category
) -> None:
    culprit = view(BAD, WORLD, stack="spin", hook=trained(BAD, WORLD))
    assert culprit.dump is not None
    (main,) = culprit.dump.python
    sampled = replace(culprit.dump, python=(replace(main, state=state),))
    culprit = replace(culprit, cpu=CpuUse(share, 1.0), process_state=state, dump=sampled)
    assert named(attribute(others_wait(culprit))) == [(BAD, category)]


def test_a_stopped_rank() -> None:
    culprit = view(BAD, WORLD, stack="spin", hook=trained(BAD, WORLD), process_state="T")
    verdict = attribute(others_wait(culprit))
    assert named(verdict) == [(BAD, Category.STOPPED)]
    assert "stopped by a signal for 12." in verdict.culprits[0].sentence


def test_a_rank_stopped_inside_a_collective_that_all_entered() -> None:
    hook = trained(BAD, WORLD, 6, waiting_for_buckets())
    culprit = view(BAD, WORLD, stack="ddp", hook=hook, process_state="T")
    assert named(attribute(others_wait(culprit))) == [(BAD, Category.STOPPED)]


def test_a_rank_in_an_uninterruptible_wait() -> None:
    verdict = attribute(others_wait(view(BAD, WORLD, stack="file", hook=trained(BAD, WORLD))))
    assert named(verdict) == [(BAD, Category.UNINTERRUPTIBLE)]
    assert "nfs_wait_bit_killable" in verdict.culprits[0].sentence


def test_a_skipped_collective_leads_into_the_next_step() -> None:
    # Left out: the loss of step 6. The rank goes on to the buckets of step 7.
    buckets = [op(seq=6 * PER_STEP + i, size=size, age_s=11.5) for i, size in enumerate(BUCKETS)]
    flying = [op(seq=7 * PER_STEP, size=BUCKETS[0], age_s=11.0, in_flight=True)]
    culprit = view(BAD, WORLD, stack="ddp", hook=trained(BAD, WORLD, 6, flying, buckets))
    verdict = attribute(metrics_wait(culprit))
    assert named(verdict) == [(BAD, Category.SKIPPED)]
    assert "skipped all_reduce #6 of group" in verdict.culprits[0].sentence
    assert verdict.victims[0].ranks == "0-1,3"


def test_with_two_ranks_history_tells_which_one_skipped() -> None:
    buckets = [
        op(seq=6 * PER_STEP + i, size=size, age_s=11.5 - i / 100) for i, size in enumerate(BUCKETS)
    ]
    right = [op(seq=6, group=1, size=4, age_s=11.0, in_flight=True)]
    wrong = [op(seq=7 * PER_STEP, size=BUCKETS[0], age_s=11.0, in_flight=True)]
    verdict = attribute(
        job(
            [
                view(0, 2, stack="all_reduce", hook=trained(0, 2, 6, right, buckets)),
                view(1, 2, stack="ddp", hook=trained(1, 2, 6, wrong, buckets)),
            ]
        )
    )
    assert named(verdict) == [(1, Category.SKIPPED)]


@pytest.mark.parametrize("wrong", [("allgather", 4), ("allreduce", 16384)])
def test_a_mismatched_collective(wrong: tuple[str, int]) -> None:
    buckets = [op(seq=6 * PER_STEP + i, size=size, age_s=11.5) for i, size in enumerate(BUCKETS)]
    flying = [op(wrong[0], seq=6, group=1, size=wrong[1], age_s=11.0, in_flight=True)]
    culprit = view(BAD, WORLD, stack="all_reduce", hook=trained(BAD, WORLD, 6, flying, buckets))
    verdict = attribute(metrics_wait(culprit))
    assert named(verdict) == [(BAD, Category.MISMATCH)]
    assert "#6 of group" in verdict.culprits[0].sentence


@pytest.mark.parametrize("odd_one_dies", [True, False])
def test_a_mismatch_that_kills_ranks_is_still_the_odd_ones_fault(odd_one_dies: bool) -> None:
    views = []
    for rank in range(WORLD):
        name = "allgather" if rank == BAD else "allreduce"
        last = op(name, seq=6, group=1, size=4, age_s=1.0, failed=True)
        dies = odd_one_dies or rank != BAD
        if not dies:
            last = op(name, seq=6, group=1, size=4, age_s=1.0, in_flight=True)
        hook = trained(rank, WORLD, 6, [] if dies else [last], [last] if dies else [])
        views.append(
            view(rank, WORLD, hook=hook, alive=not dies,
                 exit_code=-signal.SIGABRT if dies and rank == 0 else 1 if dies else None,
                 failed_unix_s=100.0 + rank,
                 error="RuntimeError: Connection closed by peer" if dies and rank else "")
        )  # fmt: skip
    assert named(attribute(job(views))) == [(BAD, Category.MISMATCH)]


def test_a_skip_in_the_only_group_shows_as_a_shift_and_ends_in_errors() -> None:
    # One group: per step two buckets, then a loss of 4 B. Rank 2 leaves out the loss of the last.
    shapes = [*BUCKETS, 4]
    views = []
    for rank in range(WORLD):
        done = [op(seq=i, size=shapes[i % 3], age_s=20 - i * 0.1) for i in range(17)]
        size = shapes[0] if rank == BAD else shapes[2]
        last = op(seq=17, size=size, age_s=1, failed=True)
        views.append(
            view(
                rank, WORLD, hook=state(rank, WORLD, [*done, last]), alive=False, exit_code=1,
                error="RuntimeError: [../pair.cc:598] Connection closed by peer [10.0.0.1]:2022",
            )
        )  # fmt: skip
    verdict = attribute(job(views))
    assert named(verdict) == [(BAD, Category.SKIPPED)]
    assert verdict.culprits[0].sentence.startswith(
        "skipped all_reduce #17 of the default group and called the all_reduce that follows it"
    )


CRASHES = {
    "segv": (-signal.SIGSEGV, ""),
    "abort": (-signal.SIGABRT, ""),
    "kill": (-signal.SIGKILL, ""),
    "exit": (7, ""),
    "exception": (1, "RuntimeError: relkit: injected exception"),
    "gone": (None, ""),
}


@pytest.mark.parametrize("crash", CRASHES)
@pytest.mark.parametrize("timed", [True, False])
def test_a_crash_with_collateral_failures(crash: str, timed: bool) -> None:
    code, error = CRASHES[crash]
    views = []
    for rank in range(WORLD):
        if rank == BAD:
            views.append(
                view(rank, WORLD, hook=trained(rank, WORLD), alive=False, exit_code=code,
                     error=error, failed_unix_s=100.0 if timed else 0.0)
            )  # fmt: skip
        elif rank == 3:
            # Did not see the connection break, and is ended by the launcher while it waits.
            views.append(
                view(rank, WORLD, hook=trained(rank, WORLD, 6, waiting_for_buckets()),
                     alive=False, exit_code=-signal.SIGTERM,
                     failed_unix_s=100.4 if timed else 0.0)
            )  # fmt: skip
        else:
            failed = [op(seq=12, size=BUCKETS[0], age_s=1, failed=True)]
            views.append(
                view(rank, WORLD, hook=trained(rank, WORLD, 6, (), failed), alive=False,
                     exit_code=1, failed_unix_s=100.1 if timed else 0.0,
                     error="RuntimeError: Connection closed by peer" if rank else "")
            )  # fmt: skip
    verdict = attribute(job(views))
    assert named(verdict) == [(BAD, Category.DEAD)]
    if error:
        assert error in verdict.culprits[0].sentence


def test_a_crash_while_the_others_still_wait() -> None:
    culprit = view(BAD, WORLD, hook=trained(BAD, WORLD), alive=False, exit_code=-11)
    verdict = attribute(others_wait(culprit))
    assert named(verdict) == [(BAD, Category.DEAD)]
    assert verdict.culprits[0].sentence == "ended by signal 11 (SIGSEGV)"


def test_a_rank_that_finished_early() -> None:
    culprit = view(BAD, WORLD, hook=trained(BAD, WORLD, 5), alive=False, exit_code=0)
    verdict = attribute(others_wait(culprit))
    assert named(verdict) == [(BAD, Category.LEFT)]
    assert "after all_reduce" in verdict.culprits[0].sentence


def test_ranks_of_a_host_that_does_not_answer() -> None:
    views = [
        view(rank, 8, stack="ddp", hook=trained(rank, 8, 6, waiting_for_buckets()))
        for rank in range(4)
    ]
    views += [
        RankView(rank, "n1", 0, False, absent_reason="host n1 did not answer")
        for rank in range(4, 7)
    ]
    verdict = attribute(job(views, 8))
    assert named(verdict) == [(rank, Category.ABSENT) for rank in range(4, 8)]
    assert verdict.victims[0].ranks == "0-3"


def test_two_ranks_at_fault() -> None:
    views = [
        view(rank, WORLD, stack="ddp", hook=trained(rank, WORLD, 6, waiting_for_buckets()))
        for rank in range(WORLD)
    ]
    views[1] = view(1, WORLD, stack="lock", hook=trained(1, WORLD))
    views[3] = view(3, WORLD, stack="spin", hook=trained(3, WORLD), process_state="T")
    verdict = attribute(job(views))
    assert named(verdict) == [(3, Category.STOPPED), (1, Category.BLOCKED)]
    assert verdict.victims[0].sentence.startswith("wait for them in")


def test_chains_across_tensor_and_data_parallel_groups_end_at_the_blocked_rank() -> None:
    # tp (0,1) (2,3), dp (0,2) (1,3); rank 3 is late in tp, so 2 waits there, and 0 waits for 2.
    def groups(rank: int) -> tuple[Communicator, ...]:
        return (
            Communicator(0, rank, 4, "0"),
            Communicator(1, rank % 2, 2, f"tp{rank // 2}"),
            Communicator(2, rank // 2, 2, f"dp{rank % 2}"),
        )

    done = [op(seq=i, group=1, age_s=20 - i) for i in range(5)]
    done += [op(seq=i, group=2, age_s=20 - i) for i in range(5)]
    in_tp = [op(seq=5, group=1, age_s=11, in_flight=True)]
    past_tp = [op(seq=5, group=1, age_s=12)]
    in_dp = [op(seq=5, group=2, age_s=11, in_flight=True)]
    verdict = attribute(
        job(
            [
                view(0, 4, stack="all_reduce", hook=state(0, 4, done + past_tp, in_dp, groups(0))),
                view(1, 4, stack="all_reduce", hook=state(1, 4, done + past_tp, in_dp, groups(1))),
                view(2, 4, stack="all_reduce", hook=state(2, 4, done, in_tp, groups(2))),
                view(3, 4, stack="lock", hook=state(3, 4, done, (), groups(3))),
            ]
        )
    )
    assert named(verdict) == [(3, Category.BLOCKED)]
    assert {v.ranks: v.sentence.split(" in ")[0] for v in verdict.victims} == {
        "0": "waits",
        "1": "waits for it",
        "2": "waits for it",
    }


def test_groups_that_share_a_name_are_told_apart() -> None:
    def groups(rank: int) -> tuple[Communicator, ...]:
        return Communicator(0, rank, 4, "0"), Communicator(1, rank % 2, 2, "mesh_tp")

    done = [op(seq=i, group=1, age_s=20 - i) for i in range(5)]
    flying = [op(seq=5, group=1, age_s=11, in_flight=True)]
    verdict = attribute(
        job(
            [
                view(0, 4, stack="sleep", hook=state(0, 4, done, (), groups(0))),
                view(1, 4, stack="sleep", hook=state(1, 4, done, (), groups(1))),
                view(2, 4, stack="all_reduce", hook=state(2, 4, done, flying, groups(2))),
                view(3, 4, stack="lock", hook=state(3, 4, done, (), groups(3))),
            ]
        )
    )
    assert named(verdict) == [(3, Category.BLOCKED)]


def test_a_pipeline_whose_first_stage_is_blocked() -> None:
    recv = op("recv", -1, group=-1, kind=OpKind.P2P, age_s=11, in_flight=True)
    views = [view(0, 4, stack="dataloader", hook=state(0, 4, steps(2)))]
    views += [view(r, 4, stack="recv", hook=state(r, 4, steps(2), [recv])) for r in (1, 2, 3)]
    verdict = attribute(job(views))
    assert named(verdict) == [(0, Category.BLOCKED)]
    assert verdict.victims[0].ranks == "1-3"


def test_a_blocked_rank_with_asynchronous_operations_behind_it_has_arrived_in_those() -> None:
    # Rank 2 issued bucket 12 asynchronously and blocks before 13; rank 1 is not even in 12.
    mine = [op(seq=12, size=BUCKETS[0], age_s=11, in_flight=True)]
    views = [
        view(r, WORLD, stack="ddp", hook=trained(r, WORLD, 6, waiting_for_buckets()))
        for r in range(WORLD)
    ]
    views[2] = view(2, WORLD, stack="ddp", hook=trained(2, WORLD, 6, mine))
    views[1] = view(1, WORLD, stack="lock", hook=trained(1, WORLD, 6))
    assert named(attribute(job(views))) == [(1, Category.BLOCKED)]


def test_all_in_the_same_collective_names_nobody() -> None:
    views = [
        view(r, WORLD, stack="ddp", hook=trained(r, WORLD, 6, waiting_for_buckets()))
        for r in range(WORLD)
    ]
    verdict = attribute(job(views))
    assert verdict.culprits == ()
    assert "all ranks have called all_reduce #12 of the default group" in verdict.inconclusive


def test_all_in_recv_names_nobody() -> None:
    recv = op("recv", -1, group=-1, kind=OpKind.P2P, age_s=11, in_flight=True)
    verdict = attribute(
        job([view(r, 2, stack="recv", hook=state(r, 2, steps(1), [recv])) for r in range(2)])
    )
    assert verdict.culprits == ()
    assert "recv" in verdict.inconclusive


def test_nothing_known_names_nobody() -> None:
    verdict = attribute(job([], 4))
    assert verdict.culprits == ()
    assert verdict.inconclusive


def test_without_recorders_stacks_alone_decide() -> None:
    views = [view(r, WORLD, stack="ddp") for r in range(WORLD)]
    views[BAD] = view(BAD, WORLD, stack="lock")
    assert named(attribute(job(views))) == [(BAD, Category.BLOCKED)]


def test_without_stacks_sequence_numbers_alone_decide() -> None:
    views = [view(r, WORLD, hook=trained(r, WORLD, 6, waiting_for_buckets())) for r in range(WORLD)]
    views[BAD] = view(BAD, WORLD, hook=trained(BAD, WORLD, 6))
    verdict = attribute(job(views))
    assert named(verdict) == [(BAD, Category.BLOCKED)]
    assert verdict.culprits[0].sentence.startswith("on the host, outside of any collective for 12")


def test_a_rank_that_never_reached_its_first_collective() -> None:
    flying = [op(seq=0, age_s=11, in_flight=True)]
    views = [view(r, WORLD, stack="all_reduce", hook=state(r, WORLD, (), flying)) for r in range(4)]
    views[BAD] = view(BAD, WORLD, stack="sleep")
    assert named(attribute(job(views))) == [(BAD, Category.BLOCKED)]


def test_when_nobody_is_in_an_operation_all_are_named_with_half_the_weight() -> None:
    views = [view(r, WORLD, stack="file", hook=trained(r, WORLD)) for r in range(WORLD)]
    verdict = attribute(job(views))
    assert [c.rank for c in verdict.culprits] == [0, 1, 2, 3]
    assert all(c.score < 0.5 for c in verdict.culprits)
    assert "first look for something that they share" in verdict.culprits[0].reasons[0]


def test_the_setup_of_a_group_that_one_rank_does_not_join() -> None:
    connect = op("connect", -1, group=-1, size=0, age_s=11, in_flight=True)
    views = [
        view(r, WORLD, stack="all_reduce", hook=state(r, WORLD, steps(1), [connect]))
        for r in range(WORLD)
    ]
    views[BAD] = view(BAD, WORLD, stack="queue", hook=state(BAD, WORLD, steps(1)))
    assert named(attribute(job(views))) == [(BAD, Category.BLOCKED)]


def test_a_timeout_of_the_library_does_not_make_the_victims_culprits() -> None:
    failed = [op(seq=12, size=BUCKETS[0], age_s=1, failed=True)]
    views = [
        view(r, WORLD, hook=trained(r, WORLD, 6, (), failed), alive=False, exit_code=1,
             error="RuntimeError: Timed out waiting 1800000ms for recv operation to complete")
        for r in range(WORLD)
    ]  # fmt: skip
    views[BAD] = view(BAD, WORLD, stack="lock", hook=trained(BAD, WORLD))
    assert named(attribute(job(views))) == [(BAD, Category.BLOCKED)]


def test_two_groups_of_equal_numbers_never_mix() -> None:
    flying = [op(seq=6, group=1, size=4, age_s=11, in_flight=True)]
    views = [
        view(r, WORLD, stack="all_reduce", hook=trained(r, WORLD, 6, flying)) for r in range(3)
    ]
    views.append(view(3, WORLD, stack="sleep", hook=trained(3, WORLD)))
    verdict = attribute(job(views))
    assert named(verdict) == [(3, Category.BLOCKED)]
    assert 'in all_reduce #6 of group "1" (ranks 0-3)' in verdict.victims[0].sentence


def test_two_groups_builder_matches_the_example() -> None:
    assert [c.name for c in two_groups(0, 4)] == ["0", "1"]


def test_a_rank_on_its_way_out_whose_peers_fail_before_it_has_ended() -> None:
    out = ThreadStack(1002, "python", (Frame("Py_FinalizeEx", "/usr/bin/python3"),), Role.MAIN, "R")
    ending = view(BAD, WORLD, hook=trained(BAD, WORLD, 6))
    ending = replace(ending, dump=RankDump(BAD, WORLD, ending.pid, "R", native=(out,)))
    failed = [op(seq=12, size=BUCKETS[0], age_s=1, failed=True)]
    views = [
        view(r, WORLD, hook=trained(r, WORLD, 6, (), failed), alive=False, exit_code=1,
             error=f"RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:9{r}")
        for r in range(WORLD)
    ]  # fmt: skip
    views[BAD] = ending
    # One that is on its way to the next collective, for less than the timeout, is no suspect.
    computing = view(3, WORLD, stack="spin", hook=state(3, WORLD, steps(6, until_s=0.1), (),
                     two_groups(3, WORLD)))  # fmt: skip
    assert named(attribute(job([*views[:3], computing]))) == [(BAD, Category.DEAD)]
    verdict = attribute(job(views))
    assert named(verdict) == [(BAD, Category.DEAD)]
    assert verdict.culprits[0].sentence.startswith("is exiting on its own, shutting down for 12")
    assert [(v.ranks, v.sentence) for v in verdict.victims] == [
        ("0-1,3", "failed as a consequence: RuntimeError: Connection closed")
    ]
