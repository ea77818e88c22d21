"""Saves and restores what DeepSpeed's engine saves and loads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.accounting.worker_notes import Load, noted_load
from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import FileRecord, name_inside, read_manifest
from relkit.checkpoint.torch_file import read_plain
from relkit.errors import BadInputFile, UsageProblem
from relkit.files.input_file import read_input_text
from relkit.flash_checkpoint.choice import Choice, other_division
from relkit.flash_checkpoint.deepspeed import engine_state
from relkit.flash_checkpoint.deepspeed.engine_state import SCRIPT
from relkit.flash_checkpoint.files_checkpointer import FilesCheckpointer
from relkit.flash_checkpoint.on_disk import disk, iteration_files, sharded_on_disk
from relkit.flash_checkpoint.on_disk.disk import OnDisk
from relkit.flash_checkpoint.on_disk.native_objects import own_member, to_objects, to_plain
from relkit.flash_checkpoint.protection import random_streams
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.storage_type import StorageType
from relkit.output import write_atomic
from relkit.text.whole_number import whole_number

_NEXT_STEP = "Load another one: load_checkpoint(folder, tag)."
Loaded = tuple[str | None, dict[str, Any]]
LATEST = "latest"
_MAX_TAG_BYTES = 4096
_PREFIX = "global_step"


class DeepSpeedCheckpointer(FilesCheckpointer):
    """Calls the functions of DeepSpeed's engine, and keeps what they write.

    In memory each rank keeps all that it loads, and its random generators. On disk there is
    DeepSpeed's own layout.

    Args:
        engine: of `deepspeed.initialize`.
        checkpoint_dir: folder of the checkpoints on disk, which all ranks share.
        threads: as of Checkpointer.

    Raises:
        UsageProblem: there are several ranks, and no process group yet.
    """

    def __init__(
        self,
        engine: Any,  # noqa: ANN401
        checkpoint_dir: str | os.PathLike[str],
        threads: int | None = None,
    ) -> None:
        super().__init__(checkpoint_dir, threads)
        self._engine = engine
        self._script = b""
        self._not_latest: set[Path] = set()

    def save_checkpoint(  # type: ignore[override]
        self,
        save_dir: str | os.PathLike[str] = "",
        tag: str | None = None,
        client_state: Mapping[str, Any] | None = None,
        save_latest: bool = True,
        storage_type: StorageType = StorageType.DISK,
        **options: Any,  # noqa: ANN401
    ) -> SaveHandle:
        """Save the state as it is now, in memory or to disk; the loop may go on at once.

        Every rank must call it, as DeepSpeed's.

        Args:
            save_dir, tag, client_state, save_latest: as of DeepSpeed's; "" is checkpoint_dir.
            storage_type: MEMORY or DISK.
            options: further arguments of DeepSpeed's, given on to it.

        Returns:
            a handle; its `wait()` returns when the state is in memory, or on disk for DISK.

        Raises:
            UsageProblem: the tag is no name of a folder, or DeepSpeed saves what is not kept.
            NotPlain: the client state holds objects that are neither tensors nor plain values.
            DeadlineExceeded: the previous save is still under way after half an hour.
        """
        engine, step = self._engine, int(self._engine.global_steps)
        tag = f"global_step{step}" if tag is None else str(tag)
        if Path(tag).name != tag:
            raise UsageProblem(f"{tag!r} is not a name of a folder", next_step="Take another tag.")
        path = Path(save_dir or self._root) / tag
        if storage_type is StorageType.DISK:
            self._disk_save.wait_end()
            self._not_latest = set() if save_latest else {path}
        random = random_streams.capture()
        taken = engine_state.take(engine, self._memory.folder, tag, client_state or {}, options)
        self._script = taken.script
        own = {**taken.own, _random_file(self._ranks.rank): random}
        memory_only = {
            "tag": tag,
            "division": engine_state.division_of(engine),
            "files": taken.others,
        }
        state = iteration_files.of_files(*(to_plain(part, set()) for part in (own, memory_only)))
        return super().save_checkpoint(step, state, path, storage_type)

    def load_checkpoint(
        self,
        load_dir: str | os.PathLike[str] = "",
        tag: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Loaded:
        """Load the newest state that all ranks have, from memory or from disk.

        Every rank must call it. It waits for saves that are under way. Rank 0 prints one line to
        stderr that names what was loaded, and a newer step that could not be saved. The random
        generators go on where they were, if as many ranks have saved.

        Args:
            load_dir, tag: as of DeepSpeed's; with a tag, or of another folder than checkpoint_dir,
                only DeepSpeed's own function is called.
            options: further arguments of DeepSpeed's, given on to it.

        Returns:
            as DeepSpeed's: what was loaded, None where nothing was saved; and the client state.

        Raises:
            BadInputFile: what is on disk is damaged, or not seen by all ranks.
            DeadlineExceeded: a save is still under way after half an hour.
            RelkitError: the ranks do not answer each other.
        """
        folder = Path(load_dir or self._root)
        if tag is not None or folder.absolute() != self._root.absolute():
            self._wait_for_own_saves()
            self._memory.adopt(None)
            return self._by_deepspeed(folder, tag, options)
        with noted_load() as load:
            choice, own = self._choose(self._why_not), self._own_latest()
            if own.tag and own.step > choice.step:
                self._memory.adopt(None)
                load.step, load.source = own.step, "disk"
                where = self._root / own.tag
                self._announce(f"{where} is the newest step{choice.why_not_memory}")
                return self._by_deepspeed(self._root, own.tag, options)
            load.step = choice.step
            if choice.step < 0:
                self._announce(f"nothing was saved: training begins{choice.why_not_memory}")
                return None, {}
            return self._load(choice, load, options)

    def _load(self, choice: Choice, load: Load, options: Mapping[str, Any]) -> Loaded:
        if choice.saved is not None:
            load.source = "disk"
            return self._from_disk(choice, options)
        load.source = "memory"
        self._announce(f"step {choice.step} {choice.origin}")
        memory_only = choice.state[iteration_files.MEMORY_ONLY]
        own = {**iteration_files.files_of(choice.state), **memory_only["files"]}
        random = own.pop(_random_file(self._ranks.rank))
        names = {name for rank in self._ranks.all_gather(sorted(own)) for name in _inside(rank)}
        tag = str(memory_only["tag"])
        files = to_objects(own, own_member)
        client_state = engine_state.give(
            self._engine, self._memory.folder, tag, files, sorted(names), options
        )
        random_streams.restore(random)
        return f"memory:{tag}", client_state

    def _from_disk(self, choice: Choice, options: Mapping[str, Any]) -> Loaded:
        saved, rank = choice.saved, self._ranks.rank
        assert saved is not None
        folder = saved.path
        if isinstance(saved, OnDisk):
            folder = saved.path.parent
            disk.require_as_written(saved, _NEXT_STEP)
        if not (folder / iteration_files.list_name(0)).exists():
            raise BadInputFile(
                f"{folder} was not saved by a DeepSpeedCheckpointer",
                next_step="Load it with the checkpointer that has saved it.",
            )
        saved_by = int(read_manifest(folder).facts["world_size"])
        is_same = saved_by == self._ranks.world_size
        wanted = [engine_state.model_file(self._engine, folder.name)]
        if is_same:
            wanted += iteration_files.listed(folder, rank)
        for name, problem in iteration_folder.problems(folder, only=wanted):
            raise BadInputFile(f"{folder / name} {problem}", next_step=_NEXT_STEP)
        ranks = "" if is_same else f", which {saved_by} ranks saved: random generators begin anew"
        self._announce(f"step {choice.step} from {folder}{ranks}{choice.why_not_memory}")
        loaded = self._by_deepspeed(folder.parent, folder.name, options)
        if is_same:
            random_streams.restore(read_plain(folder / _random_file(rank), arrays=True))
        return loaded

    def _by_deepspeed(self, folder: Path, tag: str | None, options: Mapping[str, Any]) -> Loaded:
        path, client_state = self._engine.load_checkpoint(str(folder), tag=tag, **options)
        return path, dict(client_state or {})

    def _why_not(self, state: Any) -> str:  # noqa: ANN401
        """Why the engine cannot load a state in memory; "" if it can."""
        try:
            saved = state[iteration_files.MEMORY_ONLY]["division"]
        except (KeyError, TypeError):
            return "it was not saved by a DeepSpeedCheckpointer"
        return other_division(saved, engine_state.division_of(self._engine))

    def _own_latest(self) -> OwnLatest:
        """What DeepSpeed would load, as rank 0 sees it."""
        seen = own_latest(self._root) if self._ranks.rank == 0 else OwnLatest(-1, "")
        step, tag = self._ranks.all_gather([seen.step, seen.tag])[0]
        return OwnLatest(step, tag)

    def _name_on_disk(self, step: int) -> str:
        return f"global_step{step}"

    def _publish(
        self,
        folder: Path,
        path: Path,
        step: int,
        files: Sequence[FileRecord],
        facts: Mapping[str, int],
    ) -> None:
        sharded_on_disk.publish_files(folder, path, step, self._root, files, facts)
        if path not in self._not_latest:
            name_latest(path, self._script)


def _random_file(rank: int) -> str:
    return f"rng_state_{rank}.pt"


def _inside(names: Any) -> list[str]:  # noqa: ANN401
    try:
        return [name_inside(name) for name in names]
    except (ValueError, TypeError) as error:
        raise BadInputFile(f"what a rank says of its files cannot be used: {error}") from error


@dataclass(frozen=True, slots=True)
class OwnLatest:
    """What DeepSpeed would load.

    Args:
        step: as its tag says; 0 for a tag that says none; -1: there is no such checkpoint.
        tag: name of the folder; "": likewise.
    """

    step: int
    tag: str


def own_latest(root: Path) -> OwnLatest:
    """What `latest` names in a folder, whoever has written it."""
    try:
        tag = read_input_text(root / LATEST, _MAX_TAG_BYTES).strip()
    except (OSError, UnicodeDecodeError):
        return OwnLatest(-1, "")
    if not tag or Path(tag).name != tag:
        return OwnLatest(-1, "")
    step = whole_number(tag.removeprefix(_PREFIX)) if tag.startswith(_PREFIX) else None
    return OwnLatest(0 if step is None else step, tag)


def name_latest(path: Path, script: bytes) -> None:
    """Have DeepSpeed find a checkpoint.

    Args:
        path: its folder, with the tag as name.
        script: DeepSpeed's, which makes one file of the parts; b"" where there is none.

    Raises:
        UnwritablePath: a file cannot be written.
    """
    if script:
        write_atomic(path.parent / SCRIPT, script, mode=0o700)
    write_atomic(path.parent / LATEST, path.name)
