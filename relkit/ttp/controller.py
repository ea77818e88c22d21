"""The state machine that leads survivors from a fault to a saved step; without clock or sockets.

    gathering -> normal -> settling (a fault; others may follow) -> collecting -> saving
                   \\-> pausing (asked to stop) --/      ^______________| (a rank is lost: again)
                                                                 committing -> over
    saving or committing fails -> clearing (all ranks stop writing) -> over
    all have finished training -> finished

Events go in by `received`, `lost`, `hung`, `stop` and `tick`; what is to be done comes out as
actions. Each plan has an epoch of its own: answers to an older one do not count.

A rank that is silent, or does not answer, is given up (and killed) only once the others can save
everything without it. The last holder of anything is waited for until `Limits.overall_s`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from relkit.ttp.actions import Action, Kill, Limits, Log, Over, Phase, Send
from relkit.ttp.membership import Membership
from relkit.ttp.messages import (
    Commit,
    Committed,
    Discard,
    Done,
    Exit,
    FaultNotice,
    Finished,
    Heartbeat,
    Hello,
    Message,
    Note,
    Pause,
    Raised,
    Save,
    Saved,
    SaveFailed,
    State,
    Stop,
)
from relkit.ttp.plan import Refusal
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVE_FAILED, EXIT_SAVED, SaveOutcome
from relkit.ttp.save_round import SaveRound

# How often a backup looks whether enough ranks have come.
_LOOK_S = 0.25


class Controller:
    """Leads one attempt of a job.

    Args:
        world_size: ranks of the job.
        limits: deadlines.
        backup: it takes over from a controller that is gone: a rank that has not registered with
            it in time counts as dead, and without a majority of the ranks it decides nothing.
    """

    def __init__(
        self, world_size: int, limits: Limits | None = None, *, backup: bool = False
    ) -> None:
        self.phase = Phase.GATHERING
        self.members = Membership(world_size)
        self.reason = ""
        self._limits = limits or Limits()
        self._backup = backup
        self._round = SaveRound()
        self._fault_s = 0.0
        self._until_s: float | None = None
        self._overdue = False
        self._verdict = (EXIT_SAVE_FAILED, "")
        self._end_of_all = Exit(*self._verdict)
        self._actions: list[Action] = []

    @property
    def epoch(self) -> int:
        """Number of the last plan, 0 before the first one."""
        return self._round.epoch

    @property
    def living(self) -> tuple[int, ...]:
        """Ranks that have registered and were not lost; also those that wait for the last one."""
        return self.members.living

    @property
    def dead(self) -> set[int]:
        """Ranks that are lost."""
        return self.members.dead

    @property
    def steps(self) -> Mapping[int, int]:
        """The committed step of each rank, as last heard."""
        return self.members.steps

    @property
    def busy(self) -> bool:
        """A fault, or a request to stop, is being led to its end, or has been."""
        return self.phase not in (Phase.GATHERING, Phase.NORMAL, Phase.FINISHED)

    def received(self, message: Message, now_s: float) -> Sequence[Action]:
        """A message of a rank has come."""
        rank = getattr(message, "rank", -1)
        if isinstance(message, Stop):
            return self.stop(message.reason, now_s)
        if rank in self.dead:
            return ()
        if self.phase is Phase.OVER:
            if isinstance(message, Hello):
                # It came too late to be told with the others, and nobody would tell it later.
                self._send((rank,), self._end_of_all)
            return self._take()
        if isinstance(message, Hello):
            self._register(message, now_s)
        elif self.phase is Phase.FINISHED:
            return ()
        elif self.members.is_registered(rank):
            self.members.heard(rank, now_s)
            self._handle(message, now_s)
        return self._take()

    def lost(self, rank: int, reason: str, now_s: float) -> Sequence[Action]:
        """A rank's process ended, or its link did."""
        if self.phase not in (Phase.OVER, Phase.FINISHED):
            self._lose((rank,), reason, now_s)
        return self._take()

    def hung(self, reason: str, now_s: float) -> Sequence[Action]:
        """The monitor is sure that the job hangs.

        No rank is dead for that: a rank that can be freed is as good a holder as any, whoever is
        to blame.
        """
        if self.phase in (Phase.NORMAL, Phase.PAUSING):
            self._settle(reason, now_s)
        elif self.phase is Phase.GATHERING and self.living and not self._backup:
            self._begin(reason, now_s)
            self._end(EXIT_REFUSED, f"{reason}; not every rank had begun", now_s)
        return self._take()

    def stop(self, reason: str, now_s: float) -> Sequence[Action]:
        """The job is to be saved and ended, at the end of a step."""
        if self.phase is Phase.NORMAL and self.living:
            self._begin(reason, now_s)
            self.phase = Phase.PAUSING
            self._round, self._overdue = SaveRound(self.epoch + 1), False
            # A rank may make some more steps before it receives this; all must stop at the same.
            step_s = self.members.step_s
            margin = 2 + int(0.5 / max(step_s, 0.005))
            at_step = max(self.steps.values()) + margin
            self._until_s = now_s + self._limits.state_s + (margin + 1) * step_s
            self._round.steps_made = sum(self.steps.values())
            self._send(self.living, Pause(self.epoch, at_step, reason))
        elif self.phase is Phase.GATHERING and not self._backup:
            self._begin(reason, now_s)
            self._end(EXIT_REFUSED, f"{reason}; not every rank had begun, nothing to save", now_s)
        return self._take()

    def tick(self, now_s: float, excused: Collection[int] = ()) -> Sequence[Action]:
        """Time has passed; to be called after everything that has arrived was handed in.

        Args:
            excused: ranks whose silence means nothing: their process is seen to work, it only
                holds the interpreter lock for long.
        """
        if self.phase in (Phase.OVER, Phase.FINISHED):
            return ()
        if self.phase is not Phase.GATHERING:
            new = [
                rank
                for rank in self.silent(now_s)
                if rank not in excused and rank not in self.members.suspects
            ]
            if new:
                self._suspect(new, now_s)
        if self.busy and now_s - self._fault_s > self._limits.overall_s:
            self._time_is_up(now_s)
        elif self._until_s is not None and now_s >= self._until_s:
            self._deadline_passed(now_s)
        return self._take()

    def silent(self, now_s: float) -> tuple[int, ...]:
        """Ranks that have missed their heartbeats."""
        return self.members.silent(now_s, self._limits.silent_s)

    def wait_s(self, now_s: float) -> float:
        """How long there is nothing to do if nothing arrives, seconds."""
        longest = self._limits.heartbeat_s
        if self._until_s is None:
            return longest
        return min(longest, max(0.0, self._until_s - now_s))

    def _register(self, hello: Hello, now_s: float) -> None:
        if self.phase is Phase.FINISHED:
            # A program may train twice.
            self.phase = Phase.GATHERING
            self.members.forget()
        self.members.register(hello, now_s)
        # Orders of a controller that is gone must not pass for ours.
        self._round.epoch = max(self.epoch, hello.epoch)
        if self.phase is not Phase.GATHERING:
            return
        if self._backup:
            if self._until_s is None:
                self._begin("the controller is gone", now_s)
                self._until_s = now_s + self._limits.takeover_s
            if self.members.is_complete:
                self._until_s = now_s
        elif self.dead:
            self._end(EXIT_REFUSED, f"{self.reason}; not every rank had begun", now_s)
        elif self.members.is_complete:
            self.phase = Phase.NORMAL
            self._finish()

    def _finish(self) -> None:
        """Let ranks go that have finished training, once all have."""
        if self.phase in (Phase.NORMAL, Phase.PAUSING) and self.members.all_done:
            self._send(self.living, Finished())
            self.phase, self._until_s, self.reason = Phase.FINISHED, None, ""

    def _handle(self, message: Message, now_s: float) -> None:
        if isinstance(message, Heartbeat):
            self.members.beat(message)
        elif isinstance(message, Raised):
            if self.phase in (Phase.NORMAL, Phase.PAUSING):
                self._settle(f"rank {message.rank} raised {message.sentence}", now_s)
        elif isinstance(message, Done):
            self.members.done.add(message.rank)
            self._finish()
        elif isinstance(message, Note):
            plan = self._round.plan
            if message.epoch == self.epoch and self.phase is Phase.SAVING and plan:
                self._send([rank for rank in plan.ranks if rank != message.rank], message)
        elif (
            isinstance(message, State | Saved | SaveFailed | Committed)
            and message.epoch == self.epoch
        ):
            self._handle_answer(message, now_s)

    def _handle_answer(self, message: State | Saved | SaveFailed | Committed, now_s: float) -> None:
        if isinstance(message, State):
            if self.phase in (Phase.COLLECTING, Phase.PAUSING, Phase.CLEARING):
                self._round.states[message.rank] = message.survivor
                self._go_on_if_answered(now_s)
        elif isinstance(message, Saved):
            if self.phase is Phase.SAVING:
                self._round.saved(message.rank, message.files)
                if self._round.all_saved:
                    self.phase = Phase.COMMITTING
                    self._commit(now_s)
        elif isinstance(message, SaveFailed):
            self._save_failed(message, now_s)
        elif self.phase is Phase.COMMITTING and self._round.plan is not None:
            step = self._round.plan.step
            self._over(EXIT_SAVED, f"step {step} was saved", now_s, step, message.folder)

    def _lose(self, ranks: Sequence[int], reason: str, now_s: float) -> None:
        new = [rank for rank in ranks if rank not in self.dead]
        if not new:
            return
        self.members.lose(new)
        if self.phase is Phase.GATHERING:
            if not self._backup:
                self._begin(reason, now_s)
            # Nobody may be under try-to-persist at all: that is known when somebody registers.
            if not self._backup and self.living:
                self._end(EXIT_REFUSED, f"{reason}; not every rank had begun", now_s)
        elif self.phase in (Phase.NORMAL, Phase.PAUSING):
            self._settle(reason, now_s)
        elif self.phase in (Phase.COLLECTING, Phase.CLEARING):
            for rank in new:
                self._round.states.pop(rank, None)
            self._go_on_if_answered(now_s)
        elif self.phase is Phase.SAVING:
            self._plan_again_without(new, reason, now_s)
        elif self.phase is Phase.COMMITTING and self._round.committer in new:
            self._commit(now_s)

    def _suspect(self, ranks: Sequence[int], now_s: float) -> None:
        """These ranks have missed their heartbeats: they are dead, or may yet wake up."""
        silent = f"silent for {self._limits.silent_s:g} s"
        reason = f"rank {ranks[0]} was {silent}"
        others = set(self.living) - self.members.suspects - set(ranks)
        if self.phase is Phase.CLEARING or (self.phase is Phase.COMMITTING and others):
            # Nothing that only they hold is needed any more, and nobody else may write now.
            self._kill(ranks, silent)
            self._lose(ranks, reason, now_s)
            return
        self.members.suspects.update(ranks)
        if self.phase in (Phase.NORMAL, Phase.PAUSING):
            self._settle(reason, now_s)
        elif self.phase is Phase.COLLECTING:
            self._go_on_if_answered(now_s)
        elif self.phase is Phase.SAVING:
            self._plan_again_without(ranks, reason, now_s)

    def _plan_again_without(self, ranks: Sequence[int], reason: str, now_s: float) -> None:
        if any(self._round.still_needs(rank) for rank in ranks):
            self._actions.append(Log(f"{reason} during the save: planning again"))
            self._collect(now_s)

    def _kill(self, ranks: Sequence[int], reason: str) -> None:
        self._actions += [Kill(rank, reason) for rank in ranks]

    def _begin(self, reason: str, now_s: float) -> None:
        if not self.reason:
            self.reason, self._fault_s = reason, now_s

    def _settle(self, reason: str, now_s: float) -> None:
        if self.phase is Phase.PAUSING:
            self._actions.append(Log(f"{reason}: all ranks are stopped where they are"))
        self._begin(reason, now_s)
        self.phase = Phase.SETTLING
        self._until_s = now_s + self._limits.settle_s

    def _deadline_passed(self, now_s: float) -> None:
        self._until_s = None
        if self.phase is Phase.GATHERING:
            self._take_over(now_s)
        elif self.phase is Phase.PAUSING:
            self._pause_is_late(now_s)
        elif self.phase is Phase.SETTLING:
            self._collect(now_s)
        elif self.phase in (Phase.COLLECTING, Phase.CLEARING):
            self._overdue = True
            self._go_on_if_answered(now_s)
            missing = self._round.missing(self.living)
            if self.phase is Phase.COLLECTING and missing:
                names = ", ".join(map(str, missing))
                left_s = self._limits.overall_s - (now_s - self._fault_s)
                self._actions.append(
                    Log(f"rank {names} holds what no other rank has: waiting up to {left_s:.0f} s")
                )

    def _pause_is_late(self, now_s: float) -> None:
        """Ranks that still make steps are given time: these take longer than when it was set."""
        steps_made = sum(self.steps.values())
        is_early = now_s - self._fault_s < self._limits.overall_s / 2
        if steps_made > self._round.steps_made and is_early:
            self._round.steps_made = steps_made
            self._until_s = now_s + self._limits.state_s + self.members.step_s
        else:
            self._settle("not all ranks paused in time", now_s)

    def _time_is_up(self, now_s: float) -> None:
        overall = f"{self._limits.overall_s:g} s after the fault"
        if self.phase is Phase.COLLECTING:
            missing = self._round.missing(self.living)
            self._kill(missing, f"had not answered {overall}")
            self.members.lose(missing)
            self._make_plan(now_s)
        if self.phase is not Phase.OVER:
            silent = [rank for rank in sorted(self.members.suspects) if self._waits_for(rank)]
            names = ", ".join(f"rank {rank} is gone" for rank in silent)
            who = f": {names}" if names else ""
            self._over(EXIT_SAVE_FAILED, f"not done {overall}{who}", now_s)

    def _waits_for(self, rank: int) -> bool:
        commits = self.phase is Phase.COMMITTING and rank == self._round.committer
        return commits or self._round.still_needs(rank)

    def _take_over(self, now_s: float) -> None:
        enough = self.members.is_majority and self.members.holds_everything
        if not enough and now_s - self._fault_s < self._limits.majority_s:
            # On a busy machine some are late; refused too early, a step is lost for good.
            self._until_s = now_s + _LOOK_S
            return
        self.members.lose(self.members.absent)
        world_size = self.members.world_size
        if not self.members.is_majority:
            sentence = (
                f"only {len(self.living)} of {world_size} ranks reached the backup controller,"
                " which needs a majority to decide"
            )
            self._end(EXIT_REFUSED, sentence, now_s)
        else:
            self._collect(now_s)

    def _collect(self, now_s: float) -> None:
        self.phase = Phase.COLLECTING
        self._start_round(now_s)

    def _start_round(self, now_s: float) -> None:
        """Have every rank stop what it does, and say what it has."""
        self._round, self._overdue = SaveRound(self.epoch + 1), False
        self._until_s = now_s + self._limits.state_s + self.members.step_s
        dead = tuple(sorted(self.dead))
        self._send(self.living, FaultNotice(self.epoch, dead, self.reason))
        self._go_on_if_answered(now_s)

    def _go_on_if_answered(self, now_s: float) -> None:
        """Make the plan once all have answered, or those that have not can be done without."""
        missing = self._round.missing(self.living)
        if missing:
            if not self._overdue and not self.members.suspects.issuperset(missing):
                return
            needed = self.phase is not Phase.CLEARING and not self._round.can_do_without(
                missing, self.members.maps
            )
            if needed:
                return
            self._kill(missing, "did not answer in time")
            self.members.lose(missing)
        self._until_s = None
        if self.phase is Phase.CLEARING:
            self._over(*self._verdict, now_s)
        else:
            self._make_plan(now_s)

    def _make_plan(self, now_s: float) -> None:
        plan = self._round.make_plan(self.members.maps, self.members.suspects)
        if isinstance(plan, Refusal):
            self._end(EXIT_REFUSED, plan.sentence, now_s)
            return
        self.phase = Phase.SAVING
        self._send(plan.ranks, Save(self.epoch, plan))

    def _commit(self, now_s: float) -> None:
        assert self._round.plan is not None
        committer = self._round.choose_committer(self.living, self.members.suspects)
        if committer is None:
            self._end(EXIT_SAVE_FAILED, "all ranks are gone before the commit", now_s)
            return
        self._send((committer,), Commit(self.epoch, self._round.plan.step, self._round.files))

    def _save_failed(self, message: SaveFailed, now_s: float) -> None:
        if self.phase not in (Phase.SAVING, Phase.COMMITTING):
            return
        sentence = f"rank {message.rank}: {message.sentence}"
        if message.peer and self.epoch <= self.members.world_size + 2:
            # A rank that went away is missed at the latest when states are collected.
            self._actions.append(Log(f"{sentence}: planning again"))
            self._collect(now_s)
        else:
            self._end(EXIT_REFUSED if message.refused else EXIT_SAVE_FAILED, sentence, now_s)

    def _end(self, code: int, sentence: str, now_s: float) -> None:
        if self.phase not in (Phase.SAVING, Phase.COMMITTING):
            self._over(code, sentence, now_s)
            return
        # A rank that still writes would make the folder again that another one removes.
        self.phase, self._verdict = Phase.CLEARING, (code, sentence)
        self._start_round(now_s)

    def _over(
        self, code: int, sentence: str, now_s: float, step: int = -1, folder: str = ""
    ) -> None:
        if code != EXIT_SAVED and self.living and not self._round.missing(self.living):
            # All are parked: nobody goes on with what an emergency or a periodic save has begun.
            self._send((self.living[0],), Discard(self.epoch))
        self.phase, self._until_s = Phase.OVER, None
        dead = tuple(sorted(self.dead))
        taken_s = now_s - self._fault_s
        outcome = SaveOutcome(code, sentence, step, folder, self.reason, dead, self.epoch, taken_s)
        self._end_of_all = Exit(code, sentence)
        self._send(self.living, self._end_of_all)
        self._actions.append(Over(outcome))

    def _send(self, ranks: Sequence[int], message: Message) -> None:
        if ranks:
            self._actions.append(Send(tuple(ranks), message))

    def _take(self) -> Sequence[Action]:
        taken, self._actions = self._actions, []
        return taken
