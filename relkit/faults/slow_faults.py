"""Faults that make a rank slow from some step on, injected to test that relkit finds it."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relkit.errors import UsageProblem

if TYPE_CHECKING:
    import subprocess

# name -> (what it does, the kinds it knows, the default kind first, the values it takes)
SLOW_FAULTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "slow-compute": (
        "the step's compute takes longer: more work, or a longer timer",
        ("work", "timer"),
        ("share", "ms"),
    ),
    "slow-input": ("every batch is waited for", (), ("share", "ms")),
    "gc": ("garbage is collected for `ms` every few steps", (), ("ms", "every")),
    "throttle": (
        "the process gets `share` of a core at most, or the lowest priority",
        ("cgroup", "nice"),
        ("share",),
    ),
    "neighbour": ("a busy loop runs on the rank's cores beside it", (), ()),
}
_DEFAULTS = {"share": 0.5, "ms": 0.0, "every": 4.0}
_EXAMPLE = "Write it like slow-compute:rank=3:step=20:share=0.1."
_PR_SET_PDEATHSIG = 1
_PERIOD_US = 100_000
_FIRST_CYCLES = 20_000
_CGROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
_LOOP = (
    "import ctypes, os, sys\n"
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, 9, 0, 0, 0)\n"
    "os.getppid() == int(sys.argv[1]) or sys.exit()\n"
    "while True: pass\n"
)


@dataclass(frozen=True, slots=True)
class SlowFault:
    """One lasting fault.

    Args:
        name: one of SLOW_FAULTS; kind: variant, "" where it has none.
        rank: global rank it happens on; step: from which on; until: first step without it, -1 for
            none.
        share: of the step's own compute (slow-compute, slow-input), or of a core (throttle).
        ms: instead of a share, a fixed time; of gc: about how long one collection takes.
        every: of gc: steps from one to the next.
    """

    name: str
    rank: int
    step: int
    kind: str = ""
    until: int = -1
    share: float = 0.0
    ms: float = 0.0
    every: int = 0

    def __str__(self) -> str:
        text = f"{self.name}:rank={self.rank}:step={self.step}"
        text += f":kind={self.kind}" if self.kind else ""
        text += f":until={self.until}" if self.until >= 0 else ""
        for name in SLOW_FAULTS[self.name][2]:
            if value := getattr(self, name):
                text += f":{name}={value:g}"
        return text

    def active(self, step: int) -> bool:
        """Whether it has an effect in this step."""
        return step >= self.step and (self.until < 0 or step < self.until)


def parse_slow(spec: str) -> SlowFault:
    """Read `NAME:rank=R:step=S[:until=S][:kind=K][:share=X][:ms=X][:every=N]`.

    Raises:
        UsageProblem: an unknown key or kind, or an invalid number.
    """
    name, *pairs = spec.strip().split(":")
    _, kinds, takes = SLOW_FAULTS[name]
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key in values or key not in ("rank", "step", "until", "kind", *takes):
            raise UsageProblem(f"cannot read {pair!r} in the fault {spec!r}", next_step=_EXAMPLE)
        values[key] = value
    kind = values.get("kind", kinds[0] if kinds else "")
    if kind not in (kinds or ("",)):
        known = ", ".join(kinds) if kinds else "none"
        raise UsageProblem(f"the fault {name!r} has no kind {kind!r}; known are {known}")
    numbers = {key: _number(spec, key, values.get(key)) for key in takes}
    if numbers.get("ms"):
        numbers["share"] = 0.0
    return SlowFault(
        name,
        int(_number(spec, "rank", values.get("rank", ""))),
        int(_number(spec, "step", values.get("step", ""))),
        kind,
        int(_number(spec, "until", values["until"])) if "until" in values else -1,
        numbers.get("share", 0.0) if "share" in takes else 0.0,
        numbers.get("ms", 0.0) or (200.0 if name == "gc" else 0.0),
        int(numbers.get("every", 0)),
    )


def _number(spec: str, key: str, value: str | None) -> float:
    if value is None:
        return _DEFAULTS[key]
    whole = key in ("rank", "step", "until", "every")
    digits = value.replace(".", "", 0 if whole else 1)
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 12):
        raise UsageProblem(f"the fault {spec!r} needs {key}=NUMBER", next_step=_EXAMPLE)
    if key == "every" and float(value) < 1:
        raise UsageProblem(f"the fault {spec!r} needs {key}=1 or more", next_step=_EXAMPLE)
    return float(value)


class Slowness:
    """Injects the lasting faults of one rank; a training loop calls its hooks.

    Args:
        faults: those of this rank.
    """

    def __init__(self, faults: Sequence[SlowFault] = ()) -> None:
        self._faults = tuple(faults)
        self._usual_s, self._so_far_s, self._step = 0.0, 0.0, -1
        self._announced: set[SlowFault] = set()
        self._garbage: list[list[object]] = []
        self._neighbours: list[subprocess.Popen[bytes]] = []
        self._cgroup: Path | None = None

    def before_batch(self, step: int) -> None:
        """For slow-input: the batch is not there yet."""
        for fault in self._now(step, "slow-input"):
            _wait(fault.ms / 1e3 or fault.share * self._usual_s)

    @contextmanager
    def compute(self, step: int) -> Iterator[None]:
        """Around a step's compute, or a part of it, without its communication."""
        if not self._faults:
            yield
            return
        self._at_start(step)
        began_s, ran_s = time.monotonic(), time.thread_time()
        yield
        took_s, ran_s = time.monotonic() - began_s, time.thread_time() - ran_s
        if step != self._step:
            # Parts of a step add up; its whole is known when the next one has begun.
            if not any(fault.active(self._step) for fault in self._faults):
                self._usual_s = self._so_far_s or took_s
            self._step, self._so_far_s = step, 0.0
        self._so_far_s += took_s
        for fault in self._now(step, "slow-compute"):
            # CPU time, so that a neighbour on the core does not add to it.
            if fault.kind == "work":
                _work(fault.ms / 1e3 or fault.share * ran_s)
            else:
                _wait(fault.ms / 1e3 or fault.share * took_s)

    def _now(self, step: int, name: str) -> Iterator[SlowFault]:
        for fault in self._faults:
            if fault.name == name and fault.active(step):
                self._announce(fault)
                yield fault

    def _announce(self, fault: SlowFault) -> None:
        if fault not in self._announced:
            self._announced.add(fault)
            print(f"relkit: injecting {fault} (pid {os.getpid()})", flush=True)

    def _at_start(self, step: int) -> None:
        for fault in self._now(step, "gc"):
            if (step - fault.step) % fault.every == 0:
                self._collect(fault.ms / 1e3)
        throttles = list(self._now(step, "throttle"))
        if throttles and self._cgroup is None:
            self._throttle(throttles[0])
        elif not throttles and self._cgroup is not None:
            self._unthrottle()
        neighbours = list(self._now(step, "neighbour"))
        if neighbours and not self._neighbours:
            self._begin_neighbour()
        elif not neighbours and self._neighbours:
            self._end_neighbour()

    def _collect(self, time_s: float) -> None:
        """Collect real garbage: enough reference cycles to take about `time_s`."""
        if not self._garbage:
            self._garbage = _cycles(_FIRST_CYCLES)
        began_s = time.monotonic()
        gc.collect()
        took_s = max(time.monotonic() - began_s, 1e-4)
        if took_s < 0.8 * time_s:
            more = min(len(self._garbage) * (time_s / took_s - 1.0), 4e6)
            self._garbage += _cycles(int(more))

    def _throttle(self, fault: SlowFault) -> None:
        if fault.kind == "nice":
            self._cgroup = Path(os.devnull)
            os.nice(19)
            # A kernel with autogroups compares sessions, and nice levels inside of one only.
            with suppress(OSError):
                Path("/proc/self/autogroup").write_text("19")
            return
        self._cgroup = _limit_cpu(fault.share)
        atexit.register(self._unthrottle)

    def _unthrottle(self) -> None:
        folder, self._cgroup = self._cgroup, None
        if folder is not None and folder != Path(os.devnull):
            (folder.parent / "cgroup.procs").write_text(str(os.getpid()))
            folder.rmdir()

    def _begin_neighbour(self) -> None:
        # `relkit launch --help`, which lists the faults, does not wait for this.
        import subprocess

        # It inherits this process's cores, and ends with it.
        self._neighbours.append(
            subprocess.Popen([sys.executable, "-S", "-c", _LOOP, str(os.getpid())])
        )
        atexit.register(self._end_neighbour)

    def _end_neighbour(self) -> None:
        for neighbour in self._neighbours:
            neighbour.kill()
            neighbour.wait(10)
        self._neighbours.clear()


def _wait(time_s: float) -> None:
    until = time.monotonic() + time_s
    while (left := until - time.monotonic()) > 0.0:
        time.sleep(left)


def _work(time_s: float) -> None:
    until = time.thread_time() + time_s
    while time.thread_time() < until:
        sum(range(2000))


def _cycles(count: int) -> list[list[object]]:
    made: list[list[object]] = []
    enabled = gc.isenabled()
    gc.disable()
    for _ in range(count):
        cycle: list[object] = []
        cycle.append(cycle)
        made.append(cycle)
    if enabled:
        gc.enable()
    return made


def _limit_cpu(share: float) -> Path:
    """A cgroup of our own with this process in it, which gets that share of a core.

    Raises:
        UsageProblem: control groups cannot be written here.
    """
    for root in _CGROUPS:
        folder = root / f"relkit-fault-{os.getpid()}"
        quota = max(1000, int(share * _PERIOD_US))
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if (folder / "cpu.cfs_quota_us").exists():
                (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            (folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            folder.rmdir()
            continue
        return folder
    raise UsageProblem(
        "this process cannot make a control group", next_step="Run as root, or use kind=nice."
    )
