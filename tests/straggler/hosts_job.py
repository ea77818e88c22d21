"""A job over four hosts in network namespaces, one of whose interfaces or edges turns slow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.hosts import Host, Hosts

RATE_MBIT = 80.0
HOSTS = 4
_PORT = 29411
# Each launcher has a host name of its own, as on real hosts.
_NAMED = 'hostname "$0" && exec "$@"'


def run_on_hosts(
    timeline: Path,
    jobs: Path,
    job: Sequence[str],
    rank: int,
    onset: int,
    fault: str,
    limit_s: float,
) -> None:
    """Run one job, one rank a host, and make the network slow when it reaches a step.

    Args:
        timeline: of node 0; jobs: folder of the job's script; job: script and arguments.
        rank: whose interface, or whose edge to the next; -1 for none; onset: from which step on.
        fault: "interface..." or "edge...".
        limit_s: everything is ended after that.
    """
    fleet = Hosts(timeline, HOSTS, rate_mbit=RATE_MBIT, sshd=False)
    launchers: list[subprocess.Popen[bytes]] = []
    told = timeline / "reached"
    try:
        for number, host in enumerate(fleet.hosts):
            folder = timeline if number == 0 else timeline / f"node{number}"
            folder.mkdir(exist_ok=True)
            line = [*_argv(host, fleet, number, folder), str(jobs / job[0]), *job[1:]]
            if rank >= 0:
                line += [f"--tell-step={onset}", f"--tell={told}"]
            with (folder / "output").open("wb") as stream:
                launchers.append(
                    subprocess.Popen(
                        line, stdout=stream, stderr=stream, start_new_session=True,
                        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"},
                    )
                )  # fmt: skip
        until_s = time.monotonic() + limit_s
        done = rank < 0
        while any(each.poll() is None for each in launchers) and time.monotonic() < until_s:
            if not done and told.exists():
                _make_slow(fleet, rank, fault)
                done = True
            time.sleep(0.02)
    finally:
        for each in launchers:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
            each.wait(20)
        fleet.close()


def _make_slow(fleet: Hosts, rank: int, fault: str) -> None:
    here, there = fleet.names[rank], fleet.names[(rank + 1) % HOSTS]
    if fault.startswith("edge"):
        fleet.limit_pair(here, there, RATE_MBIT / 4)
    else:
        fleet.limit(here, out_mbit=RATE_MBIT / 4, in_mbit=RATE_MBIT / 4)


def _argv(host: Host, fleet: Hosts, number: int, folder: Path) -> list[str]:
    return [
        "ip", "netns", "exec", host.namespace, "unshare", "--uts", "sh", "-c", _NAMED, host.name,
        sys.executable, "-m", "relkit", "launch", "--straggler=warn", "--nnodes", str(HOSTS),
        "--nproc-per-node", "1", "--node-rank", str(number),
        "--master-addr", fleet.hosts[0].address, "--master-port", str(_PORT),
        f"--timeline-path={folder}",
    ]  # fmt: skip
