"""The import in Megatron programs over megatron-core from PyPI: no bit changes, no step is lost."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from relkit.checkpoint import iteration_folder
from tests.cluster.conftest import Start, orphans_come_to_us, start

__all__ = ["orphans_come_to_us", "start"]
JOB = Path(__file__).parent / "jobs" / "pretrain_mini.py"
STEPS = 6
# megatron-core asks for what `tests.eager` leaves out of torch.
TRUE_TORCH = ("env", f"PYTHONPATH={Path(__file__).parents[2]}", sys.executable, "-m", "relkit")


@dataclass(frozen=True)
class Case:
    """A layout.

    Args:
        ranks: of the job; options: of the program; phase: of the step in which a rank is killed.
    """

    name: str
    ranks: int
    options: str
    phase: str = "forward"

    def marked(self) -> object:
        """As a parameter: all but the first are long."""
        marks = () if self.name == "dp2" else pytest.mark.long
        return pytest.param(self, id=self.name, marks=marks)


SHARDED = "--use-distributed-optimizer --num-distributed-optimizer-instances 2"
CASES = (
    Case("dp2", 2, "", "forward"),
    Case("dp2-bf16", 2, "--type bfloat16", "barrier"),
    Case("dp2-fp16", 2, "--type float16", "update"),
    Case("tp2", 4, "--tp 2", "forward"),
    Case("ep2", 4, "--ep 2", "update"),
    Case("sharded", 4, SHARDED, "forward"),
    Case("sharded-odd", 6, f"{SHARDED} --global-batch-size 12", "update"),
)

pytestmark = [pytest.mark.job, pytest.mark.timeout(500)]


@dataclass(frozen=True)
class Seen:
    """What a job printed: each step's loss by rank, each rank's weights at the end, and stderr."""

    losses: dict[str, str]
    weights: dict[str, str]
    err: str
    code: int


def run(start: Start, tmp_path: Path, case: Case, name: str, **environ: str) -> Seen:
    adaptor = environ.pop("ADAPTOR", "yes")
    done = start(
        "launch", "--nproc-per-node", str(case.ranks), "--max-restarts", "1", "--no-warm-standby",
        "--timeline-path", tmp_path / f"{name}-t", JOB, "--adaptor", adaptor, "--save",
        tmp_path / name, "--train-iters", str(STEPS), *case.options.split(),
        program=TRUE_TORCH, **environ,
    ).wait(220)  # fmt: skip
    losses = dict(re.findall(r"^(iteration \d+ rank \d+) loss (\S+)", done.out, re.M))
    weights = dict(re.findall(r"^rank (\d+) weights (\S+)", done.out, re.M))
    return Seen(losses, weights, done.err, done.code)


@pytest.mark.parametrize("case", [case.marked() for case in CASES])
def test_a_killed_job_goes_on_to_the_bits_of_one_without_the_import(
    start: Start, tmp_path: Path, case: Case
) -> None:
    """And an undisturbed job with it has those bits, too: what is killed has made steps with it."""
    plain = run(start, tmp_path, case, "plain", ADAPTOR="no")
    assert plain.code == 0, plain.err
    assert len(plain.weights) == case.ranks
    phase, victim, step = case.phase, case.ranks - 1, 4
    killed = run(
        start, tmp_path, case, "killed", RELKIT_FLASH_EVERY="0",
        RELKIT_TTP_INJECT=f"run=0:rank={victim}:step={step}:phase={phase}",
    )  # fmt: skip
    assert killed.code == 0, killed.err
    assert re.search(r"step [34] was saved", killed.err), killed.err
    assert "goes on from what it has saved" in killed.err
    assert killed.losses.items() <= plain.losses.items()
    assert killed.weights == plain.weights
    # Nothing but the emergency save wrote, and Megatron's own reader has read it.
    (saved,) = iteration_folder.iterations(tmp_path / "killed")
    assert saved == (step if phase == "update" else step - 1)
    # What was killed in the update has not printed that step's loss; it was not made again.
    missing = {int(line.split()[1]) for line in plain.losses.keys() - killed.losses.keys()}
    assert missing == ({step} if phase == "update" else set())


@pytest.mark.long
def test_steps_in_memory_change_no_bit_and_are_loaded(start: Start, tmp_path: Path) -> None:
    """The memory's step is loaded where nothing was saved to disk (ENABLE_TTP is off)."""
    case = Case("dp2", 2, f"--load {tmp_path / 'killed'}")
    plain = run(start, tmp_path, case, "plain", ADAPTOR="no")
    kept = run(start, tmp_path, case, "killed", ENABLE_TTP="False", KILL="1:5")
    assert kept.code == 0, kept.err
    # The last save was under way when the rank was killed.
    assert re.search(r"step [345] from memory", kept.err), kept.err
    assert kept.losses.items() <= plain.losses.items()
    assert kept.weights == plain.weights
