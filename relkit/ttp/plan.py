"""The commit rule: which step can be saved after a fault, by whom, and when it must be refused.

All state after k optimizer steps is "step k". A world barrier stands between the last reduction
of a step and its update, so survivors are at most one step apart, and whoever is one behind has
all of its gradients: it can still make the step by itself ("roll forward"). That is not a rare
case: a barrier is not atomic under a death, and the one left behind is often the only living
holder of the dead rank's shard.

With a local copy (no barrier) each rank keeps the shard of the step before, and the rule may also
go back to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relkit.ttp.replicas import ReplicaMap


@dataclass(frozen=True, slots=True)
class Survivor:
    """What a living rank can still give.

    Args:
        rank: global rank.
        step: the step it has committed.
        ready: it has all reduced gradients of the next step, and can make it alone.
        previous: it has kept the state of the step before as well.
        usable: False where its data cannot be trusted (an exception inside the update).
        reason: why it is not usable.
    """

    rank: int
    step: int
    ready: bool = False
    previous: bool = False
    usable: bool = True
    reason: str = ""

    def can_give(self, step: int) -> bool:
        """Whether this rank can have the state of `step` in its hands."""
        if not self.usable:
            return False
        return (
            self.step == step
            or (self.step + 1 == step and self.ready)
            or (self.step == step + 1 and self.previous)
        )


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Who saves one data-parallel group.

    Args:
        group: its replica map's name.
        holders: for each shard the global rank that gives it.
        writer: the rank that gathers the shards and writes the file.
    """

    group: str
    holders: tuple[int, ...]
    writer: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """All who take part, each once."""
        return tuple(sorted({*self.holders, self.writer}))


@dataclass(frozen=True, slots=True)
class SavePlan:
    """What is saved, and by whom.

    Args:
        step: the step whose state is saved.
        roll_forward: ranks that make the step first; rollback: ranks that take their kept copy.
        groups: in the order of the replica maps.
    """

    step: int
    roll_forward: tuple[int, ...]
    rollback: tuple[int, ...]
    groups: tuple[GroupPlan, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """All who take part, each once."""
        return tuple(sorted({rank for group in self.groups for rank in group.ranks}))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing can be saved.

    Args:
        sentence: for the person at the terminal.
        group, shard: the one that nobody holds; "" and -1 where it is not about a shard.
    """

    sentence: str
    group: str = ""
    shard: int = -1


def make_plan(survivors: Sequence[Survivor], maps: Sequence[ReplicaMap]) -> SavePlan | Refusal:
    """Choose the newest step that survivors can save as a whole.

    Args:
        survivors: every rank that answered, each once.
        maps: of all data-parallel groups, expert groups included.
    """
    if not survivors:
        return Refusal("no rank is left that could save anything")
    by_rank = {survivor.rank: survivor for survivor in survivors}
    newest = max(survivor.step for survivor in survivors)
    steps = [newest]
    if any(s.previous for s in survivors):
        steps.append(newest - 1)
    first: Refusal | None = None
    for step in steps:
        outcome = _plan_for(step, by_rank, maps)
        if isinstance(outcome, SavePlan):
            return outcome
        first = first or outcome
    assert first is not None
    return first


def _plan_for(
    step: int, survivors: Mapping[int, Survivor], maps: Sequence[ReplicaMap]
) -> SavePlan | Refusal:
    if step < 1:
        return Refusal("no step has been committed yet, so there is nothing to save")
    able = {rank for rank, survivor in survivors.items() if survivor.can_give(step)}
    groups = []
    for group in maps:
        chosen = _choose(group, able)
        if isinstance(chosen, int):
            return Refusal(_nobody(group, chosen, step, survivors), group=group.name, shard=chosen)
        groups.append(GroupPlan(group.name, chosen, chosen[0]))
    taking_part = {rank for group in groups for rank in group.ranks}
    return SavePlan(
        step,
        tuple(sorted(rank for rank in taking_part if survivors[rank].step < step)),
        tuple(sorted(rank for rank in taking_part if survivors[rank].step > step)),
        tuple(groups),
    )


def _choose(group: ReplicaMap, able: set[int]) -> tuple[int, ...] | int:
    """A living holder for each shard, few in all; or the shard that has none."""
    chosen: list[int] = []
    for shard, held_by in enumerate(group.holders):
        living = [rank for rank in held_by if rank in able]
        if not living:
            return shard
        # One who is in already costs no further message; else the shard's own reducer.
        chosen.append(next((rank for rank in living if rank in chosen), living[0]))
    return tuple(chosen)


def _nobody(group: ReplicaMap, shard: int, step: int, survivors: Mapping[int, Survivor]) -> str:
    held_by = group.holders[shard]
    reasons = []
    for rank in held_by:
        survivor = survivors.get(rank)
        if survivor is None:
            reasons.append(f"rank {rank} is gone")
        elif not survivor.usable:
            reasons.append(
                f"rank {rank} cannot be trusted ({survivor.reason or 'no reason given'})"
            )
        else:
            reasons.append(f"rank {rank} is at step {survivor.step}")
    return f"shard {shard} of group {group.name} has no holder at step {step}: " + ", ".join(
        reasons
    )
