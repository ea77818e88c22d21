"""Try-to-persist for a loop whose ranks all hold everything: DistributedDataParallel and the like.

    persist = ReplicatedLoop(model, optimizer, "checkpoints")
    persist.warm_up(lambda: loss_of(any_batch))

    def train():
        for step in persist.steps(until=1000):
            ...                              # forward, backward (which reduces the gradients)
            persist.begin_update()
            optimizer.step()
            persist.end_update()

    persist.run(train)

Any one living rank can save, so every fault is survived that leaves one. The loop's position in its
data must follow from the step (a sampler that is seeded by it, for example).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from relkit.checkpoint import iteration_folder, rng_state
from relkit.checkpoint.manifest import FileRecord
from relkit.checkpoint.rng_state import RngState
from relkit.ttp.environment import enabled, worker_environment
from relkit.ttp.handlers import Handlers, NotFinite, SaveRequest
from relkit.ttp.replicas import ReplicaMap
from relkit.ttp.session import Session

FILE = "replicated.pt"
T = TypeVar("T")


class ReplicatedLoop:
    """One rank's loop.

    Args:
        model: as trained; what DistributedDataParallel wraps is saved, not the wrapper.
        optimizer: of all its parameters, the same on every rank.
        folder: of the checkpoints, on storage that all ranks share.
        extra, load_extra: a user's own state of plain types and tensors (a scheduler, say).
        resume: go on from the folder's latest checkpoint, if there is one.

    Attributes:
        step: committed steps.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        folder: str | Path,
        *,
        extra: Callable[[], Mapping[str, Any]] = dict,
        load_extra: Callable[[Mapping[str, Any]], None] | None = None,
        resume: bool = True,
    ) -> None:
        inside = model.module if isinstance(model, DistributedDataParallel) else model
        assert isinstance(inside, nn.Module)
        self._model = inside
        self._optimizer = optimizer
        self._folder = Path(folder)
        self._extra, self._load_extra = extra, load_extra
        self.step = 0
        self._rng = rng_state.capture().to_plain()
        if resume:
            self._resume()
        self._session = self._start() if enabled() else None

    def warm_up(self, loss: Callable[[], torch.Tensor]) -> None:
        """One backward pass that counts for nothing, before the loop.

        DistributedDataParallel puts gradients into other buckets after its first backward pass, and
        then adds them in another order. Without this the first step after a restart would differ
        in its last bits from the same step of an undisturbed run.

        Args:
            loss: a forward pass as the loop makes it, of any data.
        """
        loss().backward()  # type: ignore[no-untyped-call]
        self._optimizer.zero_grad(set_to_none=True)
        rng_state.restore(RngState.from_plain(self._rng))

    def steps(self, until: int) -> Iterator[int]:
        """Number the steps that are left, from 0; where the job is asked to stop, it does so here.

        Args:
            until: how many steps training has in all.
        """
        while self.step < until:
            if self._session is not None:
                self._session.state.phase("forward")
            yield self.step

    def run(self, train: Callable[[], T]) -> T:
        """Run the loop; after a fault this saves what it can, and does not return."""
        return train() if self._session is None else self._session.run(train)

    def begin_update(self) -> None:
        """All gradients are reduced; to be called right before optimizer.step()."""
        if self._session is None:
            return
        self._session.state.gradients_ready()
        dist.barrier()
        self._session.state.begin_update()

    def end_update(self) -> None:
        """The update is done; to be called right after optimizer.step()."""
        # Before the step counts: another thread may ask for this record from then on.
        self._rng = rng_state.capture().to_plain()
        self.step += 1
        if self._session is not None:
            self._session.state.end_update(self.step)

    def save(self) -> Path:
        """A periodic checkpoint of the committed step; to be called by all ranks.

        Returns:
            the iteration's folder.
        """
        if dist.get_rank() == 0:
            folder = iteration_folder.begin(self._folder, self.step)
            iteration_folder.commit(folder, self.step, [self._write(folder)], {})
        dist.barrier()
        return self._folder / iteration_folder.iteration_name(self.step)

    def _start(self) -> Session:
        rank, world_size = dist.get_rank(), dist.get_world_size()
        everybody = tuple(range(world_size))
        return Session(
            worker_environment(),
            rank=rank,
            world_size=world_size,
            maps=[ReplicaMap("replicated", everybody, (everybody,))],
            step=self.step,
            handlers=Handlers(self._folder, self._save, self._roll_forward),
        )

    def _save(self, request: SaveRequest) -> list[FileRecord]:
        writers = {group.writer for group in request.plan.groups}
        return [self._write(request.folder)] if request.rank in writers else []

    def _write(self, folder: Path) -> FileRecord:
        weights = self._model.state_dict()
        refuse_not_finite(weights, "the model")
        state = {
            "step": self.step,
            "model": weights,
            "optimizer": self._optimizer.state_dict(),
            "rng": self._rng,
            "extra": dict(self._extra()),
        }

        def write(stream: BinaryIO) -> None:
            torch.save(state, stream)

        return iteration_folder.write_file(folder, FILE, write)

    def _roll_forward(self, step: int) -> None:
        self._optimizer.step()
        self._rng = rng_state.capture().to_plain()
        self.step = step

    def _resume(self) -> None:
        tracker = self._folder / iteration_folder.TRACKER
        if not tracker.is_file():
            return
        step = int(tracker.read_text())
        path = self._folder / iteration_folder.iteration_name(step) / FILE
        state = torch.load(path, weights_only=True, map_location="cpu")
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._load_extra is not None:
            self._load_extra(state["extra"])
        self.step, self._rng = state["step"], state["rng"]
        rng_state.restore(RngState.from_plain(self._rng))


def refuse_not_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Check floating-point tensors.

    Args:
        tensors: by name; what: they are of, for the sentence.

    Raises:
        NotFinite: names the first tensor with a NaN or an infinity.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NotFinite(f"{name} of {what} is not finite")
