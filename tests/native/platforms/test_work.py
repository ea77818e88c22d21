"""Every platform's kernels, products, copies and graphs, counted and timed under every build."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.hook.model import HookState, OpKind
from tests.native.platforms.runs import Bench, Client, client, device_ops, missing_by_file
from tests.native.simulated import PLATFORMS

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

BUILDS = ("plain", "asan", "tsan")
ALL = pytest.mark.parametrize("name", BUILDS)
EACH = pytest.mark.parametrize("platform", PLATFORMS)
TOLERANCE = 0.02
LAUNCHES = {"launch_ex": "launch", "launch_cooperative": "launch"}
UNUSED = "nccl,mccl,Hccl"


def _told(run: Client, kind: str) -> list[tuple[str, int]]:
    return sorted((words[kind], words["bytes"]) for words in run.all_said(kind))


def _check_work(run: Client, state: HookState) -> None:
    """Names, bytes, FLOPs and order as the program says; times as it and the device say."""
    found = device_ops(state)
    expected = run.all_said("work")
    assert [(op.name, op.size_bytes, op.flops) for op in found] == [
        (words["work"], words["bytes"], words["flops"]) for words in expected
    ]
    traced = run.traced()
    # The device does not know by which function it was asked.
    assert [row[0] for row in traced] == [LAUNCHES.get(op.name, op.name) for op in found]
    for op, words, (_, _, start_ns, end_ns) in zip(found, expected, traced, strict=True):
        took_ns = op.end_ns - op.start_ns
        assert took_ns == pytest.approx(words["length_ns"], rel=TOLERANCE)
        assert took_ns == pytest.approx(end_ns - start_ns, rel=TOLERANCE)
        assert op.enqueue_ns <= op.start_ns
        assert not op.failed


@ALL
@EACH
def test_counts_bytes_flops_and_times(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, platform)), "work"]
    with client(command, build, tmp_path, RELKIT_HOOK_SAMPLE="1") as run:
        run.listen()
        state = run.settled()
        _check_work(run, state)
        called = [op for op in state.recent if not op.enqueue_ns and op.kind is OpKind.MEMORY]
        assert sorted((op.name, op.size_bytes) for op in called) == _told(run, "call")
        waits = [op for op in state.recent if op.kind is OpKind.WAIT]
        assert [op.name for op in waits] == ["stream_sync"]
        assert (state.platforms, state.notes, state.dropped) == ((platform,), (), 0)
        expected = missing_by_file(run.recorded, bench.folder, platform, UNUSED)
        assert sorted(state.missing) == sorted(expected)
        said = run.end()
    # The device was reset, which ends the pool; nothing was used after its end.
    assert (said["events"], said["misuses"], said["device_byte"]) == (0, 0, 7)


@ALL
@EACH
def test_a_graph_is_captured_without_an_event_of_ours_and_timed_as_one(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, platform)), "graph"]
    with client(command, build, tmp_path, RELKIT_HOOK_SAMPLE="1") as run:
        run.listen()
        state = run.settled()
        _check_work(run, state)
        captured = 3 if platform == "ascend" else 4
        assert state.counted == captured
        said = run.end()
    assert (said["captured_events"], said["events"], said["misuses"]) == (0, 0, 0)


@ALL
@pytest.mark.parametrize("platform", ["cuda", "maca", "hip"])
def test_threads_that_launch_talk_and_capture_at_once(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, platform)), "threads", "300"]
    with client(command, build, tmp_path, RELKIT_HOOK_SAMPLE="2") as run:
        run.listen()
        state = run.settled()
        said = run.end()
    assert state.finished == said["calls"]
    (group,) = state.communicators
    assert group.seq == said["collectives"] - 1
    assert (said["events"], said["misuses"]) == (0, 0)


@pytest.mark.parametrize(
    ("name", "platform", "launches"),
    [
        *(("plain", platform, 1_000_000) for platform in PLATFORMS),
        *((name, platform, 100_000) for name in ("asan", "tsan") for platform in PLATFORMS),
    ],
)
def test_a_million_launches_leave_nothing_behind(
    bench: Bench, tmp_path: Path, platform: str, name: str, launches: int
) -> None:
    build = bench.hook(name)
    command = [str(bench.program(build, platform)), "many", str(launches)]
    with client(command, build, tmp_path) as run:
        run.listen()
        state = run.settled()
        assert state.started == launches + 100_000 + 2
        said = run.end()
    # Pairs of events that are made once, and the one that tells the device's time.
    assert said["events_after"] <= 2 * 1024 + 1
    assert (said["events"], said["misuses"]) == (0, 0)
    if name == "plain":
        # The event that tells the time may be made in between.
        made = said["events_after"] - said["events_before"]
        assert made <= 1 or said["events_before"] < 2 * 1024
        # A byte a launch would be a leak.
        assert said["grown_bytes"] < launches // 2
