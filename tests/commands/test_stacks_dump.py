"""relkit stacks dump: its options, its files, and what it says of processes it cannot read."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relkit.commands.subcommands.stacks_dump import dump
from relkit.errors import NoSuchProcess, UnwritablePath, UsageProblem
from relkit.stacks.dump.find_jobs import FoundJobs, JobTargets
from relkit.stacks.dump.report import dump_report, stacks_text
from relkit.stacks.dumpfile import read_dump
from relkit.stacks.model import Frame, RankDump, ThreadStack
from tests.native.capture.targets import locked

_NO_PID = str(2**22 + 1)


def _dump(*arguments: str) -> Result:
    return CliRunner().invoke(dump, list(arguments), standalone_mode=False)


def test_a_python_process_without_the_hook(tmp_path: Path) -> None:
    with locked() as process:
        result = _dump("--pid", str(process.pid), "-o", str(tmp_path / "new"), "--json")
    assert result.return_value == 0, result.output
    document = json.loads(result.stdout)
    (path,) = document["files"]
    assert Path(path).name == "00000-00001.stacktrace"
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert document["findings"][0]["id"] == "RK-STK-004"
    assert [thread.name for thread in read_dump(Path(path)).python] == ["MainThread", "my-loader"]


def test_ranks_are_numbered_where_the_processes_do_not_say(tmp_path: Path) -> None:
    with locked() as one, locked() as two:
        result = _dump("--pid", str(one.pid), "--pid", str(two.pid), "-o", str(tmp_path), "--json")
    assert json.loads(result.stdout)["ranks"] == "0-1"
    assert read_dump(tmp_path / "00001-00002.stacktrace").pid == two.pid


def test_the_timeline_path_of_xpu_timer_is_honoured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XPU_TIMER_TIMELINE_PATH", str(tmp_path))
    with locked() as process:
        _dump("--pid", str(process.pid))
    assert (tmp_path / "00000-00001.stacktrace").is_file()


def test_a_process_that_is_no_python_is_a_warning_or_worse(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        result = _dump("--pid", str(process.pid), "-o", str(tmp_path), "--json")
    finally:
        process.kill()
        process.wait()
    (finding,) = json.loads(result.stdout)["findings"]
    assert finding["id"] in ("RK-STK-002", "RK-STK-003")
    assert any("no Python interpreter" in reason for reason in finding["reasons"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--pid", "1", "--job", "x"), UsageProblem),
        (("--pid", "1", "--print", "--json"), UsageProblem),
        (("--pid", _NO_PID), NoSuchProcess),
        (("--job", "no-such-job-of-mine"), NoSuchProcess),
        (("--job", "../etc"), UsageProblem),
    ],
)
def test_what_cannot_be_is_said(arguments: tuple[str, ...], error: type[Exception]) -> None:
    assert isinstance(_dump(*arguments).exception, error)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with locked() as process:
        result = _dump("--pid", str(process.pid), "-o", str(tmp_path / "file" / "below"))
    assert isinstance(result.exception, UnwritablePath)


def test_a_rank_that_has_ended_makes_the_report_unknown() -> None:
    gone = RankDump(0, 2, 17, "gone", notes=("process 17 has ended",))
    thread = ThreadStack(18, "MainThread", (Frame("f", "a.py:1"),))
    seen = RankDump(1, 2, 18, "S (sleeping)", native=(thread,), python=(thread,), engines=("hook",))
    report = dump_report(
        [seen, gone],
        [Path("a"), Path("b")],
        FoundJobs((JobTargets("", (), ""),)),
        [Path()],
        argv=["relkit"],
        started=1.0,
        duration_s=0.1,
    )
    assert [finding.id for finding in report.findings] == ["RK-STK-001", "RK-STK-004"]
    assert report.exit_code == 3
    assert "f  a.py:1" in stacks_text([seen])
