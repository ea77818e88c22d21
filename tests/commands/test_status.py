"""relkit status: where a job stands, what its restarts took, and which jobs there are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relkit.accounting import journal_folder
from relkit.accounting.account import account_of
from relkit.accounting.records import Record, What
from relkit.cli import cli
from relkit.errors import BadInputFile
from relkit.findings import Report
from relkit.process import procfs
from relkit.reports import recovery_page
from tests.unit.accounting.stories import Story

GONE = "1-1"
LIVE = f"{os.getpid()}-{procfs.start_ticks(os.getpid())}"


@pytest.fixture(autouse=True)
def _own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_folder, "_SHARED_MEMORY", tmp_path)


def leave(story: Story, name: str = GONE, job: str = "job", cut: int = 0) -> Path:
    folder = journal_folder._home() / job
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{name}.journal"
    data = b"".join(record.to_line() for record in story.records)
    path.write_bytes(data[: len(data) - cut])
    path.chmod(0o600)
    return path


def restarted() -> Story:
    return Story("job").attempt(0, 10).fault().attempt(8, 20, number=1)


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["status", *arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def plain(*arguments: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(invoke(*arguments, "--json").stdout)
    return loaded


def test_a_job_that_has_ended_has_a_row_a_restart_and_its_ratio() -> None:
    leave(restarted().add(What.ENDED, 1.0, name="succeeded"))
    result = invoke("job")
    assert result.return_value == 0
    header, start, restart = (line.split("  ") for line in result.stdout.splitlines())
    assert header[0] == "RESTART"
    assert [cell.strip() for cell in start if cell.strip()][:3] == ["-", "start", "3.5 s"]
    assert [cell.strip() for cell in restart if cell.strip()] == [
        "1", "killed by SIGKILL", "6.8 s", "0.2 s", "1.0 s", "0.2 s", "0.5 s", "1.0 s", "2.0 s",
        "0.5 s", "1.0 s", "0.2 s", "8", "2",
    ]  # fmt: skip
    assert "RK-JOB-001  job job has succeeded" in result.stderr
    assert "ETTR: 64.0%" in result.stderr
    assert "(killed by SIGKILL: 1); 2 steps lost" in result.stderr
    assert "back at step 8 after 6.8 s: detect 0.2" in result.stderr


def test_json_has_every_phase_and_nothing_for_what_was_not_seen() -> None:
    leave(restarted().add(What.ENDED, 1.0, name="succeeded"))
    facts: Any = plain("job")
    assert (facts["schema"], facts["state"], facts["ettr_basis"]) == (
        "relkit.status/1", "succeeded", "steps",
    )  # fmt: skip
    assert (facts["restarts"], facts["steps_lost"]) == ({"killed by SIGKILL": 1}, 2)
    (row,) = facts["recoveries"]
    assert row["phases_s"]["first step"] == 1.0
    assert (row["saved_step"], row["saved_by"], row["rank"]) == (7, "memory", None)
    assert facts["start"]["phases_s"]["detect"] is None


def test_a_job_that_runs_and_a_launcher_that_was_killed_are_told_apart() -> None:
    leave(restarted(), LIVE)
    assert (invoke("job").return_value, plain("job")["state"]) == (0, "running")
    leave(Story("job").attempt(0, 3).fault(), LIVE)
    assert (invoke("job").return_value, plain("job")["state"]) == (0, "recovering")
    (journal_folder._home() / "job" / f"{LIVE}.journal").unlink()
    leave(restarted())
    assert (invoke("job").return_value, plain("job")["state"]) == (3, "gone")


@pytest.mark.parametrize(("how", "words"), [("failed", "has failed"), ("ended", "has been ended")])
def test_a_job_that_failed_says_why(how: str, words: str) -> None:
    leave(Story("job").attempt(0, 3).fault().add(What.ENDED, name=how, text="because"))
    result = invoke("job")
    assert result.return_value == 1
    assert f"RK-JOB-003  job job {words}" in result.stderr
    assert "because rank 1: killed by SIGKILL" in result.stderr
    assert "(no restart)" in result.stdout
    assert "RK-JOB-006" not in result.stderr


def test_the_whole_part_of_a_torn_journal_is_used_and_that_is_said() -> None:
    leave(restarted(), LIVE, cut=5)
    result = invoke("job")
    assert "node 0: its last line is cut off" in result.stderr
    assert plain("job")["restarts"] == {"killed by SIGKILL": 1}
    leave(restarted(), "2-2", cut=10**9)
    assert "2-2.journal: it is empty" in invoke("job").stderr
    leave(restarted(), LIVE, cut=10**9)
    with pytest.raises(BadInputFile, match="it is empty"):
        invoke("job")


def test_launchers_of_one_run_stand_beside_each_other_and_earlier_runs_apart() -> None:
    earlier = Story("job").attempt(0, 3).add(What.ENDED, name="failed")
    leave(earlier, "5-5")
    for node, name in ((1, "6-6"), (0, "7-7")):
        story = Story("job")
        story.now_s = 1000.0
        story.records = [
            Record(What.LAUNCHER, 1000.0 + node, 2e9, name="host", text="job", number=1)
        ]
        story.add(What.ATTEMPT, node=node, nodes=2).add(What.OPERATION, 1.0)
        leave(story.add(What.ENDED, 5.0, name="succeeded"), name)
    facts = plain("job")
    launchers = facts["launchers"]
    assert isinstance(launchers, list)
    assert [each["node"] for each in launchers] == [0, 1]
    assert (facts["earlier_runs"], facts["state"]) == (1, "succeeded")


def test_a_node_whose_launcher_was_started_again_is_listed_once() -> None:
    for node, name in ((1, "6-6"), (0, "7-7"), (1, "8-8")):
        story = Story("job")
        story.add(What.ATTEMPT, node=node, nodes=2).add(What.OPERATION, 1.0)
        leave(story.add(What.ENDED, 5.0, name="succeeded"), name)
    listed = plain()["jobs"]
    assert isinstance(listed, list)
    assert [row["nodes"] for row in listed] == [[0, 1]]
    assert plain("job")["live"]["nodes"] == [0, 1]  # type: ignore[index]


@pytest.mark.parametrize("job", ["nobody", "../nobody", "x\x1b[31m"])
def test_a_job_that_is_not_there_is_an_error_that_says_where_to_look(job: str) -> None:
    leave(restarted())
    with pytest.raises(BadInputFile, match=r"^no launcher of job '") as told:
        invoke(job)
    assert "\x1b" not in str(told.value)
    assert told.value.next_step.startswith("`relkit status` lists the jobs that have.")


def test_without_a_job_all_of_this_host_are_listed() -> None:
    result = invoke()
    assert (result.return_value, len(result.stdout.splitlines())) == (0, 1)
    leave(restarted(), LIVE)
    leave(Story("other").attempt(0, 3).add(What.ENDED, name="succeeded"), job="other")
    assert "2 jobs of this user" in invoke().stderr
    leave(restarted(), job="torn", cut=10**9)
    result = invoke()
    rows = {line.split()[0]: line.split()[1:6] for line in result.stdout.splitlines()[1:]}
    assert rows == {
        "job": ["ok", "0", "2", "1", "20"],
        "other": ["succeeded", "0", "2", "0", "3"],
        "torn": ["unreadable", "-", "-", "-", "-"],
    }
    assert result.return_value == 0
    assert "cannot be read: torn" in result.stderr


def test_the_page_of_a_report_has_the_phases_and_escapes_what_a_journal_says() -> None:
    story = Story("job").attempt(0, 3).fault("<script>alert(1)</script>").attempt(3, 5, number=1)
    leave(story.add(What.ENDED, name="succeeded"))
    facts = plain("job")
    page = recovery_page.render(Report("status", (), facts))
    assert "Where the time of each restart went" in page
    assert '<th scope="col">rendezvous</th>' in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "Where the time" not in recovery_page.render(Report("hang", (), {}))
    assert account_of(story.records).restarts == {"<script>alert(1)</script>": 1}


def test_neither_torch_nor_numpy_is_imported(tmp_path: Path) -> None:
    # What runs on this machine beside the test may need more.
    program = (
        "import pathlib, sys; from relkit.cli import cli;"
        " from relkit.accounting import journal_folder;"
        f" journal_folder._SHARED_MEMORY = pathlib.Path({str(tmp_path)!r});"
        " cli(['status'], standalone_mode=False);"
        " print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_job_that_hangs_is_not_called_fine() -> None:
    leave(Story("job").attempt(0, 3).add(What.HEALTH, 10.0, name="hung"), LIVE)
    result = invoke("job")
    assert result.return_value == 0
    assert "WARN  RK-JOB-008  job job hangs" in result.stderr
    assert "RK-JOB-001" not in result.stderr
