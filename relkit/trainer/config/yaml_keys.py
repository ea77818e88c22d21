"""The keys of MindFormers' YAML sections: which field each sets, and which ones do nothing here."""

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
        "loss_scale_value": "training.loss_scale",
    },
    "parallel_config": {},
    MODEL: {
        "norm_epsilon": "model.layernorm_epsilon",
        "rotary_config.rotary_base": "model.rotary_base",
        "rotary_config.rotary_interleaved": "model.rotary_interleaved",
        "moe_config.moe_router_topk": "model.moe_router_topk",
        "moe_config.moe_aux_loss_coeff": "model.moe_aux_loss_coeff",
    },
    "moe_config": {
        "moe_router_topk": "model.moe_router_topk",
        "moe_aux_loss_coeff": "model.moe_aux_loss_coeff",
    },
    "dataset_config": {
        "batch_size": "dataset.micro_batch_size",
        "dataset_dir": "dataset.data_path",
        "eos_token_id": "dataset.eod_token",
    },
    "optimizer_config": {
        "learning_rate_scheduler_kwargs.warmup_steps": "optimizer.warmup_steps",
        "learning_rate_scheduler_kwargs.decay_steps": "optimizer.decay_steps",
        "learning_rate_scheduler_kwargs.end_learning_rate": "optimizer.end_learning_rate",
        "lr_warmup_iters": "optimizer.warmup_steps",
        "lr_warmup_fraction": "optimizer.warmup_fraction",
        "lr_decay_iters": "optimizer.decay_steps",
        "min_lr": "optimizer.end_learning_rate",
        "clip_grad": "training.clip_value",
    },
}
"""Section -> key (nested ones with a dot) -> field, where the key is not the field's own name."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


IGNORED: Mapping[str, frozenset[str]] = {
    "training_config": _names(
        """epochs wrap_with_ddp overlap_grad_reduce bucket_size check_for_nan_in_grad
        accumulate_allreduce_grads_in_fp32 crc_check enable_compile_cache compile_cache_path
        prefix best_metric_comparison eval_metric"""
    ),
    "parallel_config": _names(
        """recv_dtype zero_level standalone_embedding_stage overlap_grad_reduce
        gradient_accumulation_fusion overlap_p2p_comm use_cpu_initialization deterministic_mode
        num_layer_list recompute_config"""
    ),
    MODEL: _names(
        """parallel_position_embedding head_skip_weight_param_allocation use_flash_attention
        fa_config enable_flash_sp mask_func_type embedding_init_dtype softmax_compute_dtype
        bias_init flatten_labels_and_input_mask recompute_method
        recompute_num_layers recompute_granularity bias_dropout_fusion transformer_impl
        clone_scatter_output_in_embedding attention_softmax_in_fp32 masked_softmax_fusion
        distribute_saved_activations model_type select_comm_recompute select_recompute"""
    ),
    "moe_config": _names(
        """moe_grouped_gemm moe_token_dispatcher_type
        use_self_defined_alltoall moe_pad_expert_input_to_capacity moe_token_drop_policy"""
    ),
    "dataset_config": _names("train_samples data_layout drop_remainder pad_token_id"),
    "optimizer_config": _names(
        """weight_decay_kwargs zero_config use_checkpoint_opt_param_scheduler
        override_opt_param_scheduler"""
    ),
}
"""Keys of MindFormers that change no number here; each is warned of where it is set."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key as it was met.

    Args:
        value: as read; called: section and key, for sentences.
        beside: all keys of its section; warn: gets what the user should know.
    """

    value: object
    called: str
    beside: Mapping[str, object]
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


def _activation(key: Key) -> Values:
    """MindFormers says it in two keys: the function, and whether a gate is multiplied in."""
    gated = bool(key.beside.get("gated_linear_unit"))
    function = key.beside.get("hidden_act") or "gelu"
    if function == "swiglu" or (function == "silu" and gated):
        return {"model.activation": "swiglu"}
    if gated or function == "silu":
        raise UsageProblem(
            f"{key.called}: hidden_act {function} {'with' if gated else 'without'} a gate"
            " (gated_linear_unit) is not among relkit's activations",
            next_step="Write hidden_act: swiglu, or hidden_act: gelu and no gated_linear_unit.",
        )
    return {"model.activation": function}


def _biases(key: Key) -> Values:
    """One switch here, three keys there."""
    said = {name: key.beside[name] for name in _BIASES if name in key.beside}
    if len(set(map(str, said.values()))) > 1:
        raise UsageProblem(
            f"{key.called}: {', '.join(said)} differ; relkit gives all linear layers a bias,"
            " or none",
            next_step="Set them alike, or write add_bias_linear in their place.",
        )
    return {"model.add_bias_linear": key.value}


def _experts(key: Key) -> Values:
    # MindFormers writes one expert where it means a dense model.
    return {"model.num_moe_experts": None if key.value == 1 else key.value}


def _precision(dtype: str) -> Translator:
    return lambda key: {"model.compute_dtype": dtype} if key.value else {}


def _normalization(key: Key) -> Values:
    return {"model.normalization": "RMSNorm" if key.value == "FusedRMSNorm" else key.value}


def _optimizer_type(key: Key) -> Values:
    return {"optimizer.optimizer_type": optimizer_type(key.value, key.warn)}


def _use_cosine(key: Key) -> Values:
    return {"optimizer.lr_decay_style": "cosine" if key.value else "linear"}


def _preset(key: Key) -> Values:
    return preset(key.value) if key.value else {}


_BIASES = ("qkv_has_bias", "out_proj_has_bias", "mlp_has_bias")
_ABSENT = (
    "apply_query_key_layer_scaling",
    "apply_residual_connection_post_norm",
    "fp32_residual_connection",
    "retro_add_retriever",
    "use_query_layer",
    "use_retriever",
    "use_visual_encoder",
)

TRANSLATED: Mapping[tuple[str, str], Translator] = {
    ("training_config", "ckpt_format"): only("torch", "ckpt"),
    # MindFormers divides and multiplies by it; relkit does both by 2.
    ("training_config", "loss_scale_factor"): only(2),
    ("training_config", "calculate_per_token_loss"): only(False),
    ("training_config", "fp16"): _precision("float16"),
    ("training_config", "bf16"): _precision("bfloat16"),
    ("parallel_config", "context_parallel_size"): only(1),
    (MODEL, "preset"): _preset,
    (MODEL, "encoder_attn_mask_type"): only("causal"),
    (MODEL, "rotary_config.rotary_percent"): only(1.0),
    (MODEL, "rotary_config.seq_len_interpolation_factor"): only(None, False),
    (MODEL, "hidden_act"): _activation,
    (MODEL, "gated_linear_unit"): _activation,
    (MODEL, "attention_type"): only("self_attn"),
    (MODEL, "init_method"): only("normal"),
    (MODEL, "use_final_norm"): only(True),
    (MODEL, "residual_connection_dtype"): only("float32"),
    (MODEL, "fp8_format"): only(None),
    (MODEL, "fp16_lm_cross_entropy"): only(False),
    **{(MODEL, name): only(False) for name in _ABSENT},
    **{(MODEL, name): _biases for name in _BIASES},
    (MODEL, "num_experts"): _experts,
    (MODEL, "moe_config.num_experts"): _experts,
    (MODEL, "normalization"): _normalization,
    ("moe_config", "num_experts"): _experts,
    ("moe_config", "moe_expert_capacity_factor"): only(None),
    ("moe_config", "moe_router_load_balancing_type"): only("aux_loss"),
    ("moe_config", "moe_z_loss_coeff"): only(None, 0),
    ("moe_config", "moe_input_jitter_eps"): only(None, 0),
    ("optimizer_config", "optimizer_type"): _optimizer_type,
    ("optimizer_config", "end_weight_decay"): only(0),
    ("optimizer_config", "weight_decay_incr_style"): only("constant"),
    ("optimizer_config", "lr_warmup_init"): only(0),
    ("optimizer_config", "learning_rate_scheduler_kwargs.use_cosine"): _use_cosine,
}
"""Keys whose value relkit gives in another form."""
