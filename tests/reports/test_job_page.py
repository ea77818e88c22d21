"""The page of a job: all that is kept of it, and nothing that a file could do to its reader."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from relkit.accounting import journal_folder
from relkit.cli import cli
from relkit.errors import BadInputFile, UsageProblem
from relkit.findings import Finding, Report, Status
from relkit.history import database
from relkit.history.model import Event, What
from relkit.job_page.parts import JobParts, parts_of
from relkit.output import as_json
from relkit.reports.jobs import job_page
from tests.reports.job_parts import LIVE, whole


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_folder, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("ranks", [8, pytest.param(1024, marks=pytest.mark.long)])
def test_everything_that_is_kept_is_on_it(ranks: int) -> None:
    text = job_page.render(whole(ranks), draw_with_graphviz=False)
    assert len(text) < 3_000_000
    for place in ("happened", "hang", "straggler", "netcheck", "flash", "restarts"):
        assert f'href="#{place}"' in text
        assert f'id="{place}"' in text
    assert "The job has succeeded" in text
    assert "4,711" in text
    assert "of 10,000" in text
    assert "killed" not in text
    assert "ttp.json: it is no JSON" in text
    assert "Findings not shown: 4" in text
    assert f"Earlier events not shown: {len(whole(ranks).events) - job_page.MAX_EVENTS}" in text
    # Nothing is loaded from elsewhere, and no script runs.
    assert not re.search(r"<script|src=\"http|url\(http", text)


@pytest.fixture
def _far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as context:
        context.setenv("TZ", "XST-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_far_east")
def test_what_happened_has_the_clock_of_the_rest_of_the_page() -> None:
    text = job_page.render(whole(8), draw_with_graphviz=False)
    assert "2023-11-14 22:13:20 UTC" in text
    # One a second; the first that is shown.
    first = time.gmtime(whole(8).events[-job_page.MAX_EVENTS].at_unix_s)
    assert f"<time>{time.strftime('%Y-%m-%d %H:%M:%S', first)} UTC</time>" in text


def test_a_job_that_hangs_is_not_called_ok() -> None:
    parts = whole(8)
    assert parts.account is not None
    runs = Finding("RK-JOB-001", Status.OK, "job night runs")
    facts = {**parts.account.facts, "state": "running", "live": {**LIVE, "health": "hung"}}
    text = job_page.render(
        replace(parts, account=replace(parts.account, findings=(runs,), facts=facts)),
        draw_with_graphviz=False,
    )
    head = text.partition("<header")[2].partition("</header>")[0]
    assert "The job hangs" in head
    assert "verdict-fail" in head
    assert "chip-ok" not in head


def test_findings_of_a_hang_that_are_not_shown_are_counted() -> None:
    parts = whole(8)
    assert parts.hang is not None
    report = parts.hang.report
    many = replace(report, findings=report.findings[:1] * (job_page.MAX_FINDINGS + 3))
    hang = replace(parts.hang, report=many)
    text = job_page.render(replace(parts, hang=hang, reports={}), draw_with_graphviz=False)
    assert "Findings not shown: 3" in text


def test_what_is_missing_is_left_out() -> None:
    nothing = JobParts("j", None, None, None, None, {}, (), ())
    text = job_page.render(nothing)
    assert "What is kept of the job" in text
    assert "<section" not in text


def test_text_from_elsewhere_is_text() -> None:
    evil = "<script>alert(1)</script>"
    parts = whole(8)
    bad = Finding("RK-NET-001", Status.FAIL, evil, reasons=(evil,), advice=evil)
    event = Event(1e99, What.VERDICT, evil, evil, evil, evil, evil)
    text = job_page.render(
        replace(
            parts, job_id=evil, folder=Path(evil), notes=(evil,), events=(event,),
            reports={"netcheck": Report("netcheck", (bad,))},
        ),
        draw_with_graphviz=False,
    )  # fmt: skip
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 6


def folder_of(tmp_path: Path, job: str = "night") -> Path:
    folder = tmp_path / "t"
    (folder / "straggler").mkdir(parents=True)
    found = (Finding("RK-FLASH-001", Status.WARN, "step 7 is kept"),)
    (folder / "flash_checkpoint.json").write_text(
        as_json(Report("flash", found, {"job_id": job, "step": 7}))
    )
    (folder / "ttp.json").write_text(as_json(Report("ttp", found, {"job_id": "another"})))
    (folder / "netcheck.json").write_text("{torn")
    (folder / "straggler" / "report.json").write_text("[]")
    return folder


def test_a_folder_gives_what_is_of_its_job(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    starts = [Event(time.time(), What.START, job, text=f"{job} begins") for job in ("night", "day")]
    database.write(tmp_path / "state" / "relkit", starts)
    parts = parts_of(str(folder))
    assert (parts.job_id, list(parts.reports)) == ("night", ["flash"])
    assert [event.text for event in parts.events] == ["night begins"]
    assert [note.partition(":")[0] for note in parts.notes] == ["netcheck.json", "report.json"]
    assert parts.hang is None


def test_the_command_writes_one_private_file(tmp_path: Path) -> None:
    folder, target = folder_of(tmp_path), tmp_path / "page.html"
    argv = ["page", str(folder), "-o", str(target)]
    assert CliRunner().invoke(cli, argv, standalone_mode=False).return_value == 0
    assert target.stat().st_mode & 0o777 == 0o600
    assert "step 7 is kept" in target.read_text()
    again = CliRunner().invoke(cli, argv, standalone_mode=False)
    assert isinstance(again.exception, UsageProblem)
    assert CliRunner().invoke(cli, [*argv, "--force"], standalone_mode=False).return_value == 0


def test_nothing_to_show_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(BadInputFile, match="no launcher of job 'nobody'"):
        parts_of("nobody")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageProblem, match="holds nothing of a job"):
        parts_of(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    "facts",
    [
        {"recoveries": [{}], "start": {}},
        {"restarts": {"crash": "3"}},
        {"restarts": [1]},
    ],
)
def test_a_damaged_account_is_said_and_the_rest_is_shown(
    tmp_path: Path, facts: dict[str, object]
) -> None:
    check = Report("netcheck", (Finding("RK-NET-001", Status.FAIL, "a link is dead"),))
    (tmp_path / "netcheck.json").write_text(as_json(check))
    (tmp_path / "recovery.json").write_text(as_json(Report("recovery", (), facts)))
    text = job_page.render(parts_of(str(tmp_path)))
    assert "recovery.json: it is damaged" in text
    assert "a link is dead" in text


def test_what_is_of_one_moment_is_not_believed_of_a_kept_account(tmp_path: Path) -> None:
    facts = {"live": {"health": "hung", "ranks": "x"}, "restarts": {}}
    (tmp_path / "recovery.json").write_text(as_json(Report("recovery", (), facts)))
    assert "The job hangs" not in job_page.render(parts_of(str(tmp_path)))
