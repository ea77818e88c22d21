"""What a storm does to a job: see benchmarks/storms/storm.py.

A fault strikes, lasts for a while, and is over. Some of them the job has to survive without a
restart, others cost it a node or a rank.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from benchmarks.storms.storm_fleet import RATE_MBIT, SLOW_MBIT, STORE, Fleet


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault that has struck.

    Args:
        words: for people; lasts_s: for how long.
        over: undo it; nothing is left to be done where the job gets over it by itself.
        gone: the host whose memory the job has lost with it, "" for none.
    """

    words: str
    lasts_s: float = 0.0
    over: Callable[[], None] = lambda: None
    gone: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of faults.

    Args:
        share: of a hundred faults.
        restarts: the ranks have to start again; False: they must not.
        strike: have one happen.
        ends_job: the host of the rendezvous store is gone, and the job with it.
        needs_spare: only somebody who waits sees it; else the job may go on as if nothing had been.
    """

    share: int
    restarts: bool
    strike: Callable[[Fleet, random.Random], Fault]
    ends_job: bool = False
    needs_spare: bool = False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill_rank(fleet: Fleet, draw: random.Random) -> Fault:
    rank = draw.choice(fleet.ranks)
    _signal(rank.pid, signal.SIGKILL)
    return Fault(f"rank on {rank.node} killed")


def _stop_rank(fleet: Fleet, draw: random.Random) -> Fault:
    rank = draw.choice(fleet.ranks)
    pid, seconds = rank.pid, draw.uniform(1.0, 4.0)
    _signal(pid, signal.SIGSTOP)
    return Fault(f"rank on {rank.node} stopped", seconds, lambda: _signal(pid, signal.SIGCONT))


def _freeze_rank(fleet: Fleet, draw: random.Random) -> Fault:
    rank = draw.choice(fleet.ranks)
    _signal(rank.pid, signal.SIGSTOP)
    return Fault(f"rank on {rank.node} stopped for good")


def _kill_launcher(fleet: Fleet, draw: random.Random) -> Fault:
    return _kill(fleet, draw.choice([name for name in fleet.members() if name != STORE]))


def _kill_spare(fleet: Fleet, draw: random.Random) -> Fault:
    return _kill(fleet, draw.choice(sorted(set(fleet.launchers) - set(fleet.members()))))


def _kill_store(fleet: Fleet, _draw: random.Random) -> Fault:
    for launcher in fleet.launchers.values():
        launcher.may_end = launcher.may_end or "the job has ended"
    return _kill(fleet, STORE)


def _kill(fleet: Fleet, name: str) -> Fault:
    fleet.launchers[name].may_end = "it was killed"
    _signal(fleet.pid(name), signal.SIGKILL)

    def over() -> None:
        if not fleet.launchers[name].lives:
            fleet.wait_empty(name)

    return Fault(f"launcher on {name} killed", 0.0, over)


def _pause_launcher(fleet: Fleet, draw: random.Random) -> Fault:
    return _stop(fleet, draw.choice(sorted(fleet.launchers)), draw.uniform(1.0, 3.0))


def _stop_launcher(fleet: Fleet, draw: random.Random) -> Fault:
    name = draw.choice([name for name in fleet.members() if name != STORE])
    return _stop(fleet, name, draw.uniform(12.0, 20.0))


def _stop(fleet: Fleet, name: str, seconds: float) -> Fault:
    pid = fleet.pid(name)
    _signal(pid, signal.SIGSTOP)
    return Fault(f"launcher on {name} stopped", seconds, lambda: _signal(pid, signal.SIGCONT))


def _flap(fleet: Fleet, draw: random.Random) -> Fault:
    return _cut(fleet, draw.choice(sorted(fleet.launchers)), draw.uniform(0.5, 2.5))


def _cut_host(fleet: Fleet, draw: random.Random) -> Fault:
    name = draw.choice([name for name in fleet.members() if name != STORE])
    return replace(_cut(fleet, name, draw.uniform(12.0, 20.0)), gone=name)


def _cut(fleet: Fleet, name: str, seconds: float) -> Fault:
    fleet.hosts.cut(name)
    return Fault(f"{name} cut off", seconds, lambda: fleet.hosts.mend(name))


def _lose_host(fleet: Fleet, draw: random.Random) -> Fault:
    name = draw.choice([name for name in fleet.members() if name != STORE])
    fleet.hosts.cut(name)

    def over() -> None:
        fleet.power_off(name)
        fleet.hosts.mend(name)

    return Fault(f"{name} lost", draw.uniform(0.0, 1.0), over, gone=name)


def _slow_host(fleet: Fleet, draw: random.Random) -> Fault:
    name = draw.choice(sorted(fleet.launchers))
    fleet.hosts.limit(name, out_mbit=SLOW_MBIT, in_mbit=SLOW_MBIT)

    def over() -> None:
        fleet.hosts.limit(name, out_mbit=RATE_MBIT, in_mbit=RATE_MBIT)

    return Fault(f"the network interface of {name} slowed to a tenth", draw.uniform(3.0, 8.0), over)


KINDS: Mapping[str, Kind] = {
    "rank killed": Kind(26, True, _kill_rank),
    "rank stopped for 1 to 4 s": Kind(10, False, _stop_rank),
    "rank stopped for good": Kind(6, True, _freeze_rank),
    "launcher killed": Kind(12, True, _kill_launcher),
    "launcher of a spare killed": Kind(4, False, _kill_spare),
    "launcher stopped for 1 to 3 s": Kind(8, False, _pause_launcher),
    "launcher stopped for 12 to 20 s": Kind(6, True, _stop_launcher, needs_spare=True),
    "host cut off for up to 2.5 s": Kind(8, False, _flap),
    "host cut off for 12 to 20 s": Kind(8, True, _cut_host, needs_spare=True),
    "host lost": Kind(8, True, _lose_host),
    "interface slowed to a tenth": Kind(6, False, _slow_host),
    "launcher with the store killed": Kind(2, True, _kill_store, ends_job=True),
}
