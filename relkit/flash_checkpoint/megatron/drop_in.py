"""Takes the place of Megatron-LM's `save_checkpoint` and `load_checkpoint`."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from relkit.errors import UsageProblem
from relkit.flash_checkpoint.megatron.checkpointer import MegatronCheckpointer
from relkit.flash_checkpoint.megatron.native import Megatron
from relkit.flash_checkpoint.replicas import COUNT_VARIABLE
from relkit.flash_checkpoint.save_handle import SaveHandle
from relkit.flash_checkpoint.storage_type import StorageType
from relkit.text.whole_number import whole_number


def save_checkpoint(
    iteration: int,
    model: Any,  # noqa: ANN401
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    num_floating_point_operations_so_far: float = 0,
    checkpointing_context: dict[str, Any] | None = None,
    *,
    storage_type: StorageType = StorageType.DISK,
    replica_count: int = 0,
    **options: Any,  # noqa: ANN401
) -> SaveHandle:
    """Save the state as it is now, in memory or to disk; the loop may go on at once.

    Every rank must call it, as Megatron's.

    Args:
        iteration, model, optimizer, opt_param_scheduler: as of Megatron's.
        num_floating_point_operations_so_far: likewise; not given on where this version of Megatron
            does not take it.
        checkpointing_context, options: further arguments of Megatron's, given on to it.
        storage_type: MEMORY or DISK. DISK writes to `args.save`, in Megatron's own layout.
        replica_count: how many other hosts keep a copy; the launcher must make as many
            (`relkit launch --replica-count`), for the whole job. On a single node there is no other
            host, and a line says so.

    Returns:
        a handle; its `wait()` returns when the state is in memory, or on disk for DISK. What
        Megatron saves by itself with `--async-save` may not be on disk yet.

    Raises:
        UsageProblem: Megatron-LM is not installed, there is no `args.save`, or its checkpoint
            format is not kept in memory; the launcher makes fewer replicas.
        NotPlain: the state holds objects that are neither tensors nor plain values.
        DeadlineExceeded: the previous save is still under way after half an hour.
    """
    _require_replicas(replica_count)
    required = (iteration, model, optimizer, opt_param_scheduler)
    context = {"checkpointing_context": checkpointing_context, **options}
    megatron = _megatron()
    return _checkpointer(megatron).save_native(
        megatron, required, num_floating_point_operations_so_far, context, storage_type
    )


def load_checkpoint(
    model: Any,  # noqa: ANN401
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    load_arg: str = "load",
    strict: bool = True,
    checkpointing_context: dict[str, Any] | None = None,
    *,
    replica_count: int = 0,
    **options: Any,  # noqa: ANN401
) -> tuple[int, float]:
    """Load the newest state that all ranks have: from memory, or from disk as Megatron does.

    Every rank must call it. It waits for saves that are under way. Rank 0 prints one line to stderr
    that names what was loaded, and a newer step that could not be saved.

    Args:
        model, optimizer, opt_param_scheduler, strict: as of Megatron's.
        load_arg: likewise; where it is not "load", only Megatron's own function is called.
        checkpointing_context, options: further arguments of Megatron's, given on to it.
        replica_count: how many other hosts keep a copy; the launcher must make as many
            (`relkit launch --replica-count`), for the whole job. On a single node there is no other
            host, and a line says so.

    Returns:
        the iteration, and the floating-point operations so far (0 before Megatron 0.5).

    Raises:
        UsageProblem: Megatron-LM is not installed; the launcher makes fewer replicas.
        BadInputFile: the model is divided in another way than it was saved in memory, or what is
            on disk is damaged.
        DeadlineExceeded: a save is still under way after half an hour.
        RelkitError: the ranks do not answer each other.
    """
    _require_replicas(replica_count)
    required = (model, optimizer, opt_param_scheduler, load_arg, strict)
    context = {"checkpointing_context": checkpointing_context, **options}
    megatron = _megatron()
    if load_arg != "load" or megatron.arguments.save is None:
        return megatron.load(required, context)
    return _checkpointer(megatron).load_native(megatron, required, context)


def _require_replicas(replica_count: int) -> None:
    made = whole_number(os.environ.get(COUNT_VARIABLE)) or 0
    if replica_count <= made:
        return
    if _is_on_one_node():
        _say_no_second_host(replica_count)
        return
    raise UsageProblem(
        f"replica_count={replica_count}: the launcher makes {made}",
        next_step=f"Start the job with `relkit launch --replica-count {replica_count}` on all"
        " nodes, or leave replica_count out.",
    )


def _is_on_one_node() -> bool:
    """All ranks of the job are of one launcher, as far as the variables of torchrun say."""
    ranks, here = (
        whole_number(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
    )
    return ranks is not None and ranks == here


@cache
def _say_no_second_host(replica_count: int) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(
            f"relkit: flash checkpoint: replica_count={replica_count}: this job has no second host"
            " to keep a copy on; it saves without",
            file=sys.stderr,
        )


@cache
def _megatron() -> Megatron:
    return Megatron()


def _checkpointer(megatron: Megatron) -> MegatronCheckpointer:
    folder = megatron.arguments.save
    if folder is None:
        raise UsageProblem(
            "Megatron's argument --save is not given", next_step="Give it: --save FOLDER."
        )
    return _of_folder(Path(folder), os.getpid())


@cache
def _of_folder(folder: Path, _pid: int) -> MegatronCheckpointer:
    return MegatronCheckpointer(folder)
