"""Copies the weights of transformers' models into ours: GPT-2, Llama and Mixtral."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from relkit.trainer.config.config import ModelConfig
from relkit.trainer.core.model import GPT


def grouped_qkv(parts: Iterable[Tensor], groups: int) -> Tensor:
    """Rows of one matrix (or bias), group by group: its queries, its key, its value."""
    pieces = [part.reshape(groups, -1, *part.shape[1:]) for part in parts]
    return torch.cat(pieces, dim=1).flatten(0, 1)


def from_gpt2(source: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """A GPT2LMHeadModel's state; its matrices are kept transposed there."""
    result = {
        "embedding.word_embeddings.weight": source["transformer.wte.weight"],
        "embedding.position_embeddings.weight": source["transformer.wpe.weight"],
    }
    for kind in ("weight", "bias"):
        result[f"decoder.final_layernorm.{kind}"] = source[f"transformer.ln_f.{kind}"]
        for layer in range(config.num_layers):
            theirs, ours = f"transformer.h.{layer}.", f"decoder.layers.{layer}."
            result[f"{ours}input_layernorm.{kind}"] = source[f"{theirs}ln_1.{kind}"]
            result[f"{ours}pre_mlp_layernorm.{kind}"] = source[f"{theirs}ln_2.{kind}"]
            qkv = source[f"{theirs}attn.c_attn.{kind}"].chunk(3, dim=-1)
            result[f"{ours}self_attention.linear_qkv.{kind}"] = grouped_qkv(
                (part.t() for part in qkv), config.query_groups
            )
            for our_name, their_name in (
                ("self_attention.linear_proj", "attn.c_proj"),
                ("mlp.linear_fc1", "mlp.c_fc"),
                ("mlp.linear_fc2", "mlp.c_proj"),
            ):
                result[f"{ours}{our_name}.{kind}"] = source[f"{theirs}{their_name}.{kind}"].t()
    return result


def from_llama(source: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """A LlamaForCausalLM's or a MixtralForCausalLM's state."""
    result = {
        "embedding.word_embeddings.weight": source["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": source["model.norm.weight"],
        "output_layer.weight": source["lm_head.weight"],
    }
    for layer in range(config.num_layers):
        theirs, ours = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        result[f"{ours}input_layernorm.weight"] = source[f"{theirs}input_layernorm.weight"]
        result[f"{ours}pre_mlp_layernorm.weight"] = source[
            f"{theirs}post_attention_layernorm.weight"
        ]
        qkv = (source[f"{theirs}self_attn.{part}_proj.weight"] for part in "qkv")
        result[f"{ours}self_attention.linear_qkv.weight"] = grouped_qkv(qkv, config.query_groups)
        result[f"{ours}self_attention.linear_proj.weight"] = source[
            f"{theirs}self_attn.o_proj.weight"
        ]
        if config.num_moe_experts is None:
            gate, up = (source[f"{theirs}mlp.{part}_proj.weight"] for part in ("gate", "up"))
            result[f"{ours}mlp.linear_fc1.weight"] = torch.cat((gate, up))
            result[f"{ours}mlp.linear_fc2.weight"] = source[f"{theirs}mlp.down_proj.weight"]
            continue
        result[f"{ours}mlp.router.weight"] = source[f"{theirs}mlp.gate.weight"]
        for expert in range(config.num_moe_experts):
            name = f"{ours}mlp.experts.{expert}."
            fused = source[f"{theirs}mlp.experts.gate_up_proj"]
            result[f"{name}linear_fc1.weight"] = fused[expert]
            result[f"{name}linear_fc2.weight"] = source[f"{theirs}mlp.experts.down_proj"][expert]
    return result


def load(model: GPT, weights: Mapping[str, Tensor]) -> None:
    """Every parameter by its name; none may be missing or left over."""
    assert set(weights) == {name for name, _ in model.named_parameters()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            assert parameter.shape == weights[name].shape, name
            parameter.copy_(weights[name])
