"""Takes the place of what Megatron writes with and reads with, while its own functions run.

Only calls of the same thread for files inside of a given folder are taken; everything else goes
where it went before. One thread at a time: what the other put back would be the first one's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from relkit.errors import BadInputFile, UsageProblem
from relkit.flash_checkpoint.megatron import sharded_state

_one_at_a_time = threading.RLock()


@dataclass(slots=True)
class Captured:
    """What Megatron has saved instead of writing it.

    Args:
        files: name within the iteration's folder -> content, for torch.save.
        sharded: megatron-core's distributed checkpoint; None where it is none.
    """

    files: dict[str, Any] = field(default_factory=dict)
    sharded: dict[str, Any] | None = None


@contextmanager
def captured(folder: Path, checkpointing: ModuleType) -> Iterator[Captured]:
    """What Megatron saves into a folder meanwhile is kept instead.

    Args:
        folder: that Megatron is told to save to; it gets what else Megatron writes, and need not
            be there for what it keeps.
        checkpointing: Megatron's module.

    Raises:
        UsageProblem: meanwhile, to Megatron: it saves more than one distributed checkpoint.
    """
    kept = Captured()

    def save(state: object, path: Any, *_: object, **__: object) -> None:  # noqa: ANN401
        kept.files[_name(path, folder)] = state

    def save_sharded(state: dict[str, Any], path: Any, *_: object, **options: Any) -> None:  # noqa: ANN401
        if kept.sharded is not None:
            raise UsageProblem(
                f"{_name(path, folder)} is a further distributed checkpoint of the same step, which"
                " is not kept in memory",
                next_step="Save to disk only: storage_type=StorageType.DISK.",
            )
        kept.sharded = sharded_state.take(state, options.get("content_metadata"))

    make_folders = os.makedirs

    def make_folders_if_possible(path: Any, *more: Any, **options: Any) -> None:  # noqa: ANN401
        # Nothing is written into them: a rank without room for one still meets the others in
        # Megatron's barriers.
        with suppress(OSError):
            make_folders(path, *more, **options)

    with ExitStack() as stack:
        stack.enter_context(_instead(torch, "save", save, folder, 1))
        stack.enter_context(_instead(os, "makedirs", make_folders_if_possible, folder, 0))
        distributed = getattr(checkpointing, "dist_checkpointing", None)
        if distributed is not None:
            stack.enter_context(_instead(distributed, "save", save_sharded, folder, 1))
        # Megatron's tracker names nothing, and nobody is told of a checkpoint on disk.
        stack.enter_context(
            _swapped(checkpointing, "get_checkpoint_tracker_filename", lambda _folder: os.devnull)
        )
        # ... nor of a folder that is gone by the time anybody looks.
        if hasattr(checkpointing, "print_rank_0"):
            stack.enter_context(_swapped(checkpointing, "print_rank_0", lambda *_: None))
        wandb = getattr(checkpointing, "wandb_utils", None)
        if wandb is not None:
            stack.enter_context(
                _swapped(wandb, "on_save_checkpoint_success", lambda *_, **__: None)
            )
        yield kept


@contextmanager
def served(folder: Path, files: Mapping[str, Any]) -> Iterator[None]:
    """What Megatron loads with torch.load from a folder comes from memory.

    Args:
        files: name within the iteration's folder -> content.
    """

    def load(path: Any, *_: object, **__: object) -> Any:  # noqa: ANN401
        name = _name(path, folder)
        if name not in files:
            raise BadInputFile(f"Megatron asks for {name}, which is not in this rank's memory")
        return files[name]

    with _instead(torch, "load", load, folder, 0):
        yield


@contextmanager
def served_sharded(
    folder: Path, state: Mapping[str, Any], checkpointing: ModuleType
) -> Iterator[None]:
    """What Megatron loads with megatron-core from a folder comes from memory.

    Args:
        state: from `sharded_state.take`.
    """

    def load(template: dict[str, Any], _path: Any, *_: object, **__: object) -> Any:  # noqa: ANN401
        return sharded_state.put_into(state, template)

    def common(_path: Any, *_: object, **__: object) -> Any:  # noqa: ANN401
        return sharded_state.common_of(state)

    distributed = checkpointing.dist_checkpointing
    with (
        _instead(distributed, "load", load, folder, 1),
        _instead(distributed, "load_common_state_dict", common, folder, 0),
    ):
        yield


@contextmanager
def _instead(
    module: ModuleType, name: str, function: Callable[..., Any], folder: Path, position: int
) -> Iterator[None]:
    """A function of a module replaced for this thread and a folder.

    Args:
        position: of the path among the function's arguments.
    """
    original, thread = getattr(module, name), threading.get_ident()

    def replaced(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        path = arguments[position] if len(arguments) > position else None
        is_own = threading.get_ident() == thread and _is_inside(path, folder)
        return (function if is_own else original)(*arguments, **options)

    with _swapped(module, name, replaced):
        yield


@contextmanager
def _swapped(module: ModuleType, name: str, function: Callable[..., Any]) -> Iterator[None]:
    with _one_at_a_time:
        original = getattr(module, name)
        setattr(module, name, function)
        try:
            yield
        finally:
            setattr(module, name, original)


def _is_inside(path: object, folder: Path) -> bool:
    if not isinstance(path, (str, os.PathLike)):
        return False
    return Path(path).is_relative_to(folder)


def _name(path: str | os.PathLike[str], folder: Path) -> str:
    """A file's name within the folder of its iteration."""
    return "/".join(Path(path).relative_to(folder).parts[1:])
