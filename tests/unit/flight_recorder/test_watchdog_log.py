"""Lines of NCCL's watchdog, as torch 2.0 to 2.13 write them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.flight_recorder.watchdog_log import MAX_STATES, WatchdogState, parse_watchdog
from relkit.stacks.model import Frame
from tests.patience import PATIENCE

_OP = "SeqNum=41, OpType=ALLREDUCE"
_NUMEL = "NumelIn=1259621, NumelOut=1259621, Timeout(ms)=600000"
_RAN = "ran for 600032 milliseconds before timing out."
_CAUGHT = "Watchdog caught collective operation timeout"
_STUCK = WatchdogState(0, stuck_seq=41, stuck_op="ALLREDUCE", timeout_s=600.0, ran_s=600.032)
_BOTH = replace(_STUCK, enqueued=42, completed=40)
_STATUS = "last enqueued NCCL work: 42, last completed NCCL work: 40."
_DETECTED = f"Exception (either an error or timeout) detected by watchdog at work: 41, {_STATUS}"


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        pytest.param(
            [f"[E ProcessGroupNCCL.cpp:828] [Rank 2] {_CAUGHT}: WorkNCCL({_OP}, "
             f"Timeout(ms)=600000) {_RAN}"],
            replace(_STUCK, rank=2, in_group=True),
            id="2.0, only the rank in the group",
        ),
        pytest.param(
            [f"[rank2]:[E ProcessGroupNCCL.cpp:523] [Rank 2] {_CAUGHT}: WorkNCCL({_OP}, {_NUMEL}) "
             f"{_RAN}",
             f"[rank2]:[E ProcessGroupNCCL.cpp:1182] [Rank 2] {_DETECTED}"],
            replace(_BOTH, rank=2),
            id="2.2, without the group",
        ),
        pytest.param(
            [f"[rank6]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank 2] {_CAUGHT}: "
             f"WorkNCCL({_OP}, {_NUMEL}) {_RAN}",
             f"[rank6]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 2] {_DETECTED}"],
            replace(_BOTH, rank=6, group="1"),
            id="2.3",
        ),
        pytest.param(
            [f"[rank6]:[E1003 18:37:01.8 ProcessGroupNCCL.cpp:607] [Rank 6] {_CAUGHT}: "
             f"WorkNCCL({_OP}, {_NUMEL}) {_RAN}",
             f"[rank6]:[E1003 18:37:01.8 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank 6] "
             f"{_DETECTED}"],
            replace(_BOTH, rank=6, group="0"),
            id="2.4",
        ),
        pytest.param(
            [f"(WorkerDict pid=3490362) [rank6]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] "
             f"[Rank 6] {_CAUGHT}: WorkNCCL({_OP}, {_NUMEL}) {_RAN}",
             f"(WorkerDict pid=3490362) [rank6]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:1785] "
             f"[PG ID 0 PG GUID 0(default_pg) Rank 6] {_DETECTED}"],
            replace(_BOTH, rank=6, group="0"),
            id="2.5, through ray",
        ),
        pytest.param(
            [f"[default3]:[rank6]:[E709 17:05:38.1 ProcessGroupNCCL.cpp:632] [Rank 2] {_CAUGHT}: "
             f"WorkNCCL({_OP}, {_NUMEL}) {_RAN}",
             "[default3]:[rank6]:[E709 17:05:38.1 ProcessGroupNCCL.cpp:2271] [PG ID 2 PG GUID "
             "3(mesh_tp) Rank 2]  failure detected by watchdog at work sequence id: 41 PG status: "
             "last enqueued work: 42, last completed work: 40"],
            replace(_BOTH, rank=6, group="3"),
            id="2.7, through torchrun",
        ),
        pytest.param(
            [f"[rank6]:[E710 18:00:32.4 ProcessGroupNCCL.cpp:757] [Rank 6] {_CAUGHT}: "
             f"WorkXCCL({_OP}, {_NUMEL}) {_RAN}",
             "[rank6]:[E710 18:00:32.4 ProcessGroupXCCL.cpp:2395] [PG ID 0 PG GUID 0(default_pg) "
             "Rank 6]  failure detected by watchdog at work sequence id: 41 PG status: last "
             "enqueued work: 42, last started work: 41, last completed work: 40"],
            replace(_BOTH, rank=6, group="0"),
            id="2.13, another device",
        ),
        pytest.param(
            ["[rank4]:[E703 15:37:17.1 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) "
             "Rank 4] Received a dump signal due to a collective timeout from  rank 7 and we will "
             "try our best to dump the debug info. Last enqueued NCCL work: 40, last completed "
             "NCCL work: 40.This is most likely caused by incorrect usages of collectives"],
            WatchdogState(4, "0", enqueued=40, completed=40),
            id="a rank to which nothing happened",
        ),
        pytest.param(
            ["[rank0]:[E1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received "
             "a dump signal due to a collective timeout from this local rank. Last enqueued NCCL "
             "work: 1, last completed NCCL work: -1."],
            WatchdogState(0, "0", enqueued=1, completed=0),
            id="none completed",
        ),
    ],
)  # fmt: skip
def test_forms(lines: list[str], state: WatchdogState) -> None:
    states = parse_watchdog(["a line of the job", *lines, "another one"])
    assert state in states
    assert all(each.rank == state.rank for each in states)


def test_where_the_operation_was_called() -> None:
    caught = f"[rank3]:[E710 a.cpp:757] [Rank 3] {_CAUGHT}: WorkNCCL({_OP}, {_NUMEL}) {_RAN}"
    (state,) = parse_watchdog(
        [
            caught,
            f"[rank3]:[E710 a.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 3] {_DETECTED}",
            "[rank3]:[E710 a.cpp:801] Stack trace of the failed collective: ",
            "#0 all_reduce from /usr/lib/python3/dist-packages/torch/distributed/c10d.py:3174",
            "#1 step from /workspace/gpt/train.py:84",
        ]
    )
    assert [(frame.func, frame.source) for frame in state.frames] == [
        ("all_reduce", "/usr/lib/python3/dist-packages/torch/distributed/c10d.py:3174"),
        ("step", "/workspace/gpt/train.py:84"),
    ]


def test_a_log_that_belongs_to_one_rank() -> None:
    """The rank in a group says little; the log's name says which rank of the job it is."""
    line = f"[E a.cpp:8] [PG ID 2 PG GUID 3 Rank 1] {_DETECTED}"
    assert [(s.rank, s.in_group) for s in parse_watchdog([line], 5)] == [(5, False)]
    assert [(s.rank, s.in_group) for s in parse_watchdog([line])] == [(1, True)]


def test_the_first_operation_that_timed_out_counts() -> None:
    def work(seq: int) -> list[str]:
        return [
            f"[rank1]:[E a.cpp:1] [Rank 1] {_CAUGHT}: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, "
            f"Timeout(ms)=1000) {_RAN}",
            f"[rank1]:[E a.cpp:1] [PG 0 (default_pg) Rank 1] Timeout at NCCL work: {seq}, "
            f"last enqueued NCCL work: 44, last completed NCCL work: 40.",
        ]

    (state,) = parse_watchdog(work(41) + work(42))
    assert (state.stuck_seq, state.enqueued) == (41, 44)


def test_what_timed_out_belongs_to_the_group_that_has_its_number() -> None:
    caught = f"[rank1]:[E a.cpp:1] [Rank 1] {_CAUGHT}: WorkNCCL({_OP}, Timeout(ms)=600000) {_RAN}"
    other = _DETECTED.replace("at work: 41", "at work: 7")
    own, theirs = parse_watchdog(
        [
            caught,
            f"[rank1]:[E a.cpp:1] [PG 3 Rank 0] {other}",
            f"[rank1]:[E a.cpp:1] [PG 0 (default_pg) Rank 1] {_DETECTED}",
        ]
    )[::-1]
    assert (own.group, own.stuck_seq, own.stuck_op) == ("0", 41, "ALLREDUCE")
    assert (theirs.group, theirs.stuck_seq, theirs.stuck_op) == ("3", 7, "")


def test_numbers_that_go_back_are_those_of_the_next_attempt() -> None:
    def status(seq: int) -> str:
        return (
            f"[rank1]:[E a.cpp:1] [PG 0 (default_pg) Rank 1] Timeout at NCCL work: {seq}, last "
            f"enqueued NCCL work: {seq}, last completed NCCL work: {seq - 1}."
        )

    (state,) = parse_watchdog([status(900), status(7)])
    assert (state.stuck_seq, state.enqueued, state.completed) == (7, 7, 6)


def test_an_operation_that_has_ended_since_timed_out_in_another_attempt() -> None:
    def hang(rank: int, seq: int) -> list[str]:
        return [
            f"[rank{rank}]:[E a.cpp:1] [Rank {rank}] {_CAUGHT}: WorkNCCL(SeqNum={seq}, "
            f"OpType=ALLREDUCE, Timeout(ms)=1000) {_RAN}",
            f"[rank{rank}]:[E a.cpp:1] [PG 0 (default_pg) Rank {rank}] Timeout at NCCL work: "
            f"{seq}, last enqueued NCCL work: {seq + 5}, last completed NCCL work: {seq - 1}.",
        ]

    lines = hang(1, 41) + hang(2, 41) + hang(3, 41)
    states = parse_watchdog(lines + hang(3, 44) + hang(1, 44))
    # What rank 2 said before the restart says nothing about it now.
    assert [(s.rank, s.stuck_seq, s.stuck_op, s.enqueued) for s in states] == [
        (3, 44, "ALLREDUCE", 49),
        (1, 44, "ALLREDUCE", 49),
    ]


def test_two_groups_that_time_out_keep_their_operations_and_stacks() -> None:
    def caught(seq: int, op: str, line: int) -> list[str]:
        return [
            f"[rank1]:[E a.cpp:1] [Rank 1] {_CAUGHT}: WorkNCCL(SeqNum={seq}, OpType={op}, "
            f"Timeout(ms)=1000) {_RAN}",
            "[rank1]:[E a.cpp:801] Stack trace of the failed collective: ",
            f"#0 step from train.py:{line}",
        ]

    def status(group: int, seq: int) -> str:
        return (
            f"[rank1]:[E a.cpp:1] [PG {group} Rank 1] Timeout at NCCL work: {seq}, last enqueued "
            f"NCCL work: {seq}, last completed NCCL work: {seq - 1}."
        )

    first, second = parse_watchdog(
        [*caught(41, "ALLREDUCE", 8), *caught(7, "ALLGATHER", 9), status(3, 41), status(4, 7)]
    )
    assert (first.stuck_op, first.frames) == ("ALLREDUCE", (Frame("step", "train.py:8"),))
    assert (second.stuck_op, second.frames) == ("ALLGATHER", (Frame("step", "train.py:9"),))


def test_torchs_report_of_a_desync() -> None:
    text = """
[rank0]:[E a.cpp:9] [PG ID 0 PG GUID 0(default_pg) Rank 0] Timeout at collective: ALLREDUCE, #41
\t - To our best knowledge, ranks [5] are the lagging ranks that caused this timeout. They never joined any collectives
\t - Snapshot of ranks' latest states:
\t   #41 started ranks:
\t     [0, 1] started ALLREDUCE
\t     [2] started BROADCAST
\t   #40 finished ranks:
\t     [3, 4] finished ALLREDUCE
"""  # noqa: E501
    states = {state.rank: state for state in parse_watchdog(text.splitlines())}
    told = {rank: (s.enqueued, s.completed, s.stuck_seq, s.stuck_op) for rank, s in states.items()}
    assert told == {
        0: (41, 40, 41, "ALLREDUCE"),
        1: (41, 40, 41, "ALLREDUCE"),
        2: (41, 40, 41, "BROADCAST"),
        3: (40, 40, 0, ""),
        4: (40, 40, 0, ""),
        5: (0, 0, 0, ""),
    }
    assert all(state.of_others and state.in_group for state in states.values())


@pytest.mark.parametrize(
    "line",
    [
        "epoch 3: work 17 of 20",
        # Written now and then, also hours before the hang.
        f"[rank1]:[I a.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 1] NCCL Work update "
        f"periodically: {_STATUS}",
        f"[rank{'9' * 40}]: {_DETECTED}",
        f"[Rank 1] {_CAUGHT}: WorkNCCL(SeqNum={'9' * 400}, OpType=X)",
        "[rank1]: last enqueued NCCL work: " + "9" * 5000,
        "#1 started ranks:\0",
        " [" + "1, " * 40_000 + "] started ALLREDUCE",
    ],
)
def test_lines_that_say_nothing(line: str) -> None:
    assert parse_watchdog([line]) == []


@pytest.mark.long
@pytest.mark.timeout(60 * PATIENCE)
def test_lines_that_try_patience() -> None:
    begun = [
        f"[rank1]:[E] [Rank 1] {_CAUGHT}: WorkNCCL({_OP}, Timeout(ms)=1000) {_RAN}",
        "[rank1]:[E] [Rank 1] Stack trace of the failed collective: ",
    ]
    for piece in ("#1 a from ", "#1 a from b:", f"{_CAUGHT}: WorkNCCL({_OP}", "ranks [1, ", "[PG "):
        line = piece * (60_000 // len(piece))
        parse_watchdog([*begun, *[line] * 100])


@pytest.mark.long
def test_hostile_ranks_are_bounded() -> None:
    rows = [
        f" [{', '.join(map(str, range(n, n + 9000)))}] started X" for n in range(0, 270_000, 9000)
    ]
    assert len(parse_watchdog(["#7 started ranks:", *rows])) <= MAX_STATES


_PIECES = st.sampled_from(
    [f"[rank{n}]:" for n in range(3)]
    + [f"[Rank {n}] " for n in range(3)]
    + ["[PG ID 0 PG GUID 0(default_pg) Rank 1] ", "[PG 1 Rank 0] ", _DETECTED, _STATUS,
       f"{_CAUGHT}: WorkNCCL({_OP}, {_NUMEL}) {_RAN}", "Stack trace of the failed collective:",
       "#0 f from a.py:1", "#41 started ranks:", "  [0, 1] started ALLREDUCE", "\x1b[31m"]
)  # fmt: skip


@given(st.lists(st.one_of(st.text(), st.lists(_PIECES, max_size=4).map("".join)), max_size=30))
def test_whatever_the_lines_are(lines: list[str]) -> None:
    for state in parse_watchdog(lines):
        assert 0 <= state.rank < 10**7
        assert all(n is None or n >= 0 for n in (state.enqueued, state.completed))
        assert state.stuck_seq >= 0
