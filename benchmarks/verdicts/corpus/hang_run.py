"""Runs a job of forked gloo ranks into a hang, and keeps what its ranks show."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from torch._C import _distributed_c10d
from torch._C._distributed_c10d import TCPStore

from benchmarks.jobs.hang_faults import Fault
from benchmarks.verdicts.corpus.board import Board, TooLong
from benchmarks.verdicts.corpus.damage import damage
from benchmarks.verdicts.corpus.forks import Forked
from benchmarks.verdicts.corpus.incident import Hang, Incident
from benchmarks.verdicts.corpus.recorder import Recorder

JOBS = Path(__file__).resolve().parents[2] / "jobs"
# Of their kinds: py-spy's path is relative, faulthandler's is not.
_OWN_FRAMES = ("verdicts/corpus/", "verdicts/make_corpus.py:", 'verdicts/make_corpus.py"')
LIMIT_S = 45.0
# So long nobody goes on in a job that hangs.
_SETTLE_S = 2.5
# Of a job that is looked at while it runs, a step is so long; ranks are looked at at once.
_PACE_S, _CALLS = 0.05, 60
_STEPS_OF_WELL = 8
_PAUSE_S = 1.0
_LOOK_S = 0.005
# gloo aborts or fails at these; NCCL waits.
_HELD = frozenset(("size", "dtype", "other", "size-tensor", "other-tensor", "larger-send",
                   "smaller-recv"))  # fmt: skip


@dataclass(slots=True)
class _Rank:
    """What runs in a rank beside its job."""

    rank: int
    hang: Hang
    folder: Path
    board: Board
    recorder: Recorder = field(default_factory=Recorder)
    dumper: threading.Thread = field(init=False)

    def before(self) -> None:
        """In the rank, before its job."""
        self._watch_faults()
        if "nccl" in self.hang.evidence:
            self.recorder.install()
        if "faulthandler" in self.hang.evidence:
            stacks = (self.folder / f"faulthandler_rank{self.rank}.txt").open("w")
            faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        self.dumper = threading.Thread(target=self._dump_when_asked, name="recorder", daemon=True)
        self.dumper.start()

    def after(self) -> None:
        """In the rank, behind its job: the others' maker wants its dump as well."""
        self.board.has_ended(self.rank)
        self.dumper.join()
        threading.Event().wait()

    def _watch_faults(self) -> None:
        here, on_host = Fault.here, Fault.on_host

        def watched(
            fault: Fault, name: str, rank: int, step: int, micro_batch: int | None = None
        ) -> bool:
            self.board.came(self.rank)
            is_here = here(fault, name, rank, step, micro_batch)
            if is_here:
                self.board.has_fault()
                self.recorder.holds = name in _HELD
            return is_here

        def paced(fault: Fault, rank: int, step: int, micro_batch: int | None = None) -> None:
            if self.hang.when == "running":
                time.sleep(_PACE_S)
            on_host(fault, rank, step, micro_batch)

        Fault.here = watched  # type: ignore[method-assign, assignment]
        Fault.on_host = paced  # type: ignore[method-assign, assignment]

    def _dump_when_asked(self) -> None:
        while not self.board.wants_dumps():
            time.sleep(_LOOK_S)
        path = self.folder / self.hang.dump_name.format(self.rank)
        if "nccl" in self.hang.evidence:
            path.write_bytes(self.recorder.dump())
        if "gloo" in self.hang.evidence:
            recorded: bytes = _distributed_c10d._dump_fr_trace()  # type: ignore[attr-defined]
            path.write_bytes(recorded)
        self.board.has_dumped(self.rank)


def run_hang(incident: Incident, folder: Path) -> None:
    """Make the incident.

    Args:
        incident: whose recipe is a Hang; folder: for what it leaves.

    Raises:
        TooLong: it did not come about in time.
    """
    hang = incident.recipe
    assert isinstance(hang, Hang)
    board = Board(incident.ranks, LIMIT_S)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = []
    for rank in range(incident.ranks):
        beside = _Rank(rank, hang, folder, board)
        with _output(hang, folder, rank).open("w") as output:
            ranks.append(
                Forked(
                    _command(hang), rank_environment(rank, incident.ranks, store.port), output,
                    output, before=beside.before, after=beside.after,
                )
            )  # fmt: skip
    try:
        _look(hang, ranks, board, folder)
    finally:
        for forked in ranks:
            forked.kill()
    if hang.damage:
        damage(folder / hang.dump_name.format(hang.damaged), hang.damage)


def rank_environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank, of a store that is there already."""
    return {
        **os.environ,
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip


def _command(hang: Hang) -> list[str]:
    command = [str(JOBS / hang.job), *hang.options, f"--step={hang.step}"]
    command += [f"--micro-batch={hang.micro_batch}"]
    if hang.fault:
        command += [f"--fault={hang.fault}", f"--ranks={hang.rank}"]
    if hang.when == "ended":
        command += [f"--steps={_STEPS_OF_WELL}", f"--pause-s={_PAUSE_S}"]
    return command


def _output(hang: Hang, folder: Path, rank: int) -> Path:
    return folder / f"rank_{rank}.log" if "logs" in hang.evidence else Path(os.devnull)


def _look(hang: Hang, ranks: list[Forked], board: Board, folder: Path) -> None:
    """Wait until there is something to see, and keep it."""
    if hang.when == "hung":
        board.wait_hung(_SETTLE_S)
    elif hang.when == "running":
        board.wait_calls(_CALLS)
    else:
        board.wait_ended()
    board.ask_for_dumps()
    alive = [rank for rank, forked in enumerate(ranks) if forked.poll() is None]
    if hang.fault != "kill" and len(alive) < len(ranks):
        raise TooLong(f"only ranks {alive} live")
    board.wait_dumped(alive)
    for rank in alive:
        if "faulthandler" in hang.evidence:
            _have_faulthandler_write(folder / f"faulthandler_rank{rank}.txt", ranks[rank].pid)
        if "py-spy" in hang.evidence:
            (folder / f"pyspy_rank{rank}.txt").write_text(spy(ranks[rank].pid))
    if "py-spy-in-one" in hang.evidence:
        texts = [f"==== rank {rank}\n{spy(ranks[rank].pid)}\n" for rank in alive]
        (folder / "stacks.txt").write_text("".join(texts))


def _have_faulthandler_write(path: Path, pid: int) -> None:
    os.kill(pid, signal.SIGUSR1)
    end_s = time.monotonic() + LIMIT_S
    # Written at once by a signal handler: whole once it no longer grows.
    size = -1
    while size <= 0 or path.stat().st_size != size:
        size = path.stat().st_size
        time.sleep(_LOOK_S * 10)
        if time.monotonic() > end_s:
            raise TooLong("faulthandler writes nothing")
    path.write_text(of_job(path.read_text()))


def spy(pid: int) -> str:
    """The stacks of a process, as py-spy prints them."""
    command = [str(Path(sys.executable).with_name("py-spy")), "dump", "--pid", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return of_job(done.stdout)


def of_job(stacks: str) -> str:
    """Without the frames below the job's script, which a job that was not forked does not have."""
    return "".join(
        line
        for line in stacks.splitlines(keepends=True)
        if not any(mark in line for mark in _OWN_FRAMES)
    )
