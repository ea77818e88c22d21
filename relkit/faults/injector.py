"""Faults that a training script can inject on purpose; none unless RELKIT_INJECT is set.

A script calls the hooks of an Injector at its natural points (before a batch, before the step's
compute, at a collective). Each fault of FAULTS fires once: on the named rank and step, and only
in the first attempt of the job, so that a restart recovers. Those of slow_faults last.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

from relkit.errors import UsageProblem
from relkit.faults.slow_faults import SLOW_FAULTS, SlowFault, Slowness, parse_slow
from relkit.text.whole_number import whole_number

VARIABLE = "RELKIT_INJECT"
SEPARATOR = ";"

# name -> (what it does, the kinds it knows, the default kind first)
FAULTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "hang": ("the loader never returns: its lock is held by a thread that waits for input", ()),
    "deadlock": ("two threads take two locks in opposite order", ()),
    "skip": ("one collective is left out on that rank", ()),
    "mismatch": ("that rank calls another collective than the others", ("op", "size")),
    "stop": ("the process stops itself with SIGSTOP", ()),
    "spin": ("an endless loop on the host", ("python", "native")),
    "crash": ("the process ends at once", ("segv", "abort", "exception", "kill", "exit")),
}
# Which collective goes wrong: that of the loss, in a group of its own, or that of the gradients, in
# the group where the model's other collectives are.
PLACES = ("loss", "gradients")
PLACED = ("skip", "mismatch")


class CollectiveFault(Enum):
    """What to do at a collective instead of what the other ranks do."""

    NONE = "none"
    SKIP = "skip"
    OTHER_OP = "op"
    OTHER_SIZE = "size"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to inject.

    Args:
        name: one of FAULTS.
        rank: global rank it happens on.
        step: training step it happens at, counted from 0.
        kind: variant, "" where the fault has none.
        at: one of PLACES for a fault of PLACED, "" for others.
    """

    name: str
    rank: int
    step: int
    kind: str = ""
    at: str = ""

    def __str__(self) -> str:
        kind = f":kind={self.kind}" if self.kind else ""
        at = f":at={self.at}" if self.at not in ("", PLACES[0]) else ""
        return f"{self.name}:rank={self.rank}:step={self.step}{kind}{at}"


def parse(spec: str) -> Fault | SlowFault:
    """Read `NAME:rank=R:step=S[:kind=K][:at=PLACE]`, e.g. "hang:rank=2:step=5".

    See also parse_slow().

    Raises:
        UsageProblem: an unknown name, key, kind or place, or an invalid number.
    """
    name, *pairs = spec.strip().split(":")
    if name in SLOW_FAULTS:
        return parse_slow(spec)
    if name not in FAULTS:
        known = ", ".join((*FAULTS, *SLOW_FAULTS))
        raise UsageProblem(f"unknown fault {name!r}; known are {known}")
    values = {"rank": "", "step": "", "kind": "", "at": ""}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key not in values or not equals or values[key]:
            raise UsageProblem(
                f"cannot read {pair!r} in the fault {spec!r}",
                next_step=f"Write it like {name}:rank=2:step=5.",
            )
        values[key] = value
    return Fault(
        name,
        _number(spec, "rank", values["rank"]),
        _number(spec, "step", values["step"]),
        _one_of(FAULTS[name][1], name, "kind", values["kind"]),
        _one_of(PLACES if name in PLACED else (), name, "place", values["at"]),
    )


def _number(spec: str, key: str, value: str) -> int:
    number = whole_number(value)
    if number is None:
        raise UsageProblem(
            f"the fault {spec!r} needs {key}=NUMBER",
            next_step="Write it like hang:rank=2:step=5.",
        )
    return number


def _one_of(known: Sequence[str], name: str, key: str, value: str) -> str:
    """What a fault's spec says, the first known where it says nothing; "" where none is known."""
    if not value:
        return known[0] if known else ""
    if value not in known:
        words = ", ".join(known) if known else "none"
        raise UsageProblem(f"the fault {name!r} has no {key} {value!r}; known are {words}")
    return value


def parse_all(specs: Sequence[str]) -> tuple[Fault | SlowFault, ...]:
    """Read several specs; see parse."""
    return tuple(parse(spec) for spec in specs if spec.strip())


def to_environment(faults: Sequence[Fault | SlowFault]) -> dict[str, str]:
    """The environment that makes from_environment() inject these; empty for none."""
    return {VARIABLE: SEPARATOR.join(map(str, faults))} if faults else {}


def from_environment(environ: Mapping[str, str] | None = None) -> Injector:
    """The injector of this process; without RELKIT_INJECT one whose hooks do nothing.

    Raises:
        UsageProblem: RELKIT_INJECT cannot be read.
    """
    env = os.environ if environ is None else environ
    asked = parse_all(env.get(VARIABLE, "").split(SEPARATOR))
    first = env.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    rank = env.get("RANK", "0")
    mine = [fault for fault in asked if first and str(fault.rank) == rank]
    return Injector(
        [fault for fault in mine if isinstance(fault, Fault)],
        [fault for fault in mine if isinstance(fault, SlowFault)],
    )


class Injector:
    """The hooks that a script calls; each returns at once unless its fault is due.

    Args:
        faults, slow: those of this rank and attempt.
    """

    def __init__(self, faults: Sequence[Fault] = (), slow: Sequence[SlowFault] = ()) -> None:
        self._pending = list(faults)
        self._slowness = Slowness(slow)

    def _due(self, step: int, *names: str, at: str = "") -> Fault | None:
        for fault in self._pending:
            if fault.name in names and fault.step == step and fault.at == at:
                self._pending.remove(fault)
                print(f"relkit: injecting {fault} (pid {os.getpid()})", flush=True)
                return fault
        return None

    def before_batch(self, step: int, lock: threading.Lock) -> None:
        """For `hang`: a loader thread takes `lock` and waits for input that never comes.

        And for `slow-input`.
        """
        self._slowness.before_batch(step)
        if self._pending and self._due(step, "hang"):
            _hold_forever(lock)

    def before_log(self, step: int, first: threading.Lock, second: threading.Lock) -> None:
        """For `deadlock`: another thread holds `second` and wants `first`.

        Call it while holding `first`, just before taking `second`.
        """
        if self._pending and self._due(step, "deadlock"):
            _hold_and_want(second, first)

    def before_compute(self, step: int) -> None:
        """For `stop`, `spin` and `crash`."""
        fault = self._due(step, "stop", "spin", "crash") if self._pending else None
        if fault is None:
            return
        if fault.name == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault.name == "spin":
            _spin(fault.kind)
        else:
            _crash(fault.kind)

    def compute(self, step: int) -> AbstractContextManager[None]:
        """Around a step's compute without its communication, for the faults that last."""
        return self._slowness.compute(step)

    def at_collective(self, step: int, place: str = PLACES[0]) -> CollectiveFault:
        """For `skip` and `mismatch`: what this rank is to do instead of the collective.

        Args:
            step: training step.
            place: which collective of that step it is, one of PLACES.
        """
        fault = self._due(step, *PLACED, at=place) if self._pending else None
        if fault is None:
            return CollectiveFault.NONE
        return CollectiveFault(fault.kind or fault.name)


def _hold_forever(lock: threading.Lock) -> None:
    taken = threading.Event()
    never_written, _keep_open = os.pipe()

    def read_input() -> None:
        with lock:
            taken.set()
            os.read(never_written, 1)

    threading.Thread(target=read_input, name="loader-0", daemon=True).start()
    taken.wait()


def _hold_and_want(held: threading.Lock, wanted: threading.Lock) -> None:
    taken = threading.Event()

    def flush() -> None:
        with held:
            taken.set()
            with wanted:
                pass

    threading.Thread(target=flush, name="log-flusher", daemon=True).start()
    taken.wait()


def _spin(kind: str) -> None:
    if kind == "native":
        # One C call that never comes back and keeps the interpreter lock: what a runaway native
        # kernel looks like from outside.
        sum(iter(int, 1))
    count = 0
    while True:
        count += 1


def _crash(kind: str) -> None:
    if kind == "exception":
        raise RuntimeError("relkit: injected exception")
    if kind == "exit":
        os._exit(7)
    number = {"segv": signal.SIGSEGV, "abort": signal.SIGABRT, "kill": signal.SIGKILL}[kind]
    # The default action, whatever handler the script has: a real fault would not be caught either.
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
