"""A real torch job that hangs, captured through the hook and by the dump command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from relkit.commands.subcommands.stacks_dump import dump as dump_command
from relkit.hook.model import HookState
from relkit.process import procfs
from relkit.stacks.dump.capture import capture_ranks
from relkit.stacks.dumpfile import read_dump
from relkit.stacks.model import RankDump, Role
from tests.native.capture.gloo_job import HungJob, hung_job
from tests.native.capture.targets import is_stopped, resume, until

pytestmark = [pytest.mark.native, pytest.mark.job, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HungJob]:
    with hung_job(tmp_path_factory.mktemp("job")) as started:
        yield started


_WAIT = "gloo::transport::tcp::UnboundBuffer::waitRecv"


def _python(dump: RankDump) -> list[str]:
    return [frame.func for frame in dump.python[0].frames]


def _native(dump: RankDump) -> set[str]:
    return {frame.func for thread in dump.native for frame in thread.frames}


def test_both_ranks_are_seen_whole_without_a_stop(job: HungJob) -> None:
    waiting, culprit = capture_ranks(job.targets, deadline_s=20, native_fallback=False)
    assert waiting.engines == culprit.engines == ("hook", "py-spy")
    # That a thread stood still for long is said, too, where no processor was free.
    notes = [*waiting.notes, *culprit.notes]
    assert [note for note in notes if not note.startswith("hook: a thread stood still for ")] == []
    assert "all_reduce" in _python(waiting)
    assert "next_batch" in _python(culprit)
    # Called through the hook's wrapper, which is not shown: as if there were none.
    (reducing,) = (t for t in waiting.native if _WAIT in {f.func for f in t.frames})
    functions = [frame.func for frame in reducing.frames]
    assert functions.count(_WAIT) == 1
    assert functions[functions.index(_WAIT) + 1] == "gloo::(anonymous namespace)::ring"
    assert "gloo::allreduce" not in _native(culprit)
    for dump in (waiting, culprit):
        main = dump.native[0]
        assert (main.role, main.os_thread_id, main.state) == (Role.MAIN, dump.pid, "S")
        assert Role.COMMUNICATION in {thread.role for thread in dump.native}
        assert main.frames[-1].func == "_start"
        assert not any("librelkit" in f.source for t in dump.native for f in t.frames)
        assert all(frame.func != "??" for thread in dump.native for frame in thread.frames)


def test_the_recorder_goes_into_the_dump(job: HungJob) -> None:
    waiting, culprit = capture_ranks(job.targets, deadline_s=20)
    (in_flight,) = HookState.from_json(json.loads(waiting.hook_json)).in_flight
    assert in_flight.name == "allreduce"
    assert HookState.from_json(json.loads(culprit.hook_json)).in_flight == ()


def test_a_stopped_rank_is_read_as_far_as_can_be_and_stays_stopped(job: HungJob) -> None:
    culprit = job.targets[-1]
    os.kill(culprit.pid, signal.SIGSTOP)
    try:
        until(lambda: is_stopped(culprit.pid), "stopped")
        (dump,) = capture_ranks([culprit], deadline_s=10)
        assert is_stopped(culprit.pid)
    finally:
        resume(culprit.pid)
    assert dump.process_state.startswith("T")
    assert "next_batch" in _python(dump)
    assert dump.native == ()
    assert any("stopped" in note for note in dump.notes)
    until(lambda: not is_stopped(culprit.pid), "going again")


def test_a_damaged_recorder_file_costs_only_the_hook(job: HungJob, tmp_path: Path) -> None:
    bad = tmp_path / f"{job.targets[0].pid}.rkhook"
    bad.write_bytes(b"\0" * 100)
    damaged = type(job.targets[0])(job.targets[0].pid, 0, 2, "here", job.job_id, bad)
    (dump,) = capture_ranks([damaged], deadline_s=20)
    assert "all_reduce" in _python(dump)
    assert dump.native
    assert dump.hook_json == ""
    assert any(str(bad.name) in note for note in dump.notes)


def test_dump_by_job_writes_a_file_a_rank(job: HungJob, tmp_path: Path) -> None:
    folder = tmp_path / "timeline"
    arguments = ["--job", job.job_id, "-o", str(folder), "--json"]
    result = CliRunner().invoke(dump_command, arguments, standalone_mode=False)
    assert result.return_value == 0, result.output
    document = json.loads(result.stdout)
    assert (document["schema"], document["status"]) == ("relkit.stacks/1", "ok")
    assert (document["ranks"], document["world_size"]) == ("0-1", 2)
    names = ["00000-00002.stacktrace", "00001-00002.stacktrace"]
    assert sorted(path.name for path in folder.iterdir()) == names
    dump = read_dump(folder / names[0])
    assert (dump.pid, dump.job_id) == (job.targets[0].pid, job.job_id)
    assert "all_reduce" in _python(dump)


def test_dump_by_pid_finds_rank_and_recorder(job: HungJob, tmp_path: Path) -> None:
    pid = job.targets[1].pid
    arguments = ["--pid", str(pid), "-o", str(tmp_path), "--print"]
    result = CliRunner().invoke(dump_command, arguments)
    assert "rank 1" in result.stdout
    assert "next_batch" in result.stdout
    assert "captured by hook and py-spy" in result.stdout
    assert (tmp_path / "00001-00002.stacktrace").is_file()


def test_a_dead_rank_leaves_its_recorder_and_makes_the_answer_unknown(tmp_path: Path) -> None:
    with hung_job(tmp_path) as job:
        culprit = job.targets[-1]
        os.kill(culprit.pid, signal.SIGKILL)
        until(lambda: not procfs.is_same_process(culprit.pid, 0), "the rank is dead")
        arguments = ["--job", job.job_id, "-o", str(tmp_path / "out"), "--json"]
        result = CliRunner().invoke(dump_command, arguments, standalone_mode=False)
    assert result.return_value == 3, result.output
    document = json.loads(result.stdout)
    assert document["findings"][0]["id"] == "RK-STK-001"
    dump = read_dump(tmp_path / "out" / "00001-00002.stacktrace")
    assert dump.process_state == "gone"
    assert HookState.from_json(json.loads(dump.hook_json)).rank == 1
