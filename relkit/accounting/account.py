"""From a launcher's records to its recoveries: phases, steps lost, and the share of time used.

Effective training time ratio (ETTR): "the ratio of productive runtime to the available wallclock
time of a job run", where neither restarting nor doing steps again counts as productive (Kokolis
et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters, arXiv 2410.21680;
in ByteDance's arXiv 2509.16293 the same ratio counts what a fault costs). Here the wall-clock time
is the launcher's: waiting in a queue before it began is not in it.

Everything here is of one launcher: the clocks of two hosts are never compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from relkit.accounting.attempts import Attempt, kept_steps_s
from relkit.accounting.records import Record, What
from relkit.accounting.suspicions import Suspicions, suspicions_in

DETECT, LOAD, START, FIRST_STEP = "detect", "load", "start", "first step"
# In the order in which they come; the others are what launchers measure around their calls.
PHASES = (DETECT, "capture", "save", "stop", "rendezvous", START, LOAD, FIRST_STEP)


class Basis(str, Enum):
    """What an ETTR was made of."""

    STEPS = "steps"
    TIME = "time only"
    NOTHING = "not known"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Recovery:
    """From a fault to the end of the first step after it.

    Args:
        fault: its record; None for the start of the job.
        phases_s: by the names of PHASES, s; a phase that was not seen is missing.
        total_s: from the fault to where `reached` says; None: it was not seen to be back.
        reached: "first step", or "first operation" where the loop tells no steps; "" for neither.
        step: the first step after it; -1: not seen.
        steps_lost: steps that were done before and are done again; None: not known.
        saved: the record of what was saved because of the fault; None for nothing.
        restarted: workers were started again.
        standbys: how many of those of this node were warm standbys.
    """

    fault: Record | None
    phases_s: Mapping[str, float]
    total_s: float | None = None
    reached: str = ""
    step: int = -1
    steps_lost: int | None = None
    saved: Record | None = None
    restarted: bool = False
    standbys: int = 0

    @property
    def other_s(self) -> float | None:
        """What is in no phase, s; None where the whole is not known."""
        if self.total_s is None:
            return None
        return max(0.0, self.total_s - sum(self.phases_s.values()))


@dataclass(frozen=True, slots=True)
class Account:
    """What a launcher's run went into.

    Args:
        launcher: its first record.
        attempts: starts of workers, and what was seen of each.
        start: of the job, as if it were a recovery.
        recoveries: one a fault, in their order; the last may not have been followed by a restart.
        ended: the last record of a run that has ended; None: it has not, or not in an orderly way.
        wall_s: from the launcher's begin to its end, or to the last that was seen of it, s.
        productive_s: of that, in steps that count; basis: what that was made of.
        standby: the newest record of warm standbys, when all were ready; None: there were none.
        suspicions: of a hang, as far as they were noted.
    """

    launcher: Record
    attempts: tuple[Attempt, ...]
    start: Recovery
    recoveries: tuple[Recovery, ...]
    ended: Record | None
    wall_s: float
    productive_s: float
    basis: Basis
    standby: Record | None = None
    suspicions: Suspicions = field(default_factory=Suspicions)

    @property
    def ettr(self) -> float | None:
        """Productive share of the wall-clock time, 0 to 1; None where nothing is known."""
        if self.basis is Basis.NOTHING or self.wall_s <= 0.0:
            return None
        return min(1.0, self.productive_s / self.wall_s)

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often workers were started again, by cause, the most frequent first."""
        causes = (each.fault.name for each in self.recoveries if each.restarted and each.fault)
        return dict(Counter(causes).most_common())

    @property
    def steps_lost(self) -> int | None:
        """Of all restarts; None where that of one is not known."""
        lost = [each.steps_lost for each in self.recoveries if each.restarted]
        return None if None in lost else sum(each for each in lost if each is not None)


@dataclass(slots=True)
class _Span:
    """A fault, and the records up to the next."""

    fault: Record | None
    origin_s: float
    before_s: dict[str, float] = field(default_factory=dict)
    saved: Record | None = None
    attempt: Attempt | None = None


def account_of(records: Sequence[Record]) -> Account:
    """What became of the time.

    Args:
        records: of one journal; the first is its LAUNCHER.
    """
    launcher, last_s = records[0], max(record.at_s for record in records)
    spans = _spans(records)
    attempts = [span.attempt for span in spans if span.attempt is not None]
    recoveries, known = [], None
    for span in spans:
        recoveries.append(_recovery(span, known))
        if span.attempt is not None and span.attempt.first is not None:
            known = span.attempt
    for span, following in pairwise(spans):
        if span.attempt is not None:
            span.attempt.end_s = following.origin_s
    basis, productive_s = _productive(attempts, last_s)
    return Account(
        launcher,
        tuple(attempts),
        recoveries[0],
        tuple(recoveries[1:]),
        next((record for record in records if record.what is What.ENDED), None),
        last_s - launcher.at_s,
        productive_s,
        basis,
        next((record for record in reversed(records) if record.what is What.STANDBY), None),
        suspicions_in(records),
    )


def _spans(records: Sequence[Record]) -> list[_Span]:
    spans = [_Span(None, records[0].at_s)]
    for record in records[1:]:
        span = spans[-1]
        if record.what is What.FAULT:
            # What follows a fault before workers are started again belongs to it: a signal to the
            # launcher while it stops them, or the failure that ends a hang.
            if span.attempt is not None:
                spans.append(_Span(record, record.at_s - record.seconds))
                spans[-1].before_s[DETECT] = record.seconds
        elif record.what is What.ATTEMPT:
            if span.attempt is not None:
                # Nobody has said why: it is a restart all the same.
                why = Record(What.FAULT, record.at_s, record.unix_s, name="not seen")
                spans.append(_Span(why, record.at_s))
            spans[-1].attempt = Attempt(begun=record)
        elif record.what is What.SAVED:
            span.saved = span.saved or record
        elif record.what is What.PHASE and span.attempt is None:
            before_s = span.before_s
            before_s[record.name] = before_s.get(record.name, 0.0) + record.seconds
        elif span.attempt is not None:
            span.attempt.take(record)
    return spans


def _recovery(span: _Span, before: Attempt | None) -> Recovery:
    attempt = span.attempt
    phases_s = {name: span.before_s[name] for name in PHASES if name in span.before_s}
    if attempt is None:
        return Recovery(span.fault, phases_s, saved=span.saved)
    total_s, reached = None, ""
    if attempt.done_s is not None:
        total_s, reached = attempt.done_s - span.origin_s, FIRST_STEP
    elif attempt.operation_s is not None and attempt.first is None:
        total_s, reached = attempt.operation_s - span.origin_s, "first operation"
    begun_s, works_s, load = attempt.begun.at_s, attempt.worked_from_s, attempt.load
    if works_s is not None and works_s >= begun_s:
        load_s = 0.0
        if load is not None and load.at_s - load.seconds >= begun_s and load.at_s <= works_s:
            phases_s[LOAD] = load_s = load.seconds
        phases_s[START] = works_s - begun_s - load_s
    if attempt.first is not None and attempt.done_s is not None:
        phases_s[FIRST_STEP] = max(0.0, attempt.done_s - attempt.first.at_s)
    return Recovery(
        span.fault,
        {name: phases_s[name] for name in PHASES if name in phases_s},
        None if total_s is None else max(0.0, total_s),
        reached,
        attempt.first.number if attempt.first is not None and not attempt.is_counted else -1,
        _steps_lost(before, attempt) if span.fault is not None else None,
        span.saved,
        restarted=span.fault is not None,
        standbys=attempt.begun.standbys,
    )


def _steps_lost(before: Attempt | None, after: Attempt) -> int | None:
    """Done before the fault, and done again. The step that was under way is not among them."""
    if before is None or before.last is None or after.first is None:
        return None
    if before.is_counted or after.is_counted:
        return None
    return max(0, before.last.number - after.first.number)


def _productive(attempts: Sequence[Attempt], last_s: float) -> tuple[Basis, float]:
    worked = [attempt for attempt in attempts if attempt.worked_from_s is not None]
    if not worked:
        return Basis.NOTHING, 0.0
    is_numbered = all(attempt.first is not None for attempt in worked) and (
        len(worked) == 1 or not any(attempt.is_counted for attempt in worked)
    )
    if is_numbered:
        return Basis.STEPS, kept_steps_s(worked)
    spans_s = (
        (last_s if attempt.end_s is None else attempt.end_s) - (attempt.worked_from_s or 0.0)
        for attempt in worked
    )
    return Basis.TIME, sum(max(0.0, span_s) for span_s in spans_s)
