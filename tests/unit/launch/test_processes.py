"""Exit codes, job ids, leadership and the end of a process tree, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relkit.errors import UsageProblem
from relkit.launch import run_command
from relkit.launch.elastic.added_environment import added_environment
from relkit.launch.job import exit_status
from relkit.launch.job.settings import ExitStatus
from relkit.launch.run_command import Leadership
from relkit.process import procfs


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_an_end_is_seen_without_reaping(code: str, expected: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", code])
    end = time.monotonic() + 20
    while (seen := exit_status.peek_exit(child.pid)) is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert seen == expected
    assert child.wait(5) == expected


def test_a_running_child_has_no_exit_code() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert exit_status.peek_exit(child.pid) is None
    child.communicate(b"\n")


@pytest.mark.parametrize(
    ("code", "words"),
    [(3, "exited with code 3"), (-9, "was killed by SIGKILL"), (-60, "was killed by signal 60")],
)
def test_words_for_an_end(code: int, words: str) -> None:
    assert exit_status.how_it_ended(code) == words


def test_what_another_node_says_of_a_rank_is_understood() -> None:
    for code in (*range(-64, 0), *range(1, 256)):
        told = exit_status.how_rank_ended(12, 345, code)
        assert exit_status.rank_that_ended(told) == (12, exit_status.how_it_ended(code))
    for text in (
        "",
        "rank 1 (pid 2) was killed by SIGKILL\n",
        "rank x (pid 2) was killed by SIGHUP",
    ):
        assert exit_status.rank_that_ended(text) is None


@pytest.mark.parametrize(
    ("plain", "line"),
    [
        ({"message": {"message": "RuntimeError: boom\nmore"}}, "RuntimeError: boom"),
        ({"message": "text"}, "text"),
        ({"message": {}}, ""),
        ({}, ""),
        ([], ""),
        (None, ""),
        ({"message": {"message": 5}}, "5"),
    ],
)
def test_the_first_line_of_an_error_file(plain: object, line: str) -> None:
    assert exit_status.first_line(plain) == line


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"message": {"message": "RuntimeError: boom"}}', "RuntimeError: boom"),
        ("no json", ""),
        (None, ""),
    ],
)
def test_how_a_worker_ended_and_what_it_has_left(
    tmp_path: Path, text: str | None, error: str
) -> None:
    file = tmp_path / "error.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
        os.utime(file, (50, 50))
    status = exit_status.exit_status(-6, file, 70.0)
    assert status == ExitStatus(-6, 70.0 if text is None else 50.0, error)
    assert exit_status.exit_status(0, file, 70.0) == ExitStatus(0)


def test_the_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELKIT_TEST_OLD", "before")
    with added_environment({"RELKIT_TEST_OLD": "x", "RELKIT_TEST_NEW": "y"}):
        assert os.environ["RELKIT_TEST_OLD"] == "x"
        assert os.environ["RELKIT_TEST_NEW"] == "y"
    assert os.environ["RELKIT_TEST_OLD"] == "before"
    assert "RELKIT_TEST_NEW" not in os.environ


def test_one_leads_and_is_succeeded(tmp_path: Path) -> None:
    first, second = Leadership(tmp_path), Leadership(tmp_path)
    assert first.take()
    assert first.take()
    assert not second.take()
    first.drop()
    assert second.take()
    second.drop()
    assert not Leadership(None).take()


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (7, 7), (-9, 137), (-15, 143)])
def test_exit_codes_as_a_shell_shows_them(code: int, shown: int) -> None:
    assert run_command.exit_code_of(code) == shown


@pytest.mark.parametrize("name", ["no-such-program", "/", "/etc/hostname"])
def test_what_cannot_be_started(name: str) -> None:
    with pytest.raises(UsageProblem, match="cannot start"):
        run_command.start([name], {"PATH": "/usr/bin"})


TREE = (
    "import os, signal, subprocess, sys\n"
    "{before}\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'],"
    " start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "{after}\n"
    "signal.pause()\n"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("", "os.kill(os.getpid(), signal.SIGSTOP)"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", ""),
    ],
    ids=["plain", "stopped", "deaf"],
)
def test_a_tree_ends_whole(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "GRACE_S", 1.0)
    code = TREE.format(before=before, after=after)
    root = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert root.stdout
    grandchild = int(root.stdout.readline())
    run_command.end_tree(root)
    assert root.poll() in (-signal.SIGTERM, -signal.SIGKILL)
    assert not procfs.is_same_process(grandchild, 0)
    root.stdout.close()
