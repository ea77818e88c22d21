"""What DeepSpeed's engine saves on this rank, taken and given back by its own functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.errors import UsageProblem
from relkit.flash_checkpoint.deepspeed.checkpoint_engines import (
    GivingEngine,
    KeepingEngine,
    with_attributes,
)
from relkit.flash_checkpoint.scratch_folder import scratch_folder

SCRIPT = "zero_to_fp32.py"
# A folder to ask DeepSpeed for names in.
_ANY = "/checkpoints"


@dataclass(frozen=True, slots=True)
class EngineState:
    """What this rank has of a checkpoint.

    Args:
        own: name in the folder -> content, of the files that this rank writes to disk.
        others: likewise, of the files that another rank with the same content writes.
        script: DeepSpeed's, which makes one file of the parts; b"" where there is none.
    """

    own: dict[str, Any]
    others: dict[str, Any]
    script: bytes


def take(
    engine: Any,  # noqa: ANN401
    home: Path | None,
    tag: str,
    client_state: Mapping[str, Any],
    options: Mapping[str, Any],
) -> EngineState:
    """What DeepSpeed saves on this rank. Every rank must call it.

    Args:
        engine: DeepSpeed's; home: see scratch_folder.
        tag, client_state, options: as of its `save_checkpoint`.

    Raises:
        UsageProblem: it saves files that cannot be kept in memory.
    """
    if engine.zero_nvme_offload_optimizer():
        raise _not_kept("offloaded to NVMe")
    files: dict[str, Any] = {}
    with scratch_folder(home) as folder:
        keeping = KeepingEngine(engine.checkpoint_engine, folder / tag, files)
        writes_model = bool(engine.save_non_zero_checkpoint)
        # Each rank keeps all that it loads: then it needs no other one.
        with with_attributes(engine, checkpoint_engine=keeping, save_non_zero_checkpoint=True):
            engine.save_checkpoint(
                str(folder), tag=tag, client_state=dict(client_state), save_latest=False, **options
            )
        model, known = model_file(engine, tag), set(file_names(engine, tag))
        script = folder / SCRIPT
        text = script.read_bytes() if script.is_file() else b""
    if set(files) - known:
        raise _not_kept(f"{sorted(set(files) - known)[0]} (mixture of experts, pipelines)")
    others = {} if writes_model else {model: files.pop(model)}
    return EngineState(files, others, text)


def give(
    engine: Any,  # noqa: ANN401
    home: Path | None,
    tag: str,
    files: Mapping[str, Any],
    names: Sequence[str],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Have DeepSpeed load files from memory. Every rank must call it.

    Args:
        files: of this rank; names: of all ranks' files.
        options: further arguments of its `load_checkpoint`.

    Returns:
        the client state.
    """

    def lay_out(folder: Path) -> None:
        # DeepSpeed looks which files there are, and then loads its own.
        (folder / tag).mkdir()
        for name in names:
            (folder / tag / name).touch()

    with scratch_folder(home, lay_out) as folder:
        giving = GivingEngine(engine.checkpoint_engine, folder / tag, files)
        with with_attributes(engine, checkpoint_engine=giving):
            _, client_state = engine.load_checkpoint(str(folder), tag=tag, **options)
    return dict(client_state or {})


def model_file(engine: Any, tag: str) -> str:  # noqa: ANN401
    """The file with the module that this rank loads."""
    return str(Path(engine._get_ckpt_name(_ANY, tag)).relative_to(Path(_ANY) / tag))


def file_names(engine: Any, tag: str) -> list[str]:  # noqa: ANN401
    """The files that this rank loads."""
    names = [model_file(engine, tag)]
    if engine.save_zero_checkpoint or engine.zero_optimization():
        path = Path(engine._get_zero_ckpt_name(_ANY, tag))
        names.append(str(path.relative_to(Path(_ANY) / tag)))
    return names


def division_of(engine: Any) -> dict[str, Any]:  # noqa: ANN401
    """How the engine divides a model between ranks."""
    return {
        "ZeRO stage": int(engine.zero_optimization_stage()),
        "data parallel size": int(engine.seq_dp_world_size),
        "model parallel size": int(engine.mp_world_size),
        "files": sorted(file_names(engine, "tag")),
    }


def _not_kept(what: str) -> UsageProblem:
    return UsageProblem(
        f"DeepSpeed saves what is not kept in memory: {what}",
        next_step="Save with DeepSpeed's own engine.save_checkpoint().",
    )
