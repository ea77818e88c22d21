"""Faults that last: how they are written, when they act, and that each does what it says."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit import faults
from relkit.errors import UsageProblem
from relkit.faults import slow_faults
from relkit.faults.slow_faults import SLOW_FAULTS, SlowFault, Slowness, parse_slow


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("slow-compute:rank=3:step=20:share=0.1",
         SlowFault("slow-compute", 3, 20, "work", share=0.1)),
        ("slow-compute:rank=0:step=0:kind=timer:ms=12.5:until=9",
         SlowFault("slow-compute", 0, 0, "timer", 9, ms=12.5)),
        ("slow-input:rank=1:step=2", SlowFault("slow-input", 1, 2, share=0.5)),
        ("gc:rank=1:step=2:every=3", SlowFault("gc", 1, 2, ms=200.0, every=3)),
        ("throttle:rank=1:step=2:kind=nice", SlowFault("throttle", 1, 2, "nice", share=0.5)),
        ("neighbour:rank=1:step=2", SlowFault("neighbour", 1, 2)),
    ],
)  # fmt: skip
def test_specs(spec: str, fault: SlowFault) -> None:
    assert faults.parse(spec) == fault


@pytest.mark.parametrize(
    "spec",
    ["slow-compute:rank=1", "slow-compute:step=1", "slow-compute:rank=1:step=1:speed=2",
     "slow-compute:rank=1:step=1:kind=magic", "gc:rank=1:step=1:share=0.1",
     "gc:rank=1:step=1:every=0", "slow-input:rank=1:step=1:share=a", "slow-input:rank=-1:step=1",
     "slow-input:rank=1:rank=1:step=1", "slow-input:rank=1:step=1:share=1e9"],
)  # fmt: skip
def test_bad_specs_are_refused_with_an_example(spec: str) -> None:
    with pytest.raises(UsageProblem):
        faults.parse(spec)


@given(st.data())
def test_a_fault_is_written_as_it_is_read(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SLOW_FAULTS)))
    _, kinds, takes = SLOW_FAULTS[name]
    spec = f"{name}:rank={data.draw(st.integers(0, 99))}:step={data.draw(st.integers(0, 99))}"
    if kinds:
        spec += f":kind={data.draw(st.sampled_from(kinds))}"
    for key in takes:
        if data.draw(st.booleans()):
            spec += f":{key}={data.draw(st.integers(1, 50))}"
    fault = parse_slow(spec)
    assert parse_slow(str(fault)) == fault
    environ = faults.to_environment([fault])
    assert faults.parse_all(environ[faults.VARIABLE].split(faults.SEPARATOR)) == (fault,)


def test_only_its_rank_is_slow_and_only_while_it_lasts() -> None:
    fault = SlowFault("slow-input", 1, 3, until=5, ms=60_000.0)
    assert [step for step in range(8) if fault.active(step)] == [3, 4]
    environ = {**faults.to_environment([fault]), "RANK": "0"}
    injector = faults.from_environment(environ)
    began_s = time.monotonic()
    injector._slowness.before_batch(3)
    assert time.monotonic() - began_s < 30.0


def test_extra_compute_is_a_share_of_the_work_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_s: list[float] = []
    monkeypatch.setattr(slow_faults, "_work", asked_s.append)
    slowness = Slowness([SlowFault("slow-compute", 0, 1, "work", share=0.5)])

    def ran_s(step: int) -> tuple[float, float]:
        """CPU time of the work, and of the work with what is around it."""
        began_s = time.thread_time()
        with slowness.compute(step):
            inner_s = time.thread_time()
            # Nothing is added for what the rank only waits for.
            time.sleep(0.05)
            while time.thread_time() < inner_s + 0.01:
                pass
            inner_s = time.thread_time() - inner_s
        return inner_s, time.thread_time() - began_s

    ran_s(0)
    assert asked_s == []
    work_s, whole_s = ran_s(1)
    (extra_s,) = asked_s
    assert 0.5 * work_s <= extra_s <= 0.5 * whole_s
    assert capsys.readouterr().out.count("injecting slow-compute") == 1


def test_work_takes_as_much_of_the_cpu_as_is_asked() -> None:
    began_s = time.thread_time()
    slow_faults._work(0.02)
    assert time.thread_time() - began_s >= 0.02


def test_a_slow_batch_is_a_share_of_the_compute_before(capsys: pytest.CaptureFixture[str]) -> None:
    slowness = Slowness([SlowFault("slow-input", 0, 2, share=1.0)])
    for step in (0, 0, 1):
        with slowness.compute(step):
            slept_until_s = time.monotonic() + 0.02
            while (left_s := slept_until_s - time.monotonic()) > 0:
                time.sleep(left_s)
    began_s = time.monotonic()
    slowness.before_batch(2)
    assert time.monotonic() - began_s >= 0.039
    assert "injecting slow-input" in capsys.readouterr().out


def test_garbage_is_really_collected() -> None:
    seen: list[float] = []

    def note(phase: str, _info: object) -> None:
        seen.append(time.monotonic() if phase == "start" else time.monotonic() - seen.pop())

    slowness = Slowness([SlowFault("gc", 0, 0, ms=40.0, every=2)])
    gc.callbacks.append(note)
    try:
        for step in range(6):
            with slowness.compute(step):
                pass
    finally:
        gc.callbacks.remove(note)
    assert max(seen) >= 0.02
    assert len([each for each in seen if each > 0.001]) >= 3


VICTIM = """
import sys, time
from relkit.faults.slow_faults import Slowness, SlowFault
slowness = Slowness([SlowFault({fault})])
with slowness.compute(0):
    pass
print("up", flush=True)
sys.stdin.readline()
with slowness.compute(1):
    pass
print("over", flush=True)
sys.stdin.readline()
"""


def victim(fault: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", VICTIM.format(fault=fault)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def go_on(child: subprocess.Popen[str], expected: str) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == expected:
            return
    raise AssertionError(f"the victim never said {expected!r}")


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


@pytest.mark.root
@pytest.mark.root
def test_a_throttled_process_is_in_a_group_of_its_own_until_the_fault_ends() -> None:
    with victim("'throttle', 0, 0, 'cgroup', 1, 0.3") as child:
        go_on(child, "up")
        groups = Path(f"/proc/{child.pid}/cgroup").read_text()
        assert f"relkit-fault-{child.pid}" in groups
        tell(child)
        go_on(child, "over")
        assert "relkit-fault" not in Path(f"/proc/{child.pid}/cgroup").read_text()
        tell(child)
        assert child.wait(10) == 0
    assert not list(Path("/sys/fs/cgroup").glob(f"**/relkit-fault-{child.pid}"))


def test_a_neighbour_runs_on_the_same_cores_and_ends_with_the_rank() -> None:
    with victim("'neighbour', 0, 0") as child:
        go_on(child, "up")
        (neighbour,) = psutil.Process(child.pid).children()
        assert neighbour.cpu_affinity() == psutil.Process(child.pid).cpu_affinity()
        os.kill(child.pid, 9)
    gone, alive = psutil.wait_procs([neighbour], timeout=10)
    assert (len(gone), alive) == (1, [])
