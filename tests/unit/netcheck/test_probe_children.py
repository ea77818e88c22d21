"""Parts of probes that run in children: results, deadlines, deaths, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from relkit.net.listener import Listener
from relkit.netcheck.measure.probes import compute_child, rate_child
from relkit.netcheck.measure.probes.base import Measured, Plan, ProbeFailed
from relkit.netcheck.measure.probes.child import ChildFailed, run_in_child
from relkit.netcheck.measure.probes.compute import measure_compute
from relkit.netcheck.measure.probes.compute_child import mean_s
from relkit.netcheck.measure.probes.rates import measure_rates
from relkit.netcheck.measure.probes.torch_child import bus_bandwidth
from relkit.netcheck.measure.probes.torch_probe import TorchProbe
from relkit.netcheck.model import Failure

ROOT = Path(__file__).resolve().parents[3]
CHILD = "tests.unit.netcheck.probe_children"
SECRET = bytes(range(32))


@pytest.fixture(autouse=True)
def tests_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_a_result_comes_back() -> None:
    got = run_in_child(CHILD, {"manner": "fine"}, timeout_s=30)
    assert got["echo"] == {"manner": "fine"}


@pytest.mark.parametrize("manner", ["hang", "spin"])
def test_a_child_that_hangs_is_killed_at_its_deadline(manner: str) -> None:
    began = time.monotonic()
    with pytest.raises(ChildFailed, match="no result within") as caught:
        run_in_child(CHILD, {"manner": manner}, timeout_s=1)
    assert caught.value.timed_out
    assert time.monotonic() - began < 20


def test_a_child_that_dies_is_quoted() -> None:
    with pytest.raises(ChildFailed, match="the reason is the last line"):
        run_in_child(CHILD, {"manner": "die"}, timeout_s=30)
    with pytest.raises(ChildFailed, match="no output"):
        run_in_child(CHILD, {"manner": "silent"}, timeout_s=30)
    with pytest.raises(ChildFailed, match="No module"):
        run_in_child("tests.unit.no_such_module", {}, timeout_s=30)


def test_a_child_ends_with_its_killed_parent() -> None:
    read, write = os.pipe()
    program = (
        "from relkit.netcheck.measure.probes.child import run_in_child as r;"
        f"r({CHILD!r}, {{'manner': 'orphan', 'fd': {write}}}, timeout_s=100, keep=({write},))"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], pass_fds=(write,))
    os.close(write)
    with os.fdopen(read) as stream:
        pid = int(stream.readline())
        child = psutil.Process(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        # Both ends of the pipe are closed only when the child is gone, too.
        assert stream.read() == ""
    end = time.monotonic() + 10
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_compute_scores() -> None:
    scores = measure_compute(0.05)
    assert scores["compute_gflops"] > 0.1
    assert scores["memory_gbps"] > 0.1
    assert isinstance(scores["devices"], dict)


def test_rates_are_of_each_round_and_name_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = measure_rates(3, 60.0)
    assert [len(values) for values in rates["rates"].values()] == [3] * len(rates["rates"])
    assert all(value > 0.1 for values in rates["rates"].values() for value in values)
    assert rates["rates"].keys() == rates["models"].keys()
    monkeypatch.setattr(rate_child, "driver_kinds", lambda: ["no-such-kind"])
    broken = rate_child.measure(1)
    assert broken["rates"] == {}
    assert "no-such-kind" in broken["device_error"]


@pytest.mark.parametrize("share", [1.0, 2.0, 50.0])
def test_the_cpu_is_judged_by_its_own_time(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    now = SimpleNamespace(cpu_s=0.0, wall_s=0.0)
    clocks = SimpleNamespace(thread_time=lambda: now.cpu_s, monotonic=lambda: now.wall_s)
    monkeypatch.setattr(rate_child, "time", clocks)

    def product() -> None:
        now.cpu_s += 0.04
        now.wall_s += share * 0.04

    # Others have the core for the rest of the time.
    assert rate_child._cpu_round(product) == rate_child.gflops(512, 0.04)


def test_a_device_is_judged_by_its_own_events(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([True, False])
    end_s = iter([0.0, 0.05, 0.2])
    monkeypatch.setattr(rate_child, "time", SimpleNamespace(monotonic=lambda: next(end_s)))

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            done.append("record")

        def synchronize(self) -> None:
            done.append("wait")

        def elapsed_time(self, _end: object) -> float:
            return 16.0 if next(made) else 32.0

    done: list[str] = []
    device = SimpleNamespace(Event=Event)
    rate = rate_child._device_round(device, lambda: done.append("product"))
    assert rate == rate_child.gflops(8192, 0.003)
    assert done == 2 * ["record", *8 * ["product"], "record", "wait"]


def test_the_model_of_a_cpu() -> None:
    text = "processor\t: 0\nmodel name\t: A CPU: fast\n\nprocessor\t: 1\nmodel name\t: B\n"
    assert rate_child.cpu_model(text) == "A CPU: fast"
    assert rate_child.cpu_model("") == ""


def work_of(now: list[float], took_s: Sequence[float]) -> Callable[[], None]:
    """Each call takes the next of these times on a made-up clock."""
    left = iter(took_s)

    def work() -> None:
        now[0] += next(left)

    return work


def test_the_mean_is_of_runs_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(compute_child, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    # The first is not counted; the two that follow fill the time, so that there is no fourth.
    assert mean_s(work_of(now, [100.0, 1.0, 3.0]), 4.0) == 2.0
    # One run is counted even if it takes longer than that.
    assert mean_s(work_of(now, [7.0, 50.0]), 4.0) == 50.0


def test_bandwidths_of_an_all_reduce() -> None:
    # nccl-tests: 1 GB in 0.1 s among 8 ranks is 10 GB/s, and 17.5 GB/s of traffic on the wire.
    assert bus_bandwidth(10**9, 0.1, 8) == pytest.approx((10.0, 17.5))
    assert bus_bandwidth(10**9, 0.1, 2) == pytest.approx((10.0, 10.0))


def _pair(backend: str, timeout_s: float = 50.0) -> tuple[Measured, list[ProbeFailed]]:
    listener = Listener("127.0.0.1", 1, SECRET, lifetime_s=60)
    plan = Plan(
        1, SECRET, "here", "there", "127.0.0.1", listener.port, sizes=(4096, 65536),
        duration_s=0.05, timeout_s=timeout_s,
    )  # fmt: skip
    failures: list[ProbeFailed] = []

    def serve() -> None:
        try:
            TorchProbe(backend).accept(replace(plan, node="there", peer="here"), listener)
        except ProbeFailed as error:
            failures.append(error)

    server = threading.Thread(target=serve)
    server.start()
    try:
        return TorchProbe(backend).connect(plan), failures
    finally:
        server.join(60)
        listener.close()


@pytest.mark.job
@pytest.mark.timeout(120)
def test_gloo_between_two_children() -> None:
    measured, failures = _pair("gloo")
    assert not failures
    out, back = measured.edges
    assert (out.source, back.source, out.probe) == ("here", "there", "gloo")
    for edge in measured.edges:
        assert edge.failure is Failure.NONE, edge.detail
        assert edge.bandwidth_gbps > 0
        assert edge.both_ways_gbps > 0
        assert 0 < edge.latency_p50_us <= edge.latency_p99_us
    rows = measured.extra["all_reduce"]
    assert [row["size_bytes"] for row in rows] == [4096, 65536]
    assert all(row["busbw_gbytes_s"] == row["algbw_gbytes_s"] > 0 for row in rows)


@pytest.mark.job
def test_a_probe_that_cannot_be_done_in_time_is_killed() -> None:
    # Less time than torch needs to be imported.
    measured, failures = _pair("gloo", timeout_s=0.2)
    assert {edge.failure for edge in measured.edges} == {Failure.DEADLINE}
    assert failures[0].failure in (Failure.DEADLINE, Failure.NO_ANSWER)


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    plan = Plan(1, SECRET, "here", "there", "127.0.0.1", 1)
    edges = TorchProbe("gloo").connect(plan).edges
    assert {edge.failure for edge in edges} == {Failure.PROBE_ERROR}
    assert "torch is not installed on here" in edges[0].detail
