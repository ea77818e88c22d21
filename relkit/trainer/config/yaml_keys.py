"""The keys of MindFormers' YAML sections, as its tutorial has them: which field each sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from relkit.errors import UsageProblem
from relkit.trainer.config.presets import preset
from relkit.trainer.config.values import Values, Warn, optimizer_type

MODEL = "model_config"

RENAMED: Mapping[str, Mapping[str, str]] = {
    "training_config": {
        "grad_clip_kwargs.grad_clip_type": "training.grad_clip_type",
        "grad_clip_kwargs.clip_value": "training.clip_value",
        "loss_func_kwargs.loss_func_type": "training.loss_func_type",
        "load_checkpoint": "training.load",
    },
    "parallel_config": {},
    MODEL: {"hidden_act": "model.activation"},
    "moe_config": {
        "moe_router_topk": "model.moe_router_topk",
        "moe_aux_loss_coeff": "model.moe_aux_loss_coeff",
    },
    "dataset_config": {
        "batch_size": "dataset.micro_batch_size",
        "dataset_dir": "dataset.data_path",
    },
    "optimizer_config": {
        "learning_rate_scheduler_kwargs.warmup_steps": "optimizer.warmup_steps",
        "learning_rate_scheduler_kwargs.decay_steps": "optimizer.decay_steps",
        "learning_rate_scheduler_kwargs.end_learning_rate": "optimizer.end_learning_rate",
    },
}
"""Section -> key (nested ones with a dot) -> field, where the key is not the field's own name."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key as it was met.

    Args:
        value: as read; called: section and key, for sentences.
        warn: gets what the user should know.
    """

    value: object
    called: str
    warn: Warn


Translator = Callable[[Key], Values]


def only(*allowed: object) -> Translator:
    """A key of which relkit has one kind: these values say so, any other is refused."""

    def check(key: Key) -> Values:
        if key.value is not None and key.value not in allowed:
            raise UsageProblem(
                f"{key.called} is {key.value!r}; relkit has only {allowed[0]!r}",
                next_step="Set it so, or leave the key out.",
            )
        return {}

    return check


def _experts(key: Key) -> Values:
    # MindFormers writes one expert where it means a dense model.
    return {"model.num_moe_experts": None if key.value == 1 else key.value}


def _optimizer_type(key: Key) -> Values:
    return {"optimizer.optimizer_type": optimizer_type(key.value, key.warn)}


def _use_cosine(key: Key) -> Values:
    return {"optimizer.lr_decay_style": "cosine" if key.value else "linear"}


def _preset(key: Key) -> Values:
    return preset(key.value) if key.value else {}


TRANSLATED: Mapping[tuple[str, str], Translator] = {
    (MODEL, "preset"): _preset,
    # What the tutorial's GPTModel reads beside the keys of its file.
    (MODEL, "encoder_attn_mask_type"): only("causal"),
    (MODEL, "fp16_lm_cross_entropy"): only(False),
    ("moe_config", "num_experts"): _experts,
    ("optimizer_config", "optimizer_type"): _optimizer_type,
    ("optimizer_config", "learning_rate_scheduler_kwargs.use_cosine"): _use_cosine,
}
"""Keys whose value relkit gives in another form."""
