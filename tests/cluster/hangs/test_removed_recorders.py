"""The recorders of a running job are removed, as logind and cleaners of /dev/shm do."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.conftest import Done, Start, report_of, until
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(120 * PATIENCE)]
JOB = Path(__file__).parents[1] / "jobs" / "removed_job.py"
HANG_TIMEOUT_S = 4.0


def run(start: Start, folder: Path, last_word: str, healthy_s: float) -> Done:
    """A job that works for a while without its files, and then ends or hangs."""
    job = start(
        "launch", "--standalone", "--nproc-per-node", "2", "--hang-timeout", str(HANG_TIMEOUT_S),
        "--on-hang", "abort", "--timeline-path", folder / "t", JOB, folder,
    )  # fmt: skip
    until(lambda: (folder / "working").exists(), job, timeout_s=60)
    before = dict[str, Path]()

    def is_held() -> bool:
        """Both files are open for the monitor, and not just for one look: others read them too."""
        now = _recorders_open_in(job.process.pid)
        stay = Counter(path for number, path in now.items() if before.get(number) == path)
        before.clear()
        before.update(now)
        return len(stay) == 2 and min(stay.values()) >= 2

    until(is_held, job)
    (here,) = {path.parent for path in before.values()}
    shutil.rmtree(here)
    job.wait_for("has been removed")
    began_s = time.monotonic()
    until(lambda: time.monotonic() - began_s > healthy_s, job)
    (folder / last_word).touch()
    return job.wait(90)


def _recorders_open_in(pid: int) -> dict[str, Path]:
    """Number of a descriptor -> the recorder file that it is of."""
    files = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            files[link.name] = link.readlink()
    return {number: path for number, path in files.items() if path.suffix == ".rkhook"}


def test_a_healthy_job_goes_on_without_its_recorder_files(start: Start, tmp_path: Path) -> None:
    done = run(start, tmp_path, "end", 2.5 * HANG_TIMEOUT_S)
    assert done.code == 0, done.err
    assert "RK-" not in done.err
    assert done.err.count("can be watched on") == 1
    assert not (tmp_path / "t" / "report.json").exists()


def test_a_hang_is_named_all_the_same(start: Start, tmp_path: Path) -> None:
    done = run(start, tmp_path, "hang", 0.0)
    assert done.code == 1, done.err
    first = report_of(tmp_path / "t")["findings"][0]
    assert (first["status"], first["ranks"]) == ("fail", "1"), first
    assert any("removed_job.py" in str(reason) for reason in (first["title"], *first["reasons"]))
