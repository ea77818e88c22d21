"""Saves and loads a run in Megatron's torch layout: whole or not at all, and plain data only.

    SAVE/latest_checkpointed_iteration.txt            the step to resume from
    SAVE/iter_0000010/mp_rank_00[_000][_000]/         tensor, pipeline and expert place
        model_optim_rng.pt                            weights, schedule, position, random streams
        distrib_optim.pt                              state of the distributed optimizer
    SAVE/iter_0000010/manifest.json                   sizes and checksums of all files

The first data-parallel rank of each place writes. Nothing in the files depends on the
data-parallel size, so a run may be resumed on another.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relkit import __version__
from relkit.checkpoint import iteration_folder as files
from relkit.checkpoint.manifest import MANIFEST, FileRecord, read_manifest
from relkit.checkpoint.megatron_facts import OBJECTS_OF
from relkit.checkpoint.rng_state import RngState, capture
from relkit.checkpoint.torch_file import read_plain
from relkit.errors import BadInputFile, RelkitError
from relkit.trainer.checkpointing.on_all_ranks import on_all_ranks
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.mesh import Mesh
from relkit.trainer.core.optimizer import Optimizer
from relkit.trainer.core.parameters import ParamInfo
from relkit.trainer.core.progress import Progress
from relkit.trainer.megatron import by_parameter, names, optimizer_files, parameter_states

_LOG = logging.getLogger(__name__)


def save(
    folder: Path,
    *,
    step: int,
    chunks: Sequence[nn.Module],
    infos: Mapping[str, ParamInfo],
    optimizer: Optimizer,
    progress: Progress,
    config: TrainerConfig,
    mesh: Mesh,
) -> Path:
    """Write an iteration that all ranks share; every rank of the world must call it.

    Args:
        folder: of all iterations, shared by the ranks.
        step: optimizer steps done.
        chunks, infos: from `build_model`.
        progress: as of the boundary of that step, with `rng`.
        config: `training.keep_checkpoint_max` iterations are kept.

    Returns:
        The iteration's folder.

    Raises:
        UnwritablePath: on every rank, when any of them cannot write; the previous iteration and
            the tracker are as they were.
    """
    state = optimizer.full_state()  # communicates, so it comes before anything that may fail
    first = mesh.world.rank == 0
    temporary = folder / (files.iteration_name(step) + files.TEMPORARY)
    try:
        on_all_ranks(mesh, lambda: files.begin(folder, step) if first else None)
        records: list[FileRecord] = []

        def write() -> list[FileRecord]:
            if mesh.expert_data.rank != 0:
                return []
            content = contents(chunks, optimizer, state, progress, config, mesh)
            return [
                files.write_file(
                    temporary,
                    f"{names.rank_folder(mesh)}/{name}",
                    lambda out, plain=plain: torch.save(plain, out),  # type: ignore[misc]
                )
                for name, plain in content.items()
            ]

        for written in on_all_ranks(mesh, write):
            records += written
        facts = manifest_facts(infos, progress, config, mesh)
        on_all_ranks(mesh, lambda: files.commit(temporary, step, records, facts) if first else None)
    except RelkitError:
        # Every rank is here; together, so that none goes on while the folder is still there.
        on_all_ranks(mesh, lambda: _abandon(temporary) if first else None)
        raise
    keep = config.training.keep_checkpoint_max
    if first and keep is not None:
        try:
            files.prune(folder, keep, step)
        except RelkitError as error:  # what was to be saved is saved
            _LOG.warning("an old iteration could not be removed: %s", error)
    return folder / files.iteration_name(step)


def _abandon(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        files.abandon(temporary)


def contents(
    chunks: Sequence[nn.Module],
    optimizer: Optimizer,
    state: Mapping[str, Any],
    progress: Progress,
    config: TrainerConfig,
    mesh: Mesh,
) -> dict[str, Any]:
    """What this rank's files hold, by file name. Does not communicate.

    Args:
        state: `optimizer.full_state()`, or the same gathered by other means.
    """
    random = progress.rng.to_plain()
    random["rng_tracker_states"] |= names.undrawn_streams(config.training.seed, mesh)
    model: dict[str, Any] = {
        "args": names.arguments(config, mesh, progress),
        "checkpoint_version": 3.0,
        "iteration": progress.step,
        "optimizer": by_parameter.entry(optimizer, config, state, progress.loss_scaler),
        "opt_param_scheduler": names.scheduler(config, mesh, state["steps"]),
        "rng_state": [random],
        "num_floating_point_operations_so_far": 0.0,
        "relkit": {
            "layout": parameter_states.LAYOUT,
            "skipped_steps": progress.skipped_steps,
            "metrics": dict(progress.metrics),
            "optimizer_type": config.optimizer.optimizer_type,
            "loss_scaler": dict(progress.loss_scaler),
            "came": state["came"],
        },
    }
    for key, chunk in zip(_model_keys(len(chunks)), chunks, strict=True):
        model[key] = names.parameters(chunk)
    files = {names.MODEL_FILE: model}
    if config.training.use_distributed_optimizer:
        files[names.OPTIMIZER_FILE] = optimizer_files.flat_file(optimizer, state)
    return files


def manifest_facts(
    infos: Mapping[str, ParamInfo], progress: Progress, config: TrainerConfig, mesh: Mesh
) -> dict[str, Any]:
    """What `relkit ckpt inspect` shows without opening a file of tensors."""
    arguments = vars(names.arguments(config, mesh, progress))
    chosen = (*names.MUST_AGREE, "world_size", "data_parallel_size", "global_batch_size")
    counters = ("consumed_train_samples", "consumed_valid_samples", "seed", "seq_length")
    return {
        **{name: arguments[name] for name in (*chosen, *counters)},
        "use_distributed_optimizer": config.training.use_distributed_optimizer,
        "optimizer": config.optimizer.optimizer_type,
        "skipped_steps": progress.skipped_steps,
        "relkit": __version__,
    }


def load(
    folder: Path,
    *,
    chunks: Sequence[nn.Module],
    infos: Mapping[str, ParamInfo],
    optimizer: Optimizer,
    config: TrainerConfig,
    mesh: Mesh,
    step: int | None = None,
) -> Progress:
    """Put a run back where it was saved; every rank of the world must call it.

    Args:
        folder: of all iterations.
        chunks, infos: from `build_model`; the weights are overwritten.
        optimizer: its state is overwritten.
        step: of the iteration; None: the one that the tracker names (`files.latest` says whether
            there is one).

    Returns:
        The progress, with `rng` for `relkit.checkpoint.rng_state.restore`.

    Raises:
        BadInputFile: on every rank, when any of them finds its files missing, damaged, not plain
            data, or of another model or other degrees. Weights may be overwritten by then.
    """
    del infos  # the optimizer has them; they stay in the signature beside those of `save`
    if mesh.world.rank == 0:
        for unfinished in files.half_written(folder):
            _LOG.warning("%s is half-written, and is ignored", unfinished)
    loaded = on_all_ranks(mesh, lambda: _load(folder, chunks, optimizer, config, mesh, step))
    return loaded[mesh.world.rank]


def _load(
    folder: Path,
    chunks: Sequence[nn.Module],
    optimizer: Optimizer,
    config: TrainerConfig,
    mesh: Mesh,
    step: int | None,
) -> Progress:
    wanted = files.latest(folder) if step is None else step
    if wanted is None:
        raise BadInputFile(f"{folder} has no {files.TRACKER}, so there is nothing to resume from")
    iteration = files.existing(folder, wanted)
    expected = vars(names.arguments(config, mesh, Progress()))
    if (iteration / MANIFEST).is_file():
        names.refuse_other(read_manifest(iteration).facts, expected, iteration)
    # Experts' files of other ranks have what is not of experts only once.
    places = [names.rank_folder(mesh)]
    if mesh.expert.rank > 0:
        places.append(names.rank_folder(mesh, expert=0))
    opened = [_open(iteration, f"{place}/{names.MODEL_FILE}") for place in places]
    model = opened[0]
    try:
        names.refuse_other(vars(model["args"]), expected, iteration)
        old = parameter_states.is_old(model)
        parameters = _load_model(model, chunks, iteration)
        saved = [file["optimizer"] for file in opened]
        if all(by_parameter.has_states(each) for each in saved):
            buffers = by_parameter.from_entries(optimizer, parameters, *saved, old=old)
        else:
            flat = [_open(iteration, f"{place}/{names.OPTIMIZER_FILE}") for place in places]
            buffers = optimizer_files.from_flat_file(optimizer, *flat, old=old)
        more = model.get("relkit", {})
        came = saved[0].get("came", {}) if old else more.get("came", {})
        steps = by_parameter.steps_of(saved[0])
        optimizer.load_full_state({"steps": steps, "buffers": buffers, "came": came})
        return Progress(
            step=int(model["iteration"]),
            consumed_train_samples=int(model["args"].consumed_train_samples),
            consumed_valid_samples=int(model["args"].consumed_valid_samples),
            skipped_steps=int(more.get("skipped_steps", 0)),
            loss_scaler=dict(more.get("loss_scaler", by_parameter.scaler_of(saved[0]))),
            rng=_streams(model["rng_state"][0], iteration),
            metrics=dict(more.get("metrics", {})),
        )
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise BadInputFile(
            f"{iteration}/{places[0]} lacks something or has it in another form:"
            f" {type(error).__name__} {error}"
        ) from error


def load_release(
    folder: Path,
    *,
    chunks: Sequence[nn.Module],
    optimizer: Optimizer,
    config: TrainerConfig,
    mesh: Mesh,
) -> None:
    """Start from a published model: its weights, and all else as at a first step.

    Every rank of the world must call it.

    Args:
        folder: whose tracker names a release.

    Raises:
        BadInputFile: as `load`.
    """
    state = optimizer.full_state()  # communicates, so it comes before anything that may fail
    on_all_ranks(mesh, lambda: _load_release(folder, chunks, optimizer, config, mesh, state))


def _load_release(
    folder: Path,
    chunks: Sequence[nn.Module],
    optimizer: Optimizer,
    config: TrainerConfig,
    mesh: Mesh,
    state: Mapping[str, Any],
) -> None:
    release = folder / files.RELEASE
    model = _open(release, f"{names.rank_folder(mesh)}/{names.MODEL_FILE}")
    try:
        names.refuse_other(
            vars(model["args"]), vars(names.arguments(config, mesh, Progress())), release
        )
        weights = _load_model(model, chunks, release)
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise BadInputFile(
            f"{release} lacks something or has it in another form: {type(error).__name__} {error}"
        ) from error
    kept = tuple(optimizer.moments[0])
    begun = {
        name: {"param": value, **{key: torch.zeros_like(value) for key in kept}}
        for name, value in weights.items()
    }
    buffers = parameter_states.assembled(optimizer, begun)
    optimizer.load_full_state({"steps": 0, "buffers": buffers, "came": state["came"]})


def _open(iteration: Path, name: str) -> Any:  # noqa: ANN401
    """One file, held against the manifest where there is one (Megatron writes none)."""
    if not (iteration / name).exists():
        held = ", ".join(sorted(path.name for path in iteration.glob("mp_rank_*"))) or "nothing"
        raise BadInputFile(
            f"{iteration / name} is missing; the iteration has {held}",
            next_step="Resume with the degrees that it was written with, or from another one.",
        )
    if (iteration / MANIFEST).is_file():
        for bad, wrong in files.problems(iteration, only=[name]):
            raise BadInputFile(
                f"{iteration / bad} {wrong}",
                next_step=f"Resume from another iteration; {_whole_ones(iteration.parent)}.",
            )
    return read_plain(iteration / name, arrays=True, objects_of=OBJECTS_OF)


def _streams(plain: Mapping[str, Any], iteration: Path) -> RngState:
    """The random streams; of those of another kind of device, dropout's begins anew here."""
    saved, here = RngState.from_plain(plain), capture().tracker
    if here and len(saved.tracker) != len(here):
        _LOG.warning(
            "%s has the streams of another kind of device; dropout's starts anew", iteration
        )
        return replace(saved, tracker=here)
    return saved


def _whole_ones(folder: Path) -> str:
    steps = ", ".join(str(step) for step in files.iterations(folder))
    return f"{folder} has {steps}, and `relkit ckpt verify` says which are whole"


def _load_model(
    model: Mapping[str, Any], chunks: Sequence[nn.Module], iteration: Path
) -> dict[str, Tensor]:
    """Overwrite the weights; returns them by their names in the run."""
    loaded: dict[str, Tensor] = {}
    for key, chunk in zip(_model_keys(len(chunks)), chunks, strict=True):
        saved, ours = model[key], names.parameters(chunk)
        # A real Megatron adds entries of Transformer Engine, which hold no weights.
        extra = {name for name in saved if not name.endswith("_extra_state")} - set(ours)
        for name in sorted(extra | (set(ours) - set(saved))):
            has = "has" if name in extra else "lacks"
            raise BadInputFile(f"{iteration} {has} {name}, which this run's model does not match")
        for name, parameter in ours.items():
            if saved[name].shape != parameter.shape:
                raise BadInputFile(
                    f"{iteration} has {name} as {tuple(saved[name].shape)}, and this run's is"
                    f" {tuple(parameter.shape)}"
                )
            parameter.copy_(saved[name])
        loaded.update({name: value.detach() for name, value in chunk.named_parameters()})
    return loaded


def _model_keys(chunks: int) -> list[str]:
    return ["model"] if chunks == 1 else [f"model{number}" for number in range(chunks)]
