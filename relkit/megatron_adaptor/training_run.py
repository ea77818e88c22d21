"""Megatron's `train` under try-to-persist: where a step is committed, and how survivors save it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from relkit.flash_checkpoint.megatron.native import Megatron
from relkit.megatron_adaptor import committed, holders
from relkit.megatron_adaptor.buffers import Buffers
from relkit.megatron_adaptor.emergency_files import EmergencyFiles
from relkit.megatron_adaptor.fit import DoesNotFit, say
from relkit.ttp import fault_injector
from relkit.ttp.environment import worker_environment
from relkit.ttp.handlers import Handlers
from relkit.ttp.replicas import ReplicaMap
from relkit.ttp.session import Session

T = TypeVar("T")


class TrainingRun:
    """One rank's.

    Args:
        training: Megatron's module.
        model, optimizer, scheduler: as its `train` gets them.
        group: who holds what this rank holds.
    """

    def __init__(
        self,
        training: ModuleType,
        model: Any,  # noqa: ANN401
        optimizer: Any,  # noqa: ANN401
        scheduler: Any,  # noqa: ANN401
        group: ReplicaMap,
    ) -> None:
        args = training.get_args()
        self._training, self._optimizer, self._scheduler = training, optimizer, scheduler
        self._update, self._step = optimizer.step_with_ready_grads, optimizer.step
        self._iteration, self._updated = int(args.iteration), False
        self._pending: Callable[[], bool] | None = None
        self._buffers = Buffers(model)
        flops = float(getattr(args, "num_floating_point_operations_so_far", 0))
        self._kept = self._now(self._iteration, flops)
        self._faults = fault_injector.from_environment()
        files = EmergencyFiles(Megatron(), model, optimizer, scheduler, self._buffers, group.name)
        handlers = Handlers(
            Path(args.save),
            lambda request: files.save(request, self._kept),
            self._roll_forward,
            facts=lambda: files.facts(self._kept),
        )
        rank, world_size = dist.get_rank(), dist.get_world_size()
        self._session = Session(
            worker_environment(),
            rank=rank,
            world_size=world_size,
            maps=[group],
            step=self._iteration,
            handlers=handlers,
        )

    @classmethod
    def begun(
        cls,
        training: ModuleType,
        model: Any,  # noqa: ANN401
        optimizer: Any,  # noqa: ANN401
        scheduler: Any,  # noqa: ANN401
    ) -> TrainingRun | None:
        """A run, or None on all ranks where it does not fit on one; every rank must call it."""
        mine: holders.Place | str
        try:
            mine = holders.place(training.get_args(), Megatron(), optimizer)
        except DoesNotFit as why:
            mine = str(why)
        except (AttributeError, TypeError, RuntimeError, AssertionError) as error:
            mine = f"Megatron's groups are not as expected: {type(error).__name__}: {error}"
        everybody: list[Any] = [mine]
        if dist.get_world_size() > 1:
            everybody = [None] * dist.get_world_size()
            dist.all_gather_object(everybody, mine)
        reason = next((each for each in everybody if isinstance(each, str)), "")
        try:
            if reason:
                raise DoesNotFit(reason)
            first = {each.group: rank for rank, each in reversed(list(enumerate(everybody)))}
            maps = {name: holders.replica_map(everybody, rank) for name, rank in first.items()}
        except DoesNotFit as why:
            say(f"{why}; the last step of a job that fails is not saved")
            return None
        _say_what_is_alone(maps.values())
        group = maps[everybody[dist.get_rank()].group]
        return cls(training, model, optimizer, scheduler, group)

    def persist(self, train: Callable[[], T]) -> T:
        """Run the loop; after a fault this saves what it can, and does not return."""
        # Of this object alone: another optimizer in the program is not the run's.
        self._optimizer.step_with_ready_grads = self._committed_update
        self._optimizer.step = self._whole_step
        try:
            return self._session.run(train)
        finally:
            del self._optimizer.step_with_ready_grads, self._optimizer.step

    def step_begins(self, iteration: int) -> None:
        """Megatron's `train_step` begins.

        Args:
            iteration: steps done. It may have left some out (--iterations-to-skip).
        """
        if iteration > self._kept.iteration:
            self._kept = self._now(iteration, self._kept.flops)
            self._session.state.end_update(iteration)
        else:
            self._kept = committed.with_streams_of_now(self._kept)
        self._iteration = iteration
        self._session.state.phase("forward")
        self._faults.at("forward", iteration + 1)

    @torch.no_grad()
    def _whole_step(self) -> Any:  # noqa: ANN401
        """The optimizer's `step`, which leaves out the update where a gradient is infinite."""
        self._updated = False
        result = self._step()
        if not self._updated:
            self._committed(lambda: False)
        return result

    @torch.no_grad()
    def _committed_update(self) -> bool:
        self._updated = True
        with self._syncs_held_back() as held:
            done = self._committed(self._update)
        for sync in held:
            sync()
        return done

    def _committed(self, update: Callable[[], bool]) -> bool:
        state, step = self._session.state, self._iteration + 1
        self._pending = update
        state.gradients_ready()
        self._faults.at("barrier", step)
        if dist.get_world_size() > 1:
            _barrier()
        state.begin_update()
        self._faults.at("update", step)
        done = self._updated_alone(step)
        state.end_update(step)
        return done

    def _updated_alone(self, step: int) -> bool:
        """Make the step whose gradients are reduced, without communication."""
        assert self._pending is not None
        with self._no_barriers_of_timers():
            done = self._pending()
        self._kept = self._now(step, self._kept.flops, updated=done)
        return done

    def _roll_forward(self, step: int) -> None:
        with torch.no_grad(), self._syncs_held_back():
            self._updated_alone(step)

    def _now(
        self, iteration: int, flops: float, *, updated: bool | None = None
    ) -> committed.Committed:
        """What belongs to a step; before Megatron itself has counted it, if `updated` is given.

        Args:
            flops: of the steps before.
        """
        args, samples = self._training.get_args(), 0
        if updated is not None:
            from megatron.core.num_microbatches_calculator import get_num_microbatches

            samples = get_num_microbatches() * args.micro_batch_size * args.data_parallel_size
            count = getattr(self._training, "num_floating_point_operations", None)
            flops += 0.0 if count is None else float(count(args, samples))
        return committed.taken(
            self._optimizer,
            self._buffers,
            iteration=iteration,
            samples=args.consumed_train_samples + samples,
            scheduler_steps=self._scheduler.num_steps + (samples if updated else 0),
            flops=flops,
        )

    @contextlib.contextmanager
    def _syncs_held_back(self) -> Iterator[list[Callable[[], None]]]:
        """Weights of the distributed optimizer are gathered once the step is committed."""
        held: list[Callable[[], None]] = []
        distributed = holders.sharded(self._optimizer)
        chunks = () if distributed is None else tuple(distributed.model_chunks)
        for chunk in chunks:
            sync = chunk.start_param_sync

            def later(*arguments: Any, sync: Any = sync, **options: Any) -> None:  # noqa: ANN401
                held.append(lambda: sync(*arguments, **options))

            chunk.start_param_sync = later
        try:
            yield held
        finally:
            for chunk in chunks:
                del chunk.start_param_sync

    @contextlib.contextmanager
    def _no_barriers_of_timers(self) -> Iterator[None]:
        """With --timing-log-level 1, Megatron's timers meet at barriers inside of an update."""
        configs = [part.config for part in holders.parts(self._optimizer)]
        before = [config.barrier_with_L1_time for config in configs]
        for config in configs:
            config.barrier_with_L1_time = False
        try:
            yield
        finally:
            for config, value in zip(configs, before, strict=True):
                config.barrier_with_L1_time = value


def _barrier() -> None:
    if dist.get_backend() == "nccl":
        dist.barrier(device_ids=[torch.cuda.current_device()])
    else:
        dist.barrier()


def _say_what_is_alone(maps: Iterable[ReplicaMap]) -> None:
    alone = sorted({m.name for m in maps if any(len(ranks) < 2 for ranks in m.holders)})
    if alone:
        more = "" if len(alone) == 1 else f", and {len(alone) - 1} more"
        say(
            f"try-to-persist: {alone[0]}{more} is on one rank only, whose death cannot be made"
            " good; with --use-distributed-optimizer, --num-distributed-optimizer-instances 2"
            " keeps each shard twice"
        )
