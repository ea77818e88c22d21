"""The script as bash runs it, with stand-ins for Slurm's commands: codes, signals, the queue."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relkit.slurm.job import SlurmJob
from relkit.slurm.script import render
from tests.patience import PATIENCE
from tests.waiting import eventually

# One process a node, as srun's tasks; each is in a session of its own, as under slurmstepd.
_SRUN = """#!/bin/bash
while [ "$1" != bash ]; do shift; done
highest=0
for node in $(seq 0 $((SLURM_NNODES - 1))); do
    SLURM_NODEID=$node setsid "$@" & pids="$pids $!"
done
echo $pids >"$PLACE/tasks"
for pid in $pids; do wait "$pid"; code=$?; [ $code -gt $highest ] && highest=$code; done
exit $highest
"""
_SCANCEL = """#!/bin/bash
echo "scancel $*" >>"$PLACE/called"
for pid in $(cat "$PLACE/tasks"); do kill "-${1#--signal=}" -- "-$pid"; done
"""
_SQUEUE = """#!/bin/bash
cat "$PLACE/state"
"""
_SCONTROL = """#!/bin/bash
echo "scontrol $*" >>"$PLACE/called"
"""
# Ends with the code of its node's word; "save": waits to be told, counts how often, then saves.
_RELKIT = """#!/bin/bash
read -ra words <"$PLACE/words"
word=${words[$SLURM_NODEID]}
case $word in
    save*)
        trap 'echo told >>"$PLACE/told-$SLURM_NODEID"; told=1' TERM
        (trap 'touch "$PLACE/rank-heard"' TERM; while sleep 0.05; do :; done) & rank=$!
        echo >>"$PLACE/up-$SLURM_NODEID"
        until [ "$told" ]; do sleep 0.05; done
        sleep 0.5
        kill -KILL $rank
        exit "${word#save}" ;;
    *) exit "$word" ;;
esac
"""


@dataclass
class Job:
    """A job of the rendered script in a folder of its own."""

    folder: Path
    process: subprocess.Popen[str]

    @property
    def called(self) -> list[str]:
        file = self.folder / "called"
        return file.read_text().splitlines() if file.exists() else []

    def told(self, node: int) -> int:
        file = self.folder / f"told-{node}"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def end(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=60 * PATIENCE)
        return self.process.returncode, said

    def kill_tasks(self) -> None:
        """End the stand-ins for launchers, which hear no other signal."""
        tasks = self.folder / "tasks"
        for pid in tasks.read_text().split() if tasks.exists() else ():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(pid), signal.SIGKILL)

    def await_up(self, *nodes: int) -> None:
        end = time.monotonic() + 60 * PATIENCE
        while not all((self.folder / f"up-{node}").exists() for node in nodes):
            assert time.monotonic() < end
            assert self.process.poll() is None
            time.sleep(0.02)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Job]]:
    jobs: list[Job] = []
    yield jobs
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()
        job.kill_tasks()
        if job.process.stderr:
            job.process.stderr.close()


def start(
    started: list[Job], folder: Path, words: str, *, state: str = "RUNNING", restarts: int = 0,
    max_requeues: int = 10, spares: int = 0, grace: str = "30", job_id: str = "7",
    launch: tuple[str, ...] = (), shared: Path | None = None,
) -> Job:  # fmt: skip
    tools = {
        "srun": _SRUN, "scancel": _SCANCEL, "squeue": _SQUEUE, "scontrol": _SCONTROL,
        "relkit": _RELKIT,
    }  # fmt: skip
    (folder / "bin").mkdir()
    for name, text in tools.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o700)
    (folder / "words").write_text(words + "\n")
    (folder / "state").write_text(state + "\n")
    nodes = len(words.split()) - spares
    job = SlurmJob(("train.py",), nodes=nodes, spares=spares, launch=launch)
    text = render(replace(job, max_requeues=max_requeues)).replace("sleep 30", f"sleep {grace}")
    (folder / "job.sh").write_text(text)
    process = subprocess.Popen(
        ["bash", folder / "job.sh"],
        env={
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PLACE": str(folder),
            "SLURM_JOB_ID": job_id, "SLURM_NNODES": str(job.nodes + spares),
            "SLURM_RESTART_COUNT": str(restarts),
            **({"RELKIT_SLURM_FOLDER": str(shared)} if shared is not None else {}),
        },
        stderr=subprocess.PIPE, text=True, cwd=folder,
    )  # fmt: skip
    started.append(Job(folder, process))
    return started[-1]


REQUEUE = "scontrol requeue 7"


@pytest.mark.parametrize(
    ("words", "code", "is_requeued"),
    [
        ("0 0", 0, False),
        ("1 0", 1, False),
        # A node that has left does not decide, unless all have.
        ("5 0", 0, False),
        ("5 1", 1, False),
        ("75 75", 75, True),
        ("75 143", 75, True),
        ("76 75", 75, True),
        # What could not be saved is no step to go on from.
        ("77 75", 77, False),
        ("76 76", 76, False),
        # Somebody else has ended it.
        ("143 143", 143, False),
        ("3 3", 3, False),
    ],
)
def test_the_code_is_the_launchers_and_a_saved_job_comes_again(
    tmp_path: Path, started: list[Job], words: str, code: int, is_requeued: bool
) -> None:
    job = start(started, tmp_path, words)
    assert job.end()[0] == code
    assert (REQUEUE in job.called) == is_requeued


def test_all_nodes_that_have_left_are_a_job_that_has_failed(
    tmp_path: Path, started: list[Job]
) -> None:
    assert start(started, tmp_path, "5 5").end()[0] == 5


def test_before_the_limit_each_launcher_is_told_once_and_its_ranks_never(
    tmp_path: Path, started: list[Job]
) -> None:
    job = start(started, tmp_path, "save143 save143 save143")
    job.await_up(0, 1, 2)
    job.process.send_signal(signal.SIGTERM)
    code, said = job.end()
    assert [job.told(node) for node in (0, 1, 2)] == [1, 1, 1], said
    assert not (tmp_path / "rank-heard").exists()
    assert code == 143
    assert job.called == ["scancel --signal=URG 7", REQUEUE]
    assert "resumes from what it has saved" in said


def test_a_word_before_the_launchers_are_there_reaches_them(
    tmp_path: Path, started: list[Job]
) -> None:
    job = start(started, tmp_path, "save75 save75")
    while not (tmp_path / "tasks").exists():
        assert job.process.poll() is None
        time.sleep(0.001)
    job.process.send_signal(signal.SIGTERM)
    # Either the launcher had been made, and was ended before it could save, or it saves.
    code, said = job.end()
    assert code in (75, 143), said
    assert all(job.told(node) <= 1 for node in (0, 1))
    assert job.called == ["scancel --signal=URG 7", REQUEUE]


def test_a_job_that_is_cancelled_is_told_by_slurm_alone_and_stays_away(
    tmp_path: Path, started: list[Job]
) -> None:
    job = start(started, tmp_path, "save75 save75", state="COMPLETING")
    job.await_up(0, 1)
    job.process.send_signal(signal.SIGTERM)
    for pid in (tmp_path / "tasks").read_text().split():
        os.killpg(int(pid), signal.SIGTERM)
    code, said = job.end()
    assert code == 75, said
    assert [job.told(node) for node in (0, 1)] == [1, 1]
    assert job.called == []


def test_a_launcher_that_slurm_has_told_is_not_told_again(
    tmp_path: Path, started: list[Job]
) -> None:
    job = start(started, tmp_path, "save75")
    job.await_up(0)
    task = int((tmp_path / "tasks").read_text())
    os.killpg(task, signal.SIGTERM)
    eventually(lambda: job.told(0) == 1, "the launcher has heard it")
    # While it saves; a second SIGTERM would cut that short.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(task, signal.SIGURG)
    assert job.end()[0] == 75
    assert job.told(0) == 1


@pytest.mark.parametrize(("restarts", "most"), [(10, 10), (0, 0)])
def test_it_comes_again_only_so_often(
    tmp_path: Path, started: list[Job], restarts: int, most: int
) -> None:
    job = start(started, tmp_path, "75", restarts=restarts, max_requeues=most)
    assert job.end()[0] == 75
    assert job.called == []


def test_srun_is_not_waited_for_where_a_lost_node_keeps_it(
    tmp_path: Path, started: list[Job]
) -> None:
    # Node 1 never says that it has ended; half a minute is short here.
    job = start(started, tmp_path, "0 save0 0", spares=1, grace="0.5")
    assert job.process.wait(60 * PATIENCE) == 0


def test_how_an_earlier_job_has_ended_says_nothing_of_this_one(
    tmp_path: Path, started: list[Job]
) -> None:
    for name in ("first", "second", "shared"):
        (tmp_path / name).mkdir()
    shared = tmp_path / "shared"
    first = start(started, tmp_path / "first", "75 75", job_id="6", shared=shared)
    assert first.end()[0] == 75
    second = start(started, tmp_path / "second", "0", job_id="7", shared=shared)
    assert (second.end()[0], second.called) == (0, [])


def test_a_first_node_that_leaves_is_no_end_where_the_rendezvous_is_elsewhere(
    tmp_path: Path, started: list[Job]
) -> None:
    launch = ("--rdzv-endpoint=store:29400",)
    job = start(started, tmp_path, "5 save0 0", spares=1, grace="0.5", launch=launch)
    job.await_up(1)
    with contextlib.suppress(subprocess.TimeoutExpired):
        job.process.wait(3)
    assert job.process.poll() is None
    job.process.send_signal(signal.SIGTERM)
    assert job.end()[0] == 0
