"""Prolog and HealthCheckProgram under a real Slurm: what drains a node, and what resumes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.hosts import some_hosts
from tests.cluster.slurm import Slurm, a_slurm
from tests.patience import PATIENCE
from tests.waiting import eventually

pytestmark = [
    pytest.mark.root, pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(300 * PATIENCE),
]  # fmt: skip
SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm" / "relkit-node-check"
# Stands for linkcheck and doctor of a host: its report is a file.
_CHECKS = "#!/bin/sh\ncat {folder}/$1-$(hostname).json\n"
_RELKIT = """#!/bin/sh
export SLURM_CONF={conf} PATH={path}
exec {python} -m relkit "$@" --relkit {folder}/checks --check linkcheck --check doctor
"""


@dataclass(frozen=True)
class Site:
    """A Slurm whose nodes are checked, and what the checks find."""

    slurm: Slurm
    folder: Path

    def finds(self, node: str, command: str, finding: str = "", status: str = "fail") -> None:
        """From now on; no finding: all is well."""
        findings = [{"id": finding, "status": status, "title": "a link is slow"}] if finding else []
        report = {"status": status if finding else "ok", "findings": findings}
        file = self.folder / f"{command}-{node}.json"
        file.with_suffix(".new").write_text(json.dumps(report))
        file.with_suffix(".new").replace(file)

    def node(self, name: str) -> tuple[str, str]:
        """Its state, and the reason for it."""
        line = self.slurm.run("scontrol", "-o", "show", "node", name)
        state, reason = re.search(r" State=(\S+)", line), re.search(r"Reason=(.*?) \[", line)
        return state[1] if state else "", reason[1] if reason else ""

    def job(self, node: str, script: str) -> str:
        """Submit a job for one node; its number."""
        words = ["sbatch", "--parsable", "-w", node, "-o", "/dev/null", "-D", str(self.folder),
                 "--wrap", script]  # fmt: skip
        done = subprocess.run(words, env={**os.environ, **self.slurm.environ},
                              capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
        return done.stdout.strip()

    def state_of(self, job: str) -> str:
        text = self.slurm.run("scontrol", "-o", "show", "job", job)
        found = re.search(r"JobState=(\S+)", text)
        return found[1] if found else ""

    def until(self, node: str, is_out: bool) -> str:
        """The reason, once the node is out, or is not."""
        eventually(lambda: ("DRAIN" in self.node(node)[0]) == is_out,
                   lambda: f"{self.node(node)}\n{self.slurm.logs()}", 60, poll_s=0.2)  # fmt: skip
        return self.node(node)[1]


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """With a health check every two seconds, or as often as the test says."""
    relkit, folder = tmp_path / "relkit", tmp_path / "slurm"
    every_s = getattr(request, "param", 2)
    more = [
        f"Prolog={tmp_path}/node-check", f"Epilog={tmp_path}/node-check",
        f"HealthCheckProgram={tmp_path}/node-check", f"HealthCheckInterval={every_s}",
        "HealthCheckNodeState=ANY", "PrologFlags=Alloc",
    ]  # fmt: skip
    text = SCRIPT.read_text().replace("/usr/local/bin/relkit", str(relkit))
    programs = {
        "node-check": text,
        "checks": _CHECKS.format(folder=tmp_path),
        "relkit": _RELKIT.format(
            conf=folder / "slurm.conf", python=sys.executable, folder=tmp_path,
            path=f"{folder}/bin:{os.environ['PATH']}",
        ),
    }  # fmt: skip
    for name, program in programs.items():
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    with some_hosts(tmp_path, 2, sshd=False) as hosts:
        made = Site(None, tmp_path)  # type: ignore[arg-type]
        for node in hosts.names:
            made.finds(node, "linkcheck")
            made.finds(node, "doctor")
        with a_slurm(folder, hosts, named=True, more=more) as slurm:
            yield Site(slurm, tmp_path)


def test_a_node_is_drained_for_its_own_faults_only_and_resumed_by_the_same_check(
    site: Site,
) -> None:
    # What a user brings along: a script that fails, and what doctor says of software.
    site.finds("h1", "doctor", "RK-DOC-003")
    job = site.job("h1", "exit 3")
    eventually(lambda: site.state_of(job) == "FAILED", lambda: site.slurm.logs(), 60, poll_s=0.2)
    assert "DRAIN" not in site.node("h1")[0]

    site.finds("h1", "linkcheck", "RK-LNK-002")
    assert site.until("h1", True) == "relkit RK-LNK-002: node_problem a link is slow"
    # A check that cannot tell has not passed.
    site.finds("h1", "linkcheck", "RK-LNK-002", "unknown")
    site.finds("h2", "linkcheck", "RK-LNK-002")
    # One of two nodes is out already: the other stays, whatever is found.
    eventually(lambda: "DRAIN" in site.node("h1")[0], site.slurm.logs, 10)
    assert "DRAIN" not in site.node("h2")[0]
    site.finds("h1", "linkcheck")
    site.until("h1", False)

    # What an operator has drained stays, however well the checks go.
    site.finds("h2", "linkcheck")
    site.slurm.run("scontrol", "update", "NodeName=h2", "State=DRAIN", "Reason=bad fan")
    job = site.job("h1", "true")
    eventually(lambda: site.state_of(job) == "COMPLETED", lambda: site.slurm.logs(), 60, poll_s=0.2)
    assert site.node("h2")[1] == "bad fan"
    assert "DRAIN" in site.node("h2")[0]


@pytest.mark.parametrize("site", [0], indirect=True)
def test_a_job_that_meets_a_broken_node_goes_back_to_the_queue(site: Site) -> None:
    site.finds("h1", "linkcheck", "RK-LNK-002")
    job = site.job("h1", "true")
    assert site.until("h1", True) == "relkit RK-LNK-002: node_problem a link is slow"
    eventually(lambda: site.state_of(job) == "PENDING", site.slurm.logs, 60, poll_s=0.2)
