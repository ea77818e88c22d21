"""The site's command for an incident: what it gets, its deadline, and that nobody waits for it."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path

import pytest

from relkit.errors import UsageProblem
from relkit.findings import Finding, Report, Status
from relkit.launch.incidents.command import MAX_WAITING, IncidentCommand
from relkit.launch.incidents.incident import Incident, Kind, kind_of
from relkit.launch.incidents.service import IncidentService
from relkit.launch.metrics.sources import ToldIncidents
from relkit.process import procfs
from relkit.process.command_words import command_words
from tests.waiting import eventually

FINDING = Finding("RK-HANG-001", Status.FAIL, "rank 1 blocks", reasons=("it sleeps",))
# Larger than what a pipe takes.
LARGE = {"is_hang": True, "culprits": [1], "padding": "x" * 200_000}


def incident(path: Path | None = None, **facts: object) -> Incident:
    report = Report("hang", (FINDING,), {**LARGE, **facts})
    return Incident(kind_of(report), "job-7", report, path)


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "command.py"
    path.write_text(text)
    return [sys.executable, str(path), "a word; $(id)"]


def told(words: list[str], *incidents: Incident, timeout_s: float = 30.0) -> list[str]:
    lines: list[str] = []
    command = IncidentCommand(words, lines.append, timeout_s)
    for each in incidents:
        command.tell(each)
    command.close()
    return lines


def test_it_gets_the_report_and_its_path_and_no_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    words = script(
        tmp_path,
        "import json, os, sys\n"
        "json.dump([json.load(sys.stdin), dict(os.environ), sys.argv],"
        f" open('{tmp_path}/got', 'w'))",
    )
    lines = told(words, incident(tmp_path / "report.json"))
    plain, environment, argv = json.loads((tmp_path / "got").read_text())
    assert plain["schema"] == "relkit.incident/1"
    assert (plain["kind"], plain["job_id"], plain["title"]) == ("hang", "job-7", "rank 1 blocks")
    assert plain["report_path"] == str(tmp_path / "report.json")
    assert plain["report"]["culprits"] == [1]
    assert environment["RELKIT_INCIDENT_REPORT"] == str(tmp_path / "report.json")
    assert environment["RELKIT_INCIDENT"] == "hang"
    assert "LD_PRELOAD" not in environment
    assert argv[1:] == ["a word; $(id)"]
    assert len(lines) == 1
    assert "was told of the hang" in lines[0]


def test_a_verdict_with_characters_that_no_environment_takes_is_told(tmp_path: Path) -> None:
    finding = Finding("RK-HANG-001", Status.FAIL, "rank 1: a\0b \ud800 \x1b[31m\nc")
    words = script(
        tmp_path,
        f"import os\nopen('{tmp_path}/got', 'w').write(os.environ['RELKIT_INCIDENT_TITLE'])",
    )
    lines = told(words, Incident(Kind.HANG, "j", Report("hang", (finding,)), None))
    assert "was told of the hang" in lines[0]
    got = (tmp_path / "got").read_text()
    assert got.startswith("rank 1: a")
    assert "\x1b" not in got


def test_it_need_not_read_its_stdin(tmp_path: Path) -> None:
    assert "was told" in told(script(tmp_path, ""), incident())[0]


def test_a_failure_is_said_once_with_its_exit_code(tmp_path: Path) -> None:
    words = script(tmp_path, "import sys\nprint('no route', file=sys.stderr)\nsys.exit(7)")
    assert told(words, incident(), incident()) == [
        f"--on-incident: {sys.executable} ended with code 7: no route"
    ]


@pytest.mark.parametrize("name", ["/nowhere/at/all", "a\0b"])
def test_a_command_that_cannot_be_run(name: str) -> None:
    assert told([name], incident())[0].startswith("--on-incident: cannot run")


def test_one_that_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    words = script(
        tmp_path,
        "import pathlib, subprocess\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        f"pathlib.Path('{tmp_path}/new').write_text(str(child.pid))\n"
        f"pathlib.Path('{tmp_path}/new').rename('{tmp_path}/pid')\n"
        "child.wait()",
    )
    lines: list[str] = []
    command = IncidentCommand(words, lines.append, 8.0)
    command.tell(incident())
    eventually(lambda: lines, "its end")
    assert "took longer than 8 s and was ended" in lines[0]
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: procfs.process_state(pid)[:1] in ("g", "Z"), "the end of its child")
    command.close()


def test_one_that_prints_without_end_does_not_take_the_jobs_memory(tmp_path: Path) -> None:
    words = script(tmp_path, "import os\nwhile True: os.write(1, bytes(1 << 20))")
    lines = told(words, incident())
    assert lines == [f"--on-incident: {sys.executable} printed without end and was ended"]


def test_a_report_that_is_no_json_holds_nobody_up(tmp_path: Path) -> None:
    lines: list[str] = []
    command = IncidentCommand(script(tmp_path, ""), lines.append)
    began_s = time.monotonic()
    command.tell(incident(odd=object()))
    eventually(lambda: lines, "its end")
    command.tell(incident())
    command.close()
    assert time.monotonic() - began_s < 20.0
    assert "cannot run" in lines[0]
    assert "was told" in lines[1]


def test_nobody_waits_and_what_waits_is_bounded(tmp_path: Path) -> None:
    words = script(
        tmp_path, f"import time\nopen('{tmp_path}/ran', 'a').write('x')\ntime.sleep(600)"
    )
    lines: list[str] = []
    command = IncidentCommand(words, lines.append, 5.0)
    began_s = time.monotonic()
    for _ in range(MAX_WAITING + 3):
        command.tell(incident())
    assert time.monotonic() - began_s < 5.0
    assert any(f"{MAX_WAITING} incidents wait" in line for line in lines)
    command.close()
    # One at once, and after the launcher's end none begins.
    assert (tmp_path / "ran").read_text() in ("x", "xx")
    assert any("the launcher ends before" in line for line in lines)


def test_what_is_told() -> None:
    listener = ToldIncidents()
    service = IncidentService(None, listener)
    service.tell(incident(culprits=[3, "x"]))
    service.tell_check(Report("netcheck", (FINDING,)), None)
    service.tell_check(Report("netcheck", (Finding("RK-NET-000", Status.OK, "fine"),)), None)
    so_far = listener.so_far()
    assert so_far.counts == {"hang": 1, "network check": 1}
    assert so_far.culprits == (3,)
    assert listener.network_check is not None
    assert listener.network_check.exit_code == 0
    service.close()


def test_kinds() -> None:
    assert incident(is_hang=False).kind is Kind.FAILURE
    assert kind_of(Report("netcheck", (FINDING,))) is Kind.NETWORK_CHECK
    assert Incident(Kind.HANG, "j", Report("hang", ()), None).title == "job j: hang"


@pytest.mark.parametrize("text", ["", "  ", "touch 'x"])
def test_a_command_that_is_none(text: str) -> None:
    with pytest.raises(UsageProblem, match="--on-incident"):
        command_words("--on-incident", text)


@pytest.mark.parametrize(
    "text", ["cat > /tmp/x", "cat >/tmp/x", "a | b", "a && b", "a 2>&1", "a; b", "a &", "a &>x"]
)
def test_a_line_for_a_shell_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(UsageProblem, match="no shell sees it") as raised:
        command_words("--on-incident", text)
    said = raised.value.next_step.partition("--on-incident ")[2]
    assert command_words("--on-incident", shlex.split(said)[0]) == ("sh", "-c", text)


@pytest.mark.parametrize(
    "text",
    ["sh -c 'a > b; c'", "find . -exec rm {} ';'", "find . -exec rm {} \\;", "a 'x|y' \"<b>\"",
     "scontrol update NodeName={node} State=DRAIN", "a b>c", "a x=<y>", "it\\'s fine"],
)  # fmt: skip
def test_what_a_shell_would_not_touch_is_a_command(text: str) -> None:
    assert command_words("--on-incident", text) == tuple(shlex.split(text))
