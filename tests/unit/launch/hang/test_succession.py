"""Who decides over a job once the node that led it is silent, and what becomes of its incidents."""

from __future__ import annotations

import pytest

from relkit.launch.hang import codec, incident
from relkit.launch.hang.watch import Watch
from relkit.launch.job.exchange import MemoryMailbox
from relkit.launch.job.on_hang import OnHang
from tests.unit.launch.hang.watched_job import Job, fake_capture, gather_with, no_waiting

__all__ = ["fake_capture", "no_waiting"]


class LedNotes(MemoryMailbox):
    """Notes of launchers, by the one who leads; `lead` changes that for the one that has it."""

    def lead(self, leader: int, *silent: int) -> None:
        self.leader, self.silent = leader, frozenset(silent)

    def put(self, key: str, data: bytes) -> None:
        super().put(f"{self.leader}/{key}", data)

    def get(self, key: str) -> bytes | None:
        return super().get(f"{self.leader}/{key}")


def three_nodes(job: Job) -> tuple[list[LedNotes], list[Watch]]:
    """Node 0 with ranks 0 and 1, and two with one each."""
    notes: dict[str, bytes] = {}
    mailboxes = [LedNotes(node, 3, notes) for node in range(3)]
    ranks = ([0, 1], [2], [3])
    return mailboxes, [job.watch(m, r) for m, r in zip(mailboxes, ranks, strict=True)]


def test_the_next_node_judges_a_hang_once_node_0_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job()
    mailboxes, (first, second, third) = three_nodes(job)
    gather_with(third, job, monkeypatch)
    job.run(8, first, second, third)
    for each in mailboxes[1:]:
        each.lead(1, 0)
    job.run(30, third, second)
    (published,) = job.published
    assert [dump.rank for dump in published[3]] == [2, 3]
    absent = {v.rank: v.absent_reason for v in published[0].ranks if v.absent_reason}
    assert absent == dict.fromkeys((0, 1), "its node cannot be reached")
    assert 3 in published[2].facts["culprits"]
    assert job.written == [(3,)]
    assert (second.state.action, third.state.action) == (OnHang.ABORT, OnHang.ABORT)
    lost = "node 0 cannot be reached: "
    assert f"{lost}this node leads the watch over the job from here on" in job.logged
    assert f"{lost}node 1 leads the watch over the job from here on" in job.logged
    assert any(line.startswith("node 1 judged: ") for line in job.logged)
    assert not any("did not answer" in line for line in job.logged)


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_that_node_0_took_with_it_is_judged_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    job = Job(stuck_at_s=1e9)
    mailboxes, watches = three_nodes(job)
    _, second, third = watches
    gather_with(third, job, monkeypatch)
    watches[failing].fail("rank 3 (pid 1003) exited with code 1")
    # Node 0 has asked for a capture, and is not heard again.
    note = codec.pack({"job_id": "job", "deadline_s": 1.5})
    mailboxes[0].put("incident/0", note)
    job.run(2, second, third)
    assert watches[failing].state.failure_handled
    for each in mailboxes[1:]:
        each.lead(1, 0)
    job.run(5, third, second)
    (published,) = job.published
    assert published[0].trigger == "rank 3 (pid 1003) exited with code 1"
    assert watches[failing].state.judged.is_set()


def test_who_leads_is_said_before_anything_is_done_about_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Turning(LedNotes):
        """Node 0 falls silent in the middle of a look."""

        def put(self, key: str, data: bytes) -> None:
            self.lead(1, 0)
            super().put(key, data)

    job = Job(stuck_at_s=1e9)
    mailbox = Turning(1, 2)
    watch = job.watch(mailbox, [2, 3])
    gather_with(watch, job, monkeypatch)
    watch.fail("rank 3 (pid 1003) exited with code 1")
    job.run(2, watch)
    assert len(job.published) == 1
    leads, judges = (
        next(at for at, line in enumerate(job.logged) if words in line)
        for words in ("this node leads", "capturing all ranks")
    )
    assert leads < judges


def test_a_leader_that_comes_back_goes_on_with_its_own_incidents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(resumes_at_s=25.0)
    mailboxes, (_, second, third) = three_nodes(job)
    gather_with(third, job, monkeypatch)
    for each in mailboxes[1:]:
        each.lead(1, 0)
    job.run(25, third, second)
    assert len(job.published) == 1
    for each in mailboxes[1:]:
        each.lead(0)
    note = codec.pack({"job_id": "job", "deadline_s": 1.5})
    mailboxes[0].put("incident/0", note)
    job.run(27, second, third)
    assert mailboxes[0].get("incident/0/node/1") is not None
    assert mailboxes[0].get("incident/0/node/2") is not None


def test_stacks_are_on_disk_before_the_leader_hears_of_them() -> None:
    job = Job(stuck_at_s=1e9)
    notes = {"incident/0": codec.pack({"job_id": "job", "deadline_s": 1.5})}
    written_before: list[bool] = []

    class Noting(MemoryMailbox):
        def put(self, key: str, data: bytes) -> None:
            if key == "incident/0/node/1":
                written_before.append(job.written == [(2, 3)])
            super().put(key, data)

    job.run(1, job.watch(Noting(1, 2, notes), [2, 3]))
    assert written_before == [True]


def test_a_node_that_is_known_to_be_silent_is_not_waited_for() -> None:
    mailbox = LedNotes(1, 2)
    mailbox.lead(1, 0)

    def pause(_: float) -> None:
        pytest.fail("waited")

    assert incident.gather(mailbox, 0, 10.0, clock=lambda: 0.0, pause=pause) == ((), (), (0,))
