"""A job of four nodes and two spares on six hosts of one machine, for benchmarks/storms/storm.py.

Each host has a network stack, a boot id and shared memory of its own, which outlive its launcher
and are lost with the host. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relkit.process import procfs
from relkit.stacks.engines.pyspy import pyspy_path
from tests.cluster.hosts import Hosts

JOB = Path(__file__).resolve().parents[1] / "jobs" / "storm_job.py"
MEMBERS, SPARES, STORE = 4, 2, "h1"
RATE_MBIT, SLOW_MBIT = 200.0, 20.0
# More steps than any storm has time for.
_STEPS = 10_000_000
_PAUSE_S, _POLL_S, _TOOL_S = 0.05, 0.02, 20.0
_WAITS, _WATCHES = "is a spare: it waits", "watching rank "


class Broken(Exception):
    """What must hold did not hold."""


@dataclass(slots=True)
class RankNotes:
    """What a rank has said so far.

    Args:
        path: of its file; losses: step -> loss.
        starts: how often it has started; loaded: the step that it started from last.
        made: the newest step that it has made since; most: that it has ever made.
        node, pid: where it started last.
    """

    path: Path
    read_bytes: int = 0
    losses: dict[int, str] = field(default_factory=dict)
    starts: int = 0
    loaded: int = 0
    made: int = 0
    most: int = 0
    node: str = ""
    pid: int = 0

    def read(self) -> None:
        """Take what is new.

        Raises:
            Broken: a step that was made again has another loss.
        """
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self.read_bytes)
            *lines, rest = file.read().split(b"\n")
            self.read_bytes = file.tell() - len(rest)
            for line in lines:
                self._take(line.decode().split(" "))

    def _take(self, words: Sequence[str]) -> None:
        step = int(words[1])
        if words[0] == "loaded":
            self.starts, self.loaded, self.made = self.starts + 1, step, step
            self.node, self.pid = words[2], int(words[3])
            return
        self.made, self.most = step, max(step, self.most)
        if self.losses.setdefault(step, words[2]) != words[2]:
            raise Broken(f"{self.path.name}: step {step} was made again, and has another loss")


class Launcher:
    """A launcher on a host, and what it has logged."""

    def __init__(self, argv: Sequence[str], environ: dict[str, str], log: Path) -> None:
        self._log, self._begin = log, log.stat().st_size if log.exists() else 0
        # Why it may end by itself, "" where it may not.
        self.may_end = ""
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ
        )
        threading.Thread(target=self._copy, daemon=True).start()

    def _copy(self) -> None:
        """Its lines into the log, with the time of day."""
        assert self.process.stdout is not None
        with self._log.open("ab") as file:
            for line in self.process.stdout:
                now_s = time.time()
                stamp = f"{time.strftime('%H:%M:%S', time.localtime(now_s))}.{int(now_s % 1 * 10)} "
                file.write(stamp.encode() + line)
                file.flush()

    @property
    def text(self) -> str:
        """What it has logged since its start."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")

    @property
    def waits(self) -> bool:
        """It is a spare that waits now."""
        text = self.text
        return text.rfind(_WAITS) > text.rfind(_WATCHES)

    @property
    def lives(self) -> bool:
        """It has not ended."""
        return self.process.poll() is None


class Fleet:
    """The hosts, their launchers and the job.

    Args:
        folder: private to the storm; logs, notes and checkpoints go there.
        hang_timeout_s: of the launchers; limit_s: for whatever is waited for, s.
        options: more of `relkit launch`.
    """

    def __init__(
        self, folder: Path, hang_timeout_s: float, limit_s: float, options: Sequence[str]
    ) -> None:
        self.folder, self.limit_s, self.job_id = folder, limit_s, f"storm-{os.getpid()}"
        self._options = ("--hang-timeout", f"{hang_timeout_s:g}", "--on-hang", "restart", *options)
        self.hosts = Hosts(folder, MEMBERS + SPARES, rate_mbit=RATE_MBIT, sshd=False)
        self.launchers: dict[str, Launcher] = {}
        self.ranks = [RankNotes(folder / f"rank-{rank}") for rank in range(MEMBERS)]
        try:
            for name in self.hosts.names:
                shm = self.memory(name)
                shm.mkdir()
                _run("mount", "-t", "tmpfs", "-o", "size=256m", "relkit-storm", shm)
                self._boot(name)
        except BaseException:
            self.close()
            raise

    def _boot(self, name: str) -> None:
        """The host has just come up: nothing is in its memory."""
        for path in self.memory(name).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        # A file that is mounted elsewhere is replaced, not written to.
        (self.folder / f"boot-{name}").unlink(missing_ok=True)
        (self.folder / f"boot-{name}").write_text(f"{uuid.uuid4()}\n")

    def start(self, name: str) -> None:
        """Start a launcher on a host."""
        host = self.hosts[name]
        own = (
            f"mount --bind {self.memory(name)} /dev/shm"
            f" && mount --bind {self.folder}/boot-{name} /proc/sys/kernel/random/boot_id"
            ' && exec "$@"'
        )
        argv = [
            "ip", "netns", "exec", host.namespace, "unshare", "--mount", "sh", "-c", own, "sh",
            sys.executable, "-m", "relkit", "launch",
            "--nnodes", str(MEMBERS), "--spares", str(SPARES), "--nproc-per-node", "1",
            # By chance a node may be hit three times in a row: it is to stay.
            "--max-restarts", "1000000", "--node-restarts", "0", "--rdzv-backend", "c10d",
            "--rdzv-id", self.job_id,
            "--rdzv-endpoint", f"{self.hosts[STORE].address}:29400",
            "--rdzv-conf", f"is_host={int(name == STORE)}", "--local-addr", host.address,
            "--timeline-path", str(self.folder / f"timeline-{name}"), *self._options,
            str(JOB), str(self.folder), str(_STEPS), str(_PAUSE_S),
        ]  # fmt: skip
        environ = {
            **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0",
            "RELKIT_NODE_NAME": name,
        }  # fmt: skip
        self.launchers[name] = Launcher(argv, environ, self.folder / f"log-{name}")

    def members(self) -> list[str]:
        """Hosts on which a rank has started last, in the order of the ranks."""
        return [rank.node for rank in self.ranks]

    def spares(self) -> list[str]:
        """Hosts whose launchers wait."""
        return [name for name, each in self.launchers.items() if each.lives and each.waits]

    def memory(self, name: str) -> Path:
        """What a host has as /dev/shm."""
        return self.folder / f"shm-{name}"

    def pid(self, name: str) -> int:
        """Of the launcher on a host."""
        return self.launchers[name].process.pid

    def read(self) -> None:
        """What the ranks have said since."""
        for rank in self.ranks:
            rank.read()

    def wait(self, what: str, is_so: Callable[[], bool], limit_s: float | None = None) -> None:
        """Until it is so, reading what ranks say.

        Args:
            what: must come to be so, for people; limit_s: None for the usual one, s.

        Raises:
            Broken: it takes too long, or a launcher has ended that had no reason to.
        """
        limit_s = self.limit_s if limit_s is None else limit_s
        until_s = time.monotonic() + limit_s
        self.read()
        while not is_so():
            self._hold_launchers()
            if time.monotonic() > until_s:
                raise Broken(f"{what}: not within {limit_s:g} s")
            time.sleep(_POLL_S)
            self.read()

    def sleep(self, seconds: float) -> None:
        """While ranks are read and launchers held to live."""
        until_s = time.monotonic() + seconds
        self.wait("time passes", lambda: time.monotonic() >= until_s)

    def _hold_launchers(self) -> None:
        for name, launcher in self.launchers.items():
            code = launcher.process.poll()
            if code is not None and not launcher.may_end:
                launcher.may_end = f"ended with {code}"
                raise Broken(f"the launcher on {name} has ended by itself, with code {code}")

    def left(self, name: str) -> list[int]:
        """Processes in a host."""
        return [
            pid
            for pid in self.hosts.processes()[name]
            if procfs.process(pid).state not in ("", "Z")
        ]

    def wait_empty(self, *names: str) -> None:
        """Until no process is left in hosts whose launchers have ended.

        Raises:
            Broken: one is.
        """
        for name in names:
            self.launchers[name].process.wait(self.limit_s)
        self.wait(
            f"no process is left in {' '.join(names)}",
            lambda: not any(self.left(name) for name in names),
        )

    def power_off(self, name: str) -> None:
        """Everything in a host ends at once, and its memory is lost."""
        self.launchers[name].may_end = "its host was lost"
        for pid in self.left(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait_empty(name)
        self._boot(name)

    def stacks(self) -> str:
        """Where every process stands."""
        texts = []
        for name in self.hosts.names:
            for pid in self.left(name):
                argv = [str(pyspy_path()), "dump", "--nonblocking", "--pid", str(pid)]
                done = subprocess.run(
                    argv, capture_output=True, text=True, timeout=_TOOL_S, check=False
                )
                state = procfs.process(pid).state
                texts.append(f"--- {name}, {pid}, {state}\n{done.stdout or done.stderr}")
        return "\n".join(texts)

    def end(self) -> dict[str, int]:
        """Have the job end by itself; host -> exit code of its launcher.

        Raises:
            Broken: it does not, or leaves a process or something in memory.
        """
        (self.folder / "end").touch()
        for launcher in self.launchers.values():
            launcher.may_end = "the job ends"
        self.wait(
            "all launchers have ended",
            lambda: not any(each.lives for each in self.launchers.values()),
        )
        self.wait_empty(*self.launchers)
        return {name: each.process.returncode for name, each in self.launchers.items()}

    def close(self) -> None:
        """End what still runs."""
        for name, launcher in self.launchers.items():
            for pid in (*self.left(name), launcher.process.pid):
                if launcher.lives or pid != launcher.process.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            launcher.process.wait(_TOOL_S)
        self.hosts.close()
        for name in self.hosts.names:
            if (shm := self.memory(name)).is_mount():
                _run("umount", "--lazy", shm)


@contextlib.contextmanager
def some_fleet(
    folder: Path, hang_timeout_s: float, limit_s: float, options: Sequence[str]
) -> Iterator[Fleet]:
    """A fleet for the time of a with block, whose job trains."""
    fleet = Fleet(folder, hang_timeout_s, limit_s, options)
    try:
        yield fleet
    finally:
        fleet.close()


def undisturbed(folder: Path, steps: int) -> list[RankNotes]:
    """What the ranks of a job say that nothing happens to.

    Args:
        folder: empty; steps: how many.
    """
    argv = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(MEMBERS), str(JOB), str(folder), str(steps), "0",
    ]  # fmt: skip
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(argv, env=environ, check=True, timeout=3600)
    ranks = [RankNotes(folder / f"rank-{rank}") for rank in range(MEMBERS)]
    for rank in ranks:
        rank.read()
    return ranks


def _run(*argv: str | Path) -> None:
    subprocess.run(list(map(str, argv)), check=True, timeout=_TOOL_S)
