"""Whose stacks a launcher takes, and what it tells the one that takes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from relkit.hang.model import RankView
from relkit.hook.model import HookState
from relkit.launch.hang import incident
from relkit.process import procfs
from relkit.stacks.engines.base import Target
from relkit.stacks.model import RankDump

HOOK = HookState(11, 77, 1, 1, 3, 99, 0, 0, 0, 0)


class Files:
    """An observer that knows a recorder's file for each rank."""

    def file_of(self, rank: int) -> Path:
        return Path(f"/dev/shm/job/{rank}.state")


def test_ranks_that_live_each_with_its_own_file_and_start(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Target] = []

    def capture(targets: Sequence[Target], *, deadline_s: float) -> tuple[RankDump, ...]:
        assert deadline_s == 7.0
        asked.extend(targets)
        return ()

    monkeypatch.setattr(incident, "capture_ranks", capture)
    monkeypatch.setattr(procfs, "start_ticks", lambda pid: 1000 + pid)
    views = [
        RankView(0, host="n0", pid=10, alive=True, process_state="S", hook=None),
        RankView(1, host="n0", pid=11, alive=True, process_state="S", hook=HOOK),
        RankView(2, host="n0", pid=12, alive=False, process_state="", hook=HOOK),
    ]
    incident.capture_local(views, Files(), job_id="job", world_size=3, deadline_s=7.0)  # type: ignore[arg-type]
    assert asked == [
        Target(10, 0, 3, "n0", "job", None, 1010),
        Target(11, 1, 3, "n0", "job", Path("/dev/shm/job/1.state"), 77),
    ]
