"""`relkit ttp` against a job that runs: it is found by its id, looked at, saved and ended."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from relkit.checkpoint.iteration_folder import TRACKER
from relkit.hook.environment import job_dir
from tests.cluster.conftest import EXAMPLE, Start, orphans_come_to_us, start
from tests.ttp.test_ddp_faults import HOOK_OR_NOT, launch

__all__ = ["orphans_come_to_us", "start"]
pytestmark = [pytest.mark.job, pytest.mark.timeout(120)]


@pytest.mark.parametrize("hook", HOOK_OR_NOT)
def test_status_and_save(start: Start, tmp_path: Path, hook: bool) -> None:
    name = f"ttp-{os.getpid()}-{hook}"
    options = ["--rdzv-id", name, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    options += [] if hook else ["--no-hook"]
    job = launch(start, tmp_path, "", *options, ranks=2, steps=100_000)
    job.wait_for("rank 0 step 9 ")
    job.wait_for("rank 1 step 40 ")
    status = start("ttp", "status", name).wait()
    assert status.code == 0, status.err
    assert f"job {name}, node 0: normal, controller active, attempt 0, 2 ranks" in status.out
    plain = json.loads(start("ttp", "status", "--json", name).wait().out)
    assert plain["schema"] == "relkit.ttp.status/1"
    assert {rank["rank"] for rank in plain["ranks"]} == {0, 1}
    saved = start("ttp", "save", name).wait()
    done = job.wait()
    assert saved.code == 0, saved.err + done.err
    step = (tmp_path / "ck" / TRACKER).read_text()
    assert f"step {step} was saved" in saved.out
    assert done.code == 75
    assert "it began when relkit ttp save asked for it" in done.err
    assert not job_dir(name).exists()
    assert start("ttp", "status", name).wait().code == 3


def test_a_job_that_is_not_under_it(start: Start, tmp_path: Path) -> None:
    name = f"plain-{os.getpid()}"
    job = start(
        "launch", "--rdzv-id", name, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
        "--timeline-path", tmp_path / "t", EXAMPLE, "--steps", "100000",
    )  # fmt: skip
    job.wait_for("step    0")
    saved = start("ttp", "save", name).wait()
    assert saved.code == 3
    assert "is under try-to-persist" in saved.err
    status = start("ttp", "status", name).wait()
    assert "no rank is under try-to-persist" in status.out
    job.stop()


def test_no_such_job(start: Start) -> None:
    done = start("ttp", "save", "no-such-job").wait()
    assert done.code == 3
    assert "no launcher of a job 'no-such-job'" in done.err
    assert start("ttp", "status", "../etc").wait().code == 2
