"""Work that is in flight when a program ends or resets its device, and more streams than lanes."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.hook.events import EventReader
from relkit.hook.reader import read_state, state_files
from tests.native.platforms.runs import Bench, client, device_ops
from tests.native.platforms.test_work import ALL
from tests.waiting import eventually

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

EVERY = {"RELKIT_HOOK_SAMPLE": "1"}
SOME = pytest.mark.parametrize("platform", ["cuda", "hip"])


@pytest.mark.long
@ALL
@SOME
def test_a_program_ends_while_its_device_works(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, platform)), "leaves"]
    with client(command, build, tmp_path, **EVERY) as run:
        run.listen()
        eventually(
            lambda: {op.queued for op in run.state().in_flight} == {False}, "both kernels begin"
        )
        run.end()
    state = read_state(*state_files(run.recorded))
    assert {op.name for op in state.in_flight} == {"launch"}
    assert state.started == 3


@pytest.mark.long
@ALL
@SOME
def test_a_device_is_reset_while_it_works(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, platform)), "resets"]
    with client(command, build, tmp_path, **EVERY) as run:
        run.listen()
        eventually(lambda: run.state().in_flight, "the kernel is in flight")
        run.go()
        run.listen()
        state = run.settled()
        said = run.end()
    ops = device_ops(state)
    assert [op.failed for op in ops] == [True, True, False]
    assert round((ops[2].end_ns - ops[2].start_ns) / 1e6, 1) == 3.0
    assert (said["events_after_reset"], said["events"], said["misuses"]) == (0, 0, 0)


@ALL
@SOME
def test_more_streams_than_are_watched_one_by_one(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, platform)), "streams"]
    with client(command, build, tmp_path, **EVERY) as run:
        run.listen()
        state = run.settled()
        reader = EventReader(run.recorded / f"{run.process.pid}.rkhook")
        rows = reader.drain().rows
        wanted = {i for i, name in enumerate(reader.names) if name == "allreduce"}
        reader.close()
        said = run.end()
    assert state.finished == said["calls"]
    assert state.dropped == 0
    reduced = [row for row in rows if int(row["hook"]) in wanted]
    assert sorted(int(row["size_bytes"]) for row in reduced) == list(range(1, 101))
    assert sorted(int(row["seq"]) for row in reduced) == list(range(100))
    lengths_ns = [int(row["end_ns"]) - int(row["start_ns"]) for row in reduced]
    assert lengths_ns == pytest.approx([1_000_000] * 100, rel=0.02)
    assert (said["events"], said["misuses"]) == (0, 0)
