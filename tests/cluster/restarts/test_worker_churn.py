"""Jobs with ever new loader processes, in the little shared memory that a container has."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import pytest

from relkit.hook.environment import PROCESS_BYTES
from relkit.hook.reader import state_files
from tests.cluster.conftest import Start
from tests.waiting import eventually

pytestmark = [pytest.mark.job, pytest.mark.root, pytest.mark.timeout(150)]

JOB = Path(__file__).parents[1] / "jobs" / "churn_job.py"
RANKS = 2
_EPOCH = re.compile(r"^epoch \d+: (\d+) files, (\d+) bytes$", re.MULTILINE)

# As Docker starts a container; `before` runs in it, on an empty /dev/shm of its own.
_CONTAINER = 'mount -t tmpfs -o size=64m relkit-test /dev/shm && {before} && exec "$@"'


def in_container(before: str = "true") -> tuple[str, ...]:
    """What comes before a command."""
    script = _CONTAINER.format(before=before)
    return ("unshare", "--mount", "sh", "-c", script, "sh")


def relkit() -> tuple[str, ...]:
    """The command in there."""
    return (sys.executable, "-m", "relkit")


def line(tmp_path: Path) -> tuple[str | Path, ...]:
    """Its arguments, up to the job's."""
    timeline = tmp_path / "timeline"
    return ("launch", "--nproc-per-node", str(RANKS), "--timeline-path", timeline, JOB)


@pytest.mark.long
def test_loaders_come_and_go_in_64_mib(start: Start, tmp_path: Path) -> None:
    program = (*in_container(), *relkit())
    done = start(*line(tmp_path), "8", program=program).wait(120)
    assert done.code == 0, done.err
    seen = [(int(files), int(size)) for files, size in _EPOCH.findall(done.out)]
    assert len(seen) == 8
    # One a rank, and 1.3 MiB each.
    assert {files for files, _ in seen} == {RANKS}
    assert max(size for _, size in seen) < RANKS * PROCESS_BYTES
    assert "folder /dev/shm/" in done.out


@pytest.mark.long
def test_children_that_are_recorded_are_removed_when_they_have_ended(
    start: Start, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    program = (*in_container(), *relkit())
    # Without the removal there were 2 + 8 files after the first epoch and 34 after the last.
    wanted = {"RELKIT_HOOK_CHILDREN": "1", "RELKIT_HOOK_FILES": "100"}
    job = start(*line(tmp_path), "4", go, program=program, **wanted)
    job.wait_for("folder /dev/shm/")
    (name,) = re.findall(r"^folder (\S+)$", job.text, re.MULTILINE)
    folder = Path(f"/proc/{job.process.pid}/root{name}")
    eventually(lambda: len(state_files(folder)) == RANKS, "only the ranks' files are left")
    go.touch()
    done = job.wait(60)
    assert done.code == 0, done.err
    assert len(_EPOCH.findall(done.out)) == 4


def test_a_full_shared_memory_is_not_used(start: Start, tmp_path: Path) -> None:
    program = (*in_container("! cat /dev/zero > /dev/shm/all 2> /dev/null"), *relkit())
    done = start(*line(tmp_path), "0", program=program).wait(60)
    assert done.code == 0, done.err
    assert f"folder {tempfile.gettempdir()}/relkit-" in done.out


def test_shared_memory_that_fills_up_costs_the_recorders_and_not_the_job(
    start: Start, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    # The launcher has prepared its folder, and the ranks have not begun to record.
    ranks = 'cat /dev/zero > /dev/shm/$$ 2> /dev/null; exec "$@"'
    *arguments, job_file = line(tmp_path)
    shell = ("--no-python", "sh", "-c", ranks, "sh", sys.executable, job_file, "0", go)
    job = start(*arguments, *shell, program=(*in_container(), *relkit()))
    job.wait_for("runs without a recorder")
    go.touch()
    done = job.wait(60)
    assert done.code == 0, done.err
    (said,) = (each for each in done.err.splitlines() if "without a recorder" in each)
    assert re.search(r"rank \d \(pid \d+\) .*: No space left on device; its hangs", said), said
