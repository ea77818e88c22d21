"""Small models of each kind, with weights that are all different."""

from __future__ import annotations

from dataclasses import replace

import torch

from relkit.checkpoint.convert.folders import Whole
from relkit.checkpoint.convert.shape import Attention, Shape
from relkit.trainer.config.config import ModelConfig
from relkit.trainer.core.model import GPT
from relkit.trainer.megatron import names

_GPT2 = ModelConfig(
    num_layers=4, hidden_size=32, num_attention_heads=4, vocab_size=96,
    make_vocab_size_divisible_by=32, seq_length=24, hidden_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip
_LLAMA = replace(
    _GPT2, group_query_attention=True, num_query_groups=2, position_embedding_type="rope",
    normalization="RMSNorm", activation="swiglu", add_bias_linear=False,
    untie_embeddings_and_output_weights=True, ffn_hidden_size=48, rotary_base=500000,
)  # fmt: skip
CONFIGS = {
    "gpt2": _GPT2,
    "gpt2-tanh": replace(_GPT2, gelu_tanh=True),
    "llama": _LLAMA,
    "llama-tied": replace(_LLAMA, untie_embeddings_and_output_weights=False),
    "mixtral": replace(_LLAMA, num_moe_experts=4, moe_router_topk=2),
}


def model(config: ModelConfig) -> GPT:
    """With weights that are all different: a swapped pair would show."""
    torch.manual_seed(7)
    made = GPT(config)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            centre = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
            parameter.normal_(centre, 0.1)
    return made.eval()


def shape_of(config: ModelConfig) -> Shape:
    """The same by the names of what is converted."""
    return Shape(
        layers=config.num_layers, hidden=config.hidden_size, ffn=config.ffn_size,
        positions=config.positions,
        attention=Attention(
            config.num_attention_heads, config.query_groups, config.head_size,
            config.rotary_base if config.position_embedding_type == "rope" else None,
        ),
        rms=config.normalization == "RMSNorm", eps=config.layernorm_epsilon,
        activation="gelu_tanh" if config.gelu_tanh else config.activation,
        bias=config.add_bias_linear,
        tied=not config.untie_embeddings_and_output_weights,
        experts=config.num_moe_experts or 0, top=config.moe_router_topk,
        vocabulary=config.vocab_size,
    )  # fmt: skip


def whole(name: str) -> tuple[GPT, Whole]:
    """A model of CONFIGS, and the same as what is converted."""
    config = CONFIGS[name]
    made = model(config)
    return made, Whole(shape_of(config), names.parameters(made))
