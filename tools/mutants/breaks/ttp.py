"""Breaks of try-to-persist: what is saved after a fault, by whom, and when nothing is."""

from __future__ import annotations

from tools.mutants.model import Break

_MATRIX = ("tests/ttp/test_trainer_faults.py::test_a_sample_of_the_matrix",)
_PLAN = ("tests/ttp/test_plan.py",)
_REPLICAS = ("tests/ttp/test_replicas.py",)
_CONTROLLER = ("tests/ttp/test_controller.py", "tests/ttp/test_silent_ranks.py")
_STATE = ("tests/ttp/test_rank_state.py",)
_COMMIT = ("tests/ttp/test_commit.py",)
_TRACKER = (
    "tests/ttp/test_persist.py::test_a_job_knows_what_it_has_saved_from_what_was_there_before",
)
_KEPT = ("tests/ttp/test_persist.py::test_the_kept_copy_is_the_step_before",)

BREAKS = (
    Break(
        "relkit/ttp/api.py",
        'warnings.warn(f"{__name__}.{name} is now {new}", DeprecationWarning, stacklevel=2)',
        "pass",
        ("tests/ttp/test_api.py::test_old_names_are_the_new_ones_and_say_so_once",),
    ),
    Break(
        "relkit/ttp/controller.py",
        "                self._send((rank,), self._end_of_all)\n",
        "                pass\n",
        ("tests/ttp/test_controller.py",),
    ),
    # Every fault is refused.
    Break("relkit/ttp/plan.py", "    if not survivors:\n", "    if True:\n", _MATRIX),
    # A shard that has lost one of its two holders is given up.
    Break(
        "relkit/ttp/plan.py",
        "        if not living:\n",
        "        if len(living) < len(held_by):\n",
        _MATRIX,
    ),
    # Never rolls forward.
    Break(
        "relkit/ttp/plan.py",
        "            or (self.step + 1 == step and self.ready)\n",
        "",
        _MATRIX,
    ),
    # All go back to the slowest.
    Break(
        "relkit/ttp/plan.py",
        "    newest = max(survivor.step for survivor in survivors)\n",
        "    newest = min(survivor.step for survivor in survivors)\n",
        _MATRIX,
    ),
    Break(
        "relkit/ttp/plan.py", "self.step + 1 == step and self.ready", "self.step + 1 == step", _PLAN
    ),
    Break(
        "relkit/ttp/plan.py",
        "            or (self.step == step + 1 and self.previous)\n",
        "",
        _PLAN,
    ),
    Break(
        "relkit/ttp/plan.py", "        if not self.usable:\n            return False\n", "", _PLAN
    ),
    Break("relkit/ttp/plan.py", "    if step < 1:\n", "    if step < 0:\n", _PLAN),
    Break("relkit/ttp/plan.py", "    if step < 1:\n", "    if step < 2:\n", _PLAN),
    Break("relkit/ttp/plan.py", "        steps.append(newest - 1)\n", "        pass\n", _PLAN),
    Break(
        "relkit/ttp/plan.py",
        "(rank for rank in taking_part if survivors[rank].step < step)",
        "(rank for rank in taking_part if survivors[rank].step > step)",
        _PLAN,
    ),
    Break(
        "relkit/ttp/plan.py",
        "next((rank for rank in living if rank in chosen), living[0])",
        "living[0]",
        _PLAN,
    ),
    Break(
        "relkit/ttp/plan.py",
        "        living = [rank for rank in held_by if rank in able]\n",
        "        living = list(held_by)\n",
        _PLAN,
    ),
    Break(
        "relkit/ttp/replicas.py",
        "    if not 1 <= copies <= size:\n",
        "    if not 0 <= copies <= size + 1:\n",
        _REPLICAS,
    ),
    # A shard's second holder is its reducer once more.
    Break(
        "relkit/ttp/replicas.py",
        "tuple(ring[(place + k) % size] for k in range(copies))",
        "tuple(ring[place] for k in range(copies))",
        _REPLICAS,
    ),
    # Neighbours, not far apart in the machine.
    Break(
        "relkit/ttp/replicas.py",
        "tuple(ranks[first + k * step] for k in range(copies)) for first in range(step)",
        "tuple(ranks[first * copies + k] for k in range(copies)) for first in range(step)",
        _REPLICAS,
    ),
    Break("relkit/ttp/replicas.py", "(-len(by_host[host]), order[host])", "order[host]", _REPLICAS),
    Break("relkit/ttp/replicas.py", "rank in held_by}) < 2:", "rank in held_by}) < 1:", _REPLICAS),
    Break(
        "relkit/ttp/replicas.py",
        "    return 8.0 + 8.0 * copies / data_parallel\n",
        "    return 8.0 + 8.0 / data_parallel\n",
        _REPLICAS,
    ),
    Break(
        "relkit/ttp/membership.py",
        "        return 2 * len(self.living) > self.world_size\n",
        "        return 2 * len(self.living) >= self.world_size\n",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/membership.py",
        "len(covered) == self.world_size and all(",
        "all(",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/membership.py",
        "        self._heard_s[rank] = now_s\n        self.suspects",
        "        self.suspects",
        _CONTROLLER,
    ),
    # A rank that was lost is planned with.
    Break(
        "relkit/ttp/membership.py",
        "return tuple(sorted(self._heard_s.keys() - self.dead))",
        "return tuple(sorted(self._heard_s.keys()))",
        _CONTROLLER,
    ),
    # Not after the last death of one cause, but at the first.
    Break(
        "relkit/ttp/controller.py",
        "        self._until_s = now_s + self._limits.settle_s\n",
        "        self._until_s = now_s\n",
        _CONTROLLER,
    ),
    # Who has fallen silent is relied on, or is ended though it is the last one.
    Break(
        "relkit/ttp/save_round.py",
        "if isinstance(others, SavePlan) and not _is_newer(plan, others):",
        "if False:",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/save_round.py",
        "return isinstance(plan, SavePlan) and plan.step > other.step",
        "return False",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/save_round.py",
        "[rank for rank in living if rank not in silent] or living",
        "list(living)",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/controller.py",
        "(self.phase is Phase.COMMITTING and others)",
        "self.phase is Phase.COMMITTING",
        _CONTROLLER,
    ),
    # A preemption: ranks whose steps have become slow are stopped in the middle of one; or never.
    Break(
        "relkit/ttp/controller.py",
        "if steps_made > self._round.steps_made and is_early:",
        "if False:",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/controller.py",
        "if steps_made > self._round.steps_made and is_early:",
        "if is_early:",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/controller.py",
        "if steps_made > self._round.steps_made and is_early:",
        "if steps_made > self._round.steps_made:",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/controller.py",
        'self._actions.append(Log(f"{reason}: all ranks are stopped where they are"))',
        "pass",
        _CONTROLLER,
    ),
    # A last holder is given up after seconds.
    Break(
        "relkit/ttp/controller.py",
        "            if needed:\n                return\n",
        "",
        _CONTROLLER,
    ),
    # Answers to an old plan count.
    Break(
        "relkit/ttp/controller.py",
        "            isinstance(message, State | Saved | SaveFailed | Committed)\n"
        "            and message.epoch == self.epoch\n",
        "            isinstance(message, State | Saved | SaveFailed | Committed)\n",
        _CONTROLLER,
    ),
    # A death while survivors write is not noticed.
    Break(
        "relkit/ttp/controller.py",
        "            self._plan_again_without(new, reason, now_s)\n",
        "            pass\n",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/controller.py",
        "        elif self.phase is Phase.COMMITTING and self._round.committer in new:\n"
        "            self._commit(now_s)\n",
        "",
        _CONTROLLER,
    ),
    # A silent rank may wake up, and write, after the save has begun without it.
    Break(
        "relkit/ttp/controller.py",
        '            self._kill(missing, "did not answer in time")\n',
        "",
        _CONTROLLER,
    ),
    # The tracker is pointed at a step before all of it is on the disk.
    Break(
        "relkit/ttp/save_round.py",
        "set(self.plan.ranks) <= self._saved.keys()",
        "bool(self._saved)",
        _CONTROLLER,
    ),
    # Two faults of a job that may never end.
    Break(
        "relkit/ttp/controller.py",
        "        if message.peer and self.epoch <= self.members.world_size + 2:\n",
        "        if message.peer:\n",
        _CONTROLLER,
    ),
    Break(
        "relkit/ttp/controller.py",
        "            self._send((self.living[0],), Discard(self.epoch))\n",
        "            pass\n",
        _CONTROLLER,
    ),
    # The others go on with a step that one of them has paused before.
    Break(
        "relkit/ttp/controller.py",
        "            at_step = max(self.steps.values()) + margin\n",
        "            at_step = min(self.steps.values())\n",
        _CONTROLLER,
    ),
    # An update that was left in its middle is trusted.
    Break(
        "relkit/ttp/rank_state.py",
        "        if self.progress.updating:\n            name",
        "        if False:\n            name",
        _STATE,
    ),
    # The gate in front of the update is open while there is a fault.
    Break(
        "relkit/ttp/rank_state.py",
        "        self._leave_if_asked()\n"
        "        self.progress = replace("
        'self.progress, phase="update"',
        '        self.progress = replace(self.progress, phase="update"',
        _STATE,
    ),
    Break(
        "relkit/ttp/rank_state.py",
        "self.progress.step >= self.pause_at",
        "self.progress.step > self.pause_at",
        _STATE,
    ),
    Break(
        "relkit/ttp/rank_state.py",
        "        return not self.progress.updating and self.commands.replace_thread()\n",
        "        return self.commands.replace_thread()\n",
        _STATE,
    ),
    # A rank is idle while it writes.
    Break(
        "relkit/ttp/command_queue.py",
        "        if self._parked and not self._pending:\n",
        "        if self._parked:\n",
        _STATE,
    ),
    # A rank's whole save lies in place before the plan's manifest says so: done once more.
    Break(
        "relkit/ttp/emergency_save.py",
        "    return sorted(written, key=_name) == sorted(records, key=_name)\n",
        "    return True\n",
        _COMMIT,
    ),
    # Before the first save the tracker of an older job counts as this job's.
    Break(
        "relkit/trainer/checkpointing/persist.py",
        'note.read_text(encoding="utf-8") != now',
        "True",
        _TRACKER,
    ),
    Break(
        "relkit/trainer/checkpointing/persist.py",
        "        trainer.optimizer.steps, trainer.progress = kept.steps, kept.progress\n",
        "        trainer.progress = kept.progress\n",
        _KEPT,
    ),
    # A copy of the moments that is not the same.
    Break(
        "relkit/trainer/checkpointing/persist.py",
        "        if self._kept is None:\n",
        "        if self._kept is not None:\n            return\n        if self._kept is None:\n",
        _KEPT,
    ),
)
