"""Recorder files that vanish under a running rank: read on, or not heard of, and never idle."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relkit.files.private_file import open_private
from relkit.hang.detection.detector import HangDetector, JobHealth
from relkit.hang.detection.view_columns import is_unheard
from relkit.hook import layout
from relkit.hook.model import HookState
from relkit.launch.hang import observe
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.watch import UnwatchedRanks
from relkit.launch.job.settings import LocalRank
from relkit.process import procfs
from tests.unit.launch.hang.test_observe import Child, child, files, state

__all__ = ["child", "files"]


def test_a_rank_whose_file_was_removed_is_read_on_and_said_to_be_so(
    child: Callable[[str], Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = [child("input()").pid for _ in range(2)]
    job = tmp_path / "job"
    job.mkdir(mode=0o700)
    opened = []

    def read(path: Path, **_options: bool) -> HookState:
        with os.fdopen(open_private(path), "rb") as stream:
            pid = int(np.frombuffer(stream.read(), layout.HEADER)[0]["pid"])
        opened.append(path)
        return state(pid, pids.index(pid))

    monkeypatch.setattr(observe, "read_state", read)
    for pid in pids:
        header = np.zeros(1, layout.HEADER)
        header["pid"], header["start_ticks"] = pid, procfs.start_ticks(pid)
        descriptor = open_private(job / f"{pid}.rkhook", os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, header.tobytes())
        os.close(descriptor)
    ranks = [LocalRank(rank, pid) for rank, pid in enumerate(pids)]
    observer = Observer(job, removes_ended=True)
    before = observer.views(ranks)
    assert (observer.removed, observer.removed_folder) == (frozenset(), None)
    shutil.rmtree(job)
    after = observer.views(ranks)
    assert [(view.rank, view.hook) for view in after] == [(view.rank, view.hook) for view in before]
    assert (observer.removed, observer.removed_folder) == (frozenset(pids), job)
    lines: list[str] = []
    unwatched = UnwatchedRanks(observer, 5.0, lines.append)
    for _ in range(2):
        unwatched.report(0.0, before)
    (line,) = lines
    assert "ranks 0-1 can be watched on" in line
    assert "RemoveIPC" in line
    # A process that has ended is not read on: a later one may have its number.
    os.kill(pids[1], signal.SIGKILL)
    os.waitpid(pids[1], 0)
    opened.clear()
    assert [view.alive for view in observer.views(ranks)] == [True, False]
    assert len(opened) == 1


def test_a_rank_whose_recorder_is_gone_is_not_heard_of_and_not_idle(
    child: Callable[[str], Child], files: dict[Path, HookState | None]
) -> None:
    pid = child("input()").pid
    path = Path(f"job/{pid}.rkhook")
    files[path] = state(pid, 0)
    observer = Observer(Path("job"))
    (seen,) = observer.views([LocalRank(0, pid)])
    assert not is_unheard(seen)
    del files[path]
    (gone,) = observer.views([LocalRank(0, pid)])
    assert gone.hook is None
    assert is_unheard(gone)
    # The same job twice: a rank that finishes nothing any more, and one that nobody can see.
    for later, health in ((seen, JobHealth.HUNG), (gone, JobHealth.HEALTHY)):
        detector = HangDetector(5.0)
        for second in range(20):
            at_work = replace(seen, hook=state(pid, 0, started=second + 1))
            detector.update(float(second), [at_work])
        looks = [detector.update(float(second), [later]) for second in range(20, 60)]
        assert looks[-1].health is health
