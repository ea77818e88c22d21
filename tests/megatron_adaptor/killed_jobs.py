"""Jobs of Megatron programs whose ranks are killed from outside, beside one that nobody disturbs.

The undisturbed job saves each step, so that whatever survivors save is held against the same step.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.megatron_facts import OBJECTS_OF
from relkit.checkpoint.torch_file import read_plain
from relkit.process import procfs
from tests.cluster.conftest import Start, Started
from tests.patience import PATIENCE
from tests.ttp.jobs.compare import same

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).parent / "jobs"
# Of a job, for each kill: more than are made until it happens.
STEPS_A_KILL = 12
_FIRST_STEPS = 4
# After the chosen step was printed: several steps long.
_LATEST_S = 0.15
_LIMIT_S = 200.0
_BEGINS = "rank 0 begins\n"
# megatron-core's loop here prints bits, rank by rank; Megatron-LM's own seven digits.
_LINE = re.compile(r"iteration +(\d+)(?: rank (\d+) loss (\S+)|/.*?lm loss: (\S+).*? norm: (\S+))")


@dataclass(frozen=True, slots=True)
class Program:
    """A Megatron program.

    Args:
        words: of its command line, given where it saves, how many steps it makes, each how many-th
            it saves, and whether it has the import.
        path: of modules, before relkit's.
        averages: whether its second line after a start has the mean of two losses.
    """

    words: Callable[[Path, int, int, bool], Sequence[str | Path]]
    path: str = ""
    averages: bool = False

    def launched(
        self,
        start: Start,
        folder: Path,
        words: Sequence[str | Path],
        ranks: int,
        restarts: int,
        environ: Mapping[str, str],
    ) -> Started:
        """A job that has been started."""
        # megatron-core asks for what `tests.eager` leaves out of torch.
        paths = ":".join(filter(None, (self.path, str(ROOT))))
        true_torch = ("env", f"PYTHONPATH={paths}", sys.executable, "-m", "relkit")
        return start(
            "launch", "--nproc-per-node", str(ranks), "--max-restarts", str(restarts),
            "--no-warm-standby", "--timeline-path", folder / "t", *words,
            program=true_torch, **environ,
        )  # fmt: skip


@dataclass(slots=True)
class Seen:
    """What became of a job.

    Args:
        killed: each kill's rank, and the last step that was printed before it.
        resumed: the first step printed by each later start of the ranks.
        err: what launcher and ranks have written to stderr; wrong: what is not as it should be.
    """

    killed: list[tuple[int, int]] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    err: str = ""
    wrong: list[str] = field(default_factory=list)


def killed_job(
    start: Start,
    folder: Path,
    program: Program,
    ranks: int,
    kills: int,
    seed: int = 1,
    environ: Mapping[str, str] | None = None,
) -> Seen:
    """An undisturbed job without the import, and one whose random ranks are killed.

    Args:
        folder: for all that they write; kills: how many; seed: of ranks and moments.
    """
    steps = STEPS_A_KILL * (kills + 2)
    folder.mkdir(parents=True, exist_ok=True)
    words = program.words(folder / "plain", steps, 1, False)
    plain = program.launched(start, folder, words, ranks, 0, {}).wait(_LIMIT_S)
    if plain.code:
        return Seen(wrong=[f"the undisturbed job ended with {plain.code}:\n{plain.err[-3000:]}"])
    seen = Seen()
    words = program.words(folder / "killed", steps, steps, True)
    job = program.launched(start, folder, words, ranks, kills + 1, environ or {})
    dice = random.Random(seed)  # noqa: S311 (nothing secret)
    for number in range(kills):
        if not _kill_one(job, seen, dice, number):
            break
    done = job.wait(_LIMIT_S)
    seen.err = done.err
    if done.code:
        seen.wrong.append(f"the job ended with {done.code}:\n{done.err[-3000:]}")
    _judge_lines(seen, plain.out, done.out, program)
    seen.wrong += _steps_that_differ(folder)
    return seen


def _kill_one(job: Started, seen: Seen, dice: random.Random, number: int) -> bool:
    """Kill a rank some time after its start has printed a step or some; False if it has ended."""
    end = time.monotonic() + _LIMIT_S * PATIENCE
    wanted = dice.randint(1, _FIRST_STEPS)
    while True:
        starts = _starts(job.out.read_text(encoding="utf-8", errors="replace"))
        if len(starts) > number and len({step for step, _, _ in starts[-1]}) >= wanted:
            break
        if job.process.poll() is not None:
            return False
        if time.monotonic() > end:
            seen.wrong.append(f"no step in time after kill {number}:\n{job.text[-4000:]}")
            job.stop()
            return False
        time.sleep(0.01)
    # At a moment that nothing in the job chooses.
    time.sleep(dice.uniform(0.0, _LATEST_S))
    workers = _workers(job.process.pid)
    if not workers:
        return False
    rank = dice.choice(sorted(workers))
    starts = _starts(job.out.read_text(encoding="utf-8", errors="replace"))
    os.kill(workers[rank], signal.SIGKILL)
    seen.killed.append((rank, max(step for step, _, _ in starts[-1])))
    return True


def _workers(launcher: int) -> dict[int, int]:
    """The ranks' processes, without those that they have started."""
    ranks = {pid: procfs.rank_environment(pid).get("RANK") for pid in procfs.descendants(launcher)}
    return {
        int(rank): pid
        for pid, rank in ranks.items()
        if rank is not None and ranks.get(procfs.parent(pid)) is None
    }


Line = tuple[int, str, str]


def _starts(out: str) -> list[list[Line]]:
    """Of each start of the ranks, its lines: step, rank and loss."""
    return [
        [
            (int(step), rank or "", loss or f"{printed} {norm}")
            for step, rank, loss, printed, norm in _LINE.findall(part)
        ]
        for part in out.split(_BEGINS)[1:]
    ]


def _judge_lines(seen: Seen, plain: str, out: str, program: Program) -> None:
    """No step that was printed is made again, and each has the loss of the undisturbed job."""
    (undisturbed,) = _starts(plain)
    expected = {(step, rank): loss for step, rank, loss in undisturbed}
    starts, last = _starts(out), 0
    if len(starts) != len(seen.killed) + 1:
        seen.wrong.append(f"{len(starts)} starts after {len(seen.killed)} kills")
    for number, lines in enumerate(starts):
        steps = sorted({step for step, _, _ in lines})
        if not steps:
            seen.wrong.append(f"start {number} made no step")
            continue
        if number:
            seen.resumed.append(steps[0])
        if steps[0] <= last:
            seen.wrong.append(f"step {last} was made, and start {number} began with {steps[0]}")
        last = steps[-1]
        # The mean of this one and of the first, which Megatron prints at once and does not forget.
        untold = steps[1] if program.averages and number and len(steps) > 1 else 0
        for step, rank, loss in lines:
            of_both = program.averages and step == untold
            told = loss.split()[-1] if of_both else loss
            known = expected.get((step, rank), "")
            if told != (known.split()[-1] if of_both and known else known):
                seen.wrong.append(f"step {step} of rank {rank or '-'}: {loss}, undisturbed {known}")
    if last != max(step for step, _ in expected):
        seen.wrong.append(f"the last step was {last}")


def _steps_that_differ(folder: Path) -> list[str]:
    """Of what the killed job has on disk, what the undisturbed one has not to the last bit."""
    wrong = []
    for step in iteration_folder.iterations(folder / "killed"):
        one, other = (
            folder / name / iteration_folder.iteration_name(step) for name in ("killed", "plain")
        )
        files = sorted(path.relative_to(other) for path in other.rglob("*.pt"))
        there = sorted(path.relative_to(one) for path in one.rglob("*.pt"))
        if files != there:
            wrong.append(f"step {step} has the files {there}, undisturbed {files}")
            continue
        found = (same(_content(one / n), _content(other / n), str(n)) for n in files)
        wrong += [f"step {step} differs: {where}" for where in found if where]
    return wrong


def _content(path: Path) -> Any:  # noqa: ANN401
    """All of a file but the arguments, which say where it is saved."""
    state = read_plain(path, arrays=True, objects_of=OBJECTS_OF)
    state.pop("args", None)
    return state
