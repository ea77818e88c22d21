"""Keeps the accounts of one launcher: each call notes what has just happened, and never raises."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.distributed.elastic.multiprocessing import SignalException

from relkit.accounting.account import account_of
from relkit.accounting.journal import Journal
from relkit.accounting.records import Record, What
from relkit.accounting.words import back_line
from relkit.launch.accounting.attempt_notes import AttemptNotes
from relkit.launch.accounting.progress import Progress
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exit_status import how_it_ended, rank_that_ended
from relkit.launch.job.looks import Looks
from relkit.launch.job.settings import ExitStatus, Log
from relkit.log_lines import warning
from relkit.process.shortage import is_shortage

if TYPE_CHECKING:
    from relkit.hang.suspicion.watch import Turn


@dataclass(frozen=True, slots=True)
class Fault:
    """What stopped the workers.

    Args:
        cause: in two or three words, the same for faults of one kind; sentence: in full.
        rank: at fault; -1: none.
        since_s: before that all was well, monotonic clock; None: when that was is not known.
        seen_s: when it was seen; None: now.
    """

    cause: str
    sentence: str
    rank: int = -1
    since_s: float | None = None
    seen_s: float | None = None


class Accounts:
    """Of one launcher, from the begin of its run to its end.

    An error in here is one line, and the end of the accounts; the job goes on.

    Args:
        journal: makes the journal of a job.
        log: one line to the terminal.
        on_end: told the records of a run with faults, at its end.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        journal: Callable[[str, Log], Journal],
        log: Log,
        on_end: Callable[[Sequence[Record]], None] = lambda _records: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._log, self._on_end, self._clock = journal, log, on_end, clock
        self._looks = Looks(log)
        self._journal: Journal | None = None
        self._notes: AttemptNotes | None = None
        self._begun_s = 0.0
        self._in_phase = self._has_begun = self._is_off = False
        self._waits_for_back = self._has_steps = False
        self._faulted = False

    @property
    def moved_s(self) -> float | None:
        """When this node's first rank did something last, monotonic clock; None: not seen."""
        return None if self._notes is None else self._notes.progress.moved_s

    @property
    def in_fault(self) -> bool:
        """A fault was noted, and no workers have been started since."""
        return self._faulted

    @property
    def is_working(self) -> bool:
        """This node's first rank has finished a step, or an operation where it tells no steps."""
        progress = None if self._notes is None else self._notes.progress
        return progress is not None and self._is_back(progress)

    def records_now(self) -> tuple[Record, ...]:
        """All records of the run, with how far it is now; any thread may ask."""
        journal, notes = self._journal, self._notes
        if journal is None:
            return ()
        alive = Record(What.ALIVE, self._clock(), time.time())
        return (*journal.records, *(() if notes is None else notes.newest()), alive)

    def begin(self, job_id: str) -> None:
        """The launcher begins its run."""
        with self._guarded():
            self._journal = self._make(job_id, self._log)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Around a phase; inside another, it is part of that."""
        if self._in_phase:
            yield
            return
        self._in_phase, begin_s = True, self._clock()
        try:
            yield
        finally:
            self._in_phase = False
            self.took(name, self._clock() - begin_s)

    def took(self, name: str, seconds: float) -> None:
        """A phase has ended now."""
        self._add(What.PHASE, name=name, seconds=max(0.0, seconds))

    def saved(self, step: int, by: str) -> None:
        """A step was saved because of a fault."""
        self._add(What.SAVED, number=step, name=by)

    def starts(self) -> None:
        """Workers are about to be started."""
        self._begun_s = self._clock()

    def started(self, attempt: Attempt, standbys: int) -> None:
        """They are.

        Args:
            standbys: how many of them were warm standbys.
        """
        self._close_notes()
        self._waits_for_back, self._faulted, self._has_begun = self._faulted, False, True
        self._add(
            What.ATTEMPT,
            at_s=self._begun_s,
            number=attempt.number,
            node=attempt.node,
            nodes=attempt.nodes,
            world_size=attempt.world_size,
            standbys=standbys,
        )
        if self._journal is not None and attempt.job_dir is not None and attempt.ranks:
            first = min(attempt.ranks, key=lambda local: local.rank)
            self._notes = AttemptNotes(
                self._journal, attempt.job_dir, first, self._begun_s, self._clock
            )

    def look(self) -> None:
        """See how far the workers are; to be called a few times a second."""
        with self._guarded():
            if self._notes is None or self._journal is None or not self._notes.look():
                return
            progress = self._notes.progress
            self._has_steps = self._has_steps or progress.first is not None
            if self._waits_for_back and self._is_back(progress):
                self._waits_for_back = False
                if not self._journal.is_full:
                    self._log(back_line(account_of(self._journal.records).recoveries[-1]))

    def _is_back(self, progress: Progress) -> bool:
        # A loop that has told its steps before will tell them again.
        return progress.done_s is not None or (
            progress.operation_s is not None and not self._has_steps
        )

    def suspicion(self, turn: Turn) -> None:
        """Something became of a suspicion of a hang."""
        suspicion, ranks, became = turn.suspicion, turn.suspicion.ranks, turn.what.value
        self._add(
            What.SUSPICION,
            name=became,
            text=suspicion.sentence if became == "began" else "",
            number=next(iter(ranks)) if len(ranks) == 1 else -1,
            seconds=max(0.0, suspicion.stalled_s),
        )

    def health(self, name: str) -> None:
        """The job hung, or goes on."""
        self._add(What.HEALTH, name=name)

    def standby(self, processes: int, pss_bytes: int) -> None:
        """Standbys wait for all workers of this node."""
        self._add(What.STANDBY, number=processes, size_mb=pss_bytes / 1e6)

    def fault(self, fault: Fault) -> bool:
        """Workers have to be stopped; False where that was known: the first fault is the cause."""
        if self._faulted or not self._has_begun:
            return False
        seen_s = self._clock() if fault.seen_s is None else fault.seen_s
        self._close_notes()
        self._faulted = True
        since_s = seen_s if fault.since_s is None else fault.since_s
        self._add(
            What.FAULT,
            at_s=seen_s,
            name=fault.cause,
            text=fault.sentence,
            seconds=max(0.0, seen_s - since_s),
            number=fault.rank,
        )
        return True

    def ended(self, how: str, why: str = "") -> None:
        """The launcher has ended its run."""
        self._close_notes()
        self._add(What.ENDED, name=how, text=why)
        journal, self._journal = self._journal, None
        with self._guarded():
            if journal is not None:
                journal.close()
                if any(record.what is What.FAULT for record in journal.records):
                    self._on_end(journal.records)

    def _close_notes(self) -> None:
        notes, self._notes = self._notes, None
        with self._guarded():
            if notes is not None:
                notes.close()
                self._has_steps = self._has_steps or notes.progress.first is not None

    def _add(self, what: What, at_s: float | None = None, **members: object) -> None:
        with self._guarded():
            if self._journal is not None:
                self._journal.add(what, at_s, **members)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except SignalException:
            # How torch's handler asks the launcher to end, wherever it happens to be.
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the job must not end of it
            if is_shortage(error):
                # The next thing may be noted again.
                self._looks.say("noting what happens to the job", error)
                return
            self._journal = self._notes = None
            if not self._is_off:
                self._is_off = True
                reason = (str(error).splitlines() or [""])[0][:200]
                line = f"the job's restarts are not accounted for: {type(error).__name__}: {reason}"
                self._log(warning(line))


def fault_of(exit_statuses: Mapping[int, ExitStatus], sentence: str, since_s: float) -> Fault:
    """The fault of the worker of this node that failed first.

    Args:
        exit_statuses: by rank; sentence: what happened, in words.
        since_s: when the workers were last seen without it, monotonic clock.
    """
    failed = {rank: end for rank, end in exit_statuses.items() if end.exit_code}
    if not failed:
        return Fault("worker failed", sentence, since_s=since_s)
    rank = min(failed, key=lambda each: failed[each].failed_unix_s)
    cause = how_it_ended(failed[rank].exit_code or 0).removeprefix("was ")
    return Fault(cause, sentence, rank, since_s)


def fault_elsewhere(sentence: str, since_s: float | None = None) -> Fault:
    """The fault of a worker of another node.

    Args:
        sentence: as `how_rank_ended` words it there; since_s: of Fault.
    """
    told = rank_that_ended(sentence)
    if told is None:
        return Fault("another node failed", sentence, since_s=since_s)
    rank, how = told
    return Fault(how.removeprefix("was "), sentence, rank, since_s)
