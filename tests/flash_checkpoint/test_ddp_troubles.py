"""Jobs that save at every step, and whose disk or memory fails them, say so and train on."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from relkit.flash_checkpoint.on_disk import persisted
from relkit.flash_checkpoint.on_disk.disk import latest
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.process import procfs
from tests.cluster.conftest import Start, orphans_come_to_us, start, until
from tests.flash_checkpoint.test_ddp_jobs import JOB, NEVER, STEPS, losses, starts, undisturbed

__all__ = ["orphans_come_to_us", "start", "undisturbed"]
pytestmark = [pytest.mark.job, pytest.mark.timeout(150)]

Undisturbed = tuple[Path, dict[tuple[int, int], str]]
STOP = "0:0:5:stop-saved,0:1:5:stop-saved"
KILL = "0:0:5:go-saved,0:1:5:kill-saved"


def launched(tmp_path: Path, *options: str, ranks: int = 2) -> tuple[object, ...]:
    """A launcher's options, without the script."""
    return ("launch", "--nproc-per-node", str(ranks), "--no-hook", "--timeline-path",
            tmp_path / "timeline", *options)  # fmt: skip


@pytest.mark.long
@pytest.mark.root
@pytest.mark.parametrize(
    ("mount", "why"),
    [
        ("mount -t tmpfs -o size=12k relkit-test $0", "No space left on device"),
        ("mount -t tmpfs -o ro relkit-test $0", "Read-only file system"),
    ],
    ids=["full", "read-only"],
)
def test_a_disk_that_takes_nothing(
    start: Start, tmp_path: Path, undisturbed: Undisturbed, mount: str, why: str
) -> None:
    (tmp_path / "ck").mkdir()
    script = f'{mount} && export RELKIT_TEST_DISK_FAILS=1 && exec "$@"'
    program = ("unshare", "--mount", "sh", "-c", script, str(tmp_path / "ck"), sys.executable,
               "-m", "relkit")  # fmt: skip
    line = launched(tmp_path, "--max-restarts", "1")
    done = start(*line, JOB, tmp_path / "ck", str(STEPS), "4", KILL, program=program).wait(90)
    assert done.code == 0, done.err
    assert losses(done) == undisturbed[1]
    assert "step 5 from memory" in starts(done), done.err
    assert re.search(rf"flash checkpoint: rank 0: step \d+ is not on disk: .*{why}", done.err)
    assert re.search(rf"nothing was persisted: .*{why}", done.err), done.err


@pytest.mark.long
def test_two_jobs_of_one_name_keep_apart(
    start: Start, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    name = f"one-name-{os.getpid()}"
    jobs = []
    for number in range(2):
        folder = tmp_path / str(number)
        line = launched(folder, "--max-restarts", "1", "--rdzv-id", name,
                        "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")  # fmt: skip
        jobs.append(start(*line, JOB, folder / "ck", str(STEPS), NEVER, STOP))
    for job in jobs:
        until(lambda job=job: job.text.count("stopped\n") == 2, job)  # type: ignore[misc]
    # Both hold their fifth step now, each in a folder of its own.
    assert len(slot_folder.folders_of(name)) == 2
    for job in jobs:
        kill_a_worker(job.process.pid)
    for job in jobs:
        done = job.wait(90)
        assert done.code == 0, done.err
        assert losses(done) == undisturbed[1]
        assert starts(done)[0] == "nothing was saved: training begins"
        assert "step 5 from memory" in starts(done)
    assert slot_folder.folders_of(name) == ()


def kill_a_worker(launcher: int) -> None:
    """End one rank of a job by SIGKILL."""
    workers = [
        pid
        for pid in procfs.descendants(launcher)
        if str(JOB) in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    os.kill(min(workers), signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_goes_on_from_disk_and_says_so(
    start: Start, tmp_path: Path, ranks: int
) -> None:
    first = start(*launched(tmp_path), JOB, tmp_path / "ck", str(STEPS), NEVER, KILL).wait(90)
    assert first.code != 0
    found = persisted.latest(tmp_path / "ck")
    assert found is not None
    assert found.step == 5
    line = launched(tmp_path, ranks=ranks)
    done = start(*line, JOB, tmp_path / "ck", str(STEPS), "12").wait(90)
    assert done.code == 0, done.err
    assert starts(done)[0].startswith(f"step 5 from {found.path}"), done.err
    assert f"which 2 ranks saved: each of {ranks} gets rank 0's state" in starts(done)[0]
    assert sorted(losses(done)) == sorted(
        (rank, step) for rank in range(ranks) for step in range(6, STEPS + 1)
    )
    written = latest(tmp_path / "ck")
    assert written is not None
    assert written.step == STEPS


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.write_bytes(os.urandom(1 << 16)), "foreign"),
        (lambda path: os.truncate(path, 5000), "truncated"),
        (lambda path: spoil_headers(path), "of another version"),
    ],
    ids=["random bytes", "cut", "a header of large numbers"],
)
def test_a_hostile_slot_file_is_refused_by_name(
    start: Start,
    tmp_path: Path,
    undisturbed: Undisturbed,
    spoil: object,
    why: str,
) -> None:
    name = f"hostile-{os.getpid()}"
    line = launched(tmp_path, "--max-restarts", "1", "--rdzv-id", name,
                    "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")  # fmt: skip
    job = start(*line, JOB, tmp_path / "ck", str(STEPS), NEVER, STOP)
    until(lambda: job.text.count("stopped\n") == 2, job)
    (folder,) = slot_folder.folders_of(name)
    assert callable(spoil)
    spoil(slot_folder.slots_path(folder, 1))
    kill_a_worker(job.process.pid)
    done = job.wait(90)
    assert done.code == 0, done.err
    assert losses(done) == undisturbed[1]
    assert re.search(rf"memory is not used: .*rank 1.*\({why}\)", "\n".join(starts(done))), done.err


def spoil_headers(path: Path) -> None:
    """Write large numbers into the headers of all slots that are said to be whole."""
    data = path.read_bytes()
    _, slot_bytes = form.read_file_header(data, len(data))
    with path.open("r+b") as stream:
        for base in range(form.PAGE_BYTES, len(data) - form.PAGE_BYTES, slot_bytes):
            stream.seek(base + 8)
            stream.write(b"\xff" * (form.SLOT_HEADER_BYTES - 8))
