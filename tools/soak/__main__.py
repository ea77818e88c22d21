"""A long job under relkit in which everything comes and goes, and nothing may grow.

    python -m tools.soak                     60 minutes; `make soak`
    python -m tools.soak --minutes 4 -o DIR  a look; DIR gets soak.svg and soak.json

Four ranks train under `relkit launch --straggler warn` and try-to-persist. Every 40 steps all
their loader processes are new ones; every 100 steps there is a checkpoint, every 10 s
`relkit stacks dump` captures all ranks, one rank straggles now and then, and every few minutes one
is killed and the job starts again. Meanwhile shared memory, descriptors, threads and memory of
launcher and ranks are sampled. Then the same steps are trained bare, by torchrun and without any
of this.

Exit code 1 where a curve is not flat (tools/soak/samples.py says when it is), a loss differs
in a bit, a capture failed, or anything was left in shared memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relkit.hook.environment import job_dir
from relkit.output import write_atomic
from relkit.process import procfs
from tools.soak.bare import train_bare
from tools.soak.figure import draw
from tools.soak.samples import Curve, Use, judge, shared_memory_of, table, use_of

JOB = Path(__file__).with_name("job.py")
RANKS = 4
_SAMPLE_S, _CAPTURE_S, _PAUSE_S = 1.0, 10.0, 0.05
# An attempt that has made fewer has not yet all that it will have.
_FIRST_STEPS = 60
# A rank that is killed later does not come back before the end.
_LAST_KILL_S = 45.0
_END_S = 180.0
_MIB = 1 << 20


@dataclass(slots=True)
class Soak:
    """One run.

    Args:
        folder: where the job writes; job_id: of the launcher.
    """

    folder: Path
    job_id: str
    points: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    kills: int = 0
    captures: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, panel: str, name: str, now_s: float, value: float) -> None:
        """One point of a curve."""
        self.points.setdefault((panel, name), []).append((now_s, value))

    def sample(self, now_s: float, launcher: int, ranks: Sequence[int]) -> None:
        """Look once.

        Args:
            now_s: since the start, s; ranks: pids.
        """
        files, size_bytes = shared_memory_of(job_dir(self.job_id))
        self.add("shared memory", "MiB", now_s, size_bytes / _MIB)
        self.add("shared memory", "files", now_s, files)
        self._add_use("launcher", now_s, use_of(launcher))
        uses = [use for pid in ranks if (use := use_of(pid)) is not None]
        if len(uses) == RANKS:
            most = Use(
                max(use.descriptors for use in uses),
                max(use.threads for use in uses),
                max(use.memory_bytes for use in uses),
            )
            self._add_use("largest rank", now_s, most)

    def _add_use(self, name: str, now_s: float, use: Use | None) -> None:
        if use is not None:
            self.add("descriptors", name, now_s, use.descriptors)
            self.add("threads", name, now_s, use.threads)
            self.add("memory", name, now_s, use.memory_bytes / _MIB)

    def curves(self) -> list[Curve]:
        """All that was sampled."""
        units = {"shared memory": "", "descriptors": "", "threads": "", "memory": "MiB"}
        least = {"MiB": 0.5, "files": 2.0}
        floor = {"descriptors": 4.0, "threads": 2.0, "memory": 4.0}
        return [
            Curve(panel, name, units[panel], least.get(name) or floor[panel], tuple(points))
            for (panel, name), points in self.points.items()
        ]

    def capture(self) -> None:
        """`relkit stacks dump` of the whole job, while nothing else happens to it."""
        into = self.folder / "captured"
        line = [sys.executable, "-m", "relkit", "stacks", "dump", "--job", self.job_id]
        done = subprocess.run(
            [*line, "-o", str(into)], capture_output=True, text=True, timeout=60, check=False
        )
        got = len(list(into.glob("*.stacktrace"))) if into.exists() else 0
        shutil.rmtree(into, ignore_errors=True)
        if done.returncode or got != RANKS:
            self.problems.append(f"a capture got {got} of {RANKS} ranks: {done.stderr[-300:]}")
        if not (got or self.captures):
            # An hour would show nothing: an old hook in the environment, for instance.
            raise RuntimeError(f"{self.problems[-1]}\nnext: Run `pip install -e .`, and try again.")
        self.captures += 1


def ranks_of(launcher: int) -> dict[int, int]:
    """Rank -> pid of a launcher's workers that run now."""
    found = {}
    for pid in procfs.children(launcher):
        rank = procfs.rank_environment(pid).get("RANK", "")
        # A warm standby has the environment of the rank whose place it may take.
        if rank.isdecimal() and not procfs.is_standby(pid):
            found[int(rank)] = pid
    return found


def lines_of(folder: Path) -> int:
    """Losses that rank 0 has written."""
    path = folder / "loss-0"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def losses_of(folder: Path) -> dict[tuple[int, int], str]:
    """(rank, step) -> loss, in hexadecimal digits.

    Raises:
        ValueError: a step that was made twice has given two losses.
    """
    found: dict[tuple[int, int], str] = {}
    for rank in range(RANKS):
        for line in (folder / f"loss-{rank}").read_text(encoding="ascii").splitlines():
            step, loss = line.split()
            if found.setdefault((rank, int(step)), loss) != loss:
                raise ValueError(f"rank {rank} step {step} differs after a restart")
    return found


def train_under_relkit(soak: Soak, minutes: float, restart_s: float, log: Path) -> None:
    """The job with all that happens to it."""
    command = [
        sys.executable, "-m", "relkit", "launch", "--nproc-per-node", str(RANKS),
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", soak.job_id,
        "--max-restarts", "100000", "--straggler", "warn",
        "--timeline-path", str(soak.folder / "timeline"),
        str(JOB), str(soak.folder), "0", str(_PAUSE_S),
    ]  # fmt: skip
    dice = random.Random(7)  # noqa: S311 (nothing secret)
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        log.open("wb") as stream,
        subprocess.Popen(command, stdout=stream, stderr=stream, env=environ) as launcher,
    ):
        try:
            _go_through(soak, launcher, 60 * minutes, restart_s, dice)
            (soak.folder / "end").touch()
            code = launcher.wait(_END_S)
        finally:
            launcher.send_signal(signal.SIGTERM)
            launcher.wait(_END_S)
    if code:
        soak.problems.append(f"relkit launch ended with {code}")
    if job_dir(soak.job_id).exists():
        soak.problems.append(f"{job_dir(soak.job_id)} was left")


def _go_through(
    soak: Soak, launcher: subprocess.Popen[bytes], length_s: float, restart_s: float,
    dice: random.Random,
) -> None:  # fmt: skip
    began_s = time.monotonic()
    ranks: dict[int, int] = {}
    before = 0
    next_capture_s = 0.0
    next_kill_s = restart_s
    while (now_s := time.monotonic() - began_s) < length_s:
        if launcher.poll() is not None:
            raise RuntimeError(
                f"relkit launch ended with {launcher.returncode} after {now_s:.0f} s"
            )
        here = ranks_of(launcher.pid)
        if here != ranks:
            ranks, before = here, lines_of(soak.folder)
        # While workers come and go, everything does: what is left of that shows afterwards.
        settled = len(ranks) == RANKS and lines_of(soak.folder) - before >= _FIRST_STEPS
        if settled:
            soak.sample(now_s, launcher.pid, list(ranks.values()))
        if settled and now_s >= next_capture_s:
            soak.capture()
            next_capture_s = now_s + _CAPTURE_S
        elif settled and now_s >= next_kill_s and length_s - now_s > _LAST_KILL_S:
            os.kill(ranks[dice.randrange(RANKS)], signal.SIGKILL)
            soak.kills += 1
            next_kill_s = now_s + restart_s
        time.sleep(_SAMPLE_S)


def compare(soak: Soak, bare: Path) -> int:
    """Hold the losses against the bare run's; how many there are."""
    own = losses_of(soak.folder)
    theirs = losses_of(bare)
    different = [
        key for key in sorted(own.keys() | theirs.keys()) if own.get(key) != theirs.get(key)
    ]
    if different:
        rank, step = different[0]
        soak.problems.append(
            f"{len(different)} losses differ, first rank {rank} step {step}:"
            f" {own.get(different[0])} and {theirs.get(different[0])}"
        )
    return len(own)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; 1 where anything was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--restart-every", type=float, default=180.0, help="seconds")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/soak"))
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="relkit-soak-") as made:
        folder, bare = Path(made) / "soak", Path(made) / "bare"
        folder.mkdir()
        bare.mkdir()
        soak = Soak(folder, f"soak-{os.getpid()}")
        log = options.output / "soak.log"
        train_under_relkit(soak, options.minutes, options.restart_every, log)
        steps = 1 + max(step for _, step in losses_of(folder))
        print(f"{steps} steps; the bare run makes the same", flush=True)
        stood_still = train_bare(JOB, RANKS, bare, steps)
        compared = compare(soak, bare)
    curves = soak.curves()
    if not curves:
        print(f"no attempt has made {_FIRST_STEPS} steps: nothing was measured", file=sys.stderr)
        return 1
    said = log.read_text(encoding="utf-8", errors="replace")
    stragglers = sum("straggler" in line and "rank 2" in line for line in said.splitlines())
    if not stragglers:
        soak.problems.append("the straggler was never named")
    title = f"{RANKS} ranks, {options.minutes:g} minutes, {steps} steps, {soak.kills} kills"
    write_atomic(options.output / "soak.svg", draw(curves, title))
    soak.problems += [
        f"{curve.panel}, {curve.name} is not flat" for curve in curves if not judge(curve).is_flat
    ]
    figures = {
        "title": title,
        "captures": soak.captures,
        "losses_compared": compared,
        "bare_run_stood_still": stood_still,
        "problems": soak.problems,
        "curves": {f"{curve.panel}, {curve.name}": curve.points for curve in curves},
    }
    write_atomic(options.output / "soak.json", json.dumps(figures))
    print(table(curves))
    print(
        f"{title}, {soak.captures} captures, {stragglers} lines on the straggler, {compared} losses"
    )
    if stood_still:
        print(f"the bare run stood still, and was started again, this often: {stood_still}")
    print("\n".join(soak.problems) or "all as it should be")
    return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
