"""Which step launchers persist: the newest that all ranks have whole, unless disk has it (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from relkit.launch.flash_checkpoint.node_slots import NodeOffer
from relkit.ranks import RankSet


class Verdict(str, Enum):
    """What is done about a job's slots."""

    PERSIST = "persist"
    ON_DISK = "on disk already"
    BY_TTP = "saved by try-to-persist"
    NOTHING = "nothing to persist"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class SavedStep:
    """A step that is on disk.

    Args:
        step: of the training loop; where: file or folder.
        saved_unix_ns: when its state was saved, Unix time; 0 where not known.
    """

    step: int
    where: str
    saved_unix_ns: int = 0


@dataclass(frozen=True, slots=True)
class PersistPlan:
    """What is to be done, and why.

    Args:
        step: to persist, or that is on disk; -1 where there is none.
        saved_unix_ns: when rank 0 saved it into memory.
        where: the step is on disk already; "" where it is to be written.
        reason: why this step and no other.
    """

    verdict: Verdict
    step: int
    saved_unix_ns: int
    where: str
    reason: str


def plan(
    offers: Sequence[NodeOffer],
    world_size: int,
    *,
    on_disk: SavedStep | None,
    by_ttp: SavedStep | None,
    damaged: Mapping[int, str],
) -> PersistPlan:
    """Decide.

    Args:
        offers: of all nodes.
        world_size: ranks of the job.
        on_disk: the newest checkpoint on disk; by_ttp: what try-to-persist has saved now.
        damaged: steps that cannot be used, and why.
    """
    by_rank = {rank: steps for offer in offers for rank, steps in offer.steps.items()}
    common = set.intersection(*(set(by_rank.get(rank, ())) for rank in range(world_size)))
    step = max(common - set(damaged), default=-1)
    if by_ttp is not None and by_ttp.step >= step:
        reason = f"try-to-persist has saved it{_memory_has(step, by_ttp.step)}"
        return PersistPlan(Verdict.BY_TTP, by_ttp.step, 0, by_ttp.where, reason)
    if step < 0:
        return PersistPlan(Verdict.NOTHING, -1, 0, "", _why_none(by_rank, world_size, damaged))
    saved_unix_ns = by_rank[0][step]
    if on_disk is not None and on_disk.saved_unix_ns >= saved_unix_ns:
        reason = f"it was on disk already{_memory_has(step, on_disk.step)}"
        return PersistPlan(
            Verdict.ON_DISK, on_disk.step, on_disk.saved_unix_ns, on_disk.where, reason
        )
    reason = _why(step, by_rank, world_size, damaged)
    return PersistPlan(Verdict.PERSIST, step, saved_unix_ns, "", reason)


def _memory_has(step: int, other: int) -> str:
    if step < 0:
        return ", and memory has no step that all ranks have"
    return "" if step == other else f"; the newest in memory is step {step}"


def _why(
    step: int,
    by_rank: Mapping[int, Collection[int]],
    world_size: int,
    damaged: Mapping[int, str],
) -> str:
    newer = {rank: newest for rank in range(world_size) if (newest := max(by_rank[rank])) > step}
    told = [f"step {number} is not used: {why}" for number, why in sorted(damaged.items())]
    if newer and not told:
        highest = max(newer.values())
        without = [rank for rank in range(world_size) if highest not in by_rank[rank]]
        told.append(f"step {highest} is not whole on {_ranks(without)}")
    ranks = "the only rank has" if world_size == 1 else f"all {world_size} ranks have"
    return "; ".join((f"the newest that {ranks} whole", *told))


def _why_none(
    by_rank: Mapping[int, Collection[int]], world_size: int, damaged: Mapping[int, str]
) -> str:
    if damaged:
        return "; ".join(f"step {step}: {why}" for step, why in sorted(damaged.items()))
    without = [rank for rank in range(world_size) if not by_rank.get(rank)]
    if without:
        return f"{_ranks(without)} {'has' if len(without) == 1 else 'have'} none whole in memory"
    ends = {rank: max(by_rank[rank]) for rank in range(world_size)}
    first, last = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    return (
        f"no step is whole on all {world_size} ranks (the newest of rank {first} is {ends[first]},"
        f" of rank {last} {ends[last]})"
    )


def _ranks(numbers: Collection[int]) -> str:
    return (
        f"rank {RankSet.of(numbers).fold()}"
        if len(numbers) == 1
        else (f"ranks {RankSet.of(numbers).fold()}")
    )
