"""relkit nodes with a stand-in for scontrol: dry run, drain, the test before it comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Keeps the state of each node in a file: its reason, or nothing.
_SCONTROL = """#!/bin/sh
cd {folder}/nodes || exit 1
case "$*" in
    *"show node"*) for node in *; do
        if [ -s "$node" ]
        then echo "NodeName=$node State=IDLE+DRAIN" \\
            "Reason=$(cat $node) [root@$(date +%Y-%m-%dT%H:%M:%S)]"
        else echo "NodeName=$node State=IDLE"; fi
    done ;;
    *DRAIN*) echo "${{4#Reason=}}" >"${{2#NodeName=}}" ;;
    *RESUME*) : >"${{2#NodeName=}}" ;;
esac
"""
Run = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run relkit; its exit code, JSON and stderr."""
    (tmp_path / "nodes").mkdir()
    for at in range(20):
        (tmp_path / "nodes" / f"n{at}").touch()
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "scontrol"
    tool.write_text(_SCONTROL.format(folder=tmp_path))
    tool.chmod(0o700)
    environ = {
        **os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }  # fmt: skip

    def run(*words: str) -> tuple[int, dict[str, Any], str]:
        done = subprocess.run(
            [sys.executable, "-m", "relkit", *words, "--json"],
            env=environ, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr

    return run


def test_a_node_goes_and_comes_back_only_after_its_test(run: Run, tmp_path: Path) -> None:
    drain = ("nodes", "drain", "n1", "--finding", "RK-NET-002", "--why", "n1 is slow")
    code, report, _ = run(*drain)
    assert (code, report["dry_run"], report["findings"][0]["id"]) == (0, True, "RK-NODE-001")
    assert run("nodes", "list")[1]["out"] == ""
    code, report, _ = run(*drain, "--yes")
    assert (code, report["findings"][0]["id"]) == (0, "RK-NODE-002")
    assert (tmp_path / "nodes" / "n1").read_text() == "relkit RK-NET-002: n1 is slow\n"
    listed = run("nodes", "list")[1]
    assert (listed["out"], listed["most_a_day"]) == ("n1", 2)

    code, _, said = run("nodes", "undrain", "n1", "--yes")
    assert (code, "has passed no test" in said, "relkit nodes retest n1" in said) == (3, True, True)
    code, _, said = run("nodes", "undo", "--yes")
    assert code == 0, said
    assert run("nodes", "list")[1]["out"] == ""
    whats = [event["what"] for event in run("history")[1]["events"]]
    assert whats == ["drain", "undo"]


def test_too_many_and_what_is_no_finding_are_refused(run: Run, tmp_path: Path) -> None:
    code, _, said = run("nodes", "drain", "n[1-3]", "--finding", "RK-NET-002", "--yes")
    assert (code, "3 nodes in a day, of 20; relkit takes out 2" in said) == (3, True)
    assert not (tmp_path / "nodes" / "n1").read_text()
    code, _, said = run("nodes", "drain", "n1", "--finding", "slow", "--yes")
    assert (code, "is no finding's id" in said) == (2, True)


def test_one_node_is_tested_with_a_few_others_and_that_is_kept(run: Run) -> None:
    names = ",".join(f"n{at}" for at in range(3))
    words = ("--nodes", names, "--via", "local", "--probe", "tcp")
    code, report, said = run("nodes", "retest", "n1", *words)
    assert code == 0, said
    assert report["only"] == {"node": "n1", "status": "ok"}
    (event,) = run("history")[1]["events"]
    assert (event["what"], event["nodes"], event["status"]) == ("retest", ["n1"], "ok")
    code, _, said = run("netcheck", "--only", "n9", *words)
    assert (code, "n9 is none of the nodes" in said) == (2, True)
