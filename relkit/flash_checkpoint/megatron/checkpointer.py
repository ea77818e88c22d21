"""Saves and restores what Megatron-LM's own functions save and load."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from relkit.accounting.worker_notes import Load, noted_load
from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import FileRecord
from relkit.errors import BadInputFile, UnwritablePath, UsageProblem
from relkit.flash_checkpoint.choice import Choice
from relkit.flash_checkpoint.files_checkpointer import FilesCheckpointer
from relkit.flash_checkpoint.megatron import division, exchange, intercept, sharded_state
from relkit.flash_checkpoint.megatron.checkpoint_folder import (
    lay_out_checkpoint,
    require_nothing_written,
)
from relkit.flash_checkpoint.megatron.intercept import Captured
from relkit.flash_checkpoint.megatron.native import Megatron
from relkit.flash_checkpoint.megatron.own_tracker import OwnNewest, own_newest
from relkit.flash_checkpoint.megatron.resumed import as_resumed
from relkit.flash_checkpoint.on_disk import iteration_files, persisted
from relkit.flash_checkpoint.on_disk.native_objects import own_member, to_objects, to_plain
from relkit.flash_checkpoint.on_disk.persisted import Persisted
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.scratch_folder import scratch_folder
from relkit.flash_checkpoint.storage_type import StorageType

# A checkpoint in memory is this job's own, whole, in one place.
_IN_ONE_PLACE: Mapping[str, Any] = {
    "non_persistent_ckpt_type": None,
    "auto_detect_ckpt_format": False,
}
# Megatron is not to write anything, nor to remove what is on disk.
_IN_MEMORY: Mapping[str, Any] = {"async_save": False, "save_retain_interval": None}
_DISTRIBUTED_FORMATS = ("torch_dist", "zarr")
# Can never be there.
_NO_FOLDER = Path(os.devnull) / "relkit-scratch"


class MegatronCheckpointer(FilesCheckpointer):
    """Calls Megatron's own functions, and keeps what they write.

    In memory each rank keeps what Megatron has it write: of ranks with the same parameters, one
    has the file. Of megatron-core's distributed checkpoints each rank keeps all that it has.
    On disk there is Megatron's own layout.

    Args:
        checkpoint_dir: `args.save`, which all ranks share.
        threads: as of Checkpointer.

    Raises:
        UsageProblem: there are several ranks, and no process group yet.
    """

    # Megatron has saved something itself, and may still be at it.
    _left_to_megatron = False

    def save_native(
        self,
        megatron: Megatron,
        required: tuple[Any, ...],
        flops: float,
        options: Mapping[str, Any],
        storage_type: StorageType,
    ) -> SaveHandle:
        """Save what Megatron's `save_checkpoint` saves.

        Args:
            required, flops, options: as of `Megatron.save`.
            storage_type: DISK of a distributed checkpoint is left to Megatron alone, and so is what
                it calls a non-persistent checkpoint.

        Raises:
            UsageProblem: the format of its checkpoints cannot be kept in memory.
        """
        step, arguments = int(required[0]), megatron.arguments
        to_disk = storage_type is StorageType.DISK and _uses_distributed(arguments)
        if to_disk or options.get("non_persistent_ckpt"):
            self._left_to_megatron = True
            megatron.save(required, flops, options)
            return SaveHandle.ended(step)
        _require_known_format(arguments)
        self._require_own_folder(arguments, options)
        with (
            _folder_to_save_to(self._memory.folder) as folder,
            intercept.captured(folder, megatron.checkpointing) as kept,
            megatron.with_arguments(save=str(folder), **_IN_MEMORY),
        ):
            megatron.save(required, flops, {**options, "checkpointing_context": None})
            require_nothing_written(folder)
        state = self._state(kept, division.of_arguments(arguments))
        return self.save_checkpoint(step, state, storage_type=storage_type)

    def load_native(
        self, megatron: Megatron, required: tuple[Any, ...], options: Mapping[str, Any]
    ) -> tuple[int, float]:
        """Load the newest state of all ranks with Megatron's `load_checkpoint`, once it is saved.

        Args:
            required, options: as of `Megatron.load`.

        Returns:
            the iteration, and the floating-point operations so far.

        Raises:
            BadInputFile: what was saved is damaged, or of a model that is divided in another way.
            DeadlineExceeded: a save is still under way after half an hour.
        """
        folder = megatron.arguments.load
        is_own = folder is not None and Path(folder).absolute() == self._root.absolute()
        if self._left_to_megatron:
            megatron.end_own_saves()
        with noted_load() as load:
            degrees = division.of_arguments(megatron.arguments)
            choice = self._choose(lambda state: division.why_not(state, degrees))
            # Behind the choice, which waits for what is being saved.
            own = self._own_newest() if is_own else OwnNewest(-1, 0)
            if choice.step >= 0 and choice.saved is None and choice.step >= own.step:
                load.step, load.source = choice.step, "memory"
                self._announce(f"step {choice.step} {choice.origin}")
                return self._from_memory(choice.step, choice.state, megatron, required, options)
            self._memory.adopt(None)
            saved = choice.saved
            is_newer = isinstance(saved, Persisted) and saved.saved_unix_ns > own.saved_unix_ns
            if isinstance(saved, Persisted) and is_own and is_newer:
                loaded = self._from_launchers(saved, megatron, required, options, load)
                if loaded is not None:
                    return loaded
            load.step, load.source = own.step, "disk" if own.step >= 0 else ""
            named = folder or getattr(megatron.arguments, "pretrained_checkpoint", None)
            self._announce(_what_megatron_loads(own, named, choice))
            return megatron.load(required, options)

    def _require_own_folder(self, arguments: Any, options: Mapping[str, Any]) -> None:  # noqa: ANN401
        """A data loader's state is not in a folder that a save to disk replaces."""
        folder = getattr(arguments, "dataloader_save", None)
        if not folder or options.get("train_data_iterator") is None:
            return
        if Path(folder).absolute() == self._root.absolute():
            raise UsageProblem(
                "--dataloader-save names the folder of --save, whose iterations relkit replaces as"
                " a whole",
                next_step="Give --dataloader-save a folder of its own.",
            )

    def _own_newest(self) -> OwnNewest:
        """What Megatron's tracker names, as rank 0 sees it."""
        seen = own_newest(self._root) if self._ranks.rank == 0 else OwnNewest(-1, 0)
        step, saved_unix_ns = self._ranks.all_gather([seen.step, seen.saved_unix_ns])[0]
        return OwnNewest(step, saved_unix_ns)

    def _state(self, kept: Captured, degrees: Mapping[str, Any]) -> dict[str, Any]:
        """What Megatron has saved, as plain data, and by which degrees the model was divided."""
        dropped: set[str] = set()
        if kept.sharded is not None:
            state: dict[str, Any] = to_plain(kept.sharded, dropped)
        else:
            state = iteration_files.of_files(to_plain(kept.files, dropped))
        state = division.with_degrees(state, degrees)
        if dropped:
            self._report(
                _Dropped(f"of Megatron's arguments, not kept: {', '.join(sorted(dropped))}")
            )
        return state

    def _from_memory(
        self,
        step: int,
        state: Mapping[str, Any],
        megatron: Megatron,
        required: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> tuple[int, float]:
        kinds = self._ranks.all_gather(
            [iteration_files.is_files(state), sharded_state.is_sharded(state)]
        )
        if kinds.count(kinds[0]) != len(kinds) or not any(kinds[0]):
            raise BadInputFile(
                f"step {step} was not saved by Megatron",
                next_step="Load it with the checkpointer that has saved it.",
            )
        files: Mapping[str, Any] = {}
        names: list[str] = []
        if kinds[0][0]:
            plain = exchange.share(
                self._ranks, iteration_files.files_of(state), megatron.file_of_rank(step)
            )
            names = sorted({*chain(*exchange.names_of_all(self._ranks, plain))})
            files = to_objects(plain, own_member)
        with scratch_folder(
            self._memory.folder, lambda folder: lay_out_checkpoint(folder, step, names)
        ) as folder:
            serve = (
                intercept.served(folder, files)
                if kinds[0][0]
                else intercept.served_sharded(
                    folder, to_objects(dict(state), own_member), megatron.checkpointing
                )
            )
            with serve, _resumed(megatron, folder):
                return megatron.load(required, {**options, "checkpointing_context": None})

    def _from_launchers(
        self,
        saved: Persisted,
        megatron: Megatron,
        required: tuple[Any, ...],
        options: Mapping[str, Any],
        load: Load,
    ) -> tuple[int, float] | None:
        """Load what launchers have written; None where only the same number of ranks could."""
        load.step, load.source = saved.step, "disk"
        if (saved.path / iteration_files.list_name(0)).exists():
            wanted = [megatron.file_of_rank(saved.step)]
            if saved.world_size == self._ranks.world_size:
                # What this rank has written it also loads: the distributed optimizer's part, too.
                wanted += iteration_files.listed(saved.path, self._ranks.rank)
            for name, problem in iteration_folder.problems(saved.path, only=wanted):
                raise BadInputFile(
                    f"{saved.path / name} {problem}",
                    next_step=f"Move {saved.path.parent} away, and Megatron loads its own.",
                )
            self._announce(f"step {saved.step} from {saved.path}")
            with _resumed(megatron, saved.path.parent):
                return megatron.load(required, options)
        if saved.world_size != self._ranks.world_size:
            self._announce(
                f"step {saved.step} in {saved.path} is not used: {saved.world_size} ranks saved it"
            )
            return None
        state = persisted.read(saved, self._ranks.rank, self._ranks.world_size)
        degrees = division.of_arguments(megatron.arguments)
        reasons = self._ranks.all_gather(division.why_not(state, degrees))
        if why := next(filter(None, reasons), ""):
            self._announce(f"step {saved.step} in {saved.path} is not used: {why}")
            return None
        self._announce(f"step {saved.step} from {saved.path}")
        return self._from_memory(saved.step, state, megatron, required, options)

    def _name_on_disk(self, step: int) -> str:
        return iteration_folder.iteration_name(step)

    def _publish(
        self,
        folder: Path,
        path: Path,
        step: int,
        files: Sequence[FileRecord],
        facts: Mapping[str, int],
    ) -> None:
        iteration_folder.commit(folder, step, files, facts)


class _Dropped(UserWarning):
    """What is not kept of a state."""


@contextmanager
def _folder_to_save_to(home: Path | None) -> Iterator[Path]:
    """A scratch folder; where there is no room for one, the name of none, which does as well.

    A rank that gave up here would leave the others waiting in Megatron's barriers.
    """
    with ExitStack() as stack:
        folder = _NO_FOLDER
        with suppress(UnwritablePath):
            folder = stack.enter_context(scratch_folder(home))
        yield folder


def _resumed(megatron: Megatron, folder: Path) -> AbstractContextManager[None]:
    values = as_resumed(megatron.arguments)
    return megatron.with_arguments(load=str(folder), **_IN_ONE_PLACE, **values)


def _uses_distributed(arguments: Any) -> bool:  # noqa: ANN401
    return bool(getattr(arguments, "use_dist_ckpt", False))


def _require_known_format(arguments: Any) -> None:  # noqa: ANN401
    kind = getattr(arguments, "ckpt_format", getattr(arguments, "dist_ckpt_format", "torch_dist"))
    if _uses_distributed(arguments) and kind not in _DISTRIBUTED_FORMATS:
        raise UsageProblem(
            f"checkpoints in Megatron's format {kind} are not kept in memory",
            next_step="Use --ckpt-format torch or torch_dist, or save to disk only.",
        )


def _what_megatron_loads(
    own: OwnNewest, folder: str | os.PathLike[str] | None, choice: Choice
) -> str:
    if own.step >= 0:
        return f"step {own.step} from {folder}{choice.why_not_memory}"
    if folder is None:
        return f"nothing was saved: training begins{choice.why_not_memory}"
    return f"nothing was saved in memory: Megatron loads from {folder}{choice.why_not_memory}"
