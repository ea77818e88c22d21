"""What model_optim_rng.pt has under "optimizer": groups, steps, and the plain optimizer's state.

As megatron-core writes it: one entry, or [dense, experts] where experts are spread over ranks. A
plain fp32 optimizer's is torch's own state; another has that under "optimizer", and beside it the
loss scale and (plain) the fp32 weights. torch numbers parameters group by group: first those that
decay, then norms and biases, each in the order of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from relkit.errors import BadInputFile
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.optimizer import Optimizer
from relkit.trainer.megatron import parameter_states
from relkit.trainer.megatron.parameter_states import Named, State

Entry = Any


def entry(
    optimizer: Optimizer, config: TrainerConfig, state: State, scaler: Mapping[str, float]
) -> Entry:
    """What is saved.

    Args:
        scaler: state of the loss scaler; empty where there is none.
    """
    entries = [
        _of_kind(optimizer, config, state, scaler, expert=expert)
        for expert in parameter_states.kinds(optimizer)
    ]
    return entries[0] if len(entries) == 1 else entries


def _of_kind(
    optimizer: Optimizer,
    config: TrainerConfig,
    state: State,
    scaler: Mapping[str, float],
    *,
    expert: bool,
) -> Entry:
    half = config.model.compute_dtype != "float32"
    groups = [_group(config, state["steps"], decay=decay, expert=expert) for decay in (True, False)]
    saved: dict[str, Any] = {"param_groups": groups}
    more: dict[str, Any] = {}
    if config.model.compute_dtype == "float16" and scaler:
        scale = torch.tensor([float(scaler["scale"])])
        trackers = {k: int(n) for k, n in scaler.items() if k != "scale"}
        more["grad_scaler"] = {"scale": scale, **trackers}
    if config.training.use_distributed_optimizer:
        return {"optimizer": saved, **more}
    members = _members(optimizer, expert=expert)
    numbers = iter(range(sum(map(len, members))))
    for group, names in zip(groups, members, strict=True):
        group["params"] = [next(numbers) for _ in names]
    held = parameter_states.named(optimizer, state)
    saved["state"] = {
        number: _with_step(moments, state["steps"])
        for number, name in enumerate(name for names in members for name in names)
        if (moments := {key: part for key, part in held[name].items() if key != "param"})
    }
    if not half:
        return saved
    weights = [[held[name]["param"] for name in names if held[name]] for names in members]
    return {"optimizer": saved, **more, "fp32_from_fp16_params": weights}


def _with_step(moments: dict[str, Tensor], steps: int) -> dict[str, Tensor]:
    adam = "exp_avg" in moments
    return {"step": torch.tensor(float(steps)), **moments} if adam else moments


def _members(optimizer: Optimizer, *, expert: bool) -> tuple[list[str], list[str]]:
    """Names of the parameters that decay, and of those that do not, in torch's order."""
    infos = optimizer.infos
    names = [
        name
        for chunk in optimizer.chunks
        for name, _ in chunk.named_parameters()
        if infos[name].expert is expert
    ]
    return [n for n in names if infos[n].decay], [n for n in names if not infos[n].decay]


def _group(config: TrainerConfig, steps: int, *, decay: bool, expert: bool) -> dict[str, Any]:
    chosen = config.optimizer
    multiplier = 1.0 if decay else 0.0
    return {
        "is_expert_parallel": expert,
        "default_config": True,
        "wd_mult": multiplier,
        "lr_mult": 1.0,
        "is_decoupled_lr": False,
        "max_lr": chosen.learning_rate,
        "min_lr": chosen.end_learning_rate,
        "lr": chosen.learning_rate,
        "betas": tuple(chosen.betas),
        "eps": chosen.eps,
        "weight_decay": chosen.weight_decay * multiplier,
        "bias_correction": True,
        "step": steps,
    }


def steps_of(saved: Entry) -> int:
    """How many updates a saved optimizer has done.

    torch's Adam counts by parameter, Transformer Engine's by group, and each carries what it has
    loaded of the other's along without counting it on: the higher count is the one that counts.

    Raises:
        BadInputFile: it does not say.
    """
    counted = [
        int(each["step"])
        for part in _chained(saved)
        for each in (*part["param_groups"], *part.get("state", {}).values())
        if each.get("step") is not None
    ]
    if not counted:
        raise BadInputFile("the optimizer state does not say how many steps it has seen")
    return max(counted)


def has_states(saved: Entry) -> bool:
    """Whether the moments are here; else they are in distrib_optim.pt."""
    return any("state" in part for part in _chained(saved))


def scaler_of(saved: Entry) -> dict[str, float]:
    """State of the loss scaler; empty where there is none."""
    first = saved[0] if isinstance(saved, list) else saved
    return {key: float(value) for key, value in first.get("grad_scaler", {}).items()}


def from_entries(
    optimizer: Optimizer, weights: Mapping[str, Tensor], *saved: Entry, old: bool
) -> list[Any]:
    """`full_state`'s "buffers"; of several files, each parameter's from the first that has it.

    Args:
        weights: of all chunks, by the names in the run; fp32 ones beside the moments come first.
        old: whether the files are in relkit's first layout.

    Raises:
        BadInputFile: it is of another model or another optimizer.
    """
    files = [_numbered_before(optimizer, e) if old else _by_name(optimizer, e) for e in saved]
    kept = tuple(optimizer.moments[0])
    states = {}
    for chunk in optimizer.chunks:
        for name, parameter in chunk.named_parameters():
            of_parameter = next((file[name] for file in files if file.get(name)), {})
            for key in kept:
                moment = of_parameter.get(key)
                if moment is None or moment.shape != parameter.shape:
                    had = "nothing" if moment is None else f"shape {tuple(moment.shape)}"
                    raise BadInputFile(
                        f"the checkpoint's {key} of {name} has {had}, and the model"
                        f" {tuple(parameter.shape)}"
                    )
            states[name] = {"param": weights[name], **of_parameter}
    return parameter_states.assembled(optimizer, states)


def _by_name(optimizer: Optimizer, saved: Entry) -> Named:
    kinds = parameter_states.kinds(optimizer)
    parts = _chained(saved)
    if len(parts) != len(kinds):
        raise BadInputFile(
            f"the optimizer state is chained of {len(parts)}, and this run's is of {len(kinds)}"
        )
    named: dict[str, Mapping[str, Tensor]] = {}
    for part, expert in zip(parts, kinds, strict=True):
        for decay, names in zip((True, False), _members(optimizer, expert=expert), strict=True):
            held = list(_states(part, decay=decay))
            if len(held) != len(names):
                which = "decay" if decay else "do not decay"
                raise BadInputFile(
                    f"the optimizer state has {len(held)} parameters that {which}, and this run"
                    f" has {len(names)}"
                )
            named.update(zip(names, held, strict=True))
    return named


def _states(part: Mapping[str, Any], *, decay: bool) -> Iterator[Mapping[str, Tensor]]:
    """Of each parameter whose group decays (or does not), in order: its moments and weight."""
    mains: Sequence[Sequence[Tensor]] = part.get("mains") or [()] * len(part["param_groups"])
    for group, main in zip(part["param_groups"], mains, strict=True):
        if group.get("is_decoupled_lr", group.get("pre_is_decoupled_lr", False)):
            raise BadInputFile("a learning rate of their own for some parameters is not supported")
        if (group.get("wd_mult", group.get("pre_wd_mult")) != 0) is decay:
            for place, number in enumerate(group["params"]):
                weight = {"param": main[place]} if main else {}
                yield {**part["state"].get(number, {}), **weight}


def _numbered_before(optimizer: Optimizer, saved: Entry) -> Named:
    """The first layout's: parameters numbered as they lie in the buffers."""
    states = saved["optimizer"]["state"]
    spans = [
        span
        for _, layout in parameter_states.places(optimizer, old=True)
        for span in layout.unpadded_spans()
    ]
    return {name: states.get(number, {}) for number, (name, *_) in enumerate(spans)}


def _chained(saved: Entry) -> list[dict[str, Any]]:
    """Each optimizer's param_groups, state and (where they are kept apart) "mains"."""
    parts = []
    for part in saved if isinstance(saved, list) else [saved]:
        inner = dict(part.get("optimizer", part))
        if "fp32_from_fp16_params" in part:
            inner["mains"] = part["fp32_from_fp16_params"]
        parts.append(inner)
    return parts
