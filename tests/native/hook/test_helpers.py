"""Children of a rank (loaders of its data) have no recorder of their own, ranks always have one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.hook.reader import read_state, state_files
from relkit.hook.refusals import Refusal, take_refusals
from relkit.process.identity import own_identity
from tests.native.recording import PREAMBLE, SMALL_FOLDER_BYTES, Recording, compile_c

pytestmark = pytest.mark.native

# What a rank does first; CHILD is what its child does.
RANK = "fake = load(); fake.fake_gemms(2)\n"
FORKED = """
child = os.fork()
if child == 0:
    os.environ["RANK"] = os.environ.get("CHILD_RANK", os.environ["RANK"])
    exec(os.environ["CHILD"])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
tell(os.getpid(), child)
"""
STARTED = """
import subprocess
code = os.environ["PREAMBLE"] + "fake = load()\\n" + os.environ["CHILD"] + "\\ntell(os.getpid())"
command = [sys.executable, "-c", code]
if len(sys.argv) > 1:
    command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
environ = {**os.environ, "RANK": os.environ.get("CHILD_RANK", os.environ["RANK"])}
done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
tell(os.getpid(), done.stdout.strip())
"""
WAYS = {"fork": (FORKED,), "exec": (STARTED,), "below-a-shell": (STARTED, "shell")}


def rank_and_child(recording: Recording, way: str, child: str, **variables: str) -> tuple[int, int]:
    """Pids of a rank that has multiplied matrices, and of its child."""
    code, *arguments = WAYS[way]
    variables = {"RANK": "3", "PREAMBLE": PREAMBLE, "CHILD": child, **variables}
    rank, helper = recording.run(RANK + code, *arguments, **variables).split()
    return int(rank), int(helper)


def recorded(recording: Recording) -> set[int]:
    return {int(path.stem) for path in state_files(recording.folder)}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_helper_computes_makes_no_file(recording: Recording, way: str) -> None:
    rank, _ = rank_and_child(
        recording, way, "fake.fake_gemms(300); ctypes.CDLL(None).relkit_mark_gc(1, 2)"
    )
    assert recorded(recording) == {rank}
    assert recording.state(rank).finished == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_child_that_communicates_is_recorded_from_then_on(recording: Recording, way: str) -> None:
    does = "fake.fake_gemms(3); fake.fake_collectives(0, 2, 5, 1, 1); fake.fake_gemms(1)"
    rank, child = rank_and_child(recording, way, does)
    assert recorded(recording) == {rank, child}
    assert [op.name for op in recording.state(child).recent] == ["allreduce", "sgemm"]
    assert recording.state(rank).finished == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_child_with_a_rank_of_its_own_is_a_rank(recording: Recording, way: str) -> None:
    rank, child = rank_and_child(recording, way, "fake.fake_gemms(3)", CHILD_RANK="4")
    assert recorded(recording) == {rank, child}
    assert recording.state(child).rank == 4
    assert recording.state(child).finished == 3


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_a_helper_forks_is_recorded(recording: Recording, way: str) -> None:
    forks = """
fake.fake_gemms(1)
grandchild = os.fork()
if grandchild == 0:
    os.environ["RANK"] = "4"
    fake.fake_gemms(3)
    os._exit(0)
assert os.waitpid(grandchild, 0)[1] == 0
"""
    rank, helper = rank_and_child(recording, way, forks)
    assert helper not in recorded(recording)
    (other,) = recorded(recording) - {rank}
    assert recording.state(other).rank == 4
    assert recording.state(other).finished == 3


def test_loaders_of_a_process_that_set_its_rank_itself_are_helpers(recording: Recording) -> None:
    """As torch.multiprocessing.spawn is used: what is forked has another RANK than was loaded."""
    code = "os.environ['RANK'] = '5'\n" + RANK + FORKED
    rank, _ = map(int, recording.run(code, RANK="3", CHILD="fake.fake_gemms(300)").split())
    assert recorded(recording) == {rank}
    assert recording.state(rank).rank == 5


@pytest.mark.parametrize("way", WAYS)
def test_children_are_recorded_where_somebody_asks_for_it(recording: Recording, way: str) -> None:
    rank, child = rank_and_child(recording, way, "fake.fake_gemms(3)", RELKIT_HOOK_CHILDREN="1")
    assert recorded(recording) == {rank, child}
    assert recording.state(child).finished == 3


def test_a_rank_below_a_script_is_recorded(recording: Recording) -> None:
    code = PREAMBLE + "load().fake_gemms(4); tell(os.getpid())"
    done = subprocess.run(
        ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", code],
        env={**recording.environment(), "RANK": "0"},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert recording.state(int(done.stdout)).finished == 4


def somebody_else() -> str:
    """A launcher that is not the test."""
    return replace(own_identity(), pid=1).to_text()


def test_what_an_earlier_process_left_does_not_make_a_helper(recording: Recording) -> None:
    recording.run("load().fake_gemms(1)", RANK="0")
    (left,) = state_files(recording.folder)
    # As if our number had been its number.
    left.rename(recording.path(os.getpid()))
    # Nobody looks above the launcher, so another process has to be the launcher.
    code = "load().fake_gemms(2); tell(os.getpid())"
    pid = int(recording.run(code, RANK="0", RELKIT_TRACER=somebody_else()))
    assert recording.state(pid).finished == 2


def test_there_are_only_so_many_files(recording: Recording) -> None:
    recording.run("load().fake_gemms(1)", RELKIT_HOOK_FILES="1")
    # The launcher's own child always has one; the test is the launcher.
    recording.run("load().fake_gemms(1)", RELKIT_HOOK_FILES="1")
    before = recorded(recording)
    assert len(before) == 2
    code = "fake = load(); fake.fake_gemms(9); tell(os.getpid())"
    elsewhere = {"RELKIT_TRACER": somebody_else()}
    recording.run(code, RELKIT_HOOK_FILES="3", **elsewhere)
    pid = int(recording.run(code, RELKIT_HOOK_FILES="3", **elsewhere))
    assert pid not in recorded(recording)
    assert len(recorded(recording)) == 3
    (refusal,) = take_refusals(recording.folder)
    assert refusal.pid == pid
    assert "RELKIT_HOOK_FILES" in refusal.reason
    assert take_refusals(recording.folder) == ()


@pytest.mark.root
def test_a_process_says_that_its_folder_is_full(recording: Recording, small_folder: Path) -> None:
    (small_folder / "filler").write_bytes(bytes(SMALL_FOLDER_BYTES))
    code = "load().fake_gemms(5); tell(os.getpid())"
    pid = int(recording.run(code, RELKIT_HOOK_DIR=str(small_folder)))
    assert state_files(small_folder) == []
    assert take_refusals(small_folder) == (Refusal(pid, os.strerror(errno.ENOSPC)),)


def allocated_whole(recording: Recording) -> bool:
    (path,) = state_files(recording.folder)
    status = path.stat()
    return status.st_blocks * 512 >= status.st_size > 1 << 20


@pytest.mark.parametrize("error", [errno.EINTR, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM])
def test_space_is_there_where_nothing_can_reserve_it(
    recording: Recording, tmp_path: Path, error: int
) -> None:
    source = tmp_path / "no_fallocate.c"
    source.write_text(
        "#include <sys/types.h>\n"
        "int posix_fallocate(int file, off_t offset, off_t size);\n"
        "int posix_fallocate(int file, off_t offset, off_t size)\n"
        "{\n    (void)file, (void)offset, (void)size;\n"
        f"    return {error};\n}}\n"
    )
    library = compile_c(tmp_path / "no_fallocate.so", [source], "-shared", "-fPIC")
    preload = f"{library}:{recording.environment()['LD_PRELOAD']}"
    recording.run("load().fake_gemms(1)", LD_PRELOAD=preload)
    assert read_state(state_files(recording.folder)[0]).finished == 1
    assert allocated_whole(recording)
