"""SIGKILLs of real jobs that save every step into memory: workers, launchers, or both at once.

    python benchmarks/flash_job_kills.py --kills 1000

One job after another trains under `relkit launch --max-restarts`, its ranks note the checksum of
every state that they have made (benchmarks/jobs/flash_kill_job.py), and at a random moment
somebody is killed: one rank, all ranks, the launcher, or the launcher and all ranks. A killed
launcher is started again by the same command. Held after every kill:

- all ranks go on from the same step;
- the state that each has loaded is that of the step, to the last bit, and so is every step that is
  made again;
- no step is lost that all ranks had whole in memory: at most the one that was being made;
- what the launchers write to disk holds the states of its step.

Exit code 1 where one of these did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch

from relkit.flash_checkpoint.on_disk import persisted
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.errors import BadSlot, SlotFault
from relkit.flash_checkpoint.slots.slot_file import SlotFile
from relkit.output import table
from relkit.process import procfs
from relkit.stacks.engines.pyspy import pyspy_path
from tests.flash_checkpoint.checksum import checksum

JOB = Path(__file__).with_name("jobs") / "flash_kill_job.py"
# Of a hundred kills.
WHO = {"one rank": 70, "all ranks": 10, "the launcher": 10, "launcher and ranks": 10}
_LIMIT_S, _POLL_S = 240.0, 0.01


class Broken(Exception):
    """What must hold did not hold."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a rank.

    Args:
        step: that it has loaded, -1 for none; total: checksum of what it has loaded.
        made, saved: the newest step that it had made, and had whole in memory, before.
    """

    step: int
    total: int
    made: int
    saved: int


@dataclass(slots=True)
class RankNotes:
    """What a rank has said so far.

    Args:
        path: of its file; sums: step -> checksum of the state; starts: in their order.
        made, saved: the newest step that it has made, and has whole in memory.
    """

    path: Path
    read_bytes: int = 0
    sums: dict[int, int] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    made: int = -1
    saved: int = -1

    def read(self) -> None:
        """Take what is new.

        Raises:
            Broken: a step that was made again has another state.
        """
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self.read_bytes)
            *lines, rest = file.read().split(b"\n")
            self.read_bytes = file.tell() - len(rest)
            for line in lines:
                what, step, *total = line.decode().split()
                self._take(what, int(step), *map(int, total))

    def _take(self, what: str, step: int, total: int = 0) -> None:
        if what == "saved":
            self.saved = step
        elif what == "loaded":
            self.starts.append(Start(step, total, self.made, self.saved))
            self.made = self.saved = step
        elif self.sums.setdefault(step, total) != total:
            raise Broken(f"{self.path.name}: step {step} was made again, and is another")
        else:
            self.made = step


@dataclass(slots=True)
class Tally:
    """Counts over all kills.

    Args:
        kills: by who was killed; in_copy: those after which a slot was torn.
        lost: how many steps had to be made again -> how often.
        from_files: starts of ranks from the loop's own files; written: steps on disk that launchers
            have written, and that were read.
    """

    kills: Counter[str] = field(default_factory=Counter)
    in_copy: int = 0
    lost: Counter[int] = field(default_factory=Counter)
    from_files: int = 0
    written: int = 0


class Jobs:
    """The launcher that runs now, and what its ranks have said.

    Args:
        folder: of the job; ranks: how many; elements: of the model's parameters.
    """

    def __init__(self, folder: Path, ranks: int, elements: int) -> None:
        self.folder, self.elements = folder, elements
        self.job_id = f"flash-job-kills-{os.getpid()}"
        self.ranks = [RankNotes(folder / f"rank-{rank}") for rank in range(ranks)]
        self.tally = Tally()
        self._log = (folder / "log").open("wb")
        self.launcher = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        argv = [
            sys.executable, "-m", "relkit", "launch", "--nproc-per-node", str(len(self.ranks)),
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", self.job_id,
            "--max-restarts", "1000000", "--timeline-path", str(self.folder / "timeline"),
            str(JOB), str(self.folder), str(self.elements), "20",
        ]  # fmt: skip
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(argv, stdout=self._log, stderr=self._log, env=environ)

    def workers(self) -> list[int]:
        """Process ids of the ranks that run now."""
        pids = {}
        for pid in procfs.children(self.launcher.pid):
            rank = procfs.rank_environment(pid).get("RANK", "")
            if rank.isdecimal() and not procfs.is_standby(pid):
                pids[int(rank)] = pid
        return [pids[rank] for rank in sorted(pids)]

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """Until it is so, reading what ranks say.

        Raises:
            Broken: it takes too long, or the launcher has ended.
        """
        until_s = time.monotonic() + _LIMIT_S
        while not is_so():
            if self.launcher.poll() is not None:
                raise Broken(f"the launcher ended with {self.launcher.returncode}")
            if time.monotonic() > until_s:
                raise Broken(f"{what} after {_LIMIT_S:g} s\n{self._stacks()}")
            time.sleep(_POLL_S)
            for rank in self.ranks:
                rank.read()

    def _stacks(self) -> str:
        texts = []
        for pid in procfs.descendants(self.launcher.pid):
            line = [str(pyspy_path()), "dump", "--pid", str(pid)]
            done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
            texts.append(done.stdout or done.stderr)
        return "\n".join(texts)

    def kill(self, who: str, draw: random.Random) -> None:
        """Kill, start again what does not come back by itself, and hold what must hold.

        Raises:
            Broken: something of it did not hold.
        """
        starts = [len(rank.starts) for rank in self.ranks]
        self.wait("not all ranks are seen", lambda: len(self.workers()) == len(self.ranks))
        workers = self.workers()
        everybody = procfs.descendants(self.launcher.pid)
        victims = [draw.choice(workers)] if who == "one rank" else workers
        if "launcher" in who:
            victims = [self.launcher.pid, *(workers if "ranks" in who else ())]
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.tally.in_copy += self._is_torn()
        if "launcher" in who:
            self.launcher.wait(_LIMIT_S)
            self._wait_gone(everybody)
            self.launcher = self._start()
        self.wait(
            f"{who} killed: not all ranks have started again",
            lambda: all(len(r.starts) > n for r, n in zip(self.ranks, starts, strict=True)),
        )
        self._hold()
        self.tally.kills[who] += 1
        self.wait(
            "no step was saved after a start",
            lambda: all(rank.saved > rank.starts[-1].step for rank in self.ranks),
        )

    def _wait_gone(self, pids: Sequence[int]) -> None:
        until_s = time.monotonic() + _LIMIT_S
        while left := [pid for pid in pids if procfs.process(pid).state not in ("", "Z")]:
            if time.monotonic() > until_s:
                raise Broken(f"processes outlive their launcher: {left}")
            time.sleep(_POLL_S)

    def _is_torn(self) -> bool:
        """Whether a save of any rank was cut off by the kill."""
        for folder in slot_folder.folders_of(self.job_id):
            for rank in range(len(self.ranks)):
                owner = slot_folder.owner(folder, rank, len(self.ranks))
                with suppress(OSError, BadSlot):
                    file = SlotFile.open(slot_folder.slots_path(folder, rank), owner)
                    for index in range(file.count):
                        try:
                            file.header(index)
                        except BadSlot as error:
                            if error.fault is SlotFault.TORN:
                                return True
        return False

    def _hold(self) -> None:
        """What must hold of the newest start."""
        newest = [rank.starts[-1] for rank in self.ranks]
        if len({start.step for start in newest}) != 1:
            raise Broken(f"ranks go on from different steps: {newest}")
        step = newest[0].step
        for rank, start in zip(self.ranks, newest, strict=True):
            # The loop's own files have the state of rank 0, for all.
            if step >= 0 and start.total not in (rank.sums[step], self.ranks[0].sums[step]):
                raise Broken(f"{rank.path.name}: what was loaded is not step {step}")
            self.tally.from_files += step >= 0 and start.total != rank.sums[step]
        # A rank may have noted that a step is whole one step before it notes so itself.
        if step < min(start.saved for start in newest):
            raise Broken(f"a step that all ranks had saved is lost: {newest}")
        lost = max(start.made for start in newest) - step
        self.tally.lost[lost] += 1
        if lost > 1:
            raise Broken(f"{lost} steps are lost: {newest}")

    def read_disk(self) -> None:
        """Hold what the launchers have written against what the ranks have made."""
        root = self.folder / "checkpoints"
        kept = persisted.latest(root)
        if kept is None:
            return
        for rank in self.ranks:
            path = kept.path / persisted.file_name(int(rank.path.name.removeprefix("rank-")))
            try:
                state = torch.load(path, weights_only=True)
            except FileNotFoundError:
                return  # a newer one has taken its place, and it was removed
            if checksum(state) != rank.sums[kept.step]:
                raise Broken(f"{path} is not step {kept.step}")
        self.tally.written += 1

    def end(self) -> None:
        """Have the job end by itself.

        Raises:
            Broken: it does not, or leaves something in memory.
        """
        (self.folder / "end").touch()
        code = self.launcher.wait(_LIMIT_S)
        if code or slot_folder.folders_of(self.job_id):
            raise Broken(f"the job ended with {code}, {slot_folder.folders_of(self.job_id)} left")

    def close(self) -> None:
        """End what still runs."""
        if self.launcher.poll() is None:
            self.launcher.terminate()
            self.launcher.wait(_LIMIT_S)
        self._log.close()


def kill_all(jobs: Jobs, kills: int, longest_s: float, draw: random.Random) -> None:
    """Kill as often as that."""
    who, weights = list(WHO), list(WHO.values())
    jobs.wait("no step was saved", lambda: all(rank.saved > 0 for rank in jobs.ranks))
    for number in range(kills):
        jobs.kill(draw.choices(who, weights)[0], draw)
        moment_s = time.monotonic() + draw.uniform(0, longest_s)
        jobs.wait("", lambda moment_s=moment_s: time.monotonic() >= moment_s)  # type: ignore[misc]
        if number % 10 == 9:
            jobs.read_disk()
            print(f"{number + 1} kills, step {jobs.ranks[0].made}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run it and print the counts; 1 where something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--elements", type=int, default=1_000_000, help="of the model")
    parser.add_argument("--longest-s", type=float, default=1.0, help="between start and kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, help="JSON")
    options = parser.parse_args(arguments)
    draw = random.Random(options.seed)  # noqa: S311  nothing secret
    problem = ""
    with tempfile.TemporaryDirectory(prefix="relkit-flash-kills-") as name:
        jobs = Jobs(Path(name), options.ranks, options.elements)
        try:
            kill_all(jobs, options.kills, options.longest_s, draw)
            jobs.end()
            jobs.read_disk()
        except Broken as error:
            problem = str(error)
            print(problem, file=sys.stderr)
            print((Path(name) / "log").read_text(errors="replace")[-5000:], file=sys.stderr)
        finally:
            jobs.close()
    return show(jobs, problem, options.output)


def show(jobs: Jobs, problem: str, output: Path | None) -> int:
    """Print the counts."""
    tally = jobs.tally
    print(table([(who, str(tally.kills[who])) for who in WHO], ("killed", "times")))
    print(
        f"{tally.kills.total()} kills, {tally.in_copy} in a copy; steps made again:"
        f" {dict(sorted(tally.lost.items()))}; {jobs.ranks[0].made} steps;"
        f" {tally.from_files} starts of ranks from the loop's files;"
        f" {tally.written} checkpoints of launchers read"
    )
    print(problem.splitlines()[0] if problem else "nothing torn, no wrong bit, none lost")
    if output is not None:
        # asdict would count the pairs of a Counter.
        counts = {each.name: getattr(tally, each.name) for each in fields(tally)}
        output.write_text(json.dumps({**counts, "problem": problem}), encoding="utf-8")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
