"""An hour in which a healthy job stalls all the time: what is suspected, and is anything done?

usage: python benchmarks/hangs/suspicions.py [--minutes 60] [--seed 1] [-o FOLDER]

Four gloo ranks under `relkit launch --on-hang abort` with the default limit of 300 s
(benchmarks/jobs/stalling_job.py): compilation, evaluations, checkpoints, and pauses of 12 to 100 s.
Printed are all lines about suspicions, then a table: stalls by kind, how many of 15 s and more were
suspected, after how long, and how many suspicions named a rank that did not stall. Exit code 1
where the job was not left alone: it has to end by itself, without a capture.

With FOLDER, what the ranks noted and the launcher printed is kept there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from relkit.output import table
from relkit.ranks import RankSet

JOB = Path(__file__).resolve().parents[1] / "jobs" / "stalling_job.py"
RANKS = 4
# What lasts longer should be suspected, unless the job has seen the like of it.
NOTABLE_S = 15.0
# A suspicion may be said a moment after the stall is over.
_SLACK_S = 3.0
_LIMIT_S = 900.0
# Ranks that only are in an operation are not held to be at fault.
_SUSPICION = re.compile(r"suspicion: (?:ranks? ([0-9,-]+)(?=: | ha(?:s|ve) ))?")


@dataclass(frozen=True, slots=True)
class Stall:
    """What held a rank up.

    Args:
        what: compile, evaluation, checkpoint, sleep or loop.
    """

    rank: int
    what: str
    begin_unix_s: float
    end_unix_s: float

    @property
    def duration_s(self) -> float:
        """How long, s."""
        return self.end_unix_s - self.begin_unix_s


@dataclass(frozen=True, slots=True)
class Said:
    """One line about a suspicion.

    Args:
        at_unix_s: when it was printed; ranks: that it names.
    """

    at_unix_s: float
    ranks: RankSet
    line: str


def stalls_of(folder: Path) -> list[Stall]:
    """All that the ranks have noted, in time."""
    stalls = []
    for path in folder.glob("stalls-*.jsonl"):
        rank = int(path.stem.partition("-")[2])
        lines = path.read_text(encoding="utf-8").splitlines()
        stalls += [Stall(rank, **json.loads(line)) for line in lines]
    return sorted(stalls, key=lambda stall: stall.begin_unix_s)


def listen(stream: IO[str], kept: IO[str]) -> list[Said]:
    """Read what the launcher prints, to its end."""
    said = []
    for line in stream:
        now_unix_s = time.time()
        kept.write(f"{now_unix_s:.1f} {line}")
        match = _SUSPICION.search(line)
        if match is not None:
            print(line.rstrip(), flush=True)
            said.append(Said(now_unix_s, RankSet.unfold(match[1] or ""), line.strip()))
    return said


def stalled_at(stalls: Iterable[Stall], at_unix_s: float) -> RankSet:
    """The ranks that were held up then."""
    return RankSet.of(
        stall.rank
        for stall in stalls
        if stall.begin_unix_s <= at_unix_s <= stall.end_unix_s + _SLACK_S
    )


def rows(stalls: Sequence[Stall], said: Sequence[Said]) -> list[tuple[str, ...]]:
    """A row for each kind of stall."""
    made: list[tuple[str, ...]] = []
    for what in dict.fromkeys(stall.what for stall in stalls):
        some = [stall for stall in stalls if stall.what == what]
        long = [stall for stall in some if stall.duration_s >= NOTABLE_S]
        delays_s = [
            min(times) - stall.begin_unix_s
            for stall in long
            if (
                times := [
                    each.at_unix_s
                    for each in said
                    if stall.rank in each.ranks
                    and stall.begin_unix_s <= each.at_unix_s <= stall.end_unix_s + _SLACK_S
                ]
            )
        ]
        after = f"{statistics.median(delays_s):.1f}" if delays_s else "-"
        longest = max(stall.duration_s for stall in some)
        made.append(
            (what, str(len(some)), f"{longest:.0f}", str(len(long)), str(len(delays_s)), after)
        )
    return made


def status_of(job_id: str) -> dict[str, object]:
    """What `relkit status` counts of the job's suspicions."""
    command = [sys.executable, "-m", "relkit", "status", job_id, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    counted = json.loads(done.stdout)["suspicions"]
    assert isinstance(counted, dict)
    return counted


def run(folder: Path, minutes: float, seed: int) -> int:
    """Run the job; returns the exit code."""
    job_id = f"stalling-{os.getpid()}"
    command = [
        sys.executable, "-m", "relkit", "launch", "--nproc-per-node", str(RANKS), "--on-hang",
        "abort", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", job_id,
        "--timeline-path", str(folder / "timeline"), str(JOB), str(folder), str(minutes * 60),
        str(seed),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    began_s = time.monotonic()
    with (folder / "launcher.txt").open("w", encoding="utf-8") as kept:
        process = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        assert process.stderr is not None
        said = listen(process.stderr, kept)
        code = process.wait(_LIMIT_S)
    took_s = time.monotonic() - began_s
    stalls, counted = stalls_of(folder), status_of(job_id)
    innocent = [
        each
        for each in said
        if each.ranks and not set(each.ranks) <= set(stalled_at(stalls, each.at_unix_s))
    ]
    captures = len(list((folder / "timeline").glob("*.stacktrace")))
    names = ("stall", "times", "longest s", f">= {NOTABLE_S:g} s", "suspected", "after s (median)")
    print(table(rows(stalls, said), names))
    print(
        f"{took_s / 60:.0f} min, exit code {code}, captures {captures}; suspicions: "
        f"{counted['began']} began, {counted['went_on']} came and went, "
        f"{counted['became_verdicts']} became verdicts; {len(said)} lines, {len(innocent)} of them "
        f"name a rank that did not stall; load average {os.getloadavg()[0]:.1f}"
    )
    for each in innocent:
        print(f"innocent: {each.line}")
    left_alone = code == 0 and not captures and counted["became_verdicts"] == 0
    return 0 if left_alone and stalls else 1


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.output is not None:
        options.output.mkdir(parents=True)
        sys.exit(run(options.output, options.minutes, options.seed))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run(Path(folder), options.minutes, options.seed))


if __name__ == "__main__":
    main()
