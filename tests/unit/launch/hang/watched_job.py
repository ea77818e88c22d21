"""A job of several nodes that is watched without processes: its ranks, clock and captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from relkit.findings import Report
from relkit.hang.model import HangVerdict, JobView, RankView
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.launch.hang import incident, leader
from relkit.launch.hang.attempt import WatchedRanks
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.watch import Watch
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import LedMailbox
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import LocalRank, MonitorSettings
from relkit.stacks.model import RankDump

SECOND = 10**9
TIMEOUT_S = 10.0


def view(rank: int, now_s: float, *, since_s: float | None = None, finished: int = 5) -> RankView:
    """A rank; `since_s` is when it entered a collective that it is still in."""
    flying = Op("allreduce", OpKind.COLLECTIVE, 5, 0, 4, 1, int((since_s or 0) * SECOND))
    hook = HookState(
        pid=1000 + rank,
        start_ticks=1,
        rank=rank,
        local_rank=rank,
        world_size=4,
        now_ns=int(now_s * SECOND),
        boot_to_unix_ns=0,
        started=finished + 1,
        finished=finished,
        last_finish_ns=int(min(now_s, since_s or now_s) * SECOND),
        in_flight=() if since_s is None else (flying,),
        communicators=(Communicator(0, rank, 4, "0", 4 if since_s is None else 5),),
    )
    return RankView(rank, f"host{rank // 2}", 1000 + rank, True, "S", hook)


class FakeObserver(Observer):
    """Returns what the test says, and notes in `full` whether it was to look closely."""

    def __init__(self, look: Callable[[], tuple[RankView, ...]], full: list[bool]) -> None:
        super().__init__(None)
        self._look, self._full = look, full

    def views(
        self, ranks: object, ends: object = None, *, recent: bool = True
    ) -> tuple[RankView, ...]:
        self._full.append(recent)
        return self._look()

    def file_of(self, rank: int) -> Path | None:
        return None

    def ended(self, views: Sequence[RankView]) -> frozenset[int]:
        # There are no processes; who is alive is what the test says.
        now = {view.rank for view in self._look() if not view.alive}
        return frozenset(view.rank for view in views if view.alive and view.rank in now)


@dataclass
class Job:
    """Two nodes of two ranks; rank 3 stops moving at `stuck_at_s`.

    `ended` has the exit codes of ranks that have ended.
    """

    now_s: float = 0.0
    stuck_at_s: float = 5.0
    resumes_at_s: float = 1e9
    ended: dict[int, int] = field(default_factory=dict)
    full: list[bool] = field(default_factory=list)
    published: list[tuple[JobView, HangVerdict, Report, tuple[RankDump, ...]]] = field(
        default_factory=list
    )
    written: list[tuple[int, ...]] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)

    def look(self, ranks: Sequence[int]) -> tuple[RankView, ...]:
        return tuple(
            replace(each, alive=False, process_state="", exit_code=self.ended[each.rank])
            if each.rank in self.ended
            else each
            for each in self._living(ranks)
        )

    def _living(self, ranks: Sequence[int]) -> tuple[RankView, ...]:
        stuck = self.stuck_at_s <= self.now_s < self.resumes_at_s
        steps = int(self.now_s * 10)
        if not stuck:
            return tuple(view(rank, self.now_s, finished=steps) for rank in ranks)
        return tuple(
            view(
                rank,
                self.now_s,
                since_s=None if rank == 3 else self.stuck_at_s,
                finished=int(self.stuck_at_s * 10),
            )
            for rank in ranks
        )

    def publish(
        self, job: JobView, verdict: HangVerdict, report: Report, dumps: Sequence[RankDump]
    ) -> None:
        self.published.append((job, verdict, report, tuple(dumps)))

    def write_dumps(self, dumps: Sequence[RankDump]) -> None:
        self.written.append(tuple(dump.rank for dump in dumps))

    def watch(
        self, mailbox: LedMailbox, ranks: Sequence[int], on_hang: OnHang = OnHang.ABORT
    ) -> Watch:
        attempt = WatchedRanks(
            Attempt("job", 4),
            observer=FakeObserver(lambda: self.look(ranks), self.full),
            mailbox=mailbox,
            ranks=lambda: [LocalRank(rank, 1000 + rank) for rank in ranks],
            exit_statuses=dict,
        )
        return Watch(
            attempt,
            MonitorSettings(TIMEOUT_S, on_hang),
            publish=self.publish,
            write_dumps=self.write_dumps,
            log=self.logged.append,
        )

    def run(self, until_s: float, *watches: Watch) -> None:
        while self.now_s < until_s:
            self.now_s = round(self.now_s + 0.25, 2)
            for each in watches:
                each.tick(self.now_s)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "SEEN_S", 0.0)


@pytest.fixture(autouse=True)
def fake_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(
        views: Sequence[RankView],
        _observer: Observer,
        *,
        job_id: str,
        world_size: int,
        deadline_s: float,
    ) -> tuple[RankDump, ...]:
        assert deadline_s > 0
        return tuple(
            RankDump(v.rank, world_size, v.pid, "S (sleeping)", job_id=job_id)
            for v in views
            if v.alive
        )

    monkeypatch.setattr(incident, "capture_local", capture)


def gather_with(follower: Watch, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the other node's tick happen while node 0 waits for it."""
    real = incident.gather
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds
        follower.tick(job.now_s)

    monkeypatch.setattr(
        incident,
        "gather",
        lambda mailbox, number, deadline_s: real(
            mailbox, number, deadline_s, clock=lambda: clock[0], pause=pause
        ),
    )
