"""Deaths on purpose, at a chosen point of a step: what try-to-persist is tested with.

    RELKIT_TTP_INJECT="run=0:rank=1:step=5:phase=update;run=1:rank=0:step=7:phase=barrier:delay_ms=2"

Each entry fires once: in the attempt `run` of the job (0 is the first), on the rank, in the
making of the step, at the beginning of the phase or `delay_ms` after it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relkit.errors import UsageProblem

VARIABLE = "RELKIT_TTP_INJECT"
SEPARATOR = ";"
PHASES = (
    "forward",
    "backward",
    "reduce",
    "prepare",
    "barrier",
    "update",
    "gather",
    "save",
    "emergency_save",
)
_SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP}


@dataclass(frozen=True, slots=True)
class Death:
    """One entry.

    Args:
        rank: global rank; step: that is being made, or was just made, counted from 1; 0: any.
        phase: one of PHASES.
        run: attempt of the job.
        delay_ms: after the beginning of the phase.
        by: "KILL" or "STOP".
    """

    rank: int
    phase: str
    step: int = 0
    run: int = 0
    delay_ms: float = 0.0
    by: str = "KILL"

    def __str__(self) -> str:
        return (
            f"run={self.run}:rank={self.rank}:step={self.step}:phase={self.phase}"
            f":delay_ms={self.delay_ms:g}:by={self.by}"
        )


def parse(spec: str) -> Death:
    """Read one entry.

    Raises:
        UsageProblem: it is none.
    """
    pairs = dict(part.partition("=")[::2] for part in spec.strip().split(":"))
    try:
        death = Death(
            rank=int(pairs.pop("rank")),
            phase=pairs.pop("phase"),
            step=int(pairs.pop("step", "0")),
            run=int(pairs.pop("run", "0")),
            delay_ms=float(pairs.pop("delay_ms", "0")),
            by=pairs.pop("by", "KILL"),
        )
    except (KeyError, ValueError) as error:
        raise _not_one(spec) from error
    if pairs or death.phase not in PHASES or death.by not in _SIGNALS:
        raise _not_one(spec)
    return death


def _not_one(spec: str) -> UsageProblem:
    return UsageProblem(
        f"cannot read {spec!r} in {VARIABLE}",
        next_step=f"Write rank=1:step=5:phase=PHASE, with one of {', '.join(PHASES)}.",
    )


def to_environment(deaths: Sequence[Death]) -> dict[str, str]:
    """The environment that makes from_environment() carry these out."""
    return {VARIABLE: SEPARATOR.join(map(str, deaths))}


class FaultInjector:
    """The deaths of this rank in this attempt; does nothing without any."""

    def __init__(self, deaths: Sequence[Death] = ()) -> None:
        self._pending = list(deaths)

    def expects(self, phase: str) -> bool:
        """Whether an entry of that phase is left."""
        return any(death.phase == phase for death in self._pending)

    def at(self, phase: str, step: int) -> None:
        """The phase begins."""
        for death in [d for d in self._pending if d.phase == phase and d.step in (0, step)]:
            self._pending.remove(death)
            if death.delay_ms:
                threading.Thread(target=_die, args=(death, step), daemon=True).start()
            else:
                _die(death, step)


def _die(death: Death, step: int) -> None:
    time.sleep(death.delay_ms / 1e3)
    # One call, so that lines of several ranks do not mix; tools read the time from it.
    line = f"relkit: injecting {death} (pid {os.getpid()}, step {step}) at {time.time():.4f}\n"
    os.write(1, line.encode())
    os.kill(os.getpid(), _SIGNALS[death.by])


def from_environment(environ: Mapping[str, str] = os.environ) -> FaultInjector:
    """What this process is to suffer.

    Raises:
        UsageProblem: RELKIT_TTP_INJECT cannot be read.
    """
    text = environ.get(VARIABLE, "")
    deaths = [parse(spec) for spec in text.split(SEPARATOR) if spec.strip()]
    rank, run = environ.get("RANK", "0"), environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return FaultInjector([d for d in deaths if str(d.rank) == rank and str(d.run) == run])
