"""Makes a folder of incidents whose culprits are known: for `relkit why`, and for its like.

    python benchmarks/verdicts/make_corpus.py FOLDER
    python benchmarks/verdicts/make_corpus.py FOLDER --only p2p- --at-once 1

Each incident is a real gloo job on this host into which a fault is injected
(benchmarks/verdicts/corpus/plan.py lists them); its ranks are forked off this process, which has
torch. FOLDER gets incidents/NAME, with what the job left, and labels.jsonl with what is true of it.
The same incidents are made each time; times and process ids in them differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
import torch._dynamo
import torch.distributed.nn

from benchmarks.verdicts.corpus.board import TooLong
from benchmarks.verdicts.corpus.crash_run import run_crash
from benchmarks.verdicts.corpus.hang_run import run_hang
from benchmarks.verdicts.corpus.incident import Crash, Incident
from benchmarks.verdicts.corpus.plan import incidents

# Longer than a run may take by itself.
_LIMIT_S = 70.0
_TRIES = 3
_LOOK_S = 0.05
_ENVIRONMENT = {
    "TORCH_FR_BUFFER_SIZE": "2000",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


@dataclass(frozen=True, slots=True)
class _Running:
    """An incident that is being made.

    Args:
        pid: of its maker, which leads a process group; end_s: on the monotonic clock.
    """

    incident: Incident
    tries: int
    pid: int
    end_s: float


def make(chosen: Sequence[Incident], folder: Path, at_once: int) -> list[str]:
    """Make incidents.

    Args:
        folder: for all of them; at_once: so many are made at a time.

    Returns:
        The names of those that did not come about.
    """
    waiting = [(incident, 1) for incident in reversed(chosen)]
    running: list[_Running] = []
    failed: list[str] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            incident, tries = waiting.pop()
            running.append(_start(incident, tries, folder))
        for each in list(running):
            ended = _ended(each)
            if ended is None:
                continue
            running.remove(each)
            if ended:
                print(f"[{len(chosen) - len(waiting) - len(running)}/{len(chosen)}] "
                      f"{each.incident.name}", flush=True)  # fmt: skip
            elif each.tries < _TRIES:
                waiting.append((each.incident, each.tries + 1))
            else:
                failed.append(each.incident.name)
        time.sleep(_LOOK_S)
    return failed


def _start(incident: Incident, tries: int, folder: Path) -> _Running:
    own = folder / "incidents" / incident.name
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _make_one(incident, own)
    return _Running(incident, tries, pid, time.monotonic() + _LIMIT_S)


def _make_one(incident: Incident, own: Path) -> NoReturn:
    """In a process of its own."""
    code = 1
    try:
        os.setpgid(0, 0)
        made = run_crash if isinstance(incident.recipe, Crash) else run_hang
        made(incident, own)
        code = 0
    except TooLong as error:
        print(f"{incident.name}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _ended(each: _Running) -> bool | None:
    """Whether it is made; None while it runs."""
    ended = os.waitid(os.P_PID, each.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None and time.monotonic() < each.end_s:
        return None
    # The group is this one's until its leader has been waited for.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(each.pid, signal.SIGKILL)
    _, status = os.waitpid(each.pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


def main() -> int:
    """Make those that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="incidents whose name holds one of these, by ,")
    parser.add_argument("--at-once", type=int, default=3, help="made at a time (default 3)")
    given = parser.parse_args()
    words = given.only.split(",")
    chosen = [i for i in incidents() if any(word in i.name for word in words)]
    os.environ.update(_ENVIRONMENT)
    torch.set_num_threads(1)
    # What ranks would import in the middle of their job, each for itself, is imported above.
    began_s = time.monotonic()
    failed = make(chosen, given.folder, given.at_once)
    labels = [json.dumps(i.label()) for i in chosen if i.name not in failed]
    (given.folder / "labels.jsonl").write_text("".join(f"{label}\n" for label in labels))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(each.ru_utime + each.ru_stime for each in used)
    print(
        f"{len(labels)} incidents in {time.monotonic() - began_s:.0f} s, {cpu_s:.0f} s of CPU"
        + (f"; did not come about: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
