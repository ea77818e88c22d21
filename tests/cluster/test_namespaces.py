"""Two nodes with network stacks of their own: nothing between them but one wire."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import ENDLESS, EXAMPLE, Start, report_of

pytestmark = [pytest.mark.job, pytest.mark.root]


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, timeout=10, capture_output=not check)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces, joined by a veth pair; 10.77.0.1 and 10.77.0.2."""
    first, second = (f"relkit{os.getpid()}{letter}" for letter in "ab")
    try:
        for name in (first, second):
            _ip("netns", "add", name)
        wire = ("link", "add", "wire", "netns", first, "type", "veth")
        _ip(*wire, "peer", "name", "wire", "netns", second)
        for number, name in enumerate((first, second), 1):
            _ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "wire")
            for device in ("lo", "wire"):
                _ip("-n", name, "link", "set", device, "up")
        yield first, second
    finally:
        for name in (first, second):
            _ip("netns", "del", name, check=False)


@pytest.mark.long
def test_the_culprit_on_the_other_host(
    start: Start, tmp_path: Path, hosts: tuple[str, str]
) -> None:
    jobs = [
        start(
            "launch", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
            "--rdzv-id", f"wired-{os.getpid()}", "--rdzv-endpoint", "10.77.0.1:29400",
            # torch takes a host for the endpoint's by name, and both have the same name here.
            "--rdzv-conf", f"is_host={int(number == 0)}", "--local-addr", f"10.77.0.{number + 1}",
            "--hang-timeout", "5", "--on-hang", "abort", "--timeline-path", tmp_path / str(number),
            "--inject", "hang:rank=1:step=4", EXAMPLE, *ENDLESS,
            program=("ip", "netns", "exec", hosts[number], sys.executable, "-m", "relkit"),
            GLOO_SOCKET_IFNAME="wire",
        )
        for number in (0, 1)
    ]  # fmt: skip
    ends = [job.wait() for job in jobs]
    assert [done.code for done in ends] == [1, 1], ends[0].err + ends[1].err
    # Which of the two became node 0 is torch's choice.
    judged = [n for n in (0, 1) if (tmp_path / str(n) / "report.json").exists()]
    assert len(judged) == 1
    folder = tmp_path / str(judged[0])
    assert report_of(folder)["culprits"] == [1], ends[judged[0]].err
    dumps = sorted(path.name for path in folder.glob("*.stacktrace"))
    assert dumps == ["00000-00002.stacktrace", "00001-00002.stacktrace"]
    assert "node 0 judged: rank 1" in ends[1 - judged[0]].err


def test_a_host_whose_name_leads_nowhere_runs_a_job_of_its_own(
    start: Start, tmp_path: Path
) -> None:
    """torch gives that name to all ranks, which look for it without a word."""
    script = tmp_path / "ok.py"
    script.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "ones = torch.ones(1)\n"
        "dist.all_reduce(ones)\n"
        # One write: print() makes two, and ranks write at once.
        "sys.stdout.write(f'sum {ones.item()}\\n')\n"
        "dist.destroy_process_group()\n",
        encoding="utf-8",
    )
    done = start(
        "launch", "--standalone", "--nproc-per-node", "2", "--timeline-path", tmp_path / "t",
        script,
        program=(
            *("unshare", "--uts", "sh", "-c", 'hostname nosuch-host-xyz; exec "$@"', "sh"),
            *(sys.executable, "-m", "relkit"),
        ),
    ).wait()  # fmt: skip
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["sum 2.0", "sum 2.0"]
    assert "relkit: the name of this host, 'nosuch-host-xyz', does not resolve" in done.err
