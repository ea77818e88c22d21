"""Keeps a training loop's state in memory at every step: the two lines of `relkit.protect`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from relkit.errors import BadInputFile, UsageProblem
from relkit.flash_checkpoint import plain_tree
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from relkit.flash_checkpoint.protection import random_streams
from relkit.flash_checkpoint.protection.loader_position import LoaderPosition
from relkit.flash_checkpoint.rank_group import group_of_job
from relkit.flash_checkpoint.save_handle import SaveHandle

# One file, replaced by each save: a loop that nobody looks after does not fill the disk.
FILE = "protected.pt"


class HasState(Protocol):
    """What can be kept: a scheduler, a gradient scaler, a sampler or loader with a state."""

    def state_dict(self) -> Any:  # noqa: ANN401
        """Its state."""

    def load_state_dict(self, state_dict: Any) -> Any:  # noqa: ANN401
        """Return to a state."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a loop goes on.

    Args:
        step: optimizer steps made; 0 where nothing was saved.
        epoch: passes over the loader that are done; the loader begins behind the batches of the
            current one that the loop has had.
    """

    step: int = 0
    epoch: int = 0


class Protection:
    """Saves a training loop after each step of its optimizer. Make one with `relkit.protect`.

    Args:
        as of `protect`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        checkpoint_dir: str | os.PathLike[str],
        save_storage_interval: int,
        loader: DataLoader[Any] | None,
        objects: dict[str, HasState],
    ) -> None:
        for name, kept in objects.items():
            if not hasattr(kept, "state_dict") or not hasattr(kept, "load_state_dict"):
                raise UsageProblem(
                    f"{name} is a {type(kept).__name__}, which has no state_dict",
                    next_step="A DataLoader is given as loader=...; its sampler is kept with it.",
                )
        self._parts: dict[str, HasState] = {"model": model, "optimizer": optimizer, **objects}
        self._path = Path(checkpoint_dir) / FILE
        self._interval = save_storage_interval
        self._ranks = group_of_job()
        self._checkpointer = DdpCheckpointer(checkpoint_dir)
        self._position = None if loader is None else LoaderPosition(loader, self._save_if_due)
        self._step, self._own = 0, self._capture()
        self._is_due = False
        self._hooks = (
            optimizer.register_step_post_hook(self._stepped),
            model.register_forward_pre_hook(self._before_forward),
        )

    def restore(self) -> Resumed:
        """Return to the newest step that all ranks have, in memory or on disk. Every rank calls it.

        Random generators are where they were after that step.

        Returns:
            where the loop goes on.

        Raises:
            BadInputFile: what was saved is damaged, or of other objects than these.
        """
        state = self._checkpointer.load_checkpoint()
        if not state:
            return Resumed()
        try:
            parts, step, own = state["parts"], int(state["step"]), state["own"]
            of_all = state["of_all_ranks"]
        except (KeyError, TypeError, ValueError) as error:
            raise BadInputFile(
                f"this was not saved by relkit.protect: {error} is missing"
            ) from error
        if set(parts) != set(self._parts):
            raise BadInputFile(
                f"{', '.join(sorted(parts))} were saved, and {', '.join(sorted(self._parts))} are"
                " to be restored",
                next_step="Call relkit.protect with the same objects.",
            )
        for name, kept in self._parts.items():
            kept.load_state_dict(parts[name])
        self._step = step
        if of_all is not None and len(of_all) == self._ranks.world_size:
            own = plain_tree.decode(of_all[self._ranks.rank], _no_leaf)
        return self._restore_own(own)

    def _restore_own(self, own: dict[str, Any]) -> Resumed:
        position = own["position"]
        epoch = 0 if position is None else int(position["epoch"])
        is_own = own["rank"] == self._ranks.rank and own["ranks"] == self._ranks.world_size
        if is_own:
            random_streams.restore(own["random"])
        elif self._ranks.rank == 0:
            print(
                f"relkit: step {self._step} was saved by {own['ranks']} ranks, and this job has"
                f" {self._ranks.world_size}: random generators begin anew, and so does the epoch",
                file=sys.stderr,
            )
        if position is not None and self._position is not None:
            self._position.restore(
                position if is_own else {**position, "batches": 0},
                lambda: random_streams.restore(own["random"]),
            )
        self._own = self._capture()
        return Resumed(self._step, epoch)

    def save(self) -> None:
        """Save the last step to disk, and wait until it is there: at the end of a loop. Every rank
        calls it.

        Raises:
            RelkitError: it could not be saved.
        """
        self._is_due = False
        self._save(StorageType.DISK)
        self._checkpointer.wait_latest_checkpoint()

    def close(self) -> None:
        """Save nothing more, and let another one take over: the loop is left, the process stays."""
        self._is_due = False
        for hook in self._hooks:
            hook.remove()
        self._checkpointer.close()

    def _stepped(self, _optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:  # noqa: ANN401
        # What the loop draws from now on belongs to the next step. Everything else is saved when
        # that begins: a scheduler usually makes its step after the optimizer.
        self._step += 1
        self._own = self._capture()
        self._is_due = True

    def _before_forward(self, _model: nn.Module, _args: Any) -> None:  # noqa: ANN401
        self._save_if_due()

    def _save_if_due(self) -> None:
        if self._is_due:
            self._is_due = False
            to_disk = self._interval > 0 and self._step % self._interval == 0
            self._save(StorageType.DISK if to_disk else StorageType.MEMORY)

    def _save(self, kind: StorageType) -> SaveHandle:
        of_all = None
        if kind is StorageType.DISK:
            # On disk there is rank 0's state, and what else differs by rank.
            of_all = self._ranks.all_gather(plain_tree.encode(self._own, _no_leaf))
        state = {
            "step": self._step,
            "parts": {name: kept.state_dict() for name, kept in self._parts.items()},
            "own": self._own,
            "of_all_ranks": of_all,
        }
        return self._checkpointer.save_checkpoint(self._step, state, self._path, kind)

    def _capture(self) -> dict[str, Any]:
        """What is of this rank alone."""
        return {
            "rank": self._ranks.rank,
            "ranks": self._ranks.world_size,
            "random": random_streams.capture(),
            "position": None if self._position is None else self._position.capture(),
        }


def _no_leaf(*_: object) -> None:
    return None


def protect(
    *,
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any] | None = None,
    checkpoint_dir: str | os.PathLike[str] = "checkpoints",
    save_storage_interval: int = 1000,
    **objects: HasState,
) -> Protection:
    """Save a training loop in memory after each step of its optimizer, and to disk now and then.

    Kept are the model, the optimizer, all random generators (Python's, NumPy's, torch's, those of
    GPUs), the place in the data, and whatever else is given.

    Args:
        model: as it is called in the loop: DistributedDataParallel's, or a plain one.
        optimizer: whose step ends an iteration of the loop.
        loader: torch's DataLoader of the training data; its place in the epoch is kept.
        checkpoint_dir: for protected.pt, which all nodes share.
        save_storage_interval: steps between saves to disk; 0: to memory only.
        objects: anything else with state_dict and load_state_dict: scheduler=..., scaler=...

    Raises:
        UsageProblem: an object has no state, or there are several ranks and no process group yet.
    """
    return Protection(model, optimizer, checkpoint_dir, save_storage_interval, loader, objects)
