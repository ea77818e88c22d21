"""`make test` alone tests what relkit is for: these tests are not marked `long`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# What a user relies on, and a test of it.
PROMISES: Mapping[str, str] = {
    "a slow rank is named": (
        "straggler/test_live_jobs.py::test_a_slow_rank_is_said_while_the_job_runs_and_reported_after_it"
    ),
    "a healthy job hears nothing": "straggler/test_live_jobs.py::test_a_healthy_job_hears_nothing",
    "a hang is named with its line": "cluster/test_launch.py::test_a_hang_is_named_with_its_line",
    "a job that hung goes on": "cluster/test_launch.py::test_restart_after_a_hang_recovers",
    "a crash is named": (
        "cluster/test_launch.py::test_a_crash_is_named_and_the_job_fails_as_under_torchrun"
    ),
    "an end from outside accuses nobody": (
        "cluster/hangs/test_deaths.py::test_a_job_that_is_ended_from_outside_names_nobody"
    ),
    "a lost node is replaced": (
        "cluster/restarts/test_spares.py::test_a_launcher_that_is_asked_to_end_is_replaced_at_once"
    ),
    "a restart takes warm standbys": (
        "cluster/restarts/test_warm_standby.py::test_standbys_go_on_as_the_ranks_would_have"
    ),
    "a slow node is named": "cluster/netcheck/test_faults.py::test_a_slow_node",
    "a slow link is named": "cluster/netcheck/test_faults.py::test_one_slow_link",
    "a healthy fleet is silent": (
        "cluster/netcheck/test_faults.py::test_a_healthy_fleet_has_no_fault"
    ),
    "a bad link of a GPU is named": (
        "commands/test_linkcheck.py::test_a_bad_gpu_is_told_from_its_peer_and_the_host_still_passes"
    ),
    "stacks are merged": (
        "commands/test_stacks_merge.py::test_the_ranks_that_stand_apart_come_with_their_place"
    ),
    "a dying gasp is saved": "ttp/test_ttp_command.py::test_status_and_save",
    "a killed job goes on from memory": (
        "flash_checkpoint/test_ddp_jobs.py::test_killed_workers_go_on_from_memory"
    ),
    "every finding is explained": (
        "docs/test_findings.py::test_every_id_has_a_section_and_every_section_an_id"
    ),
    "the site has no dead link": (
        "docs/test_site.py::test_every_page_is_there_and_names_no_host_but_its_own"
    ),
}


def is_long(node: ast.FunctionDef) -> bool:
    return any("pytest.mark.long" in ast.unparse(each) for each in node.decorator_list)


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_is_kept_by_a_test_that_is_not_long(promise: str) -> None:
    file, _, name = PROMISES[promise].partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    (test,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    assert not is_long(test)
    marks = [n for n in tree.body if isinstance(n, ast.Assign) and "pytestmark" in ast.unparse(n)]
    assert not any("mark.long" in ast.unparse(each) for each in marks)


def test_a_long_test_is_seen() -> None:
    source = "@pytest.mark.job\n@pytest.mark.long\ndef test_a(): pass\ndef test_b(): pass"
    found = [is_long(n) for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    assert found == [True, False]
