"""Stalls of simulated devices: seen in flight, called hung on time, attributed, and released."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from relkit.errors import CaptureFailed
from relkit.hang.attribute import attribute
from relkit.hang.detection.detector import Detection, HangDetector, JobHealth
from relkit.hang.model import Category, JobView, RankView
from relkit.hook.capture import capture_native
from relkit.hook.model import OpKind
from relkit.hook.release import release
from tests.native.platforms.runs import Bench, Client, ranks
from tests.native.platforms.test_work import ALL
from tests.waiting import eventually

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

TIMEOUT_S = 0.4
POLL_S = 0.05
STALLS = {"cuda": "nccl", "maca": "mccl", "hip": "rccl", "ascend": "hccl"}
WITH_ABORT = pytest.mark.parametrize("platform", ["cuda", "maca", "hip"])


@dataclass(frozen=True, slots=True)
class Look:
    """One look of the monitor: what it said, and how old the oldest operation was.

    It is taken at `at_s`, after `took_s` in which the recorders were read.
    """

    detection: Detection
    age_s: float
    at_s: float
    took_s: float


def _views(pair: list[Client]) -> tuple[RankView, ...]:
    return tuple(
        RankView(rank, "here", run.process.pid, alive=True, process_state="S", hook=run.state())
        for rank, run in enumerate(pair)
    )


def _age_s(views: tuple[RankView, ...]) -> float:
    """Of the oldest operation in flight on any rank."""
    return max(
        (
            (view.hook.now_ns - op.start_ns) / 1e9
            for view in views
            if view.hook is not None
            for op in view.hook.in_flight
        ),
        default=0.0,
    )


def _watch(pair: list[Client]) -> list[Look]:
    """Look until the job is called hung."""
    detector = HangDetector(TIMEOUT_S)
    looks: list[Look] = []
    end = time.monotonic() + 40
    while not looks or looks[-1].detection.health is not JobHealth.HUNG:
        assert time.monotonic() < end, "never called hung"
        began_s = time.monotonic()
        views = _views(pair)
        at_s = time.monotonic()
        looks.append(Look(detector.update(at_s, views), _age_s(views), at_s, at_s - began_s))
        time.sleep(POLL_S)
    return looks


def _called_hung_within_one_poll(looks: list[Look]) -> None:
    before, found = looks[-2:]
    assert found.detection.fresh
    # How old an operation was when it was first seen is known as exactly as that look was short.
    assert before.age_s <= TIMEOUT_S + max(look.took_s for look in looks)
    # A look takes a moment itself, which is part of the time between two of them.
    assert found.age_s <= TIMEOUT_S + 2 * (found.at_s - before.at_s)


def _verdict(pair: list[Client]) -> tuple[list[tuple[int, Category]], str]:
    views = _views(pair)
    verdict = attribute(JobView("simulated", 2, views, TIMEOUT_S, "a test"))
    return [(c.rank, c.category) for c in verdict.culprits], verdict.inconclusive


def _go_and_watch(pair: list[Client]) -> None:
    for run in pair:
        run.settled()
        run.go()
    _called_hung_within_one_poll(_watch(pair))


@pytest.mark.parametrize("platform", STALLS)
def test_a_kernel_that_never_ends_is_held_against_its_device(
    bench: Bench, tmp_path: Path, platform: str
) -> None:
    build = bench.hook("plain")
    program = bench.program(build, platform)
    with ranks(program, "hang", "kernel", build=build, folder=tmp_path) as pair:
        _go_and_watch(pair)
        (held,) = [op for op in pair[1].state().in_flight if op.kind is OpKind.COLLECTIVE]
        assert (held.name, held.seq, held.queued) == ("allreduce", 3, True)
        assert held.start_ns == held.enqueue_ns > 0
        (begun,) = [op for op in pair[0].state().in_flight if op.kind is OpKind.COLLECTIVE]
        assert (begun.seq, begun.queued) == (3, False)
        assert _verdict(pair) == ([(1, Category.DEVICE)], "")
        if platform == "cuda":
            # The double's abort waits for the stream, as the real one may: said, not hidden.
            path, state = pair[1].recorded / f"{pair[1].process.pid}.rkhook", pair[1].state()
            with pytest.raises(CaptureFailed, match="did not answer"):
                release(path, state, 0.3)


@pytest.mark.parametrize("platform", ["cuda", "ascend"])
def test_a_timed_kernel_that_never_ends_is_named(
    bench: Bench, tmp_path: Path, platform: str
) -> None:
    build = bench.hook("plain")
    program = bench.program(build, platform)
    every = {"RELKIT_HOOK_SAMPLE": "1"}
    with ranks(program, "hang", "kernel", build=build, folder=tmp_path, **every) as pair:
        _go_and_watch(pair)
        assert _verdict(pair) == ([(1, Category.DEVICE)], "")
        verdict = attribute(JobView("simulated", 2, _views(pair), TIMEOUT_S, "a test"))
        assert "launch has been running there for" in verdict.culprits[0].sentence


@pytest.mark.parametrize("platform", STALLS)
def test_a_host_that_does_not_call_is_held_against_the_host(
    bench: Bench, tmp_path: Path, platform: str
) -> None:
    build = bench.hook("plain")
    program = bench.program(build, platform)
    with ranks(program, "hang", "host", build=build, folder=tmp_path) as pair:
        _go_and_watch(pair)
        assert pair[1].state().in_flight == ()
        assert _verdict(pair) == ([(1, Category.BLOCKED)], "")
        for run in pair:
            # Streams of the device are threads here, and the hook has one.
            path = run.recorded / f"{run.process.pid}.rkhook"
            capture = capture_native(path, run.state(), 5.0)
            assert capture.missed == ()
            assert "relkit-device" in {thread.name for thread in capture.threads}


@ALL
@WITH_ABORT
def test_release_aborts_the_communicator_and_the_blocked_rank_returns(
    bench: Bench, tmp_path: Path, platform: str, name: str
) -> None:
    build = bench.hook(name)
    program = bench.program(build, platform)
    stall = {"SIM_STALL": f"{STALLS[platform]}:rank=1:op=3"}
    with ranks(program, "hang", "device", build=build, folder=tmp_path, **stall) as pair:
        _go_and_watch(pair)
        for run in pair:
            (stuck,) = [op for op in run.state().in_flight if op.kind is OpKind.COLLECTIVE]
            assert (stuck.name, stuck.seq, stuck.size_bytes) == ("allreduce", 3, 4000)
        # Both devices are in it, and neither says why it does not end.
        culprits, undecided = _verdict(pair)
        assert (culprits, "all ranks have called" in undecided) == ([], True)
        for run in pair:
            path = run.recorded / f"{run.process.pid}.rkhook"
            assert release(path, run.state(), 10.0) == 1
        for run in pair:
            run.listen()
            eventually(lambda run=run: not run.state().in_flight, "nothing in flight")  # type: ignore[misc]
        said = [run.end() for run in pair]
    for words in said:
        # The program is told, and what it still calls does not reach what is gone.
        assert (words["async_error"], words["next"], words["destroyed"]) == (6, 6, 0)
        assert words["misuses"] == 0


def test_hccl_has_no_abort_and_release_says_that_nothing_was_shut(
    bench: Bench, tmp_path: Path
) -> None:
    build = bench.hook("plain")
    program = bench.program(build, "ascend")
    stall = {"SIM_STALL": "hccl:rank=1:op=3"}
    with ranks(program, "hang", "device", build=build, folder=tmp_path, **stall) as pair:
        _go_and_watch(pair)
        path = pair[0].recorded / f"{pair[0].process.pid}.rkhook"
        assert release(path, pair[0].state(), 10.0) == 0
        assert pair[0].state().in_flight != ()
