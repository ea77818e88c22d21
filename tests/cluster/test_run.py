"""`relkit run`: other launchers' commands under the same hook and monitor."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import ENDLESS, EXAMPLE, Start, report_of

pytestmark = pytest.mark.job

# What a hang is announced with; the end of a command is announced without a limit.
_HUNG = re.compile(r"limit .*capturing all ranks")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")


def test_exit_code_and_output_are_the_commands(start: Start, tmp_path: Path) -> None:
    code = "import sys; print('hello'); sys.exit(7)"
    done = start("run", "--timeline-path", tmp_path / "t", "--", sys.executable, "-c", code).wait()
    assert (done.code, done.out) == (7, "hello\n"), done.err


def test_a_killed_command(start: Start, tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    done = start("run", "--timeline-path", tmp_path / "t", "--", sys.executable, "-c", code).wait()
    assert done.code == 128 + signal.SIGKILL


def test_no_such_command(start: Start, tmp_path: Path) -> None:
    done = start("run", "--timeline-path", tmp_path / "t", "--", "no-such-program").wait()
    assert done.code == 2
    assert "no-such-program" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_handed_on(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    job = start("run", "--timeline-path", tmp_path / "t", "--", sys.executable, "-c", code)
    job.wait_for("ready")
    job.process.send_signal(number)
    assert job.wait(20).code == 42


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_rank_that_was_asked_to_end_has_not_failed(
    start: Start, tmp_path: Path, free_port: int, number: signal.Signals
) -> None:
    job = start(
        "run", "--timeline-path", tmp_path / "t", "--", sys.executable, EXAMPLE, *ENDLESS,
        RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port),
    )  # fmt: skip
    job.wait_for("step    5")
    job.process.send_signal(number)
    done = job.wait()
    ends = {128 + number}
    if number == signal.SIGINT:
        # Python is taken down in the middle of a backward pass: where gloo's thread is late, torch
        # aborts the process (pytorch/pytorch#179291).
        ends.add(128 + signal.SIGABRT)
    assert done.code in ends
    assert "relkit:" not in done.err, done.err
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.long
def test_a_hang_under_torchrun(start: Start, tmp_path: Path) -> None:
    done = start(
        "run", "--hang-timeout", "4", "--on-hang", "abort", "--timeline-path", tmp_path / "t",
        "--", *TORCHRUN, EXAMPLE, *ENDLESS, RELKIT_INJECT="stop:rank=1:step=4",
    ).wait()  # fmt: skip
    assert done.code == 1, done.err
    assert report_of(tmp_path / "t")["culprits"] == [1], done.err


@pytest.mark.long
def test_a_healthy_torchrun(start: Start, tmp_path: Path) -> None:
    done = start(
        "run", "--hang-timeout", "6", "--timeline-path", tmp_path / "t", "--",
        *TORCHRUN, EXAMPLE, "--steps", "10",
    ).wait()  # fmt: skip
    assert done.code == 0, done.err
    assert "done: 10 steps" in done.out
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.long
def test_several_of_one_job_are_watched_together(
    start: Start, tmp_path: Path, free_port: int
) -> None:
    """As `srun relkit run -- python train.py` starts them: one `relkit run` a rank."""

    def rank(number: int) -> dict[str, str]:
        return {
            "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port),
            "RELKIT_INJECT": "hang:rank=1:step=4",
        }  # fmt: skip

    jobs = [
        start(
            "run", "--job-id", f"pair-{os.getpid()}", "--hang-timeout", "4", "--on-hang", "abort",
            "--timeline-path", tmp_path / "t", "--",
            sys.executable, EXAMPLE, *ENDLESS, **rank(number),
        )
        for number in (0, 1)
    ]  # fmt: skip
    ends = [job.wait() for job in jobs]
    assert report_of(tmp_path / "t")["culprits"] == [1]
    # The one that leads ends the whole job; the other one's command is gone with it.
    assert sorted(done.code for done in ends)[0] == 1
    # Whoever does not lead may still see its own command being ended, and look at that.
    captured = [len(_HUNG.findall(done.err)) for done in ends]
    assert sorted(captured) == [0, 1]
