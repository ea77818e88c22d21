"""A hang of two launchers on hosts with networks and disks of their own, gathered over ssh."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import ENDLESS, EXAMPLE, Start, Started
from tests.cluster.hosts import Hosts, some_hosts
from tests.eager import eager
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.root,
    pytest.mark.sshd,
    pytest.mark.job,
    pytest.mark.timeout(200 * PATIENCE),
]

# What a host of its own has beside its network: its own disk at the place that all hosts use.
OWN_DISK = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


class Fleet:
    """Three hosts; h3 is down, and the job runs on the others.

    Args:
        hosts: of the test; folder: of the test; start: starts commands.
    """

    def __init__(self, hosts: Hosts, folder: Path, start: Start) -> None:
        self.hosts, self._folder, self._start = hosts, folder, start
        self.timeline = folder / "timeline"
        for path in (self.timeline, *(self.disk(host.name) for host in hosts.hosts)):
            path.mkdir()
        self._relkit = folder / "relkit-there"
        words = self._on_disk("$name")
        quoted = " ".join(f'"{word}"' if "$name" in word else shlex.quote(word) for word in words)
        self._relkit.write_text(f'#!/bin/sh\nname="${{2#--name=}}"\nexec {quoted} "$@"\n')
        self._relkit.chmod(0o700)

    def disk(self, name: str) -> Path:
        return self._folder / f"disk-{name}"

    def _on_disk(self, name: str) -> list[str]:
        """How to run relkit on a host: with that host's disk."""
        mount = ["unshare", "-m", "sh", "-c", OWN_DISK, "sh", str(self.disk(name))]
        return [*mount, str(self.timeline), sys.executable, "-m", "relkit"]

    def launch(self, *fault: str) -> list[Started]:
        """Two launchers of one job, on h1 and h2."""
        jobs = []
        for name in ("h1", "h2"):
            host = self.hosts[name]
            program = ("ip", "netns", "exec", host.namespace, *self._on_disk(name))
            jobs.append(
                self._start(
                    "launch", "--nnodes", "2", "--rdzv-backend", "c10d",
                    "--rdzv-id", f"collect-{os.getpid()}",
                    "--rdzv-endpoint", f"{self.hosts['h1'].address}:29400",
                    "--rdzv-conf", f"is_host={int(name == 'h1')}", "--local-addr", host.address,
                    "--hang-timeout", "4", "--on-hang", "abort",
                    "--timeline-path", self.timeline, *fault, EXAMPLE, *ENDLESS,
                    program=program, GLOO_SOCKET_IFNAME="eth0", RELKIT_NODE_NAME=name,
                )
            )  # fmt: skip
        return jobs

    def collect(self, out: Path) -> tuple[int, dict[str, Any], str]:
        """`relkit hang collect --json` on all three hosts."""
        done = subprocess.run(
            [
                sys.executable, "-m", "relkit", "hang", "collect", "--json", "-o", out,
                "--nodes", self.hosts.hosts_file(), "--ssh-args", self.hosts.ssh_args,
                "--relkit", self._relkit, "--timeline-path", self.timeline, "--timeout", "20",
            ],
            capture_output=True, text=True, timeout=120 * PATIENCE, check=False,
            env={**os.environ, "PATH": f"{self.hosts.ssh_folder}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.stdout, done.stderr
        plain: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, plain, done.stdout


@pytest.fixture
def fleet(tmp_path: Path, start: Start) -> Iterator[Fleet]:
    with some_hosts(tmp_path, 3) as hosts:
        hosts.cut("h3")
        yield Fleet(hosts, tmp_path, start)


def judged(out: Path, code: int = 1) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "relkit", "report", str(out), "--json"],
        capture_output=True, text=True, timeout=60 * PATIENCE, check=False, env=eager(os.environ),
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    plain: dict[str, Any] = json.loads(done.stdout)
    return plain


@pytest.mark.long
def test_evidence_of_one_hang_comes_from_all_nodes_that_answer(
    fleet: Fleet, tmp_path: Path
) -> None:
    ends = [job.wait(90) for job in fleet.launch("--inject", "hang:rank=1:step=4")]
    said = "\n".join(end.err for end in ends)
    assert [end.code for end in ends] == [1, 1], said
    own = {path.name for path in fleet.disk("h2").iterdir()}
    assert own == {"00001-00002.stacktrace"}, said
    out = tmp_path / "out"
    code, plain, text = fleet.collect(out)
    # One host is down: the others' evidence is used, and that one is named.
    assert code == 3, text
    (why,) = plain["silent"].values()
    assert list(plain["silent"]) == ["h3"]
    assert "down" in why or "no route" in why
    assert {path.rpartition("/")[2] for path in plain["files"]} == {
        "report.json",
        "actions.jsonl",
        "00000-00002.stacktrace",
        "00001-00002.stacktrace",
    }, text
    # Its verdict is of all ranks, and stands with what was done where readers look first.
    assert {"report.json", "actions.jsonl"} <= plain["files"].keys()
    verdict = judged(out)
    assert (verdict["culprits"], verdict["absent"]) == ([1], "")
    assert verdict["blamed"][0]["place"].startswith("examples/train.py")
    merged = subprocess.run(
        [sys.executable, "-m", "relkit", "stacks", "merge", str(out), "--json"],
        capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
    )  # fmt: skip
    assert json.loads(merged.stdout)["absent"] == "", merged.stderr


@pytest.mark.long
def test_what_each_launcher_saw_of_a_cut_link_is_judged_together(
    fleet: Fleet, tmp_path: Path
) -> None:
    jobs = fleet.launch()
    jobs[0].wait_for("step   20 ")
    fleet.hosts.cut("h2")
    ends = [job.wait(90) for job in jobs]
    said = "\n".join(end.err for end in ends)
    fleet.hosts.mend("h2")
    code, plain, text = fleet.collect(tmp_path / "out")
    assert set(plain["files"]) == {
        "node-h1/actions.jsonl",
        "node-h1/report.json",
        "node-h1/00000-00002.stacktrace",
        "node-h2/actions.jsonl",
        "node-h2/report.json",
        "node-h2/00001-00002.stacktrace",
    }, text + said
    assert code == 3
    # Alone, each took the other's rank for the culprit: nothing was known of it.
    own = [json.loads((fleet.disk(name) / "report.json").read_text()) for name in ("h1", "h2")]
    assert [report["absent"] for report in own] == ["1", "0"], said
    # Together they show that both are in the same collective: the network, and neither of them.
    verdict = judged(tmp_path / "out", 3)
    assert (verdict["culprits"], verdict["absent"]) == ([], "")
    assert verdict["findings"][0]["id"] == "RK-HANG-010"
