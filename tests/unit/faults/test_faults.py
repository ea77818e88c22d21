"""Fault specs are read strictly, and an injector fires once, where and when it was told to."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit import faults
from relkit.errors import EXIT_USAGE, UsageProblem
from relkit.faults import CollectiveFault, Fault


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("hang:rank=2:step=5", Fault("hang", 2, 5)),
        ("skip:step=0:rank=0", Fault("skip", 0, 0, at="loss")),
        ("mismatch:rank=1:step=2", Fault("mismatch", 1, 2, "op", "loss")),
        ("mismatch:rank=1:step=2:at=gradients", Fault("mismatch", 1, 2, "op", "gradients")),
        ("crash:rank=1:step=7", Fault("crash", 1, 7, "segv")),
        ("crash:rank=1:step=7:kind=exception", Fault("crash", 1, 7, "exception")),
        (" spin:rank=3:step=4:kind=native ", Fault("spin", 3, 4, "native")),
    ],
)
def test_parse(spec: str, fault: Fault) -> None:
    assert faults.parse(spec) == fault


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "explode:rank=1:step=2",
        "hang",
        "hang:rank=1",
        "hang:step=1",
        "hang:rank=-1:step=2",
        "hang:rank=x:step=2",
        "hang:rank=²:step=2",
        "hang:rank=1:step=2:rank=3",
        "hang:rank=1:step=2:colour=red",
        "hang:rank=1:step=2:kind=soft",
        "crash:rank=1:step=2:kind=soft",
        "hang:rank:step=2",
        "hang:rank=1:step=2:at=gradients",
        "skip:rank=1:step=2:at=optimizer",
    ],
)
def test_parse_refuses(spec: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        faults.parse(spec)
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.next_step


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageProblem, match="hang, deadlock, skip, mismatch, stop, spin, crash"):
        faults.parse("explode:rank=1:step=2")


@given(
    st.sampled_from(sorted(faults.FAULTS)),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.data(),
)
def test_a_spec_survives_the_environment(
    name: str, rank: int, step: int, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(faults.FAULTS[name][1] or ("",)))
    place = data.draw(st.sampled_from(faults.PLACES)) if name in faults.PLACED else ""
    fault = Fault(name, rank, step, kind, place)
    assert faults.parse(str(fault)) == fault
    environ = faults.to_environment([fault, fault])
    assert faults.parse_all(environ[faults.VARIABLE].split(faults.SEPARATOR)) == (fault, fault)


@given(st.text(max_size=60))
def test_parse_never_fails_otherwise(spec: str) -> None:
    with contextlib.suppress(UsageProblem):
        faults.parse(spec)


def test_off_unless_asked() -> None:
    injector = faults.from_environment({})
    lock = threading.Lock()
    for step in range(10):
        injector.before_batch(step, lock)
        injector.before_compute(step)
        assert injector.at_collective(step) is CollectiveFault.NONE
    assert not lock.locked()
    assert faults.to_environment([]) == {}


@pytest.mark.parametrize(
    ("environ", "fires"),
    [
        ({"RANK": "2"}, True),
        ({"RANK": "2", "TORCHELASTIC_RESTART_COUNT": "0"}, True),
        ({"RANK": "2", "TORCHELASTIC_RESTART_COUNT": "1"}, False),
        ({"RANK": "12"}, False),
        ({}, False),
    ],
)
def test_fires_on_its_rank_in_the_first_incarnation(environ: dict[str, str], fires: bool) -> None:
    injector = faults.from_environment({**environ, faults.VARIABLE: "skip:rank=2:step=3"})
    seen = [injector.at_collective(step) for step in range(6)]
    assert (CollectiveFault.SKIP in seen) is fires


def test_fires_once() -> None:
    injector = faults.Injector([Fault("mismatch", 0, 1, "op", "loss")])
    assert injector.at_collective(1) is CollectiveFault.OTHER_OP
    assert injector.at_collective(1) is CollectiveFault.NONE


def test_fires_at_the_collective_that_was_named() -> None:
    injector = faults.Injector([Fault("skip", 0, 1, at="gradients")])
    assert injector.at_collective(1) is CollectiveFault.NONE
    assert injector.at_collective(1, "gradients") is CollectiveFault.SKIP


def test_hang_holds_the_loaders_lock() -> None:
    lock = threading.Lock()
    faults.Injector([Fault("hang", 0, 1)]).before_batch(1, lock)
    assert not lock.acquire(timeout=0.05)


def test_deadlock_holds_the_second_lock_and_wants_the_first() -> None:
    first, second = threading.Lock(), threading.Lock()
    with first:
        faults.Injector([Fault("deadlock", 0, 1)]).before_log(1, first, second)
        assert not second.acquire(timeout=0.05)
    # With the first lock free again, the other thread gets through and lets go of both.
    assert second.acquire(timeout=5)


@pytest.mark.parametrize(
    ("kind", "returncode"),
    [("segv", -11), ("abort", -6), ("kill", -9), ("exit", 7), ("exception", 1)],
)
def test_crash(kind: str, returncode: int) -> None:
    code = (
        "from relkit import faults;"
        "from relkit.faults import Fault;"
        f"faults.Injector([Fault('crash', 0, 0, {kind!r})]).before_compute(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=20, check=False
    )
    assert done.returncode == returncode


def test_imports_no_torch() -> None:
    code = "import sys, relkit.faults; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 0
