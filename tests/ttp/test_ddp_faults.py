"""A DistributedDataParallel job under `relkit launch`: each fault ends as the scenario table says.

Whatever happens, the losses of the steps are those of an undisturbed run to the last bit.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from relkit.checkpoint.iteration_folder import TRACKER, half_written, iterations, problems
from relkit.launch.recovery.persist_folder import launchers_of
from relkit.process import procfs
from tests.cluster.conftest import Done, Start, Started, orphans_come_to_us, start
from tests.eager import eager
from tests.patience import PATIENCE
from tests.waiting import eventually

__all__ = ["orphans_come_to_us", "start"]
pytestmark = [pytest.mark.job, pytest.mark.timeout(120)]

JOB = Path(__file__).parent / "jobs" / "ddp_job.py"
STEPS = 60
# What differs is who frees a rank, so without the hook it is a long test.
HOOK_OR_NOT = (
    pytest.param(True, id="hook"),
    pytest.param(False, id="no-hook", marks=pytest.mark.long),
)
_LOSS = re.compile(r"^rank (\d+) step (\d+) loss (\S+)$", re.MULTILINE)


def launch(
    start: Start,
    folder: Path,
    deeds: str = "",
    *options: str,
    ranks: int = 3,
    steps: int = STEPS,
    **environ: str,
) -> Started:
    """The job on this machine."""
    return start(
        "launch", "--nproc-per-node", str(ranks), "--timeline-path", folder / "timeline",
        *options, JOB, folder / "ck", str(steps), deeds, **environ,
    )  # fmt: skip


def losses(done: Done) -> dict[tuple[int, int], str]:
    """(rank, step) -> loss; a step that was made again must have given the same."""
    found: dict[tuple[int, int], str] = {}
    for rank, step, loss in _LOSS.findall(done.out):
        key = int(rank), int(step)
        assert found.setdefault(key, loss) == loss, f"{key} differs after a restart"
    return found


def last_state(folder: Path, step: int) -> dict[str, Any]:
    """What the checkpoint of a step holds."""
    path = folder / "ck" / f"iter_{step:07d}" / "replicated.pt"
    state = torch.load(path, weights_only=True)
    assert isinstance(state, dict)
    return state


def same(one: object, other: object) -> bool:
    """Equal in every bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def finding(folder: Path) -> dict[str, Any]:
    """The one finding of ttp.json."""
    report = json.loads((folder / "timeline" / "ttp.json").read_text(encoding="utf-8"))
    (only,) = report["findings"]
    assert isinstance(only, dict)
    return only


def nothing_half(folder: Path) -> None:
    """No temporary folder, and every iteration as it was written."""
    root = folder / "ck"
    assert half_written(root) == ()
    for step in iterations(root):
        assert problems(root / f"iter_{step:07d}") == ()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """The same job without a fault: three ranks to the last step."""
    folder = tmp_path_factory.mktemp("undisturbed")
    line = [sys.executable, "-m", "relkit", "launch", "--nproc-per-node", "3", "--timeline-path"]
    done = subprocess.run(
        [*line, str(folder / "timeline"), str(JOB), str(folder / "ck"), str(STEPS), ""],
        env=eager({**os.environ, "OMP_NUM_THREADS": "1"}),
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=True,
    )
    return folder, Done(done.returncode, done.stdout, done.stderr, 0.0)


@pytest.mark.long
def test_one_fault_after_another_in_one_job(
    start: Start, tmp_path: Path, undisturbed: tuple[Path, Done]
) -> None:
    deeds = (
        "run=0:rank=1:step=8:deed=kill;"
        "run=1:rank=0:step=14:deed=kill;"
        "run=2:rank=1:step=20:deed=kill;run=2:rank=2:step=20:deed=kill;"
        "run=3:rank=2:step=26:deed=raise;"
        "run=4:rank=0:step=30:deed=kill-in-update;"
        "run=5:rank=1:step=36:deed=kill-in-barrier;"
        "run=6:rank=0:step=42:deed=raise-in-update;"
        "run=7:rank=1:step=46:deed=exit;"
        "run=8:rank=2:step=60:deed=kill-in-update"
    )
    done = launch(start, tmp_path, deeds, "--max-restarts", "9").wait(110)
    assert done.code == 0, done.err
    whole, plain = undisturbed
    expected = losses(plain)
    assert len(expected) == 3 * STEPS
    assert {k: v for k, v in losses(done).items() if expected[k] != v} == {}
    assert same(last_state(tmp_path, STEPS), last_state(whole, STEPS))
    assert done.err.count("RK-TTP-001") == 9
    saved = [int(step) for step in re.findall(r"step (\d+) was saved", done.err)]
    # Killed or failed in the making of step n: n - 1 is saved; in the update of n: n.
    assert saved == [7, 13, 19, 25, 30, 35, 42, 45, 60]
    assert "rank 0 (pid" in done.err
    assert "was killed by SIGKILL" in done.err
    assert "raised ValueError: a bad sample" in done.err
    nothing_half(tmp_path)


def test_all_but_one(start: Start, tmp_path: Path) -> None:
    deeds = ";".join(f"rank={rank}:step=9:deed=kill" for rank in (0, 2))
    done = launch(start, tmp_path, deeds).wait(60)
    assert done.code == 75, done.err
    assert (tmp_path / "ck" / TRACKER).read_text() == "8"
    assert finding(tmp_path)["id"] == "RK-TTP-001"
    nothing_half(tmp_path)


def test_a_death_in_the_dump(start: Start, tmp_path: Path) -> None:
    # Rank 0 is killed in the making of the step, rank 1 when it writes: rank 2 saves in the end.
    deeds = "rank=0:step=9:deed=kill;rank=1:step=0:deed=die-in-save"
    done = launch(start, tmp_path, deeds).wait(60)
    assert done.code == 75, done.err
    assert "during the save: planning again" in done.err
    assert last_state(tmp_path, 8)["step"] == 8
    nothing_half(tmp_path)


@pytest.mark.parametrize("hook", HOOK_OR_NOT)
def test_a_death_in_the_middle_of_a_payload(start: Start, tmp_path: Path, hook: bool) -> None:
    """No error of gloo's reaches the receiver, which is the last holder of everything."""
    deeds = "rank=0:step=9:deed=send;rank=1:step=9:deed=receive"
    done = launch(start, tmp_path, deeds, *([] if hook else ["--no-hook"]), ranks=2).wait(100)
    assert done.code == 75, done.err
    assert "rank 1: no error reaches the training thread" in done.err
    assert last_state(tmp_path, 8)["step"] == 8
    assert finding(tmp_path)["ranks"] == "0"
    nothing_half(tmp_path)


@pytest.mark.long
def test_a_stopped_rank(start: Start, tmp_path: Path) -> None:
    done = launch(start, tmp_path, "rank=1:step=9:deed=stop").wait(60)
    assert done.code == 75, done.err
    assert "rank 1 was silent for 3 s" in done.err
    assert (tmp_path / "ck" / TRACKER).read_text() == "8"


@pytest.mark.long
@pytest.mark.parametrize("deed", ["hold", "sleep"])
def test_a_rank_that_holds_the_interpreter_lock_is_left_alone(
    start: Start, tmp_path: Path, deed: str
) -> None:
    # Silent for longer than three heartbeats, and at work, or asleep in C.
    options = ("--ttp-heartbeat", "0.3")
    done = launch(start, tmp_path, f"rank=1:step=9:deed={deed}", *options, steps=12).wait(60)
    assert done.code == 0, done.err
    assert "RK-TTP" not in done.err


@pytest.mark.long
def test_a_rank_that_sleeps_for_longer_than_the_limit(start: Start, tmp_path: Path) -> None:
    options = ("--ttp-heartbeat", "0.3", "--ttp-timeout", "2")
    done = launch(start, tmp_path, "rank=1:step=9:deed=sleep", *options).wait(60)
    assert done.code == 75, done.err
    assert "rank 1 was silent for 0.9 s" in done.err
    assert (tmp_path / "ck" / TRACKER).read_text() == "8"


@pytest.mark.long
@pytest.mark.parametrize("hook", [True, False], ids=["hook", "no-hook"])
def test_an_endless_loop(start: Start, tmp_path: Path, hook: bool) -> None:
    options = ("--hang-timeout", "12") if hook else ("--hang-timeout", "12", "--no-hook")
    job = launch(start, tmp_path, "rank=2:step=9:deed=spin", *options)
    if not hook:
        # Nobody sees the hang without the hook; it is the person who asks.
        job.wait_for("rank 0 step 8 ")
        job.process.send_signal(signal.SIGTERM)
    done = job.wait(60)
    assert done.code == 75, done.err
    assert (tmp_path / "ck" / TRACKER).read_text() == "8"
    assert "did not answer in time" in done.err


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_preemption(
    start: Start, tmp_path: Path, undisturbed: tuple[Path, Done], number: signal.Signals
) -> None:
    job = launch(start, tmp_path, steps=5000)
    job.wait_for("rank 2 step 5 ")
    job.process.send_signal(number)
    done = job.wait(60)
    assert done.code == 75, done.err
    assert finding(tmp_path)["ranks"] == ""
    steps = {rank: max(s for r, s in losses(done) if r == rank) for rank in range(3)}
    saved = int((tmp_path / "ck" / TRACKER).read_text())
    if "all ranks are stopped where they are" in done.err:
        # On a machine that is too busy for a pause: one in the barrier makes its step in the save.
        assert {saved} <= set(steps.values()) <= {saved - 1, saved}
    else:
        # Everybody has finished the step that is saved, and none has begun another.
        assert set(steps.values()) == {saved}
    expected = losses(undisturbed[1])
    assert all(expected.get(key, loss) == loss for key, loss in losses(done).items())


@pytest.mark.long
def test_a_death_before_the_first_step_is_done(start: Start, tmp_path: Path) -> None:
    name = f"first-step-{os.getpid()}"
    options = ("--rdzv-id", name, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
    job = launch(start, tmp_path, "rank=1:step=1:deed=stop", *options)

    def stopped() -> int:
        """Rank 1, once it stands in its first step; 0 before the controller knows all ranks."""
        if [state.get("phase") for _, state in launchers_of(name)] != ["normal"]:
            return 0
        ranks = procfs.descendants(job.process.pid)
        return next((pid for pid in ranks if procfs.process_state(pid).startswith("T")), 0)

    os.kill(eventually(stopped, lambda: job.text), signal.SIGKILL)
    assert_refused(job, tmp_path, "no step has been committed yet")


def test_a_state_that_is_not_finite(start: Start, tmp_path: Path) -> None:
    deeds = ";".join(f"rank={rank}:step=9:deed=nan" for rank in range(2))
    job = launch(start, tmp_path, f"{deeds};rank=1:step=10:deed=kill", ranks=2)
    assert_refused(job, tmp_path, "is not finite")


def assert_refused(job: Started, folder: Path, words: str) -> None:
    """The job ends without a checkpoint, and says why."""
    done = job.wait(60)
    assert done.code == 76, done.err
    assert words in done.err, done.err
    assert finding(folder)["id"] == "RK-TTP-002"
    assert not (folder / "ck" / TRACKER).exists()
    assert half_written(folder / "ck") == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for hardly anything, where checkpoints go."""
    folder = tmp_path / "ck"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k,mode=0700", "relkit-test", str(folder)]
    subprocess.run(mount, check=True, timeout=10)
    yield folder
    subprocess.run(["umount", str(folder)], check=True, timeout=10)


@pytest.mark.root
def test_a_full_disk(start: Start, tmp_path: Path, small_disk: Path) -> None:
    deed = "rank=1:step=9:deed=kill"
    done = launch(start, tmp_path, deed, "--max-restarts", "0", ranks=2).wait(60)
    assert done.code == 77, done.err
    assert "No space left on device" in done.err
    assert finding(tmp_path)["id"] == "RK-TTP-003"
    assert half_written(small_disk) == ()
    assert not (small_disk / TRACKER).exists()


@pytest.mark.long
def test_a_folder_that_cannot_be_made(start: Start, tmp_path: Path) -> None:
    # Root may write anywhere, but not below a file.
    (tmp_path / "ck").write_text("")
    done = launch(start, tmp_path, "rank=1:step=9:deed=kill", ranks=2).wait(60)
    assert done.code == 77, done.err
    assert "cannot write" in done.err


def test_a_rank_that_ends_before_it_has_begun(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "early.py"
    script.write_text(
        "import os, sys, runpy\n"
        "if os.environ['RANK'] == '1':\n"
        "    import torch.distributed as dist\n"
        "    dist.init_process_group('gloo')\n"
        # At once: a Python that shuts down closes its connections long before it has ended, and
        # the others may have failed for that by then.
        "    os._exit(4)\n"
        f"sys.argv = {[str(JOB), str(tmp_path / 'ck'), '20', '']!r}\n"
        f"runpy.run_path({str(JOB)!r}, run_name='__main__')\n"
    )
    done = start(
        "launch", "--nproc-per-node", "2", "--timeline-path", tmp_path / "timeline", script
    ).wait(60)
    # What torchrun gives, or the refusal, by who comes first; in both nothing is claimed as saved.
    assert done.code in (1, 76), done.err
    assert "rank 1" in done.err
    assert "exited with code 4" in done.err
    assert "RK-TTP-001" not in done.err
    assert not (tmp_path / "ck" / TRACKER).exists()
    assert done.duration_s < 40


@pytest.mark.long
def test_switched_off_it_is_torchrun(
    start: Start, tmp_path: Path, undisturbed: tuple[Path, Done]
) -> None:
    done = launch(start, tmp_path, "rank=1:step=9:deed=kill", ENABLE_TTP="False").wait(60)
    assert done.code == 1, done.err
    assert "Signal 9 (SIGKILL) received" in done.err
    assert "RK-TTP" not in done.err
    assert not (tmp_path / "ck").exists()
    expected, made = losses(undisturbed[1]), losses(done)
    # No rank finishes step 9, in which rank 1 is killed; a slow one may be ended before it has
    # written its line of step 8.
    assert {(rank, step) for rank in range(3) for step in range(1, 8)} <= made.keys()
    assert {step for rank, step in made if rank == 1} == set(range(1, 9))
    assert max(step for _, step in made) == 8
    assert {key: loss for key, loss in made.items() if expected[key] != loss} == {}


def test_the_launcher_is_killed(start: Start, tmp_path: Path) -> None:
    job = launch(start, tmp_path, steps=5000, ranks=2)
    job.wait_for("rank 1 step 5 ")
    os.kill(job.process.pid, signal.SIGKILL)
    assert job.wait(20).code == -signal.SIGKILL
    assert not (tmp_path / "ck" / TRACKER).exists()
