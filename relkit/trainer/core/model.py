"""A GPT: rotary or absolute positions, LayerNorm or RMSNorm, SwiGLU or GELU, grouped queries.

It knows nothing of parallelism. Parameters are named as in megatron-core, and every width is read
from the tensors that arrive, so a module here may be replaced by one that holds a part of it.

Shapes: B samples, S tokens of a sample, H hidden_size, V rows of the embedding, D head size,
G query groups held here, R query heads of a group.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from relkit.trainer.config.config import ModelConfig
from relkit.trainer.core.moe import MoELayer
from relkit.trainer.core.parameters import drawn
from relkit.trainer.kernels.gemm import Linear, linear

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Not torch 2.4; of a function in C++, what it says of itself is all that can be asked.
_KNOWS_GROUPS = "enable_gqa" in str(functional.scaled_dot_product_attention.__doc__)


def make_norm(config: ModelConfig) -> nn.Module:
    """The normalization that the configuration names, over the hidden dimension."""
    kind = nn.LayerNorm if config.normalization == "LayerNorm" else nn.RMSNorm
    return kind(config.hidden_size, eps=config.layernorm_epsilon)


@lru_cache(maxsize=16)
def rotary_angles(
    length: int, head_size: int, base: float, interleaved: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines, [length, 1, 1, head_size] fp32, of the positions from 0.

    A sine's sign is that of the partner it is multiplied with, so that turning a vector is
    `x * cosine + partner(x) * sine`.
    """
    with torch.inference_mode(False), torch.no_grad():
        exponents = torch.arange(0, head_size, 2, dtype=torch.float32, device=device) / head_size
        positions = torch.arange(length, dtype=torch.float32, device=device)
        angles = torch.outer(positions, 1.0 / base**exponents)
        cosine, sine = angles.cos(), angles.sin()
        if interleaved:
            cosine = cosine.repeat_interleave(2, dim=-1)
            sine = torch.stack((-sine, sine), dim=-1).flatten(-2)
        else:
            cosine, sine = torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1)
        return cosine[:, None, None, :], sine[:, None, None, :]


def rotate(x: Tensor, base: float, interleaved: bool) -> Tensor:
    """Turns vectors [B, S, ..., ..., D] by the angles of their positions in S."""
    cosine, sine = rotary_angles(x.shape[1], x.shape[-1], base, interleaved, x.device)
    if interleaved:
        partner = x.view(*x.shape[:-1], -1, 2).flip(-1).flatten(-2)
    else:
        first, second = x.chunk(2, dim=-1)
        partner = torch.cat((second, first), dim=-1)
    return (x * cosine + partner * sine).to(x.dtype)


class CoreAttention(nn.Module):
    """Causal attention over heads [B, heads, S, D].

    A module of its own, so that its dropout can be given a random stream of its own.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dropout = config.attention_dropout

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attended values, [B, heads, S, D]."""
        heads = query.shape[1] // key.shape[1]
        grouped: dict[str, Any] = {"enable_gqa": True} if heads > 1 and _KNOWS_GROUPS else {}
        if heads > 1 and not grouped:
            key, value = (each.repeat_interleave(heads, dim=1) for each in (key, value))
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
            **grouped,
        )


class SelfAttention(nn.Module):
    """Grouped-query attention; the rows of linear_qkv are, group by group, R queries, key, value.

    A slice of whole groups of those rows is a working layer: how many groups there are is read
    from the width of linear_qkv's output, and positions are counted along its length.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.queries_per_group = config.num_attention_heads // config.query_groups
        self.rotary = config.position_embedding_type == "rope"
        self.rotary_base = config.rotary_base
        self.rotary_interleaved = config.rotary_interleaved
        rows = config.query_groups * (self.queries_per_group + 2) * config.head_size
        self.core_attention = CoreAttention(config)
        # The order of a distributed optimizer's checkpoint, and megatron-core makes this one first.
        self.linear_proj = Linear(
            config.hidden_size, config.hidden_size, bias=config.add_bias_linear
        )
        self.linear_qkv = Linear(config.hidden_size, rows, bias=config.add_bias_linear)

    def forward(self, hidden: Tensor) -> Tensor:
        """What the layer adds to its input, [B, S, H]."""
        per_group = self.queries_per_group
        mixed = self.linear_qkv(hidden).unflatten(-1, (-1, per_group + 2, self.head_size))
        if self.rotary:
            # queries and keys are neighbours in a group: one turn serves both
            turned = rotate(
                mixed[..., : per_group + 1, :], self.rotary_base, self.rotary_interleaved
            )
            query, key = turned[..., :per_group, :], turned[..., per_group, :]
        else:
            query, key = mixed[..., :per_group, :], mixed[..., per_group, :]
        attended = self.core_attention(
            query.flatten(2, 3).transpose(1, 2),
            key.transpose(1, 2),
            mixed[..., per_group + 1, :].transpose(1, 2),
        )
        output: Tensor = self.linear_proj(attended.transpose(1, 2).flatten(2))
        return output


class MLP(nn.Module):
    """The feed-forward part; with SwiGLU linear_fc1 is the gate above the up projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gated = config.activation == "swiglu"
        self.approximate = "tanh" if config.gelu_tanh else "none"
        rows = config.ffn_size * (2 if self.gated else 1)
        self.linear_fc1 = Linear(config.hidden_size, rows, bias=config.add_bias_linear)
        self.linear_fc2 = Linear(config.ffn_size, config.hidden_size, bias=config.add_bias_linear)

    def forward(self, hidden: Tensor) -> Tensor:
        """What the layer adds to its input, of the same shape."""
        inner = self.linear_fc1(hidden)
        if self.gated:
            gate, up = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * up
        else:
            inner = functional.gelu(inner, approximate=self.approximate)
        output: Tensor = self.linear_fc2(inner)
        return output


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = make_norm(config)
        self.self_attention = SelfAttention(config)
        self.attention_dropout = nn.Dropout(config.hidden_dropout)
        self.pre_mlp_layernorm = make_norm(config)
        self.mlp = MLP(config) if config.num_moe_experts is None else MoELayer(config, MLP)
        self.mlp_dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """The residual stream after this layer, [B, S, H]."""
        attended: Tensor = self.self_attention(self.input_layernorm(hidden))
        hidden = self.attention_dropout(attended) + hidden
        output: Tensor = self.mlp_dropout(self.mlp(self.pre_mlp_layernorm(hidden))) + hidden
        return output


def _embedding(rows: int, size: int) -> nn.Embedding:
    made: nn.Embedding = nn.Embedding.from_pretrained(drawn(rows, size), freeze=False)  # type: ignore[no-untyped-call]
    return made


class Embedding(nn.Module):
    """Words and, where positions are absolute, their places.

    `spread` is what a sequence-parallel model replaces to keep its part of S before the dropout.
    """

    def __init__(self, config: ModelConfig, rows: int) -> None:
        super().__init__()
        self.word_embeddings = _embedding(rows, config.hidden_size)
        self.position_embeddings: nn.Embedding | None = None
        if config.position_embedding_type == "absolute":
            self.position_embeddings = _embedding(config.positions, config.hidden_size)
        self.spread: nn.Module = nn.Identity()
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """The residual stream of token numbers [B, S]: [B, S, H]."""
        hidden: Tensor = self.word_embeddings(tokens)
        if self.position_embeddings is not None:
            hidden = hidden + self.position_embeddings.weight[: tokens.shape[1]]
        output: Tensor = self.dropout(self.spread(hidden))
        return output


class Decoder(nn.Module):
    """The layers, each under its number in the whole model, and the norm after the last."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(
            {str(number): TransformerLayer(config) for number in range(config.num_layers)}
        )
        self.final_layernorm: nn.Module | None = make_norm(config)

    def forward(self, hidden: Tensor) -> Tensor:
        """The residual stream after the layers held here, [B, S, H]."""
        for layer in self.layers.values():
            hidden = layer(hidden)
        return hidden if self.final_layernorm is None else self.final_layernorm(hidden)


class OutputLayer(nn.Module):
    """The head; `weight` [V, H] is None where it is tied to an embedding that is held here."""

    def __init__(self, config: ModelConfig, rows: int) -> None:
        super().__init__()
        self.weight: nn.Parameter | None = None
        if config.untie_embeddings_and_output_weights:
            self.weight = nn.Parameter(drawn(rows, config.hidden_size, std=config.init_method_std))

    def forward(self, hidden: Tensor, tied_weight: Tensor | None) -> Tensor:
        """Logits [B, S, V]; `tied_weight` is the embedding's, and used where there is no own."""
        weight = tied_weight if self.weight is None else self.weight
        assert weight is not None, "a tied head without an embedding needs a copy of its weight"
        return linear(hidden, weight)


class GPT(nn.Module):
    """The model, or one stage of it once others have been taken out.

    A pipeline stage sets `embedding`, `decoder.final_layernorm` and `output_layer` to None where
    another stage has them, and deletes the others' layers from `decoder.layers`; a last stage
    without the embedding gives a tied `output_layer` a `weight` of its own.

    Args:
        config: the shape of the whole model.
        vocab_rows: rows of the embedding and the head; None: the padded vocabulary of one rank.
    """

    def __init__(self, config: ModelConfig, *, vocab_rows: int | None = None) -> None:
        super().__init__()
        self.config = config
        rows = config.padded_vocab_size(1) if vocab_rows is None else vocab_rows
        self.embedding: Embedding | None = Embedding(config, rows)
        self.decoder = Decoder(config)
        self.output_layer: OutputLayer | None = OutputLayer(config, rows)
        self.compute_dtype = DTYPES[config.compute_dtype]

    def forward(self, x: Tensor) -> Tensor:
        """One pass through what is held here.

        Args:
            x: token numbers [B, S] int64 where the embedding is held, else hidden [B, S, H].

        Returns:
            Logits [B, S, V] where the head is held, else hidden [B, S, H] in fp32.
        """
        mixed = self.compute_dtype != torch.float32
        with torch.autocast(x.device.type, self.compute_dtype) if mixed else nullcontext():
            tied_weight = None
            if self.embedding is not None:
                tied_weight = self.embedding.word_embeddings.weight
                x = self.embedding(x)
            x = self.decoder(x)
            return x if self.output_layer is None else self.output_layer(x, tied_weight)
