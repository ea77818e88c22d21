"""relkit launch --straggler on real jobs: who is said to be slow, why, and what is kept of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.straggler.healthy_jobs import KINDS, busy_loops, run_one
from relkit.hook.environment import job_dir
from relkit.straggler.model import Cause, Subject
from relkit.straggler.transport import control
from relkit.straggler.transport.control_settings import Control, Mode
from relkit.straggler.transport.history import load
from tests.cluster.conftest import Start, orphans_come_to_us, start
from tests.straggler.hosts_job import run_on_hosts

__all__ = ("orphans_come_to_us", "start")
pytestmark = [pytest.mark.job, pytest.mark.timeout(150)]

JOBS = Path(__file__).resolve().parents[2] / "benchmarks" / "jobs"
STAND_IN = JOBS / "stand_in.py"


def relkit(*line: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "relkit", "straggler", *map(str, line)],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip


def launch(start: Start, timeline: Path, fault: str, *job: str, ranks: int = 4) -> str:
    """A job to its end; what was said of it."""
    inject = ("--inject", fault) if fault else ()
    done = start(
        "launch", "--nproc-per-node", str(ranks), "--timeline-path", timeline, *inject,
        STAND_IN, *job,
    ).wait(120)  # fmt: skip
    assert done.code == 0, done.err
    return done.err


def test_a_slow_rank_is_said_while_the_job_runs_and_reported_after_it(
    start: Start, tmp_path: Path
) -> None:
    # Steps of three times the length: what a busy machine adds to one of them is little.
    fault = "slow-compute:rank=2:step=20:share=2:kind=timer"
    said = launch(start, tmp_path, fault, "--steps=60")
    assert "straggler: rank 2" in said
    report = relkit("report", tmp_path, "--json")
    plain = json.loads(report.stdout)
    (slow,) = plain["stragglers"]
    assert (slow["rank"], slow["cause"]) == (2, str(Cause.COMPUTE))
    assert 17 <= slow["first_step"] <= 27
    assert 1.0 <= slow["score"] <= 2.5
    assert report.returncode == 1
    kept = load(tmp_path / "straggler" / "history.npz")
    assert kept.ended
    assert kept.verdicts[0].raised_step <= 60
    page = relkit("report", tmp_path, "-o", tmp_path / "page.html")
    assert page.returncode == 1, page.stderr
    assert "rank 2" in (tmp_path / "page.html").read_text()


@pytest.mark.long
def test_collections_of_garbage_are_the_hosts(start: Start, tmp_path: Path) -> None:
    launch(start, tmp_path, "gc:rank=1:step=15:ms=200:every=3", "--steps=80")
    raised = load(tmp_path / "straggler" / "history.npz").verdicts
    assert [(one.verdict.rank, one.verdict.cause) for one in raised] == [(1, Cause.HOST)]
    assert any("garbage" in reason for reason in raised[0].verdict.reasons)


def test_a_slow_loader_is_the_input(start: Start, tmp_path: Path) -> None:
    launch(start, tmp_path, "slow-input:rank=0:step=15:share=2", "--steps=60")
    raised = load(tmp_path / "straggler" / "history.npz").verdicts
    assert [(one.verdict.rank, one.verdict.cause) for one in raised] == [(0, Cause.INPUT)]


def test_a_healthy_job_hears_nothing(start: Start, tmp_path: Path) -> None:
    with busy_loops(4):
        said = launch(start, tmp_path, "", "--steps=100", "--step-ms=60")
    assert "straggler: " not in said
    kept = load(tmp_path / "straggler" / "history.npz")
    # Evidence that was dismissed (a busy machine makes some) accuses nobody.
    assert not list(kept.accusations)
    assert kept.steps >= 60
    assert relkit("report", tmp_path).returncode == 0


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(len(KINDS)), ids=[kind[0] for kind in KINDS])
def test_jobs_of_each_kind_hear_nothing_on_a_busy_machine(number: int, tmp_path: Path) -> None:
    """Each of benchmarks/straggler/healthy_jobs.py once, among them one that saves on rank 0."""
    result = run_one(number, 4, slow=False, seconds=6.0, keep=tmp_path)
    assert result.right, result


def test_it_is_switched_off_and_on_while_the_job_runs(start: Start, tmp_path: Path) -> None:
    name = f"tune-{os.getpid()}"
    # Of an earlier job by the same name, whose launcher was killed: nobody asks this one for it.
    job_dir(name).mkdir(mode=0o700, parents=True)
    control.write(job_dir(name), {"mode": "exclude"})
    job = start(
        "launch", "--nproc-per-node", "2", "--rdzv-id", name, "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "127.0.0.1:0", "--straggler", "off", "--timeline-path", tmp_path,
        "--inject", "slow-compute:rank=1:step=0:share=2:kind=timer", STAND_IN, "--steps=100000",
    )  # fmt: skip
    job.wait_for("watching rank")
    assert control.read(job_dir(name), Control(Mode.OFF)).mode is Mode.OFF
    assert not (job_dir(name) / "straggler.npz").exists()
    assert relkit("tune", name, "--mode", "warn", "--min-slowdown", "0.2").returncode == 0
    job.wait_for("straggler: rank 1")
    shown = relkit("watch", name, "--once")
    assert "slow-compute" in shown.stdout
    assert relkit("tune", name, "--mode", "off").returncode == 0
    job.wait_for("off")
    assert control.read(job_dir(name), Control()).mode is Mode.OFF
    job.stop()


@pytest.mark.long
@pytest.mark.root
def test_a_slow_interface_of_one_of_four_hosts(tmp_path: Path) -> None:
    job = ("stand_in.py", "--steps=50", "--step-ms=40", "--layers=2", "--elements=65536")
    run_on_hosts(tmp_path, JOBS, job, 2, 20, "interface", 100.0)
    kept = load(tmp_path / "straggler" / "history.npz")
    raised = list(kept.accusations)
    assert raised
    verdicts = [accusation.verdict for accusation in raised]
    assert {verdict.cause for verdict in verdicts} == {Cause.NETWORK}
    assert {verdict.subject for verdict in verdicts} <= {Subject.LINK, Subject.HOST}
    # The host itself, or edges that end at it: nobody else's.
    assert all("h3" in verdict.ends for verdict in verdicts), verdicts
