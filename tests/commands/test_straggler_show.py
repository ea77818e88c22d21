"""relkit straggler watch and report: on a job's files, on a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.hook.environment import prepare_job_dir
from relkit.straggler.transport.history import History, save
from relkit.text.printable import UNSAFE
from tests.reports.straggler_jobs import job

DEADLINE_S = 30


def relkit(*line: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "relkit", "straggler", *map(str, line)],
        env={**os.environ, **more}, capture_output=True, text=True, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip


@pytest.fixture
def running() -> Iterator[tuple[str, Path]]:
    """A job's folder in shared memory; (id, its history file)."""
    name = f"watch-test-{os.getpid()}"
    folder = prepare_job_dir(name, 1)
    yield name, folder / "straggler.npz"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def timeline(tmp_path: Path) -> Path:
    folder = tmp_path / "timeline"
    (folder / "straggler").mkdir(parents=True)
    save(replace(job(8, 100), ended=True), folder / "straggler" / "history.npz")
    return folder


def named(history: History, name: str) -> History:
    return replace(history, job_id=name)


def test_report_takes_a_folder_a_file_or_a_job(timeline: Path, running: tuple[str, Path]) -> None:
    for what in (timeline, timeline / "straggler", timeline / "straggler" / "history.npz", "gpt-8"):
        done = relkit("report", what, "--json", XPU_TIMER_TIMELINE_PATH=str(timeline))
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout)["stragglers"][0]["rank"] == 5
    name, path = running
    save(named(job(8, 100, slow=False), name), path)
    done = relkit("report", name)
    assert done.returncode == 0, done.stderr
    assert "RK-STRAG-005" in done.stdout


def test_report_writes_a_page_and_does_not_overwrite_it(timeline: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = relkit("report", timeline, "-o", page)
    assert done.returncode == 1
    assert "RK-STRAG-001" in done.stdout
    assert f"wrote {page}" in done.stderr
    assert "<h1>Rank 5" in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    assert relkit("report", timeline, "-o", page).returncode == 2
    assert relkit("report", timeline, "-o", page, "--force").returncode == 1


def test_report_says_what_it_did_not_find(tmp_path: Path) -> None:
    (tmp_path / "rubbish.npz").write_bytes(b"PK\x03\x04 rubbish")
    for what in (tmp_path, tmp_path / "rubbish.npz", "no-such-job", "-- ../etc"):
        done = relkit("report", "--", what)
        assert done.returncode in (2, 3)
        assert "Traceback" not in done.stderr
        assert "next:" in done.stderr


def test_watch_once_shows_the_table(running: tuple[str, Path]) -> None:
    name, path = running
    save(named(job(1024, 60), name), path)
    done = relkit("watch", name, "--once")
    assert done.returncode == 1, done.stderr
    assert "SLOW  rank 640 (node081) computes 12 % longer" in done.stdout
    assert "the 1,009 other ranks" in done.stdout
    assert done.stdout.count("\n129 ") == 1
    assert "node002 → node003" in done.stdout
    assert "\x1b" not in done.stdout
    document = json.loads(relkit("watch", name, "--once", "--json").stdout)
    assert document["schema"] == "relkit.straggler.watch/1"
    assert len(document["ranks"]) == 15


def test_names_from_elsewhere_do_not_steer_the_terminal(running: tuple[str, Path]) -> None:
    name, path = running
    hostile = "\x1b[2J\x9b\u202e owned"
    history = named(job(8, 100), name)
    save(replace(history, hosts=(hostile,) * len(history.hosts)), path)
    for line in (("report", name), ("report", name, "--json"), ("watch", name, "--once"),
                 ("watch", name, "--once", "--json")):  # fmt: skip
        done = relkit(*line, PYTHONUTF8="1")
        assert "owned" in done.stdout, done.stderr
        assert not UNSAFE.search(done.stdout.replace("\n", "")), line


def test_watch_without_a_job_or_a_step() -> None:
    done = relkit("watch", "no-such-job")
    assert done.returncode == 3
    assert "no job 'no-such-job' runs on this host" in done.stderr


@contextlib.contextmanager
def watching(*line: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "relkit", "straggler", "watch", *line],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate(timeout=DEADLINE_S)


def test_watch_follows_a_job_to_its_end(running: tuple[str, Path]) -> None:
    name, path = running
    with watching(name, "--interval", "0.1") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stderr.readline() == "waiting for the first steps\n"
        save(named(job(8, 60, slow=False), name), path)
        assert child.stdout.readline().startswith(f"job {name}, step 259: 8 ranks on 4 hosts")
        save(named(job(8, 100), name), path)
        assert child.stdout.readline().startswith("SLOW  rank 5 (node03)")
        lines = [child.stdout.readline()]
        while not lines[-1].startswith("job "):
            lines.append(child.stdout.readline())
        # It recovers, and the job's folder goes with its launcher.
        save(named(job(8, 120, slow=False), name), path)
        assert child.stdout.readline().startswith("over  rank 5 (node03), since step 230")
        shutil.rmtree(path.parent)
        assert child.wait(DEADLINE_S) == 0
        assert child.stderr.read() == f"job {name} has ended\n"


def test_watch_as_json_is_one_object_a_line(running: tuple[str, Path]) -> None:
    name, path = running
    save(named(job(8, 60), name), path)
    with watching(name, "--json", "--interval", "0.1") as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["step"] == 259
        save(replace(named(job(8, 61), name), ended=True), path)
        last = json.loads(child.stdout.readline())
        assert (last["step"], last["ended"]) == (260, True)
        assert child.wait(DEADLINE_S) == 1


def test_watch_ends_with_an_interrupt(running: tuple[str, Path]) -> None:
    name, path = running
    save(named(job(8, 60), name), path)
    with watching(name) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(DEADLINE_S) == 130


def test_watch_refreshes_in_place_on_a_terminal(running: tuple[str, Path]) -> None:
    name, path = running
    save(named(job(1024, 60), name), path)
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "relkit", "straggler", "watch", name, "--interval", "0.1"],
        stdin=slave, stdout=slave, stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
    )  # fmt: skip
    os.close(slave)
    try:
        seen = _read_until(master, b"step 259", b"")
        save(named(job(1024, 61), name), path)
        seen = _read_until(master, b"step 260", seen)
        shutil.rmtree(path.parent)
        seen = _read_until(master, b"has ended", seen)
        assert child.wait(DEADLINE_S) == 1
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(DEADLINE_S)
        os.close(master)
    text = seen.decode()
    assert "\x1b[1A\x1b[2K" in text  # up a line and clear it
    assert "slow compute since step 218" in text
    assert text.endswith("has ended\r\n")


def _read_until(master: int, wanted: bytes, seen: bytes) -> bytes:
    """What the terminal got, until it holds `wanted` and the rest of that line."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        if b"\n" in seen.partition(wanted)[2]:
            return seen
        if select.select([master], [], [], 0.2)[0]:
            seen += os.read(master, 1 << 16)
    raise AssertionError(f"{wanted!r} did not come: {seen[-500:]!r}")
