"""Try-to-persist for a training loop of one's own, call by call as MindIO TTP's guide has it.

    from relkit.ttp import api as ttp

    ttp.init(rank, world_size, save_folder, step=iteration)
    ttp.set_replica_map([ttp.replica_map("tp0 pp0", data_parallel_ranks)])
    ttp.register_save_handler(save)
    ttp.register_roll_forward_handler(roll_forward)
    train = ttp.persist(train)

With ENABLE_TTP=False, or without `relkit launch`, every call here does nothing and `persist` calls
the loop as it is. docs/ttp.md walks through a loop in ten steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from relkit.checkpoint.manifest import FileRecord
from relkit.errors import UsageProblem
from relkit.ttp.environment import enabled, worker_environment
from relkit.ttp.handlers import Handlers, NotFinite, SaveRequest
from relkit.ttp.rank_state import RankState
from relkit.ttp.replicas import ReplicaMap, replica_map
from relkit.ttp.session import Session

__all__ = [
    "NotFinite",
    "ReplicaMap",
    "SaveRequest",
    "begin_update",
    "end_update",
    "get_ttp_switch",
    "gradients_ready",
    "init",
    "persist",
    "phase",
    "register_rename_handler",
    "register_roll_forward_handler",
    "register_rollback_handler",
    "register_save_handler",
    "replica_map",
    "set_replica_map",
    "set_save_args",
]

Params = ParamSpec("Params")
Result = TypeVar("Result")


@dataclass
class _Loop:
    """What a loop has said so far; there is one in a process."""

    rank: int = -1
    world_size: int = 0
    root: Path = Path()
    step: int = 0
    maps: list[ReplicaMap] = field(default_factory=list)
    save: Callable[[SaveRequest, Any], Sequence[FileRecord]] | None = None
    rename: Callable[[int, Path, Sequence[FileRecord], Any], Path] | None = None
    roll_forward: Callable[[int, Any], None] | None = None
    rollback: Callable[[int, Any], None] | None = None
    arguments: Any = None
    state: RankState | None = None


_loop = _Loop()


def get_ttp_switch() -> bool:
    """Whether try-to-persist is on: started by `relkit launch`, and ENABLE_TTP is not off."""
    return enabled()


def init(rank: int, world_size: int, root: str | Path, *, step: int = 0) -> None:
    """Say who this process is; forgets what an earlier loop of it had registered.

    Args:
        rank, world_size: global, as torch.distributed has them.
        root: where checkpoints go, on storage that all ranks share.
        step: the committed step that training starts from.
    """
    global _loop
    _loop = _Loop(rank, world_size, Path(root), step)


def set_replica_map(maps: Sequence[ReplicaMap]) -> None:
    """Say which ranks hold which optimizer shards.

    Args:
        maps: of the groups that this rank is in: one for the dense part, one more for experts.
    """
    _loop.maps = list(maps)


def register_save_handler(save: Callable[[SaveRequest, Any], Sequence[FileRecord]]) -> None:
    """Name the function that gives this rank's shards to the writers, and writes where it is one.

    Args:
        save: gets the request and the arguments of `set_save_args`; returns a record of each file
            that it wrote with relkit.checkpoint.iteration_folder.write_file.
    """
    _loop.save = save


def register_rename_handler(
    rename: Callable[[int, Path, Sequence[FileRecord], Any], Path],
) -> None:
    """Name the function that makes a temporary folder the checkpoint to resume from.

    Without one, relkit writes a manifest, renames, and replaces the tracker, each made durable.

    Args:
        rename: gets step, temporary folder, records of all files, and the arguments; returns the
            final folder. It may be called again after one that has died half-way.
    """
    _loop.rename = rename


def register_roll_forward_handler(roll_forward: Callable[[int, Any], None]) -> None:
    """Name the function that makes the update whose gradients are reduced, without communication.

    Args:
        roll_forward: gets the step that it makes, and the arguments.
    """
    _loop.roll_forward = roll_forward


def register_rollback_handler(rollback: Callable[[int, Any], None]) -> None:
    """Name the function that restores the copy of the step before (--local-copy-os).

    Args:
        rollback: gets the step to go back to, and the arguments.
    """
    _loop.rollback = rollback


def set_save_args(arguments: object) -> None:
    """What the handlers get as their last argument; the latest call counts."""
    _loop.arguments = arguments


def phase(name: str) -> None:
    """A phase of a step begins; "forward" is the first.

    Raises:
        TrainingInterrupted: there is a fault; let it through to `persist`.
    """
    if _loop.state is not None:
        _loop.state.phase(name)


def gradients_ready() -> None:
    """All gradients of the step are reduced; to be called right before the world barrier.

    Raises:
        TrainingInterrupted: there is a fault.
    """
    if _loop.state is not None:
        _loop.state.gradients_ready()


def begin_update(*, previous: bool = False) -> None:
    """The optimizer's step begins; right after the world barrier.

    Args:
        previous: the shard of the step before has been copied (instead of the barrier).

    Raises:
        TrainingInterrupted: there is a fault.
    """
    if _loop.state is not None:
        _loop.state.begin_update(previous=previous)


def end_update(step: int) -> None:
    """The optimizer's step is done, also where it was skipped for infinite gradients.

    Args:
        step: the number of optimizer steps that are done now. What the handlers save of schedules
            and random numbers has to be of this moment: keep a copy right before this call.
    """
    if _loop.state is not None:
        _loop.state.end_update(step)


def persist(train: Callable[Params, Result]) -> Callable[Params, Result]:
    """Wrap a training loop; where a fault leaves it, the step is saved and the process ends."""

    @functools.wraps(train)
    def wrapped(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        if not enabled():
            return train(*args, **kwargs)
        session = _session()
        _loop.state = session.state
        try:
            return session.run(lambda: train(*args, **kwargs))
        finally:
            _loop.state = None

    return wrapped


def _session() -> Session:
    loop = _loop
    if loop.rank < 0 or not loop.maps or loop.save is None or loop.roll_forward is None:
        raise UsageProblem(
            "try-to-persist was not set up before the training loop",
            next_step="Call init, set_replica_map, register_save_handler and"
            " register_roll_forward_handler first (docs/ttp.md).",
        )
    save, roll_forward, rename, rollback = loop.save, loop.roll_forward, loop.rename, loop.rollback
    handlers = Handlers(
        loop.root,
        save=lambda request: save(request, loop.arguments),
        roll_forward=lambda step: roll_forward(step, loop.arguments),
        rollback=None if rollback is None else lambda step: rollback(step, loop.arguments),
        rename=None
        if rename is None
        else lambda step, folder, records: rename(step, folder, records, loop.arguments),
    )
    return Session(
        worker_environment(),
        rank=loop.rank,
        world_size=loop.world_size,
        maps=loop.maps,
        step=loop.step,
        handlers=handlers,
    )
