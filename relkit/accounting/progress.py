"""How far a running job is, how fast, and how well: from what its launcher has noted; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relkit.accounting.account import Account
from relkit.accounting.records import Record, What

# Names of HEALTH records.
HUNG, GOES_ON = "hung", "goes on"
_RATE_HOLDS_S, _STEPS_HOLD = 120.0, 3.0


def rate_holds_s(step_s: float) -> float:
    """How long the newest step's time is true of now, where no further step begins, s."""
    return max(_RATE_HOLDS_S, _STEPS_HOLD * step_s)


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the newest attempt.

    Args:
        health: "ok", "starting", "suspect", "hung" or "restarting"; of a job that has ended, how.
        attempt: restarts before it; -1: no workers were started.
        nodes, ranks: of the job; 0: not known.
        step: the newest that began; step_unix_s: when; None: none was seen.
        rate_per_s: steps a second of late; None: not known, or it does not move.
        total: how many steps the loop makes, where it says so.
        timeline: folder of the launcher's reports; "" where it has not said.
    """

    health: str
    attempt: int = -1
    nodes: int = 0
    ranks: int = 0
    step: int | None = None
    step_unix_s: float | None = None
    rate_per_s: float | None = None
    total: int | None = None
    timeline: str = ""

    @property
    def eta_s(self) -> float | None:
        """Until the last step has ended, s; None where that is not known."""
        if self.total is None or self.step is None or not self.rate_per_s:
            return None
        return max(0, self.total - self.step) / self.rate_per_s


def progress_of(account: Account, records: Sequence[Record], state: str) -> Progress:
    """How a job does.

    Args:
        account: of these records; state: of `state_of`.
    """
    begins = [i for i, record in enumerate(records) if record.what is What.ATTEMPT]
    newest = records[begins[-1] :] if begins else ()
    health = _health(account, newest, state)
    timeline = next((each.text for each in records if each.what is What.TIMELINE), "")
    if not newest:
        return Progress(health, timeline=timeline)
    begun = newest[0]
    steps = sorted(
        (each for each in newest if each.what in (What.FIRST_STEP, What.LAST_STEP)),
        key=lambda each: (each.number, each.at_s),
    )
    total = next((each.number for each in newest if each.what is What.TOTAL), None)
    last = steps[-1] if steps else None
    return Progress(
        health,
        begun.number,
        begun.nodes,
        begun.world_size,
        None if last is None else last.number,
        None if last is None else last.unix_s,
        _rate(steps, max(each.at_s for each in newest)) if health in ("ok", "suspect") else None,
        total,
        timeline,
    )


def _health(account: Account, newest: Sequence[Record], state: str) -> str:
    if state == "recovering":
        return "restarting"
    if state != "running":
        return state
    said = [each.name for each in newest if each.what is What.HEALTH]
    if said and said[-1] == HUNG:
        return HUNG
    if account.suspicions.present:
        return "suspect"
    moves = (What.OPERATION, What.FIRST_STEP)
    return "ok" if any(each.what in moves for each in newest) else "starting"


def _rate(steps: Sequence[Record], now_s: float) -> float | None:
    """Of the newest two that were noted some time apart.

    Args:
        now_s: when the launcher has noted something last.
    """
    for before in reversed(steps[:-1]):
        count, seconds = steps[-1].number - before.number, steps[-1].at_s - before.at_s
        if count > 0 and seconds > 0.0:
            holds_s = rate_holds_s(seconds / count)
            return count / seconds if now_s - steps[-1].at_s < holds_s else None
    return None
