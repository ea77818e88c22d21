"""Real PyTorch jobs on gloo under the hook."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from relkit.errors import CaptureFailed
from relkit.hook.capture import capture_native
from relkit.hook.model import HookState, Op, OpKind
from relkit.hook.reader import RECENT_EACH
from relkit.hook.release import release
from tests.eager import eager
from tests.native.recording import Recording, process
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.native, pytest.mark.job, pytest.mark.timeout(120)]

SETUP = """
import os, sys, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
def tell(*words):
    print(*words, flush=True)
"""

EVERY_COLLECTIVE = """
ones = torch.ones
first, last = dist.new_group([0, 1]), dist.new_group([size - 2, size - 1])
dist.all_reduce(ones(100))
dist.all_gather([ones(5) for _ in range(size)], ones(5))
dist.broadcast(ones(7), 1)
dist.reduce(ones(9), 0)
dist.gather(ones(11), [ones(11) for _ in range(size)] if rank == 0 else None, 0)
dist.scatter(ones(13), [ones(13) for _ in range(size)] if rank == 0 else None, 0)
dist.all_to_all_single(ones(2 * size), ones(2 * size))
dist.all_to_all_single(ones(size), ones(size), [1] * size, [1] * size)
dist.barrier()
dist.monitored_barrier()
works = []
for i in range(40):
    works.append(dist.all_reduce(ones(1 + i), async_op=True))
    for group in (first, last):
        if rank in dist.get_process_group_ranks(group):
            works.append(dist.all_reduce(ones(100 + i), group=group, async_op=True))
[work.wait() for work in works]
if rank == 0:
    dist.send(ones(17), 1)
elif rank == 1:
    dist.recv(ones(17), 0)
torch.mm(ones(512, 256), ones(256, 128))
torch.mm(ones(512, 256, dtype=torch.float64), ones(256, 128, dtype=torch.float64))
dist.barrier()
tell("up")
sys.stdin.readline()
dist.destroy_process_group()
"""

ONE_COMES_LATE = """
dist.new_group(list(range(size)))
dist.all_reduce(torch.ones(4))
tell("up")
if rank == 1:
    sys.stdin.readline()
total = torch.ones(10)
try:
    dist.all_reduce(total)
    tell("sum", int(total.sum()))
except RuntimeError as error:
    tell("freed", type(error).__name__)
store = dist.distributed_c10d._get_default_store()
store.set(f"alive{rank}", "1")
store.wait([f"alive{peer}" for peer in range(size)])
again = dist.ProcessGroupGloo(dist.PrefixStore("again", store), rank, size)
total = torch.ones(10)
again.allreduce([total]).wait()
tell("again", int(total.sum()))
sys.stdin.readline()
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Job:
    """Running ranks, all of which have said "up"."""

    recording: Recording
    ranks: tuple[subprocess.Popen[str], ...]

    def state(self, rank: int) -> HookState:
        return self.recording.state(self.ranks[rank].pid)

    def tell(self, rank: int) -> None:
        stdin = self.ranks[rank].stdin
        assert stdin is not None
        stdin.write("go\n")
        stdin.flush()

    def heard(self, rank: int) -> str:
        stdout = self.ranks[rank].stdout
        assert stdout is not None
        return stdout.readline().strip()

    def stuck(self, rank: int) -> Op:
        """The collective that a rank is blocked in."""

        def look() -> tuple[Op, ...]:
            return tuple(op for op in self.state(rank).in_flight if op.kind == OpKind.COLLECTIVE)

        return eventually(look, f"rank {rank} is in a collective")[0]


@contextmanager
def running_job(recording: Recording, code: str, size: int) -> Iterator[Job]:
    port = free_port()
    with ExitStack() as stack:
        ranks = []
        for rank in range(size):
            env = eager(recording.environment())
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
            env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            command = [sys.executable, "-W", "ignore", "-c", SETUP + code]
            ranks.append(stack.enter_context(process(command, env)))
        job = Job(recording, tuple(ranks))
        for rank in range(size):
            assert job.heard(rank) == "up"
        yield job


def _by_group(state: HookState) -> dict[str, list[tuple[int, str, int]]]:
    """Group name -> (seq, operation, bytes) in order of sequence."""
    found: dict[str, list[tuple[int, str, int]]] = {}
    for op in state.recent:
        if op.kind == OpKind.COLLECTIVE and op.name != "connect":
            name = state.communicators[op.communicator].name
            found.setdefault(name, []).append((op.seq, op.name, op.size_bytes))
    return {name: sorted(ops) for name, ops in found.items()}


def test_ranks_agree_on_names_sequences_sizes_and_groups(recording: Recording) -> None:
    with running_job(recording, EVERY_COLLECTIVE, size=3) as job:
        states = [job.state(rank) for rank in range(3)]
        for rank in range(3):
            job.tell(rank)
        for victim in job.ranks:
            assert victim.wait(30) == 0
    for rank, state in enumerate(states):
        assert (state.rank, state.local_rank, state.world_size) == (rank, rank, 3)
        assert state.missing == ()
        assert state.dropped == 0
        assert state.in_flight == ()
        assert state.started == state.finished
        assert state.capture_signal > 0
    groups = [_by_group(state) for state in states]
    assert [sorted(group) for group in groups] == [["0", "1"], ["0", "1", "2"], ["0", "2"]]
    expected = {(seq, "allreduce", 4 * (100 + seq)) for seq in range(40)}
    for name, members in (("0", (0, 1, 2)), ("1", (0, 1)), ("2", (1, 2))):
        # Two worker threads a group: which operations finished last may differ from rank to rank.
        records = [{op[0]: op for op in groups[rank][name]} for rank in members]
        common = set.intersection(*(set(record) for record in records))
        assert len(common) >= RECENT_EACH // 2
        for seq in common:
            assert len({record[seq] for record in records}) == 1
        if name != "0":
            assert {records[0][seq] for seq in common} <= expected
    for state in states:
        named = {c.name: c for c in state.communicators}
        assert (named["0"].rank, named["0"].size) == (state.rank, 3)
        assert all(c.size == 2 for name, c in named.items() if name != "0")
    assert len({state.communicators[0].seq for state in states}) == 1


def test_all_collectives_have_their_names_and_sizes(recording: Recording) -> None:
    without_the_flood = EVERY_COLLECTIVE.replace("range(40)", "range(0)")
    with running_job(recording, without_the_flood, size=2) as job:
        states = [job.state(rank) for rank in range(2)]
    for state in states:
        world = _by_group(state)["0"]
        assert [name for _, name, _ in world] == [
            "allreduce",
            "allgather",
            "broadcast",
            "reduce",
            "gather",
            "scatter",
            "alltoall",
            "alltoallv",
            "barrier",
            "barrier",
        ]
        assert [size for _, _, size in world] == [400, 40, 28, 36, 44, 52, 16, 8, 0, 0]
        # monitored_barrier takes two numbers and no collective.
        assert [seq for seq, _, _ in world] == [*range(9), 11]
        roots = {op.name: op.peer for op in state.recent}
        assert (roots["broadcast"], roots["reduce"], roots["gather"]) == (1, 0, 0)
    (sent,) = [op for op in states[0].recent if op.name == "send" and op.size_bytes == 68]
    (received,) = [op for op in states[1].recent if op.name == "recv" and op.size_bytes == 68]
    assert (sent.peer, received.peer) == (1, 0)
    assert {op.name for op in states[0].recent if op.kind == OpKind.GEMM} == {"sgemm", "dgemm"}
    product = next(op for op in states[0].recent if op.name == "sgemm")
    assert product.size_bytes == 4 * (512 * 256 + 256 * 128 + 512 * 128)


TRANSFERS = """
pair = dist.new_group([1, 2])
one, two = torch.ones(100), torch.ones(50)
if rank == 0:
    dist.send(one, 1)
    dist.send(one, 1, tag=7)
    dist.send(two, 2, tag=9)
    dist.send(two, 2, tag=9)
    dropped = dist.isend(two, 1, tag=8)
elif rank == 1:
    dist.recv(one, 0)
    dist.recv(one, 0, tag=7)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, one, 2), dist.P2POp(dist.irecv, two, 2)])
    [work.wait() for work in works]
    dist.send(two, 2, group=pair)
else:
    dist.recv(two, 0, tag=9)
    dist.recv(two, tag=9)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, two, 1), dist.P2POp(dist.irecv, one, 1)])
    [work.wait() for work in works]
    dist.recv(two, 1, group=pair)
dist.barrier()
tell("up")
if rank == 2:
    dist.recv(one, 1, tag=3)
sys.stdin.readline()
os._exit(0)
"""

# (group, receives, peer in the group, tag, called, ended, sizes)
TRANSFER_COUNTS = [
    {("0", False, 1, 0, 1, 1, (400,)), ("0", False, 1, 7, 1, 1, (400,)),
     ("0", False, 1, 8, 1, 0, (200,)), ("0", False, 2, 9, 2, 2, (200, 200))},
    {("0", True, 0, 0, 1, 1, (400,)), ("0", True, 0, 7, 1, 1, (400,)),
     ("0", False, 2, 0, 1, 1, (400,)), ("0", True, 2, 0, 1, 1, (200,)),
     ("1", False, 1, 0, 1, 1, (200,))},
    # The one that was received from anybody is counted as its sender's.
    {("0", True, 0, 9, 2, 2, (200, 200)), ("0", False, 1, 0, 1, 1, (200,)),
     ("0", True, 1, 0, 1, 1, (400,)), ("0", True, 1, 3, 1, 0, (400,)),
     ("1", True, 0, 0, 1, 1, (200,))},
]  # fmt: skip


def test_both_ends_of_a_transfer_count_alike(recording: Recording) -> None:
    with running_job(recording, TRANSFERS, size=3) as job:
        (op,) = eventually(lambda: job.state(2).in_flight, "rank 2 is in its last recv")
        assert (op.name, op.seq, op.peer, op.tag, op.size_bytes) == ("recv", 0, 1, 3, 400)
        for rank, expected in enumerate(TRANSFER_COUNTS):
            state = job.state(rank)
            names = [group.name for group in state.communicators]
            found = {
                (names[c.communicator], c.receives, c.peer, c.tag, c.posted, c.done, c.sizes)
                for c in state.transfers
            }
            assert found == expected
            assert (state.uncounted, state.missing) == (0, ())
            posts = [op.post for op in (*state.recent, *state.in_flight) if op.kind is OpKind.P2P]
            assert sorted(posts) == [*range(1, len(posts) + 1)]
            for each in state.recent:
                if each.kind is OpKind.P2P:
                    assert names[each.communicator] in ("0", "1")
                    assert each.seq in (0, 1)


NAMES = """
store = dist.distributed_c10d._get_default_store()
by_hand = dist.ProcessGroupGloo(dist.PrefixStore("by hand", store), rank, size)
second = dist.new_group([0, 1])
by_hand.allreduce([torch.ones(1)]).wait()
dist.all_reduce(torch.ones(2))
dist.all_reduce(torch.ones(3), group=second)
tell("up")
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        pytest.param({}, ["0", "", "1"], id="plain"),
        pytest.param(
            {"TORCH_GLOO_LAZY_INIT": "1"}, ["0", "", "1"], id="lazy", marks=pytest.mark.long
        ),
        pytest.param(
            {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
            ["0", "0/checks", "", "1", "1/checks"],
            id="detail",
            marks=pytest.mark.long,
        ),
    ],
)
def test_group_names(recording: Recording, variable: dict[str, str], names: list[str]) -> None:
    recording.extra.update(variable)
    with running_job(recording, NAMES, size=2) as job:
        for rank in range(2):
            groups = job.state(rank).communicators
            assert [group.name for group in groups] == names
            assert {group.seq for group in groups if "/" not in group.name} == {0}


def test_a_stuck_job_is_seen_captured_stopped_and_goes_on(recording: Recording) -> None:
    with running_job(recording, ONE_COMES_LATE, size=2) as job:
        op = job.stuck(0)
        assert (op.name, op.seq, op.size_bytes, op.end_ns) == ("allreduce", 1, 40, 0)
        assert all(op.kind != OpKind.COLLECTIVE for op in job.state(1).in_flight)
        freezes = []
        for rank in range(2):
            pid = job.ranks[rank].pid
            for _ in range(20):
                state = job.state(rank)
                capture = capture_native(recording.path(pid), state, 5.0)
                assert capture.missed == ()
                assert len(capture.threads) >= 4
                assert all(len(thread.addresses) >= 3 for thread in capture.threads)
                assert capture.longest_freeze_s > 0
                freezes.append(capture.longest_freeze_s / capture.wall_s)
        # No thread stands still until all have answered. Not each time: on a busy machine a thread
        # may wait for a processor while it is read.
        assert statistics.median(freezes) < 0.5
        worker = next(t for t in capture.threads if t.name == "pt_gloo_runloop")
        assert not worker.truncated
        _stopped_is_reported_and_not_waited_for(recording, job.ranks[1], job.state(1))
        job.tell(1)
        assert [job.heard(rank) for rank in range(2)] == ["sum 20", "sum 20"]
        assert [job.heard(rank) for rank in range(2)] == ["again 20", "again 20"]


def _stopped_is_reported_and_not_waited_for(
    recording: Recording, victim: subprocess.Popen[str], state: HookState
) -> None:
    victim.send_signal(signal.SIGSTOP)
    capture = eventually(
        lambda: _all_missed(recording, victim.pid, state), "every thread is stopped"
    )
    assert capture < 1.0
    with pytest.raises(CaptureFailed, match="release request"):
        release(recording.path(victim.pid), state, 1.0)
    victim.send_signal(signal.SIGCONT)


def _all_missed(recording: Recording, pid: int, state: HookState) -> float:
    capture = capture_native(recording.path(pid), state, 5.0)
    reasons = {reason for _, reason in capture.missed}
    return capture.wall_s if not capture.threads and reasons == {"stopped (state T)"} else 0.0


def test_release_frees_a_blocked_collective_and_spares_the_store(recording: Recording) -> None:
    with running_job(recording, ONE_COMES_LATE, size=2) as job:
        job.stuck(0)
        assert release(recording.path(job.ranks[0].pid), job.state(0), 5.0) >= 1
        assert job.heard(0) == "freed RuntimeError"
        failed = [op for op in job.state(0).recent if op.failed]
        assert [(op.name, op.seq) for op in failed] == [("allreduce", 1)]
        assert job.state(0).in_flight == ()
        job.tell(1)
        assert job.heard(1) == "freed RuntimeError"
        # The store still works, and a new group on it too: nothing else was shut.
        assert [job.heard(rank) for rank in range(2)] == ["again 20", "again 20"]


def test_an_exception_passes_where_nothing_is_recorded(recording: Recording) -> None:
    """Its way leads through the wrappers all the same."""
    recording.folder.rmdir()
    with running_job(recording, ONE_COMES_LATE, size=2) as job:
        job.ranks[1].kill()
        assert job.heard(0) == "freed RuntimeError"
