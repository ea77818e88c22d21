"""Which saved state all ranks of a job resume from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relkit.errors import BadInputFile, DeadlineExceeded
from relkit.flash_checkpoint.on_disk import saved_on_disk
from relkit.flash_checkpoint.on_disk.persisted import Persisted
from relkit.flash_checkpoint.on_disk.saved_on_disk import SavedOnDisk
from relkit.flash_checkpoint.rank_group import RankGroup
from relkit.flash_checkpoint.rank_memory import RankMemory
from relkit.flash_checkpoint.save_handle import WAIT_S, OwnSaves, Waited

_MAX_REASONS, _MAX_REASON = 5, 300
# Given the state of this rank in memory: why it cannot be used; "" if it can. All ranks call it.
Check = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Choice:
    """What is resumed from.

    Args:
        step: of the training loop; -1 where nothing was saved.
        state: of this rank, where it was in memory.
        saved: on disk; None where it was in memory, or nothing was saved.
        why_not_memory: reasons, to be told after what is used instead; and what newer step could
            not be saved.
        origin: "from memory", or from which replicas, where it was in memory; likewise.
    """

    step: int
    state: Any = None
    saved: SavedOnDisk | None = None
    why_not_memory: str = ""
    origin: str = "from memory"


def choose(
    ranks: RankGroup,
    memory: RankMemory,
    root: Path,
    own: OwnSaves,
    check: Check | None = None,
) -> Choice:
    """The newest state that all ranks have; in memory, all other slots are discarded.

    Every rank must call it. It waits until the saves of all ranks have ended: a step that a loop
    has saved is found by the next line of the loop.

    Args:
        root: folder of the checkpoints on disk.
        own: the saves of this process.
        check: looks at a state that all ranks have whole.

    Raises:
        BadInputFile: the tracker on disk is damaged, or what it names is not seen by all ranks.
        DeadlineExceeded: a save of a rank is still under way after half an hour.
        RelkitError: the ranks do not answer each other.
    """
    waited = _waited(ranks, own)
    on_disk = _on_disk(root) if ranks.rank == 0 else {"disk": -1}
    slots, refused = memory.slots()
    reasons = [
        reason if rank == 0 else f"rank {rank}: {reason}"
        for rank, its_reasons in enumerate(ranks.all_gather(refused))
        for reason in its_reasons
    ]
    if ranks.rank == 0 and (why := memory.why_no_replica):
        reasons.append(why)
    while True:
        offers = ranks.all_gather({"steps": sorted(slots), **on_disk})
        common = set.intersection(*(set(offer["steps"]) for offer in offers))
        step = max(common, default=-1)
        if step < 0 or step < offers[0]["disk"]:
            break
        state, why = memory.load(slots[step])
        refusals = ranks.all_gather(why)
        reasons += [f"rank {rank}: {reason}" for rank, reason in enumerate(refusals) if reason]
        if check is not None and not any(refusals):
            refusals = ranks.all_gather(check(state))
            # What all ranks say alike is said once.
            reasons += dict.fromkeys(filter(None, refusals))
        if not any(refusals):
            memory.adopt(slots[step].header.sequence)
            return Choice(step, state, origin=memory.origin_of(step) + _not_saved(waited, step))
        del slots[step]
    choice = _from_disk(memory, root, offers, reasons)
    why = choice.why_not_memory + _not_saved(waited, choice.step)
    return replace(choice, why_not_memory=why)


def _waited(ranks: RankGroup, own: OwnSaves) -> list[Waited]:
    """How the saves of all ranks ended.

    Raises:
        DeadlineExceeded, RelkitError: as of `choose`.
    """
    everyone = [Waited(*plain) for plain in ranks.meet(own.wait_end(WAIT_S).plain(), WAIT_S)]
    for rank, waited in enumerate(everyone):
        if waited.late:
            raise DeadlineExceeded(
                f"rank {rank}: {waited.late}",
                next_step="It goes on: load again later, or load a file or folder by its name.",
            )
    return everyone


def _not_saved(everyone: list[Waited], loaded: int) -> str:
    """What is said of a newer step than the one that is loaded, which could not be saved."""
    step = max(waited.step for waited in everyone)
    if step <= loaded:
        return ""
    # What several ranks say alike is said once.
    reasons = list(dict.fromkeys(waited.why for waited in everyone if waited.step == step))
    return f"; step {step} could not be saved: {'; '.join(reasons[:_MAX_REASONS])}"


def _on_disk(root: Path) -> dict[str, Any]:
    """The newest step on disk, -1 for none; its kind; and why it cannot be read."""
    try:
        saved = saved_on_disk.newest(root)
    except BadInputFile as error:
        return {"disk": -1, "is_persisted": False, "unreadable": str(error)}
    step = -1 if saved is None else saved.step
    return {
        "disk": step, "is_persisted": isinstance(saved, Persisted), "unreadable": ""
    }  # fmt: skip


def other_division(saved: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Why a model that was divided in one way cannot be loaded in another; "" if they are alike.

    Args:
        saved, now: by the names that the framework gives them.
    """
    return next(
        (
            f"the model was divided in another way: {name} was {saved.get(name)!r}, and is"
            f" {value!r}"[:_MAX_REASON]
            for name, value in now.items()
            if saved.get(name) != value
        ),
        "",
    )


def _from_disk(
    memory: RankMemory, root: Path, offers: list[dict[str, Any]], reasons: list[str]
) -> Choice:
    newest_on_disk = offers[0]
    if newest_on_disk["unreadable"]:
        raise BadInputFile(
            newest_on_disk["unreadable"],
            next_step="Load a file or folder: load_checkpoint(path), get_storage_reader(path).",
        )
    memory.adopt(None)
    if newest_on_disk["disk"] < 0:
        return Choice(-1, why_not_memory=_because(reasons))
    saved = saved_on_disk.require(
        root, newest_on_disk["disk"], is_persisted=newest_on_disk["is_persisted"]
    )
    newest = [max(offer["steps"], default=-1) for offer in offers]
    if max(newest) > saved.step:
        reasons.append(
            f"no step in memory is on all {len(offers)} ranks"
            f" (newest on rank {newest.index(max(newest))}: {max(newest)})"
        )
    return Choice(saved.step, saved=saved, why_not_memory=_because(reasons))


def _because(reasons: list[str]) -> str:
    # Both slots of a rank may be refused for the same reason.
    distinct = list(dict.fromkeys(reasons))[:_MAX_REASONS]
    return f"; memory is not used: {'; '.join(distinct)}" if distinct else ""
