"""Which first workers a launcher starts before torch is imported, and with what environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from relkit.commands.launch import _OWN
from relkit.launch.first_workers import FirstWorkers, first_commands
from relkit.launch.plain_command import PlainCommand
from relkit.process import procfs
from tests.waiting import eventually

COMMAND = PlainCommand(2, "t.py", False, ("--lr", "1"), True, True, True)


def test_the_commands_are_those_of_torch() -> None:
    commands = first_commands("/bin/python", COMMAND, {"A": "1"})
    assert [each.argv for each in commands.values()] == [
        ("/bin/python", "-u", "t.py", "--lr", "1"),
    ] * 2
    assert commands[1].environment == {
        "A": "1", "OMP_NUM_THREADS": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "LOCAL_RANK": "1", "RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2",
    }  # fmt: skip
    alone = first_commands("/bin/python", PlainCommand(1, "m", True, (), True, True, True), {})
    assert alone[0].argv == ("/bin/python", "-u", "-m", "m")
    assert "OMP_NUM_THREADS" not in alone[0].environment


def test_the_rank_of_one_of_several_nodes_is_not_known_yet() -> None:
    command = PlainCommand(2, "t.py", False, (), True, is_one_node=False, writes_here=True)
    environment = first_commands("/bin/python", command, {})[1].environment
    assert (environment["RANK"], environment["LOCAL_RANK"]) == ("", "1")
    assert "WORLD_SIZE" not in environment


def test_what_the_user_has_set_stays_and_the_secret_is_not_handed_on() -> None:
    given = {
        "OMP_NUM_THREADS": "4", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "RELKIT_SECRET": "s" * 20,
    }  # fmt: skip
    environment = first_commands("/bin/python", COMMAND, given)[0].environment
    assert environment["OMP_NUM_THREADS"] == "4"
    assert environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert "RELKIT_SECRET" not in environment


def started(first: FirstWorkers) -> set[int]:
    return {each.process.pid for each in first._standbys.values() if each.process is not None}


def test_one_is_started_for_each_worker_and_all_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "t.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.setenv("RELKIT_SECRET", "a secret of the job")
    first = FirstWorkers()
    try:
        first.begin(["--nproc-per-node", "2", str(script)], _OWN, "RELKIT_LAUNCH_")
        pids = started(first)
        assert len(pids) == 2
        assert pids <= set(procfs.children(os.getpid()))
        standbys = first._standbys.values()
        assert eventually(
            lambda: all(not each.look() and each.ready for each in standbys),
            lambda: str([each.look() for each in standbys]),
        )
        for pid in pids:
            given = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"a secret of the job" not in given
            assert b"librelkit_hook" in given
            assert f"RELKIT_LAUNCHER_PID={os.getpid()}".encode() in given
    finally:
        first.end()
    assert started(first) == set()
    assert pids.isdisjoint(procfs.children(os.getpid()))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "line", ["missing.py", "--no-warm-standby there.py", "--nproc gpu there.py"]
)
def test_none_is_started_for_what_will_not_run_so(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.py").touch()
    first = FirstWorkers()
    first.begin(line.split(), _OWN, "RELKIT_LAUNCH_")
    assert started(first) == set()


def test_none_is_started_for_an_interpreter_that_is_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    (tmp_path / "there.py").touch()
    monkeypatch.setenv("PYTHON_EXEC", str(wrapper))
    first = FirstWorkers()
    first.begin([str(tmp_path / "there.py")], _OWN, "RELKIT_LAUNCH_")
    assert started(first) == set()
