"""The state machine that leads survivors from a fault to a saved step; without clock or sockets.

    gathering -> normal -> settling (a fault; others may follow) -> collecting -> saving
                   \\-> pausing (asked to stop) --/      ^______________| (a death: plan again)
                                                                 committing -> over
    saving or committing fails -> clearing (everybody puts the pen down) -> over
    all have finished training -> finished

What happened goes in by `told`, `lost`, `hung`, `stop` and `tick`; what is to be done comes out as
actions. One epoch is one plan: answers to an older one are not heard.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from relkit.ttp.actions import Action, Kill, Limits, Log, Over, Phase, Send
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
from relkit.ttp.plan import Refusal, SavePlan, Survivor, make_plan
from relkit.ttp.replicas import ReplicaMap
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVE_FAILED, EXIT_SAVED, SaveOutcome


class Controller:
    """Leads one attempt of a job.

    Args:
        world_size: ranks of the job.
        limits: deadlines.
        backup: it takes over from a controller that is gone: whoever has not come to it in time
            is dead, and less than half of the ranks may not decide anything.
    """

    def __init__(
        self, world_size: int, limits: Limits | None = None, *, backup: bool = False
    ) -> None:
        self.phase = Phase.GATHERING
        self.epoch = 0
        self.dead: set[int] = set()
        self.done: set[int] = set()
        self.reason = ""
        self.world_size = world_size
        self._limits = limits or Limits()
        self._backup = backup
        self._maps: dict[str, ReplicaMap] = {}
        self._steps: dict[int, int] = {}
        self._step_s = 0.0
        self._seen_s: dict[int, float] = {}
        self._states: dict[int, Survivor] = {}
        self._plan: SavePlan | None = None
        self._saved: dict[int, dict[str, tuple[str, int]]] = {}
        self._committer = -1
        self._fault_s = 0.0
        self._until_s: float | None = None
        self._verdict = (EXIT_SAVE_FAILED, "")
        self._actions: list[Action] = []

    @property
    def living(self) -> tuple[int, ...]:
        """Ranks that have registered and were not lost; also those that wait for the last one."""
        return tuple(sorted(self._seen_s.keys() - self.dead))

    @property
    def steps(self) -> Mapping[int, int]:
        """The committed step of each rank, as last heard."""
        return self._steps

    @property
    def busy(self) -> bool:
        """A fault, or a request to stop, is being led to its end, or has been."""
        return self.phase not in (Phase.GATHERING, Phase.NORMAL, Phase.FINISHED)

    def told(self, message: Message, now_s: float) -> Sequence[Action]:
        """A rank said something."""
        rank = getattr(message, "rank", -1)
        if isinstance(message, Stop):
            return self.stop(message.reason, now_s)
        if self.phase is Phase.OVER or rank in self.dead:
            return ()
        if isinstance(message, Hello):
            self._registered(message, now_s)
        elif self.phase is Phase.FINISHED:
            return ()
        elif rank in self._seen_s:
            self._seen_s[rank] = now_s
            self._heard(message, now_s)
        return self._take()

    def lost(self, rank: int, reason: str, now_s: float) -> Sequence[Action]:
        """A rank's process ended, or its link did."""
        if self.phase not in (Phase.OVER, Phase.FINISHED):
            self._lose((rank,), reason, now_s)
        return self._take()

    def hung(self, reason: str, now_s: float) -> Sequence[Action]:
        """The monitor is sure that the job hangs.

        Nobody is dead for that: a rank that can be freed is as good a holder as any, whoever is
        to blame, and one that cannot will not tell its state in time.
        """
        if self.phase in (Phase.NORMAL, Phase.PAUSING):
            self._settle(reason, now_s)
        elif self.phase is Phase.GATHERING and self._seen_s and not self._backup:
            self._begin(reason, now_s)
            self._end(EXIT_REFUSED, f"{reason}; not every rank had begun", now_s)
        return self._take()

    def stop(self, reason: str, now_s: float) -> Sequence[Action]:
        """Somebody asks for the job to be saved and ended, at the end of a step."""
        if self.phase is Phase.NORMAL and self.living:
            self._begin(reason, now_s)
            self.phase = Phase.PAUSING
            self.epoch += 1
            self._states = {}
            # A rank may run on by some steps until it hears of this; then nobody would meet.
            margin = 2 + int(0.5 / max(self._step_s, 0.005))
            at_step = max(self._steps.values()) + margin
            self._until_s = now_s + self._limits.state_s + (margin + 1) * self._step_s
            self._send(self.living, Pause(self.epoch, at_step, reason))
        elif self.phase is Phase.GATHERING and not self._backup:
            self._begin(reason, now_s)
            self._end(EXIT_REFUSED, f"{reason}; not every rank had begun, nothing to save", now_s)
        return self._take()

    def tick(self, now_s: float, excused: Collection[int] = ()) -> Sequence[Action]:
        """Time has passed; to be called after everything that has arrived was told.

        Args:
            excused: ranks whose silence means nothing: their process is seen to work, it only
                holds the interpreter lock for long.
        """
        if self.phase in (Phase.OVER, Phase.FINISHED):
            return ()
        if self.phase is not Phase.GATHERING:
            silent_s = self._limits.heartbeat_s * self._limits.missed_heartbeats
            silent = [rank for rank in self.silent(now_s) if rank not in excused]
            if silent:
                for rank in silent:
                    self._actions.append(Kill(rank, f"silent for {silent_s:g} s"))
                self._lose(silent, f"rank {silent[0]} was silent for {silent_s:g} s", now_s)
        if self._late(now_s):
            sentence = f"not done {self._limits.overall_s:g} s after the fault"
            self._over(EXIT_SAVE_FAILED, sentence, now_s)
        elif self._until_s is not None and now_s >= self._until_s:
            self._ran_out(now_s)
        return self._take()

    def silent(self, now_s: float) -> tuple[int, ...]:
        """Ranks that have missed their heartbeats."""
        silent_s = self._limits.heartbeat_s * self._limits.missed_heartbeats
        return tuple(rank for rank in self.living if now_s - self._seen_s[rank] > silent_s)

    def _late(self, now_s: float) -> bool:
        return self.busy and now_s - self._fault_s > self._limits.overall_s

    def wait_s(self, now_s: float) -> float:
        """How long there is nothing to do if nothing arrives, seconds."""
        longest = self._limits.heartbeat_s
        if self._until_s is None:
            return longest
        return min(longest, max(0.0, self._until_s - now_s))

    def _registered(self, hello: Hello, now_s: float) -> None:
        if self.phase is Phase.FINISHED:
            # A program may train twice.
            self.phase, self._seen_s, self._maps = Phase.GATHERING, {}, {}
            self.done.clear()
        self.done.discard(hello.rank)
        self._seen_s[hello.rank] = now_s
        self._steps[hello.rank] = hello.step
        # Orders of a controller that is gone must not pass for ours.
        self.epoch = max(self.epoch, hello.epoch)
        for each in hello.maps:
            self._maps.setdefault(each.name, each)
        if self.phase is not Phase.GATHERING:
            return
        if self._backup:
            if self._until_s is None:
                self._begin("the controller is gone", now_s)
                self._until_s = now_s + self._limits.takeover_s
            if len(self._seen_s) == self.world_size:
                self._until_s = now_s
        elif self.dead:
            self._end(EXIT_REFUSED, f"{self.reason}; not every rank had begun", now_s)
        elif len(self._seen_s) == self.world_size:
            self.phase = Phase.NORMAL
            self._finish()

    def _finish(self) -> None:
        """Let ranks go that have finished training, once all have."""
        if self.phase in (Phase.NORMAL, Phase.PAUSING) and set(self.living) <= self.done:
            self._send(self.living, Finished())
            self.phase, self._until_s, self.reason = Phase.FINISHED, None, ""

    def _heard(self, message: Message, now_s: float) -> None:
        if isinstance(message, Heartbeat):
            self._steps[message.rank] = message.step
            self._step_s = max(message.step_s, 0.9 * self._step_s)
        elif isinstance(message, Raised):
            if self.phase in (Phase.NORMAL, Phase.PAUSING):
                self._settle(f"rank {message.rank} raised {message.sentence}", now_s)
        elif isinstance(message, Done):
            self.done.add(message.rank)
            self._finish()
        elif isinstance(message, Note):
            if message.epoch == self.epoch and self.phase is Phase.SAVING and self._plan:
                others = [rank for rank in self._plan.ranks if rank != message.rank]
                self._send(others, message)
        elif (
            isinstance(message, State | Saved | SaveFailed | Committed)
            and message.epoch == self.epoch
        ):
            self._answered(message, now_s)

    def _answered(self, message: State | Saved | SaveFailed | Committed, now_s: float) -> None:
        if isinstance(message, State):
            if self.phase in (Phase.COLLECTING, Phase.PAUSING, Phase.CLEARING):
                self._states[message.rank] = message.survivor
                self._collected(now_s)
        elif isinstance(message, Saved):
            if self.phase is Phase.SAVING:
                self._saved[message.rank] = dict(message.files)
                self._all_saved(now_s)
        elif isinstance(message, SaveFailed):
            self._save_failed(message, now_s)
        elif self.phase is Phase.COMMITTING and self._plan is not None:
            step = self._plan.step
            self._over(EXIT_SAVED, f"step {step} was saved", now_s, step, message.folder)

    def _lose(self, ranks: Sequence[int], reason: str, now_s: float) -> None:
        new = [rank for rank in ranks if rank not in self.dead]
        if not new:
            return
        self.dead.update(new)
        if self.phase is Phase.GATHERING:
            if not self._backup:
                self._begin(reason, now_s)
            # Nobody may be under try-to-persist at all: that is known when somebody registers.
            if not self._backup and self._seen_s:
                self._end(EXIT_REFUSED, f"{reason}; not every rank had begun", now_s)
        elif self.phase in (Phase.NORMAL, Phase.PAUSING):
            self._settle(reason, now_s)
        elif self.phase in (Phase.COLLECTING, Phase.CLEARING):
            for rank in new:
                self._states.pop(rank, None)
            self._collected(now_s)
        elif self.phase is Phase.SAVING and self._plan is not None:
            # A rank that has done its part is not needed any more: its file is on the disk.
            if any(r in self._plan.ranks and r not in self._saved for r in new):
                self._actions.append(Log(f"{reason} during the save: planning again"))
                self._collect(now_s)
        elif self.phase is Phase.COMMITTING and self._committer in new:
            self._commit(now_s)

    def _begin(self, reason: str, now_s: float) -> None:
        if not self.reason:
            self.reason, self._fault_s = reason, now_s

    def _settle(self, reason: str, now_s: float) -> None:
        self._begin(reason, now_s)
        self.phase = Phase.SETTLING
        self._until_s = now_s + self._limits.settle_s

    def _ran_out(self, now_s: float) -> None:
        self._until_s = None
        if self.phase is Phase.GATHERING:
            self._take_over(now_s)
        elif self.phase in (Phase.SETTLING, Phase.PAUSING):
            self._collect(now_s)
        elif self.phase in (Phase.COLLECTING, Phase.CLEARING):
            missing = [rank for rank in self.living if rank not in self._states]
            for rank in missing:
                self._actions.append(Kill(rank, "did not tell its state in time"))
            self.dead.update(missing)
            self._collected(now_s)

    def _take_over(self, now_s: float) -> None:
        self.dead.update(set(range(self.world_size)) - self._seen_s.keys())
        if 2 * len(self.living) <= self.world_size:
            sentence = (
                f"only {len(self.living)} of {self.world_size} ranks found the backup controller:"
                " less than a majority must not decide"
            )
            self._end(EXIT_REFUSED, sentence, now_s)
        else:
            self._collect(now_s)

    def _collect(self, now_s: float) -> None:
        self.phase = Phase.COLLECTING
        self._free(now_s)

    def _free(self, now_s: float) -> None:
        """Have everybody put down what it does, and say what it has."""
        self.epoch += 1
        self._states = {}
        self._until_s = now_s + self._limits.state_s + self._step_s
        dead = tuple(sorted(self.dead))
        self._send(self.living, FaultNotice(self.epoch, dead, self.reason))
        self._collected(now_s)

    def _collected(self, now_s: float) -> None:
        if set(self.living) - self._states.keys():
            return
        self._until_s = None
        if self.phase is Phase.CLEARING:
            self._over(*self._verdict, now_s)
            return
        plan = make_plan(list(self._states.values()), list(self._maps.values()))
        if isinstance(plan, Refusal):
            self._end(EXIT_REFUSED, plan.sentence, now_s)
            return
        self.phase, self._plan, self._saved = Phase.SAVING, plan, {}
        self._send(plan.ranks, Save(self.epoch, plan))

    def _all_saved(self, now_s: float) -> None:
        assert self._plan is not None
        if not set(self._plan.ranks) <= self._saved.keys():
            return
        self.phase = Phase.COMMITTING
        self._commit(now_s)

    def _commit(self, now_s: float) -> None:
        assert self._plan is not None
        writers = [group.writer for group in self._plan.groups if group.writer in self.living]
        able = writers or list(self.living)
        if not able:
            self._end(
                EXIT_SAVE_FAILED,
                "all ranks are gone before the commit",
                now_s,
            )
            return
        self._committer = able[0]
        files = {name: what for part in self._saved.values() for name, what in part.items()}
        self._send((able[0],), Commit(self.epoch, self._plan.step, files))

    def _save_failed(self, message: SaveFailed, now_s: float) -> None:
        if self.phase not in (Phase.SAVING, Phase.COMMITTING):
            return
        sentence = f"rank {message.rank}: {message.sentence}"
        if message.peer and self.epoch <= self.world_size + 2:
            # Whoever went away will be missed at the latest when states are collected.
            self._actions.append(Log(f"{sentence}: planning again"))
            self._collect(now_s)
        else:
            self._end(EXIT_REFUSED if message.refused else EXIT_SAVE_FAILED, sentence, now_s)

    def _end(self, code: int, sentence: str, now_s: float) -> None:
        if self.phase not in (Phase.SAVING, Phase.COMMITTING):
            self._over(code, sentence, now_s)
            return
        # Who still writes would make the folder anew that another one removes.
        self.phase, self._verdict = Phase.CLEARING, (code, sentence)
        self._free(now_s)

    def _over(
        self, code: int, sentence: str, now_s: float, step: int = -1, folder: str = ""
    ) -> None:
        if code != EXIT_SAVED and self.living and not set(self.living) - self._states.keys():
            # All are parked: what an emergency or a periodic save has begun is nobody's any more.
            self._send((self.living[0],), Discard(self.epoch))
        self.phase, self._until_s = Phase.OVER, None
        dead = tuple(sorted(self.dead))
        taken_s = now_s - self._fault_s
        outcome = SaveOutcome(code, sentence, step, folder, self.reason, dead, self.epoch, taken_s)
        self._send(self.living, Exit(code, sentence))
        self._actions.append(Over(outcome))

    def _send(self, ranks: Sequence[int], message: Message) -> None:
        if ranks:
            self._actions.append(Send(tuple(ranks), message))

    def _take(self) -> Sequence[Action]:
        taken, self._actions = self._actions, []
        return taken
