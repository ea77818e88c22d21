"""relkit report: the page, the document, exit codes, errors."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

import pytest

from relkit.cli import run
from relkit.hang.model import Category
from relkit.hang_picture.actions import Action, to_lines
from relkit.hang_picture.runbook import HangFiles, commands_for
from tests.unit.hang_picture.hang_folders import blocked_job, pipeline_job, write_hang


@pytest.fixture
def hangdir(tmp_path: Path) -> Path:
    write_hang(tmp_path / "timeline", blocked_job(4), started=1.79e9)
    return tmp_path / "timeline"


def test_the_page_lies_in_the_folder(hangdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(hangdir)]) == 1
    said = capsys.readouterr()
    assert "RK-HANG-008" in said.out
    assert f"wrote {hangdir / 'report.html'}" in said.err
    page = hangdir / "report.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text(encoding="utf-8")
    assert "Rank 2 holds up the job" in text
    assert 'class="rk-flame"' in text
    assert "https://" not in text.replace("https://www.w3.org", "")
    # Made again, it is the same page: only the verdict's own time is in it.
    assert run(["report", str(hangdir)]) == 1
    assert page.read_text(encoding="utf-8") == text


def test_the_page_and_the_document_have_the_same_facts(
    hangdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert run(["report", str(hangdir), "--json", "-o", str(page)]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["schema"] == "relkit.report/1"
    assert facts["culprits"] == [2]
    assert facts["hang_started"] == 1.79e9
    assert facts["hang_argv"] == ["relkit", "launch", "train.py"]
    assert "recorders" not in facts
    text = page.read_text(encoding="utf-8")
    for words in (
        facts["blamed"][0]["place"],
        facts["waits"][0]["what"],
        facts["groups"][0]["members"][1]["in_flight"],
        facts["stack_classes"][0]["frames"][0],
    ):
        assert words in text
    assert not (hangdir / "report.html").exists()


def test_json_alone_writes_no_page(hangdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name for path in hangdir.iterdir()}
    assert run(["report", str(hangdir), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["wait_graph"]["edges"] == [[1, 0]]
    assert {path.name for path in hangdir.iterdir()} == before


def test_an_existing_page_is_replaced_only_with_force(
    hangdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "mine.html"
    page.write_text("mine")
    assert run(["report", str(hangdir), "-o", str(page)]) == 2
    assert "--force" in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert run(["report", str(hangdir), "-o", str(page), "-f"]) == 1
    assert "Rank 2" in page.read_text(encoding="utf-8")


def test_somebody_elses_page_in_the_folder_is_not_replaced(
    hangdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = hangdir / "report.html"
    page.write_text("<title>of another tool</title>")
    assert run(["report", str(hangdir)]) == 2
    assert "--force" in capsys.readouterr().err
    assert page.read_text() == "<title>of another tool</title>"
    assert run(["report", str(hangdir), "--force"]) == 1
    assert run(["report", str(hangdir)]) == 1


def note(hangdir: Path, *actions: Action) -> None:
    (hangdir / "actions.jsonl").write_text(to_lines(actions))


def test_the_page_says_what_relkit_did(hangdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = Action(1.79e9 + 3.25, "flash checkpoint: step 40 is kept in /ckpt/40")
    note(hangdir, kept, Action(1.79e9, "no operation for 10 s"))
    assert run(["report", str(hangdir), "--json"]) == 1
    actions = json.loads(capsys.readouterr().out)["actions"]
    assert [each["text"] for each in actions] == ["no operation for 10 s", kept.text]
    run(["report", str(hangdir)])
    text = (hangdir / "report.html").read_text(encoding="utf-8")
    assert "What relkit did" in text
    assert "+3.2 s" in text
    assert kept.text in text


@pytest.mark.parametrize("category", [Category.STOPPED, Category.BLOCKED, Category.GIL_HELD])
def test_nothing_is_to_be_typed_for_a_process_that_is_gone(category: Category) -> None:
    alive = commands_for(category, "n0", 4711, HangFiles("/t", has_dumps=True))
    assert any("4711" in command for command in alive)
    gone = commands_for(category, "n0", 4711, HangFiles("/t", has_dumps=True), is_gone=True)
    assert gone[0] == "relkit stacks merge /t"
    assert not any("4711" in command or "PID" in command for command in gone)


@pytest.mark.parametrize(
    "why", ["restarted", "--on-hang abort", "a rank died", "it ended by itself"]
)
def test_the_page_knows_which_processes_are_gone(
    hangdir: Path, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    report = json.loads((hangdir / "report.json").read_text())
    if why == "restarted":
        note(hangdir, Action(1.79e9, "the workers were stopped", ends_ranks=True))
    elif why == "--on-hang abort":
        report["action"] = "abort"
    elif why == "a rank died":
        report["is_hang"] = False
    else:
        # A process of this host that there is none of.
        host, pid = socket.gethostname(), 2**22 + 1
        report["culprit_details"][0] |= {"host": host, "pid": pid}
        report["ranks"][2] |= {"host": host, "pid": pid}
    (hangdir / "report.json").write_text(json.dumps(report))
    assert run(["report", str(hangdir), "--json"]) == 1
    (blamed,) = json.loads(capsys.readouterr().out)["blamed"]
    assert not any("py-spy" in command for command in blamed["commands"])
    assert "Its process is gone" in blamed["advice"]


def test_a_page_of_an_impossible_name_is_an_error_with_a_next_step(
    hangdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(hangdir), "-o", "x" * 300]) == 3
    assert "File name too long" in capsys.readouterr().err


def test_folders_that_are_none_of_a_hang(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(tmp_path / "missing")]) == 2
    assert run(["report", str(tmp_path)]) == 2
    (tmp_path / "report.json").write_text('{"schema": "relkit.netcheck/1"}')
    assert run(["report", str(tmp_path)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert said.err.count("  next: ") == 3
    assert "relkit.netcheck/1" in said.err


def test_a_folder_that_cannot_be_written(
    hangdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (hangdir / "report.html").mkdir()
    assert run(["report", str(hangdir)]) == 3
    assert "-o" in capsys.readouterr().err
    assert run(["report", str(hangdir), "-o", str(tmp_path / "page.html")]) == 1


@pytest.mark.long
def test_a_thousand_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_hang(tmp_path, pipeline_job(1024))
    assert run(["report", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("wrote ")
    assert (tmp_path / "report.html").stat().st_size < 5_000_000
