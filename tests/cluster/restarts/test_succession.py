"""Three hosts; the one whose launcher leads is lost while a rank stalls: the next one judges."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import NODE_CPU_S, Start, Started, report_of, until
from tests.cluster.hosts import Hosts, some_hosts
from tests.cluster.link_sockets import wait_for_links
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.root, pytest.mark.timeout(150 * PATIENCE)]

JOB = Path(__file__).parents[1] / "jobs" / "stall_job.py"
NAMES = ("h1", "h2", "h3")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with some_hosts(tmp_path, 3, sshd=False) as fleet:
        yield fleet


def begin(
    start: Start, hosts: Hosts, folder: Path, backend: str, *options: str
) -> dict[str, Started]:
    """Two ranks on each host, all of them in operations; the first host is node 0."""
    first = hosts["h1"].address
    jobs = []
    for number, name in enumerate(NAMES):
        meet: tuple[str, ...] = ("--node-rank", str(number), "--master-addr", first)
        if backend == "c10d":
            conf = f"is_host={int(not number)}"
            job_id = f"next-{os.getpid()}"
            meet = ("--rdzv-endpoint", f"{first}:29400", "--rdzv-id", job_id, "--rdzv-conf", conf)
        job = start(
            "launch", "--nnodes", "3", "--rdzv-backend", backend, *meet,
            "--local-addr", hosts[name].address, "--nproc-per-node", "2",
            "--timeline-path", folder / f"t-{name}", *options, JOB, folder,
            program=("ip", "netns", "exec", hosts[name].namespace, sys.executable, "-m", "relkit"),
            GLOO_SOCKET_IFNAME="eth0", RELKIT_NODE_NAME=name,
        )  # fmt: skip
        jobs.append(job)
    until(lambda: len(list(folder.glob("pid-*"))) == 6, *jobs, timeout_s=3 * NODE_CPU_S)
    jobs[0].wait_for("watching rank 0-1 of 6")
    wait_for_links(jobs, 29400 if backend == "c10d" else 29500)
    return dict(zip(NAMES, jobs, strict=True))


def stacked_ranks(folder: Path) -> set[int]:
    """Ranks whose stacks are on disk."""
    return {int(path.name.partition("-")[0]) for path in folder.glob("*.stacktrace")}


@pytest.mark.long
@pytest.mark.parametrize(("how", "backend"), [("cut", "static"), ("killed", "c10d")])
def test_the_successor_judges_and_all_evidence_is_on_disk(
    start: Start, hosts: Hosts, tmp_path: Path, how: str, backend: str
) -> None:
    jobs = begin(start, hosts, tmp_path, backend, "--hang-timeout", "12", "--on-hang", "abort")
    first, second, third = jobs.values()
    # A rank of the third host stalls: that alone is the hang.
    (tmp_path / "sleep-4").touch()
    until((tmp_path / "asleep-4").exists, *jobs.values())
    if how == "cut":
        hosts.cut("h1")
    else:
        first.process.send_signal(signal.SIGKILL)
    second.wait_for("this node leads the watch over the job from here on")
    done = [second.wait(90), third.wait(90)]
    told = "\n".join(job.text for job in jobs.values())
    culprits = set(report_of(tmp_path / "t-h2")["culprits"])
    assert "node 1 judged: " in third.text, told
    if how == "cut":
        assert 4 in culprits, told
        assert stacked_ranks(tmp_path / "t-h2") >= {2, 3}, told
        assert stacked_ranks(tmp_path / "t-h3") == {4, 5}, told
    else:
        # Its ranks end with the launcher: those that wait for them fail, perhaps before they are
        # looked at, and are not at fault. The one that stalls notices nothing of it.
        assert {0, 1} <= culprits <= {0, 1, 4}, told
        assert 4 in stacked_ranks(tmp_path / "t-h3"), told
    assert all(each.code for each in done), told
    # Ranks may end with one of their own, once their peers are gone.
    assert "\nTraceback" not in second.text + third.text, told
