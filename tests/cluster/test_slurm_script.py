"""`relkit slurm render` under a real Slurm: time limit, lost nodes, the queue, the same numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.hosts import some_hosts
from tests.cluster.slurm import Slurm, a_slurm
from tests.patience import PATIENCE
from tests.waiting import eventually

pytestmark = [
    pytest.mark.root, pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(600 * PATIENCE),
]  # fmt: skip
JOB = Path(__file__).parent / "jobs" / "replica_job.py"
_LOSS = re.compile(r"^rank (\d+) step (\d+) loss (\S+)$", re.MULTILINE)
_ENV = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "DISK_EVERY": "20"}


@dataclass(frozen=True)
class Job:
    """A job of a rendered script, and what its ranks have written."""

    slurm: Slurm
    folder: Path
    number: str

    @property
    def state(self) -> dict[str, str]:
        """What Slurm says of it: JobState, Restarts, ExitCode, NodeList, ..."""
        text = self.slurm.run("scontrol", "-o", "show", "job", self.number)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    @property
    def text(self) -> str:
        file = self.folder / "out"
        said = file.read_text(errors="replace") if file.exists() else ""
        return f"{said}\n{self.slurm.logs()}"

    def steps_on(self, name: str) -> list[int]:
        """The steps that ranks of this node have finished, in their order."""
        file = self.folder / f"losses-{name}"
        return (
            [int(step) for _, step, _ in _LOSS.findall(file.read_text())] if file.exists() else []
        )

    def losses(self) -> dict[tuple[int, int], str]:
        """(rank, step) -> loss; a step that was done twice must have given the same."""
        seen: dict[tuple[int, int], str] = {}
        for file in self.folder.glob("losses-*"):
            for rank, step, loss in _LOSS.findall(file.read_text()):
                key = int(rank), int(step)
                assert seen.setdefault(key, loss) == loss, f"{key} differs after a restart"
        return seen

    def await_step(self, step: int, *names: str) -> None:
        self.until(lambda: all(max(self.steps_on(name), default=-1) > step for name in names))

    def await_state(self, **wanted: str) -> dict[str, str]:
        self.until(lambda: wanted.items() <= self.state.items())
        return self.state

    def until(self, done: Callable[[], bool]) -> None:
        eventually(done, lambda: f"{self.state}\n{self.text}", 90, poll_s=0.2)

    def start_now(self) -> None:
        """Slurm starts a job that came back into the queue only two minutes later.

        Not at once either: nodes refuse credentials of the second in which they ended the job.
        """

        is_asked: list[bool] = []

        def is_running() -> bool:
            state = self.state
            if state["JobState"] == "PENDING" and not is_asked:
                is_asked.append(True)
                self.slurm.run("scontrol", "update", f"JobId={self.number}", "StartTime=now+5")
            return state["JobState"] == "RUNNING"

        self.until(is_running)

    def finish(self) -> dict[str, str]:
        (self.folder / "end").touch()
        return self.await_state(JobState="COMPLETED", ExitCode="0:0")

    def assert_undisturbed(self) -> None:
        """A job of torchrun on one host, to which nothing happens, has the same losses."""
        losses = self.losses()
        last = max(step for _, step in losses)
        alone = self.folder / "undisturbed"
        alone.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             str(JOB), str(alone), str(last), "0"],
            env={**os.environ, "OMP_NUM_THREADS": "1", "DISK_EVERY": "20",
                 "RELKIT_NODE_NAME": "alone"},
            capture_output=True, text=True, timeout=120 * PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        text = (alone / "losses-alone").read_text()
        expected = {(int(rank), int(step)): loss for rank, step, loss in _LOSS.findall(text)}
        # The last step of all may be one that a rank was stopped in.
        assert losses.items() <= expected.items()
        assert {(rank, step) for rank in (0, 1) for step in range(1, last)} <= losses.keys()


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    """For one test, as some lose a node."""
    with (
        some_hosts(tmp_path, 3, sshd=False) as hosts,
        a_slurm(tmp_path / "slurm", hosts, named=True) as fleet,
    ):
        yield fleet


def submit(slurm: Slurm, folder: Path, *options: str, step_s: str = "0.1") -> Job:
    """Render a script, have Slurm take it."""
    relkit = f"{sys.executable} -m relkit"
    argv = [
        sys.executable, "-m", "relkit", "slurm", "render", "--nodes", "2", "--relkit", relkit,
        "--launch", "--no-warm-standby", "-o", str(folder / "job.sh"), *options,
        str(JOB), str(folder), "100000", step_s,
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    words = ["sbatch", "--parsable", "-D", str(folder), "-o", f"{folder}/out", f"{folder}/job.sh"]
    number = subprocess.run(
        words, env={**os.environ, **slurm.environ, **_ENV},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return Job(slurm, folder, number.stdout.strip())


def test_before_its_time_is_over_a_job_saves_and_comes_again_with_the_same_numbers(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = submit(slurm, tmp_path, "--time=3", "--save-before=100")
    job.await_step(5, "h1", "h2")
    assert job.await_state(Restarts="1")["JobState"] != "TIMEOUT"
    before = max(job.steps_on("h1"))
    job.start_now()
    job.await_step(before + 3, "h1", "h2")
    job.finish()

    said = job.text
    assert "the time is nearly over: the launchers are told to save and to end" in said
    assert "flash checkpoint: step" in said
    assert "DUE TO TIME LIMIT" not in said
    # It went on where it was told to end: a rank may have been in its next step.
    steps = job.steps_on("h1")
    assert len(steps) - len(set(steps)) <= 1, said
    assert (tmp_path / f"relkit-{job.number}" / "ends-0" / "0.code").read_text() == "143\n"
    job.assert_undisturbed()


def test_without_a_spare_slurm_starts_a_job_again_whose_node_is_lost(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = submit(slurm, tmp_path)
    job.await_step(45, "h1", "h2")
    slurm.lose("h2")
    job.await_state(Restarts="1")
    job.start_now()
    job.await_step(50, "h3")
    assert min(job.steps_on("h3")) > 20, "it did not resume from what is on disk"
    job.finish()
    job.assert_undisturbed()


def test_a_spare_takes_the_place_of_a_lost_node_and_the_job_stays(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = submit(slurm, tmp_path, "--spares=1", "--launch=--replica-count 1")
    job.until(lambda: sum(bool(job.steps_on(name)) for name in ("h1", "h2", "h3")) == 2)
    (spare,) = (name for name in ("h1", "h2", "h3") if not job.steps_on(name))
    assert spare != "h1", "the first node has the rendezvous"
    lost = "h2" if spare == "h3" else "h3"
    job.await_step(25, lost)
    slurm.lose(lost)
    job.await_step(40, spare)
    state = job.finish()
    assert state["Restarts"] == "0"
    assert f"node {spare} takes the place of node {lost}" in job.text
    job.assert_undisturbed()


def test_a_job_that_is_cancelled_saves_and_stays_away(slurm: Slurm, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path)
    job.await_step(5, "h1", "h2")
    slurm.run("scancel", job.number)
    job.await_state(JobState="CANCELLED", Restarts="0")
    job.until(lambda: "is kept in" in job.text)


def test_a_failed_job_has_the_launchers_exit_code(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "ck").write_text("no folder")
    job = submit(slurm, tmp_path, "--max-restarts=0")
    state = job.await_state(JobState="FAILED", Restarts="0")
    assert state["ExitCode"] == "1:0"
