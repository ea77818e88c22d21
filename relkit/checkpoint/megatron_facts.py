"""What an iteration without a manifest says of itself: the arguments in Megatron's own files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Whose objects Megatron's files name: nothing of them is imported or called. The arguments of its
# own program have a member of signal's enum (--exit-signal).
OBJECTS_OF = ("megatron.", "signal.Signals")
_MODEL_FILE = "model_optim_rng.pt"
_PLAIN = (bool, int, float, str, type(None))


def facts_of(folder: Path) -> dict[str, Any] | None:
    """The plain arguments of the run that wrote it; None where there is no such file, or no torch.

    Args:
        folder: of an iteration in Megatron's torch layout.

    Raises:
        BadInputFile: the file is cut or damaged, or would call something.
    """
    path = min(folder.glob(f"mp_rank_*/{_MODEL_FILE}"), default=None)
    if path is None:
        return None
    try:
        from relkit.checkpoint.torch_file import read_plain
    except ImportError:
        return None
    content = read_plain(path, arrays=True, objects_of=OBJECTS_OF)
    arguments = content.get("args") if isinstance(content, Mapping) else None
    try:
        named = vars(arguments)
    except TypeError:
        return None
    return {name: value for name, value in named.items() if isinstance(value, _PLAIN)}


def files_of(folder: Path) -> tuple[list[str], int]:
    """Names of the files of an iteration, and their bytes together."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [str(path.relative_to(folder)) for path in paths]
    return names, sum(path.stat().st_size for path in paths)
