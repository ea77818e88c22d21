"""A real Slurm over the hosts of a test: munged and slurmctld on the switch, a slurmd in each host.

All of them are children of the test, with a configuration of their own in its folder. They find
each other inside the test's network namespaces only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.cluster.hosts import Hosts

_LIMIT_S = 20.0


class Slurm:
    """One controller and a slurmd in each host; the nodes are called as the hosts are.

    Args:
        folder: private to the test.
        hosts: where the daemons run.
        named: each host has a name of its own, which all know; else they share this machine's.
        more: further lines of slurm.conf.
    """

    def __init__(
        self, folder: Path, hosts: Hosts, *, named: bool = False, more: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self._more = "\n".join(more)
        self.hosts = hosts
        self._named = named
        self._daemons: list[tuple[str, subprocess.Popen[bytes]]] = []
        for name in ("state", "bin"):
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._configure()
        try:
            self._start_munge()
            self._daemon("slurmctld", *hosts.prefix, "/usr/sbin/slurmctld", "-D")
            for host in hosts.hosts:
                self._start_slurmd(host.name)
            self._await_idle()
        except BaseException:
            self.close()
            raise

    @property
    def environ(self) -> dict[str, str]:
        """What a command needs to meet this Slurm: PATH with commands that run on the switch."""
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }

    def run(self, *argv: str) -> str:
        """The output of one Slurm command."""
        done = subprocess.run(
            argv,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            env={**os.environ, **self.environ},
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode()

    def _start_slurmd(self, name: str) -> None:
        # A name of its own, which all hosts know: torch tells its ranks to meet at that.
        named = f'hostname {name} && mount --bind {self.folder}/hosts /etc/hosts && exec "$@"'
        own = ("unshare", "--uts", "--mount", "sh", "-c", named, "sh") if self._named else ()
        inside = ("ip", "netns", "exec", self.hosts[name].namespace, *own)
        self._daemon(f"slurmd-{name}", *inside, "/usr/sbin/slurmd", "-D", "-N", name)

    def stop_slurmd(self, name: str) -> None:
        """This node's daemon is gone, its host stays."""
        for entry in self._daemons:
            key, process = entry
            if key == f"slurmd-{name}":
                process.kill()
                process.wait(_LIMIT_S)
                self._daemons.remove(entry)
                break

    def lose(self, name: str) -> None:
        """This node's power is gone, and Slurm knows it (by itself after SlurmdTimeout)."""
        self.stop_slurmd(name)
        while pids := self.hosts.processes().get(name):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=power")

    def close(self) -> None:
        """End all daemons, slurmd first so that none waits for its controller."""
        for _, process in reversed(self._daemons):
            process.terminate()
        for _, process in reversed(self._daemons):
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_LIMIT_S)
        self._daemons.clear()
        for pid in self._step_daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def logs(self) -> str:
        """The ends of all logs, for a failing test."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def _configure(self) -> None:
        folder, shared = self.folder, socket.gethostname()
        nodes = "\n".join(
            f"NodeName={h.name} NodeHostname={h.name if self._named else shared} "
            f"NodeAddr={h.address} "
            "Port=6818 CPUs=1 State=UNKNOWN"
            for h in self.hosts.hosts
        )
        (folder / "slurm.conf").write_text(
            f"""ClusterName=relkit
SlurmctldHost={socket.gethostname()}(10.77.0.254)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SwitchType=switch/none
ReturnToService=2
StateSaveLocation={folder}/state
FirstJobId={int.from_bytes(os.urandom(2), "big") + 1}
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SchedulerParameters=sched_min_interval=50000
{self._more}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
""",
            encoding="utf-8",
        )
        known = "".join(f"{h.address} {h.name}\n" for h in self.hosts.hosts)
        own = f"127.0.0.1 localhost\n10.77.0.254 {socket.gethostname()}\n"
        (folder / "hosts").write_text(own + known, encoding="utf-8")
        # No cgroup is used (see the plugins above), but slurmd wants its plugin to load.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")
        for tool in ("srun", "sbatch", "scancel", "sinfo", "salloc", "scontrol", "squeue"):
            wrapper = folder / "bin" / tool
            wrapper.write_text(
                f'#!/bin/sh\nexec {" ".join(self.hosts.prefix)} /usr/bin/{tool} "$@"\n',
                encoding="utf-8",
            )
            wrapper.chmod(0o700)

    def _start_munge(self) -> None:
        folder = self.folder
        key = folder / "munge.key"
        key.write_bytes(os.urandom(256))
        key.chmod(0o600)
        self._daemon(
            *("munged", "/usr/sbin/munged", "--foreground", "--force"),
            *(f"--key-file={key}", f"--socket={folder}/munge.sock"),
            *(f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log"),
            f"--seed-file={folder}/munged.seed",
        )
        self._until(lambda: (folder / "munge.sock").exists(), "munged")

    def _daemon(self, key: str, *argv: str) -> None:
        with (self.folder / f"{key}-output.log").open("wb") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")},
            )
        self._daemons.append((key, process))

    def _await_idle(self) -> None:
        count = len(self.hosts.hosts)

        def idle() -> bool:
            done = subprocess.run(
                ["sinfo", "-h", "-N", "-o", "%N %T"],
                capture_output=True,
                timeout=_LIMIT_S,
                check=False,
                env={**os.environ, **self.environ},
            )
            return done.stdout.split().count(b"idle") == count

        self._until(idle, "idle nodes")

    def _until(self, done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _LIMIT_S
        while not done():
            dead = [key for key, process in self._daemons if process.poll() is not None]
            assert not dead, f"{dead} ended\n{self.logs()}"
            assert time.monotonic() < end, f"no {what}\n{self.logs()}"
            time.sleep(0.05)

    def _step_daemons(self) -> list[int]:
        """slurmstepd of this cluster: they leave their parents' group on purpose."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"SLURM_CONF={self.folder}/slurm.conf".encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return [pid for pid in found if pid != os.getpid()]


@contextlib.contextmanager
def a_slurm(
    folder: Path, hosts: Hosts, *, named: bool = False, more: Sequence[str] = ()
) -> Iterator[Slurm]:
    """A Slurm for the time of a with block."""
    slurm = Slurm(folder, hosts, named=named, more=more)
    try:
        yield slurm
    finally:
        slurm.close()
