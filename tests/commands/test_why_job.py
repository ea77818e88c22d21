"""relkit why JOB: what the launcher of a job of this host knows, by the job's name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import relkit.why.named_job as named_job
from relkit.accounting import journal_folder
from relkit.accounting.records import What
from relkit.cli import cli
from relkit.errors import UsageProblem
from relkit.process import procfs
from tests.unit.accounting.stories import Story

LIVE = f"{os.getpid()}-{procfs.start_ticks(os.getpid())}"


@pytest.fixture(autouse=True)
def timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Journals and a timeline folder of the test's own."""
    monkeypatch.setattr(journal_folder, "_SHARED_MEMORY", tmp_path)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "timeline"
    folder.mkdir()
    monkeypatch.setattr(named_job, "usual_folders", lambda: (folder,))
    return folder


def leave(story: Story, name: str = "1-1", job: str = "job") -> None:
    folder = journal_folder._home() / job
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{name}.journal"
    path.write_bytes(b"".join(record.to_line() for record in story.records))
    path.chmod(0o600)


def why(*words: str) -> Result:
    return CliRunner().invoke(cli, ["why", *words], standalone_mode=False)


def failed() -> Story:
    return Story("job").attempt(0, 3).fault().add(What.ENDED, name="failed", text="because")


def test_a_job_that_failed_is_explained_by_its_journal() -> None:
    leave(failed())
    result = why("job")
    assert result.return_value == 1
    assert "RK-WHY-003" not in result.output
    plain = json.loads(why("job", "--json").output)
    assert (plain["job"], plain["state"], plain["cause"]) == ("job", "failed", "killed")


def test_a_job_that_runs_has_not_failed() -> None:
    leave(Story("job").attempt(0, 3), LIVE)
    result = why("job")
    assert result.return_value == 3
    assert "nothing says that job job has failed: it runs" in result.output


def test_what_a_running_job_has_outlived_is_no_answer() -> None:
    leave(Story("job").attempt(0, 10).fault().attempt(8, 20, number=1), LIVE)
    plain = json.loads(why("job", "--json").output)
    assert (plain["state"], plain["cause"], plain["culprits"]) == ("running", "", [])
    assert "outlived" in plain["findings"][0]["reasons"][0]


def test_the_verdict_in_the_timeline_counts(timeline: Path) -> None:
    leave(failed())
    verdict = {"job_id": "job", "verdict": "rank 1 sleeps", "culprits": [1]}
    (timeline / "report.json").write_text(json.dumps(verdict))
    result = why("job")
    assert result.return_value == 1
    assert "RK-WHY-001  rank 1: rank 1 sleeps" in result.output
    (timeline / "report.json").write_text(json.dumps({**verdict, "job_id": "other"}))
    assert "sleeps" not in why("job").output


def test_ranks_at_fault_are_told_as_elsewhere(timeline: Path) -> None:
    leave(failed())
    verdict = {"job_id": "job", "verdict": "they sleep", "culprits": [0, 1, 2, 5]}
    (timeline / "report.json").write_text(json.dumps(verdict))
    assert "RK-WHY-001  ranks 0-2,5: they sleep" in why("job").output
    assert json.loads(why("job", "--json").output)["who"] == "ranks 0-2,5"


def test_a_verdict_that_is_older_than_the_job_is_another_run_s(timeline: Path) -> None:
    leave(failed())
    file = timeline / "report.json"
    file.write_text(json.dumps({"job_id": "job", "verdict": "rank 1 sleeps", "culprits": [1]}))
    os.utime(file, (1.0, 1.0))
    assert "sleeps" not in why("job").output


def test_a_verdict_without_a_journal_is_known_as_well(timeline: Path) -> None:
    verdict = {"job_id": "gone", "verdict": "rank 1 sleeps", "culprits": [1]}
    (timeline / "report.json").write_text(json.dumps(verdict))
    assert why("gone").return_value == 1


def test_an_unknown_name_lists_the_jobs_and_says_how_to_name_a_path() -> None:
    leave(failed(), job="train-7")
    result = why("trian-7")
    assert isinstance(result.exception, UsageProblem)
    assert "there is no file, folder or job 'trian-7'" in str(result.exception)
    assert "Did you mean 'train-7'?" in str(result.exception)
    assert "train-7" in result.exception.next_step


def test_a_path_comes_before_a_job(tmp_path: Path) -> None:
    leave(failed())
    (tmp_path / "job").write_text("MemoryError\n")
    assert "RK-JOB" not in why("job").output


def test_a_damaged_verdict_is_passed_over(timeline: Path) -> None:
    leave(failed())
    (timeline / "report.json").write_text('{"job_id": "job", "verdict": 3, "culprits"')
    assert why("job").return_value == 1


def leave_verdict(folder: Path, unix_s: float) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / "report.json"
    file.write_text(json.dumps({"job_id": "job", "verdict": "rank 1 sleeps", "culprits": [1]}))
    os.utime(file, (unix_s, unix_s))


def hung(folder: Path) -> Story:
    """A job that has begun at 1e9 + 100 s, and was seen to hang."""
    story = Story("job").add(What.TIMELINE, text=str(folder)).attempt(0, 3)
    return story.add(What.HEALTH, 10.0, name="hung")


def test_the_verdict_in_the_folder_that_the_launcher_had_counts(tmp_path: Path) -> None:
    folder = tmp_path / "named with --timeline-path"
    story = hung(folder).fault("launcher got SIGINT").add(What.ENDED, name="ended", text="SIGINT")
    leave(story)
    leave_verdict(folder, 1e9 + story.now_s)
    result = why("job")
    assert result.return_value == 1
    assert "RK-WHY-001  rank 1: rank 1 sleeps" in result.output


def test_a_job_that_hangs_now_has_outlived_nothing(tmp_path: Path) -> None:
    story = hung(tmp_path / "t")
    leave(story, LIVE)
    leave_verdict(tmp_path / "t", 1e9 + story.now_s)
    result = why("job")
    assert result.return_value == 1
    assert "RK-WHY-001  rank 1: rank 1 sleeps" in result.output
    assert "RK-JOB-008  job job hangs" in result.output


def test_a_hang_that_was_over_is_not_why_the_job_was_ended_later(timeline: Path) -> None:
    story = hung(timeline)
    leave_verdict(timeline, 1e9 + story.now_s)
    story.add(What.HEALTH, 10.0, name="goes on").fault("launcher got SIGTERM")
    leave(story.add(What.ENDED, name="ended", text="SIGTERM"))
    result = why("job")
    assert "sleeps" not in result.output
    assert "launcher got SIGTERM" in result.output


def test_a_verdict_on_an_earlier_attempt_is_not_why_the_last_one_ended(timeline: Path) -> None:
    story = hung(timeline).fault("hang")
    leave_verdict(timeline, 1e9 + story.now_s)
    story.add(What.ATTEMPT, 1.0, number=1, nodes=1, world_size=2).fault("launcher got SIGTERM")
    leave(story.add(What.ENDED, name="ended", text="SIGTERM"))
    assert "sleeps" not in why("job").output


def test_a_launcher_that_was_told_to_end_knows_why_it_ended() -> None:
    story = Story("job").attempt(0, 3)
    story.add(What.FAULT, name="launcher got SIGINT", text="the launcher got SIGINT", number=-1)
    leave(story.add(What.ENDED, name="ended", text="signal 2"))
    plain = json.loads(why("job", "--json").output)
    assert (plain["cause"], plain["who"]) == ("interrupted", "nobody")
    assert "does not know why" not in json.dumps(plain["findings"])
